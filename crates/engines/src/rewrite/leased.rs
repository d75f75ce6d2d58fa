//! A leased file, and the changes that are made to it.
//!
//! Each change lies between two looks. The one before it finds that others are kept out, and that nobody has
//! changed the file since the last change of ours. The one after it reads the time of modification, and only then
//! looks at the lease: while that is held, a time that the change may have set is ours, and is noted as such. If it is
//! lost, the time may be another program's, which a note must not call ours; then it says that others came.
//!
//! What breaks no lease still shows. `truncate(2)` through an overlay changes the size, or leaves a hole in a range
//! that has space, or, on ext4 and XFS, space that is not allocated yet where something was written again.
//! One within the last block of a range frees no space and shows in that block, once it is written: so its end is
//! written first. Until then a truncation shows in the time of modification. A time that is set by the file's path
//! (`utimensat(2)`) changes that alone, too, and is kept: unless it may be the present time, which a truncation
//! sets as well. Before anything is punched the file is left alone whatever has changed, and be it the time of change
//! (ctime). Notes say what others may have done, so that `recover` replaces neither their time nor what they have left
//! of the file.
//!
//! What falls into the call of a punch or an allocation itself, for which the kernel lets others wait, does not show:
//! time and space are then the same as those of the call.

use super::note::{Doubt, Noted, Noting};
use super::place::set_mtime;
use super::privileges::Lost;
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, ExtentKind};
use fragmend_scan::fiemap;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::lease::Lease;
use rustix::fs::Stat;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A time of modification: seconds and nanoseconds.
pub(crate) type Time = (i64, u32);

/// A file that is leased to be written to.
#[derive(Clone, Copy)]
pub(crate) struct Leased<'a> {
    /// Keeps other programs out.
    pub lease: &'a Lease<'a>,
    /// The file, and the notes of the changes to it.
    pub noting: Noting<'a>,
    /// The capabilities of the file that could not be kept.
    pub lost: &'a Lost,
    /// The size of the file, which no change here alters; `None` where the user has decided that it may.
    pub size: Option<u64>,
    /// What is known of it.
    pub state: &'a State,
    /// Whether the file system certainly writes to the space that was allocated, so that space which is not
    /// allocated yet is that of others.
    pub in_place: bool,
}

/// How far the range of a leased file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is what it was.
    Whole,
    /// Some of it is a hole, or may be.
    Empty,
    /// It has space everywhere.
    Allocated,
    /// Its end is written as well, so that a truncation within its last block shows there.
    Ended,
}

/// What is known of a leased file.
pub(crate) struct State {
    /// The clock of file times when it was leased.
    began: Time,
    /// The times after the last change that is known to be ours.
    known: Cell<Seen>,
    /// The time of modification that is to be set after the last change; `None` if it is that change's own.
    wanted: Cell<Option<Time>>,
    /// Why it could not be set.
    failed: Cell<Option<io::Error>>,
    /// The range that is rewritten.
    range: ByteRange,
    /// How far it is.
    phase: Cell<Phase>,
    /// What others may have done to the file.
    doubt: Cell<Doubt>,
    /// Whether others may have come to it.
    others: Cell<bool>,
    /// Whether they were seen to have changed more than its attributes.
    changed: Cell<bool>,
    /// When its space was last looked at, and how long that took.
    looked: Cell<Option<(Instant, Duration)>>,
}

impl State {
    /// Of a range that is in this phase, in a file that was last seen with these times, and is to have the time of
    /// modification `wanted`, or that of its last change.
    pub fn of((range, phase): (ByteRange, Phase), known: Seen, wanted: Option<Time>) -> Self {
        Self {
            began: clock(ClockId::RealtimeCoarse),
            known: Cell::new(known),
            wanted: Cell::new(wanted),
            failed: Cell::new(None),
            range,
            phase: Cell::new(phase),
            doubt: Cell::new(Doubt::Nothing),
            others: Cell::new(false),
            changed: Cell::new(false),
            looked: Cell::new(None),
        }
    }

