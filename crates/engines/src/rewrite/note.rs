//! How far a rewrite came, noted beside its record. From the notes `recover` distinguishes a hole that a rewrite left
//! from one that was punched afterwards.
//!
//! While the file is leased changes to it are the rewrite's own, but for what breaks no lease (`leased.rs`). So before
//! each change the record is given a note that says "at it", and after each one another that has the file's time of
//! modification at that moment, read while others were kept out. Where they may not have been, the note says that
//! others came: then no other time counts as the rewrite's, nor the time of before, which the rewrite may have set over
//! theirs. Where others have changed the file, or may have truncated it, it says that: then no time does. A program
//! that changes the file's data later gives it another time of modification, which no note has. Notes have a block of
//! their own in the record's file and are written in place, so that they need no new space and are within one sector;
//! the record's other blocks are never written to again.
//!
//! A note is not made durable for its own sake, so it counts exactly only in the boot and the mounting in which
//! it was made. After a power cut the note on the disk may be older than the file. Then a time of modification
//! counts as the rewrite's if it is within [`WINDOW_SECONDS`] of the note, and before this boot; of a note of `recover`,
//! within [`RECOVERY_SECONDS`]. Where this
//! does not decide, the change counts as another program's: the record stays, and that is reported. Two changes
//! are not noticed: one that puts the time of modification back, and one within a tick of the file system's
//! clock (a second on an ext4 with inodes of 128 bytes).

use super::leased::Time;
use super::place::mtime;
use super::record::{Record, data_checksum};
use crate::bytes::{read_at, write_at};
use fragmend_sys::session;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A change that a kill interrupted is over after at most this many seconds.
const SLACK_SECONDS: i64 = 10;

/// A rewrite is over at most this many seconds after its record was made.
const WINDOW_SECONDS: i64 = 60;
/// What `recover` writes is written at most this many seconds after its first note, which is durable by then.
const RECOVERY_SECONDS: i64 = 10;

/// The time of modification of a record of version 1 once others may have come to its file.
const OTHERS_CAME: Time = (0, 0);

/// No change is being made.
const SETTLED: u32 = 0;
/// A change is being made.
const AT_IT: u32 = 1;
/// Others may have come to the file after the last change that is known to be the rewrite's.
const OTHERS: u32 = 2;
/// Others have changed the file, or may have truncated it.
const CHANGED: u32 = 3;
/// Added to one of the first three: others may have set the file's time before the last change.
const DOUBTFUL: u32 = 4;
/// Added to any: it was made by `recover`.
const RECOVERING: u32 = 8;
/// Added besides: on a file that may be another than the record's own.
const ANOTHER: u32 = 16;

/// The beginning of the block for notes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct Note {
    boot: [u8; 16],
    /// The mounted file systems of the record and of the file.
    mounts: [U64; 2],
    modified_seconds: I64,
    modified_nanoseconds: U32,
    /// One of [`SETTLED`], [`AT_IT`], [`OTHERS`] and [`CHANGED`], and [`DOUBTFUL`], [`RECOVERING`] and [`ANOTHER`].
    state: U32,
    made_seconds: I64,
    /// CRC-32C of what comes before it.
    checksum: U32,
}

impl Note {
    /// One of [`SETTLED`], [`AT_IT`], [`OTHERS`] and [`CHANGED`].
    fn doing(&self) -> u32 {
        self.state.get() & !(DOUBTFUL | RECOVERING | ANOTHER)
    }

    fn sum(&self) -> u32 {
        let bytes = self.as_bytes();
        data_checksum(&bytes[..bytes.len() - size_of::<U32>()])
    }
}

/// Behind the note, in the same sector: after this time nothing was the rewrite's, because the record has served another
/// file since, and that may have been this one.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct Served {
    since_seconds: I64,
    /// CRC-32C of that; another number where the record has served no other file.
    checksum: U32,
}

impl Served {
    fn since(seconds: i64) -> Self {
        let since_seconds = I64::from(seconds);
        Self { since_seconds, checksum: data_checksum(since_seconds.as_bytes()).into() }
    }

    /// Behind notes of a record that has also served another file, from `began` on.
    fn again(before: Option<&Notes>, began: i64) -> Self {
        let earlier = before.and_then(|notes| notes.served.seconds());
        Self::since(earlier.map_or(began, |earlier| earlier.min(began)))
    }

    fn seconds(&self) -> Option<i64> {
        let sum = data_checksum(self.since_seconds.as_bytes());
        (sum == self.checksum.get()).then(|| self.since_seconds.get())
    }
}

/// What is in a record's block for notes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct Notes {
    last: Note,
    served: Served,
}

/// This boot, and the mounted file systems of record and file (`fragmend_sys::session::mounted_of`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    boot: [u8; 16],
    mounts: [u64; 2],
}

