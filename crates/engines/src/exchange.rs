//! Exchanges a file's blocks with a donor's on ext4, step by step. The crash argument, and the reason for the
//! order of the steps, is at the head of `ext4.rs`; which programs are kept out meanwhile, at that of
//! `hold.rs`.

mod call;
mod confirm;
mod put_back;
mod room;
mod vacate;

use super::Mover;
use super::donor::{Space, Stage};
use super::errno::skip_of;
use super::hold::Hold;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::places::Places;
use super::unpinned::Unpinned;
use crate::point::{self, Point, reached};
use call::is_whole;
use fragmend_apply::drive::{ByPart, Job, Step, by_part};
use fragmend_layout::{ByteRange, Pace, Skip, SkipReason};
use fragmend_sys::backoff::Backoff;
use fragmend_sys::locked::Locked;
use fragmend_sys::same::{self, Compare};
use fragmend_sys::signals::Undisturbed;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes exchanged by the first call for a file; later calls are longer or shorter, so that none locks the file
/// for long.
const FIRST_TURN: u64 = 64 << 10;
const LONGEST_TURN: u64 = 1 << 20;
const LONG: Duration = Duration::from_millis(2);

/// Bytes that are exchanged before the copies are waited for: at first, at most and at least. No more is in
/// flight when another program opens the file.
const FIRST_STEP: u64 = 256 << 10;
const LONGEST_STEP: u64 = 1 << 20;
const SHORTEST_STEP: u64 = 16 << 10;
/// A step whose reads and copies are waited for longer is followed by a shorter one, a quicker one by a longer.
const LONG_WAIT: Duration = Duration::from_millis(60);
const SHORT_WAIT: Duration = Duration::from_millis(20);
/// A part that lasts longer ends with its current step.
const LONG_PART: Duration = Duration::from_millis(100);
/// While others read, so many bytes are exchanged by a call: what lasts longer keeps the processor from them.
const GENTLE_TURN: u64 = 8 << 10;
/// Bytes whose pages are locked at once then: to lock and unlock a few pages lasts about as long as to exchange them.
const GENTLE_LOCK: u64 = 64 << 10;
/// And so many are read, written or read back at a time, at most: each time one request, behind which theirs wait.
const GENTLE_REQUEST: u64 = 32 << 10;
/// Two reads that are no longer together may be in flight at a time: with one at a time, a file in many extents would take a
/// third longer than `e4defrag` needs for it.
const GENTLE_PAIR: u64 = 16 << 10;
/// Where these last longer on average, on a device that seeks or is slow, a request of others would wait too long behind each.
const QUICK_REQUEST: Duration = Duration::from_micros(500);
/// The average is of about so many.
const AVERAGED: u32 = 16;
/// Bytes that are read between two checks whether another program waits.
const CHUNK: u64 = 64 << 10;
/// How long a program waits for what could end at once.
const SHORT_HOLD: Duration = Duration::from_millis(50);

/// How often a step that met a busy page is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// How long other programs' dirty pages are waited for before another try.
const WRITING: Duration = Duration::from_millis(100);

/// How long a large amount of other programs' writes is waited for before their file is left alone.
const SETTLING: Duration = Duration::from_millis(400);

/// A receipt's note on a move during which this process was stopped for too long.
const STOPPED: &str = "this process was stopped for so long that others may have opened the file before the move was committed; it was committed at once";

/// Exchanges blocks with a donor.
pub(super) struct Exchange {
    stage: Option<Stage>,
    pages: Pages,
    compare: Compare,
    /// For copies that were just written under the lease: no writer waits for it, so it reads in one go.
    confirm: Compare,
    scratch: Vec<u8>,
    /// Bytes for the next call, and for the next step.
    turn: u64,
    step: u64,
    /// How long reading and exchanging the current step have lasted.
    worked: Duration,
    /// The ranges that have been exchanged, each with its staged range.
    moved: Places,
    /// Those of them that are not known to be on the device.
    in_flight: Places,
    /// Their pages, from before they were exchanged: what the disk refuses of them is nowhere else.
    kept: Vec<Locked>,
    /// Signals are deferred while some are.
    undisturbed: Option<Undisturbed>,
    /// Why a copy could not be written to its new place: the system's words, and what receipts say.
    cause: Option<String>,
    unwritable: Option<Skip>,
    /// Until when it is tried to put such copies back.
    back_by: Option<Instant>,
    /// The disk has refused another program's write.
    refused: Option<Skip>,
    /// Keeps other programs out meanwhile.
    hold: Hold,
    /// A range no page of which was in the page cache under the lease with this number: none of it is pinned
    /// (`fragmend_sys::same::Vacated`).
    vacated: (Option<u64>, ByteRange),
    /// A part no page of which is pinned for as long as others only read the file.
    unpinned: Unpinned,
    /// Bytes whose pages are dropped at once for that.
    look: u64,
    /// Whether others read from the device.
    gentle: bool,
    /// How long a read lasts then, on average.
    request: Duration,
}