    /// How far the range is.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// The range is so far from now on.
    pub fn is_in(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Others have set this time, which is kept.
    fn keep(&self, theirs: Time, doubt: Doubt) {
        self.wanted.set(Some(theirs));
        self.add(doubt);
    }

    /// Others may have done this, too.
    pub fn add(&self, doubt: Doubt) {
        self.doubt.set(self.doubt.get().max(doubt));
    }

    /// What others may have done to the file.
    pub fn doubt(&self) -> Doubt {
        self.doubt.get()
    }

    /// Why the time could not be set, since the last call.
    pub fn failure(&self) -> Option<io::Error> {
        self.failed.take()
    }

    /// A sentence for the user about a time that could not be set since the last call.
    pub fn message(&self) -> Option<String> {
        self.failure().map(|e| another_time(&e))
    }
}

/// Said of a file whose time of modification may be the rewrite's or another program's.
pub(super) const KEEPS_ITS_TIME: &str =
    "its time of modification stays as it is: it may be another program's";

/// Said of a file whose time of modification may have been set after others had changed it.
const HIDES_A_CHANGE: &str =
    "its time of modification is that of before, although others may have changed it since";

/// Said of a file whose time of modification could not be set.
fn another_time(error: &io::Error) -> String {
    format!("its time of modification is another now: {error}")
}

/// A look at the space that takes longer is not repeated at once.
const LONG_LOOK: Duration = Duration::from_millis(1);

/// File systems store times in units of up to two seconds.
const COARSEST: i64 = 2;

/// Whether a time may be that of a change since `began`; any may be once the clock was set back.
fn is_since(began: Time, time: Time) -> bool {
    let now = clock(ClockId::Realtime);
    now < began || ((began.0.saturating_sub(COARSEST), began.1)..=now).contains(&time)
}

fn clock(id: ClockId) -> Time {
    let now = clock_gettime(id);
    (now.tv_sec, now.tv_nsec as u32)
}

/// The times of modification and of change (ctime) of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub modified: Time,
    pub changed: Time,
}

impl Seen {
    /// Those that a file has now.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn now(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    fn of(stat: &Stat) -> Self {
        Self {
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }
}

/// Others may have come to the file: what is in it now is theirs.
#[derive(Debug)]
struct Others(String);

impl std::fmt::Display for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Others {}

/// Whether an error says that others may have come to the file. Then nothing is tried again.
pub(crate) fn is_others(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Others>())
}