impl Session {
    /// The present session, for the records in this directory and the files below that one.
    ///
    /// # Errors
    /// When the kernel does not report the boot.
    pub fn of(records: impl AsFd, files: impl AsFd) -> io::Result<Self> {
        let mounts = [session::mounted_of(records)?, session::mounted_of(files)?];
        Ok(Self { boot: session::boot()?, mounts })
    }

    /// Whether a note was certainly made in this session.
    fn made(&self, note: &Note) -> bool {
        let mounts = note.mounts.map(U64::get);
        self.boot == note.boot && self.mounts == mounts && !mounts.contains(&0)
    }

    /// Whether it cannot be known if a note was made in this session: one of the two had no view of the directories
    /// by which mounted file systems are told apart.
    fn may_have_made(&self, note: &Note) -> bool {
        let mut both = self.mounts.iter().zip(note.mounts.map(U64::get));
        self.boot == note.boot
            && both.any(|(a, b)| session::is_in_sysfs(*a) != session::is_in_sysfs(b))
    }
}

/// A time of modification that a rewrite has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    /// The time.
    pub modified: Time,
    /// Whether a note has exactly this time, or it is that of before the rewrite. Else it is one near a note, or of
    /// a file system whose times are whole seconds, or others may have set one before.
    pub is_certain: bool,
}

/// Who has modified a file last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModifiedBy {
    /// The rewrite.
    Rewrite(Ours),
    /// Another program, or it may have been one.
    Others,
    /// That cannot be known now: this process or the one that made the note has no view of the directories by
    /// which mounted file systems are told apart, or another boot than the note's may not have begun yet by then.
    Unknown,
}

/// What others may have done to a file while it was leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// Nothing.
    Nothing,
    /// They have set its time of modification, or had before.
    Time,
    /// They have changed it, or may have truncated it.
    Content,
}

/// What is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// No change is being made.
    Settled,
    /// A change begins.
    AtIt,
    /// Others may have come to the file.
    Others,
}

/// Notes changes to a file beside its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noting<'a> {
    /// The record's file.
    pub record: &'a OwnedFd,
    /// Where in it the notes are; `None` for a record of version 1, which has none: the time of modification of
    /// its own file is used instead.
    at: Option<u64>,
    /// The file itself.
    pub file: &'a OwnedFd,
    /// The session in which the notes are made.
    session: Session,
    /// [`RECOVERING`] and [`ANOTHER`], or nothing.
    by: u32,
    /// Stands behind each note.
    served: Served,
    /// What stays noted of others whatever is noted: [`OTHERS`], [`CHANGED`], or nothing.
    stays: u32,
}

impl<'a> Noting<'a> {
    /// For the notes of this record, by its file and its content.
    pub fn of((own, record): (&'a OwnedFd, &Record), file: &'a OwnedFd, session: Session) -> Self {
        let served = Served::default();
        Self { record: own, at: record.note_start(), file, session, by: 0, served, stays: 0 }
    }

    /// The same for `recover`.
    #[must_use]
    pub fn of_recovery(self) -> Self {
        Self { by: RECOVERING, ..self }
    }

    /// The same for a file of which it is not certain that it is the record's own, with what was noted before, if
    /// anything: if this is killed, no change to the other file from `began` on (seconds since 1970) counts as the
    /// rewrite's, and what was noted of others still holds.
    #[must_use]
    pub fn of_another(self, before: Option<&Notes>, began: i64) -> Self {
        let state = before.map_or(SETTLED, |notes| notes.last.doing());
        let stays = if matches!(state, OTHERS | CHANGED) { state } else { 0 };
        Self { by: self.by | ANOTHER, served: Served::again(before, began), stays, ..self }
    }

    /// Makes a note, with what others may have done before, and the file's time of modification after the last
    /// change that is known to be the rewrite's.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&self, what: Noted, doubt: Doubt, modified: Time) -> io::Result<()> {
        let state = match (what, doubt) {
            (_, Doubt::Content) => CHANGED,
            (Noted::Settled, _) => SETTLED,
            (Noted::AtIt, _) => AT_IT,
            (Noted::Others, _) => OTHERS,
        };
        let state = if state == CHANGED || self.stays == 0 { state } else { self.stays };
        let Some(at) = self.at else {
            // Once others have come no time counts, whatever is noted later.
            let come = matches!(state, OTHERS | CHANGED) || mtime(self.record)? == OTHERS_CAME;
            let nanoseconds = if come { OTHERS_CAME.1.into() } else { UTIME_NOW };
            let now = Timespec { tv_sec: OTHERS_CAME.0, tv_nsec: nanoseconds };
            let times = Timestamps { last_access: now, last_modification: now };
            return Ok(rustix::fs::futimens(self.record, &times)?);
        };
        let doubtful = if doubt == Doubt::Time { DOUBTFUL } else { 0 };
        let (seconds, nanoseconds) = modified;
        let mut note = Note {
            boot: self.session.boot,
            mounts: self.session.mounts.map(Into::into),
            modified_seconds: seconds.into(),
            modified_nanoseconds: nanoseconds.into(),
            state: (state | doubtful | self.by).into(),
            made_seconds: now_seconds().into(),
            checksum: 0.into(),
        };
        note.checksum = note.sum().into();
        let notes = Notes { last: note, served: self.served };
        write_at(self.record, notes.as_bytes(), at)
    }