impl Exchange {
    /// The mover of one file; with `force`, it also moves while others have the file open.
    pub fn new(force: bool) -> Self {
        Self {
            stage: None,
            // It reads single pages, because random access is advised for the file.
            pages: Pages::default(),
            compare: Compare::default(),
            confirm: Compare::in_one_go(),
            scratch: Vec::new(),
            turn: FIRST_TURN,
            step: FIRST_STEP,
            worked: Duration::ZERO,
            moved: Places::default(),
            in_flight: Places::default(),
            kept: Vec::new(),
            undisturbed: None,
            cause: None,
            unwritable: None,
            back_by: None,
            refused: None,
            hold: Hold::new(force),
            vacated: (None, ByteRange::default()),
            unpinned: Unpinned::default(),
            look: CHUNK,
            gentle: false,
            request: Duration::ZERO,
        }
    }

    /// Lets others have the processor, while they read: it is called at least every 50 us of this thread's work. A thread that wakes
    /// up, such as the one that serves a read of theirs, else waits for the end of a system call on a kernel without
    /// preemption, or of this thread's time slice.
    fn breathe(&self) {
        if self.gentle {
            std::thread::yield_now();
        }
    }

    /// Takes the lease once the data that others have written is on the device: this engine's copies would
    /// queue behind it, and the commit might wait for it.
    fn keep_others_out(&mut self, file: &OpenFile) -> Result<(), Skip> {
        if !self.hold.is_held() && !self.hold.is_forced() && file.has_settled().is_err() {
            let _ = same::write_quietly(&file.fd, 0..i64::MAX as u64, SETTLING);
            file.has_settled()?;
        }
        self.hold.take(file, Stage::donor(&self.stage))
    }

    /// Notes that data of another program is in memory only.
    fn refuse(&mut self, told: Option<io::Error>) -> Skip {
        let told = told.map_or(String::new(), |e| format!(" ({e})"));
        let why = format!(
            "the disk has refused{told} a write to it; those bytes may be in memory only, and stay there; write them anew, or copy the file to another disk"
        );
        self.refused.get_or_insert(Skip::new(SkipReason::Failed, why)).clone()
    }

    /// After a step, or the part of it that was done: waits for its copies, puts it back if they cannot be
    /// written, and lets other programs in that wait.
    fn conclude(&mut self, file: &OpenFile, done: &mut Step) -> Result<(), Skip> {
        if self.confirm(file).is_some() {
            let (back, result) = self.put_back(file);
            done.moved -= back.min(done.moved);
            return Err(self.went_back(result));
        }
        if self.hold.must_commit() {
            self.hold.commit(file, Stage::donor(&self.stage))?;
        }
        Ok(())
    }

    /// The error that copies could not be written, with the result of putting them back.
    fn went_back(&mut self, back: Result<(), Skip>) -> Skip {
        let why = self.cause.as_deref().unwrap_or_default();
        let what = match back {
            Ok(()) => "what could not be written is back where it was".into(),
            Err(skip) => format!("and it could not all be put back: {}", skip.detail),
        };
        let why = format!("the new place cannot be written ({why}); {what}");
        let skip = Skip::new(SkipReason::Failed, why);
        self.unwritable = Some(skip.clone());
        skip
    }