impl Leased<'_> {
    /// Makes a change between two looks and two notes, and sets capabilities again that it has removed from the
    /// file. `before` is the point right before it, at which a test may stop the process.
    ///
    /// # Errors
    /// Others may have come to the file ([`is_others`]), before the change, or during it; or the file cannot be
    /// looked at.
    pub fn change<T>(&self, before: Point, change: impl FnOnce() -> T) -> io::Result<T> {
        reached(Point::Looking);
        // If a note cannot be written, the change may later count as another program's.
        let _ = self.note(Noted::AtIt);
        let made = || -> io::Result<(T, Time)> {
            // Nothing that takes time comes between this look and the change: what others set there is lost.
            self.alone()?;
            let began = clock(ClockId::RealtimeCoarse);
            reached(before);
            Ok((change(), began))
        };
        let (done, began) = self.lost.keeping(self.noting.file, made)?;
        reached(Point::Changed);
        let seen = self.seen()?;
        // Looked at after that: the time is one of when others were kept out.
        self.are_kept_out()?;
        self.has_its_space()?;
        let State { known, wanted, .. } = self.state;
        // The one that a program has set while it waited for the change.
        let is_known = [Some(known.get().modified), wanted.get()].contains(&Some(seen.modified));
        if !is_known && !is_since(began, seen.modified) {
            self.state.keep(seen.modified, Doubt::Time);
        }
        known.set(seen);
        let _ = self.note(Noted::Settled);
        Ok(done)
    }

    /// Makes a note of what is known of the file. Once others may have come to it, each note says that.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&self, what: Noted) -> io::Result<()> {
        let what = if self.state.others.get() { Noted::Others } else { what };
        self.noting.note(what, self.state.doubt(), self.state.known.get().modified)
    }

    /// Sets the time of modification to what it is to be. That it cannot be set is no reason to lose the bytes:
    /// [`State`] has the reason.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn set_time(&self) -> io::Result<()> {
        let State { wanted, failed, .. } = self.state;
        if wanted.get().is_none() {
            return Ok(());
        }
        let set = || wanted.get().map_or(Ok(()), |time| set_mtime(self.noting.file, time));
        if let Err(e) = self.change(Point::Changing, set)? {
            failed.set(Some(e));
        }
        Ok(())
    }

    /// Sets the time of modification of a file that was not touched and is left alone, if it is that of a change
    /// here; others may have changed its attributes meanwhile. It is not if they were seen to have changed more, and
    /// be it in the same tick of a coarse clock: `ends_as_before` is whether the last block of the range is what it
    /// was. Returns what the user is told of its time.
    pub fn set_time_back(&self, ends_as_before: impl FnOnce() -> bool) -> Option<String> {
        let State { wanted, known, .. } = self.state;
        let wanted = wanted.get()?;
        let set = || {
            self.state.looked.set(None);
            let looks_whole = self.seen().is_ok() && self.has_its_space().is_ok();
            let is_whole = looks_whole && !self.state.changed.get() && ends_as_before();
            let now = Seen::now(self.noting.file)?.modified;
            // Looked at after that: the time is one of when others were kept out.
            let is_ours = is_whole && self.lease.is_held();
            if now == wanted {
                Ok((!is_ours).then(|| HIDES_A_CHANGE.to_owned()))
            } else if now == known.get().modified && is_ours {
                set_mtime(self.noting.file, wanted).map(|()| None)
            } else {
                Ok(Some(KEEPS_ITS_TIME.to_owned()))
            }
        };
        set().unwrap_or_else(|e| Some(another_time(&e)))
    }

    /// Checks that other programs are kept out, and that none has changed the file.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn alone(&self) -> io::Result<()> {
        self.are_kept_out()?;
        self.has_its_space()?;
        let seen = self.seen()?;
        let State { began, known, phase, looked, .. } = self.state;
        let is_other = if phase.get() == Phase::Whole {
            seen != known.get()
        } else {
            seen.modified != known.get().modified
        };
        if !is_other {
            return Ok(());
        }
        // A truncation sets the time: the space is looked at, however long that takes.
        looked.set(None);
        self.has_its_space()?;
        let may_be_truncated = seen.modified == seen.changed || is_since(*began, seen.modified);
        match phase.get() {
            Phase::Whole if seen.modified == known.get().modified => {
                let what = "others have changed its attributes, its names, or its content";
                self.state.add(Doubt::Content);
                return Err(self.ended(what));
            }
            Phase::Whole => return Err(self.changed("others have changed it")),
            Phase::Empty | Phase::Allocated if may_be_truncated => {
                return Err(self.changed("others have changed it"));
            }
            _ => {}
        }
        known.set(seen);
        let doubt = if may_be_truncated { Doubt::Content } else { Doubt::Time };
        self.state.keep(seen.modified, doubt);
        // A kill may come before the next note.
        let _ = self.note(Noted::AtIt);
        Ok(())
    }

    /// Checks that other programs are kept out.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn are_kept_out(&self) -> io::Result<()> {
        if self.lease.is_held() {
            return Ok(());
        }
        Err(self.ended("it took too long, and others may have the file open"))
    }

    /// The times of the file, if it has its size.
    fn seen(&self) -> io::Result<Seen> {
        let stat = rustix::fs::fstat(self.noting.file)?;
        let size = stat.st_size as u64;
        if self.size.is_some_and(|ours| ours != size) {
            return Err(self.changed(&format!("others have made it {size} bytes long")));
        }
        Ok(Seen::of(&stat))
    }

    /// Checks that all of the range has its space, unless it is a hole. Nothing is written back for that, which would
    /// allocate what others have freed.
    fn has_its_space(&self) -> io::Result<()> {
        let range = self.state.range;
        if self.state.phase() == Phase::Empty {
            return Ok(());
        }
        let begun = Instant::now();
        // Of many extents not each time.
        let is_recent = |(at, took): (Instant, Duration)| took > LONG_LOOK && at + took > begun;
        if self.state.looked.get().is_some_and(is_recent) {
            return Ok(());
        }
        let file = self.noting.file;
        let layout = fiemap::layout_within(&mut Fiemap::default(), file, range, false)?;
        self.state.looked.set(Some((Instant::now(), begun.elapsed())));
        let is_ours = |kind| !self.in_place || kind != ExtentKind::Delayed;
        let placed = layout.within(range).filter(|e| is_ours(e.kind));
        if placed.map(|e| e.length).sum::<u64>() == range.len() {
            return Ok(());
        }
        Err(self.changed("others have truncated it"))
    }

    /// The error that others have changed the file, or may have truncated it, which is noted as well.
    pub fn changed(&self, what: &str) -> io::Error {
        self.state.changed.set(true);
        self.state.add(Doubt::Content);
        self.ended(what)
    }

    /// The error that others may have come, which is noted as well.
    fn ended(&self, what: &str) -> io::Error {
        self.state.others.set(true);
        let _ = self.note(Noted::Others);
        let _ = rustix::fs::fsync(self.noting.record);
        io::Error::other(Others(what.to_owned()))
    }
}