    /// What is noted; `None` if there is no note, as in a record of version 1, or it is damaged.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn notes(&self) -> io::Result<Option<Notes>> {
        let Some(at) = self.at else { return Ok(None) };
        let mut bytes = [0; size_of::<Notes>()];
        read_at(self.record, &mut bytes, at)?;
        let notes = Notes::read_from_bytes(&bytes).ok();
        Ok(notes.filter(|n| n.last.checksum.get() == n.last.sum()))
    }

    /// Puts back what was noted before the record served this file, of which it is not certain that it is its own. If it
    /// was, what happens to it from now on is not the rewrite's, and for the other one nothing is lost: no time counts
    /// as the rewrite's that is after `began` (seconds since 1970), when this file was served, unless it is a noted
    /// one. Whenever power fails, the notes are these or those: they are in one sector.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn put_back(&self, before: Notes, began: i64) -> io::Result<()> {
        let Some(at) = self.at else { return Ok(()) };
        let notes = Notes { served: Served::again(Some(&before), began), ..before };
        write_at(self.record, notes.as_bytes(), at)?;
        Ok(rustix::fs::fsync(self.record)?)
    }

    /// Who has modified the file, by its time of modification.
    ///
    /// # Errors
    /// When times cannot be read.
    pub fn modified_by(&self, record: &Record) -> io::Result<ModifiedBy> {
        use ModifiedBy::{Others, Rewrite, Unknown};
        let modified = mtime(self.file)?;
        let likely =
            |is: bool| if is { Rewrite(Ours { modified, is_certain: false }) } else { Others };
        let is_before = modified == record.mtime;
        let certain = Rewrite(Ours { modified, is_certain: true });
        if self.at.is_none() {
            let touched = mtime(self.record)?;
            if touched == OTHERS_CAME {
                return Ok(Others);
            }
            if is_before {
                return Ok(certain);
            }
            let latest = (touched.0.saturating_add(WINDOW_SECONDS), touched.1);
            return Ok(likely(modified <= latest));
        }
        let Some(Notes { last: note, served }) = self.notes()? else {
            return Ok(if is_before { certain } else { Others });
        };
        let noted = (note.modified_seconds.get(), note.modified_nanoseconds.get());
        let flags = note.state.get();
        let (state, is_doubtful) = (note.doing(), flags & DOUBTFUL != 0);
        let window = if flags & RECOVERING == 0 { WINDOW_SECONDS } else { RECOVERY_SECONDS };
        // The time of before may have been set over another program's.
        if state == CHANGED || (state == OTHERS && is_before) {
            return Ok(Others);
        }
        if is_before {
            return Ok(certain);
        }
        if modified == noted {
            let is_certain = !is_doubtful && modified.1 != 0;
            return Ok(Rewrite(Ours { modified, is_certain }));
        }
        let made = note.made_seconds.get();
        let is_near = |seconds: i64| {
            (made.saturating_sub(1)..=made.saturating_add(seconds)).contains(&modified.0)
        };
        let was_before = served.seconds().is_none_or(|since| modified.0 < since);
        let within = |seconds: i64| is_near(seconds) && was_before;
        // A clock that is still to be set may show a later beginning of this boot.
        let is_earlier = || modified.0 <= session::boot_began();
        Ok(match () {
            () if self.session.made(&note) => {
                // What served another file served this one, in this very mounting.
                let is_its = was_before || flags & ANOTHER != 0;
                likely(state == AT_IT && is_near(SLACK_SECONDS) && is_its)
            }
            () if state == OTHERS || !within(window) => Others,
            () if self.session.may_have_made(&note) => Unknown,
            () if self.session.boot == note.boot || is_earlier() => likely(true),
            () => Unknown,
        })
    }
}

/// Seconds since 1970.
pub(crate) fn now_seconds() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

#[cfg(test)]
mod tests {
    use super::super::record::VERSION;
    use super::*;
    use fragmend_layout::ByteRange;
    use fragmend_sys::fs_id::FsId;
    use fragmend_sys::handle::Handle;
    use fragmend_sys::session::Disk;