    /// Exchanges a part in as many calls as are needed. Under large folios each block waits for a flush, and so
    /// would all other programs: unless the pages are `single` ones, it goes block by block. Ends early where a
    /// program waits and that has lasted long, and once `ends` returns true.
    fn exchange_in_turns(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        single: bool,
        ends: &dyn Fn() -> bool,
        done: &mut Step,
    ) -> Result<(), Skip> {
        if !single {
            self.turn = file.block;
        }
        let (mut rest, began) = (part, Instant::now());
        while !rest.is_empty() {
            let awaited = || self.hold.is_held() && self.hold.is_awaited();
            if ends() || began.elapsed() > SHORT_HOLD && awaited() {
                break;
            }
            let (most, call) = match self.gentle {
                true => (GENTLE_LOCK, GENTLE_TURN.max(file.block)),
                false => (LONGEST_TURN, LONGEST_TURN),
            };
            let next = ByteRange::at(rest.start, self.turn.min(most).max(file.block));
            let next = next.intersect(rest);
            self.breathe();
            let mut kept = match Locked::new(&file.fd, next.start..next.end) {
                Ok(kept) => kept,
                // What this step has locked so far is unlocked at its end.
                Err(_) if !self.kept.is_empty() => break,
                Err(_) if self.turn > file.block => {
                    self.turn = (self.turn / 2).next_multiple_of(file.block);
                    continue;
                }
                Err(e) => return Err(not_kept(e)),
            };
            let (started, before) = (Instant::now(), done.moved);
            let exchanged =
                next.steps(call).try_for_each(|turn| self.exchange(file, index, turn, done));
            if done.moved > before {
                // What is tried again is dropped before. Without the lease there may be holes in what moved.
                if self.hold.is_held() {
                    kept.shorten(done.moved - before);
                }
                self.kept.push(kept);
            }
            exchanged?;
            self.turn = if started.elapsed() > LONG {
                (self.turn / 2).next_multiple_of(file.block)
            } else {
                (self.turn * 2).min(LONGEST_TURN)
            };
            rest.start = next.end;
        }
        self.worked += began.elapsed();
        Ok(())
    }

    /// Exchanges one step, and tries again where another program is using its pages. Ends early where other
    /// programs come in between, and once `ends` returns true.
    fn step(
        &mut self,
        file: &OpenFile,
        index: usize,
        step: ByteRange,
        returns: bool,
        ends: &dyn Fn() -> bool,
        done: &mut Step,
    ) -> Result<(), Skip> {
        let before = done.moved;
        let mut backoff = Backoff::new(FIRST_WAIT, TRIES);
        loop {
            let rest = ByteRange { start: step.start + done.moved - before, end: step.end };
            let single = self.prefetch(file, rest, ends)?;
            self.breathe();
            if ends() {
                return Ok(());
            }
            // What is to go back does, though nothing else moves.
            if let Some(skip) = self.unwritable.as_ref().filter(|_| !returns) {
                return Err(skip.clone());
            }
            // The lease was released if a program waited.
            self.keep_others_out(file)?;
            let (rest, single) = match self.vacate(file, rest, single, ends) {
                Ok(first) => first,
                Err(skip) if skip.reason == SkipReason::Busy && !backoff.is_last() => {
                    self.let_others_in(file)?;
                    backoff.wait();
                    continue;
                }
                Err(skip) => return Err(skip),
            };
            // The kernel would pass over a hole that has come to be meanwhile, and count on behind it. Under the
            // lease none can come.
            self.breathe();
            let whole = is_whole(file, rest);
            reached(Point::Checked);
            let exchanged =
                whole.and_then(|()| self.exchange_in_turns(file, index, rest, single, ends, done));
            let skip = match exchanged {
                Ok(()) => return Ok(()),
                Err(skip) => skip,
            };
            // Failed: a range in which a program has just truncated the file is invalid to the kernel.
            let may_pass = matches!(skip.reason, SkipReason::Busy | SkipReason::Failed);
            if !may_pass || backoff.is_last() {
                return Err(skip);
            }
            // A program has dirtied a page or holds it: write back, and try the rest.
            let _ = same::write_quietly(&file.fd, rest.start..rest.end, WRITING);
            backoff.wait();
        }
    }
}

/// The pages of copies cannot be locked.
fn not_kept(error: io::Error) -> Skip {
    // A file that may only grow cannot be mapped (mmap(2)); else it is the limit.
    let is_limit = error.raw_os_error() != Some(Errno::ACCESS.raw_os_error());
    let what = if is_limit { "; raise the limit for it (ulimit -l)" } else { "" };
    let Skip { reason, detail } = skip_of(error);
    let why =
        format!("its copies cannot be locked in memory until the disk has them ({detail}){what}");
    Skip::new(reason, why)
}