    fn record(version: u32, mtime: Time) -> Record {
        Record {
            version,
            disk: Disk::default(),
            fs: FsId { uuid: [0; 16], fsid: 0 },
            inode: 1,
            generation: 0,
            handle: Handle { kind: 0, bytes: Vec::new() },
            path: "file".into(),
            size: 4096,
            mtime,
            block: 4096,
            range: ByteRange { start: 0, end: 4096 },
            data_checksum: 0,
        }
    }

    fn file() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    fn set_modified(file: &OwnedFd, (seconds, nanoseconds): Time) {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(file, &times).unwrap();
    }

    /// A record of version 1 has no note, and forgets all the same no doubt.
    #[test]
    fn no_time_counts_once_others_came_whatever_is_noted_later() {
        for version in [1, VERSION] {
            for (came, doubt) in [(Noted::Others, Doubt::Nothing), (Noted::AtIt, Doubt::Content)] {
                let (file, own) = (file(), file());
                let record = record(version, mtime(&file).unwrap());
                let session = Session { boot: [1; 16], mounts: [1, 2] };
                let noting = Noting::of((&own, &record), &file, session);
                let is_ours = || matches!(noting.modified_by(&record), Ok(ModifiedBy::Rewrite(_)));
                noting.note(Noted::AtIt, Doubt::Nothing, record.mtime).unwrap();
                assert!(is_ours());
                noting.note(came, doubt, record.mtime).unwrap();
                assert!(!is_ours(), "{version} {came:?}");
                // As the next `recover` begins, with what it knows by then.
                noting.note(Noted::Settled, doubt, record.mtime).unwrap();
                assert_eq!(is_ours(), version > 1 && doubt == Doubt::Nothing, "{version} {came:?}");
            }
        }
    }

    /// `recover` serves a file that may not be the record's own, and is killed: a later change to the own file is not its.
    #[test]
    fn what_begins_on_another_file_claims_no_later_change() {
        let (file, other, own) = (file(), file(), file());
        let record = record(VERSION, (1, 1));
        let boot = session::boot().unwrap();
        let here = Noting::of((&own, &record), &file, Session { boot, mounts: [1, 2] });
        here.note(Noted::AtIt, Doubt::Nothing, (1, 1)).unwrap();
        let now = now_seconds();
        let modify = |seconds: i64| {
            set_modified(&file, (now + seconds, 7));
            here.modified_by(&record).unwrap()
        };
        assert!(matches!(modify(1), ModifiedBy::Rewrite(_)));
        let there = Noting::of((&own, &record), &other, Session { boot, mounts: [1, 3] });
        let there = there.of_recovery();
        let before = here.notes().unwrap().unwrap();
        for (before, began) in [(Some(&before), now), (Some(&before), now + 5), (None, now)] {
            there.of_another(before, began).note(Noted::AtIt, Doubt::Nothing, (1, 1)).unwrap();
            assert_eq!(modify(6), ModifiedBy::Others);
        }
        // The file that it served, in the same mounting, is gone on with.
        set_modified(&other, (now + 1, 7));
        assert!(matches!(there.modified_by(&record).unwrap(), ModifiedBy::Rewrite(_)));
        // What was noted of others holds, whatever is noted then.
        here.note(Noted::Others, Doubt::Nothing, (1, 1)).unwrap();
        let come = here.notes().unwrap();
        for what in [Noted::AtIt, Noted::Settled] {
            there.of_another(come.as_ref(), now).note(what, Doubt::Nothing, (1, 1)).unwrap();
            set_modified(&file, record.mtime);
            assert_eq!(here.modified_by(&record).unwrap(), ModifiedBy::Others, "{what:?}");
        }
        // The first time counts, whichever file was served again.
        there.of_another(Some(&before), now).note(Noted::AtIt, Doubt::Nothing, (1, 1)).unwrap();
        let again = here.notes().unwrap().unwrap();
        there.of_another(Some(&again), now + 5).note(Noted::AtIt, Doubt::Nothing, (1, 1)).unwrap();
        assert_eq!(modify(1), ModifiedBy::Others);
    }

    /// In another boot, whose beginning depends on its clock.
    #[test]
    fn a_time_far_from_the_note_is_of_others_in_any_boot() {
        let (file, own) = (file(), file());
        let record = record(VERSION, (1, 1));
        let then = Noting::of((&own, &record), &file, Session { boot: [1; 16], mounts: [1, 2] });
        then.note(Noted::Settled, Doubt::Nothing, (1, 2)).unwrap();
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let another = Session { boot: [2; 16], mounts: [1, 2] };
        let later = Noting::of((&own, &record), &file, another);
        for (seconds, by) in [(3, ModifiedBy::Unknown), (3600, ModifiedBy::Others)] {
            set_modified(&file, (now + seconds, 7));
            assert_eq!(later.modified_by(&record).unwrap(), by, "{seconds} s");
        }
    }
}