impl Mover for Exchange {
    type File = OpenFile;

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        if let Some(skip) = &self.refused {
            return Err(skip.clone());
        }
        (self.stage, self.unwritable) = (None, None);
        (self.moved, self.in_flight) = (Places::default(), Places::default());
        self.kept.clear();
        (self.cause, self.back_by) = (None, None);
        // So that no space is allocated in vain. Staging lasts longer than any program should wait.
        self.hold.take(file, Stage::donor(&self.stage))?;
        self.hold.commit(file, Stage::donor(&self.stage))?;
        // Data in flight must be on the disk before its blocks are exchanged, or the exchange meets dirty
        // pages. A refused write is reported here, if it was not yet.
        same::settled(&file.fd).map_err(|e| self.refuse(Some(e)))?;
        self.hold.free_space(file)?;
        let (stage, fragments) = Stage::new(file, ranges, Space::Choice { beside: 0 }, |_| Ok(()))?;
        self.stage = Some(stage);
        reached(Point::Staged);
        Ok(fragments)
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    fn gently(&mut self, others_read: bool) -> bool {
        self.gentle = others_read || point::others_read();
        self.breathe();
        self.request <= QUICK_REQUEST && others_read
    }

    fn let_others_in(&mut self, file: &OpenFile) -> Result<(), Skip> {
        // While copies cannot be written, all others are kept out until they are back.
        match self.confirm(file) {
            Some(skip) => Err(skip),
            None => self.hold.commit(file, Stage::donor(&self.stage)),
        }
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        // There is one step at most, and only where something went wrong with it.
        let mut done = Step::default();
        let concluded = self.conclude(file, &mut done);
        if !self.in_flight.is_empty() {
            self.stage = None;
            return concluded.and(self.hold.commit(file, Stage::donor(&self.stage)));
        }
        // The donor is closed before the commit, so that its mapping of the old blocks, which is never read,
        // mostly never reaches the journal; but not if the commit needs its inode.
        if self.hold.needs_donor(file) {
            self.hold.commit(file, Stage::donor(&self.stage))?;
        }
        let moved = self.stage.take().and_then(Stage::close);
        self.hold.commit(file, None)?;
        let Some(moved) = moved else { return concluded };
        reached(Point::Settled);
        moved.restore_cache(file);
        concluded
    }

    fn kept_out(&mut self) -> Duration {
        self.hold.kept_out()
    }
}

impl ByPart for Exchange {
    /// A part goes back the same way.
    fn returns(&self) -> bool {
        true
    }

    fn relocate(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Step {
        let mut done = Step::default();
        if self.hold.is_lost()
            && let Err(skip) = self.let_others_in(file)
        {
            return Step::none(skip);
        }
        // A range that has moved may go back.
        let returns = self.moved.holds(part);
        if !returns && let Some(skip) = self.unwritable.as_ref().or(self.refused.as_ref()) {
            return Step::none(skip.clone());
        }
        if let Err(skip) = self.keep_others_out(file) {
            return Step::none(skip);
        }
        // What goes back does so as far as its driver allows.
        let ends = || !returns && stop.load(Ordering::Relaxed);
        let (mut rest, started) = (part, Instant::now());
        while !rest.is_empty() && done.skip.is_none() {
            let step = ByteRange::at(rest.start, self.step).intersect(rest);
            let exchanged = self.step(file, index, step, returns, &ends, &mut done);
            // Also what moved before the step failed.
            let concluded = self.conclude(file, &mut done);
            let refused = self.refused.clone().filter(|_| !returns);
            done.skip = concluded.and(exchanged).err().or(refused);
            rest.start = part.start + done.moved;
            // The rest comes with the next call, after a check for Ctrl-C.
            if started.elapsed() > LONG_PART || ends() {
                break;
            }
        }
        done.held = done.held.max(self.hold.kept_out());
        // Putting back lasts longer than some lease, too.
        let stopped = self.hold.was_lost() && self.unwritable.is_none();
        done.note = stopped.then(|| STOPPED.into());
        done
    }
}
