//! One file's blocks exchanged with a donor's on ext4, step by step. The crash argument, and why the
//! steps are in this order, is at the head of `ext4.rs`; who is kept out meanwhile, at that of `hold.rs`.

use super::donor::{Space, Stage};
use super::drive::{ByPart, Job, Step, by_part};
use super::errno::skip_of;
use super::hold::Hold;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::places::Places;
use super::{Mover, primitive};
use crate::bytes::read_at;
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, Pace, Skip, SkipReason};
use fragmend_sys::backoff::Backoff;
use fragmend_sys::cache;
use fragmend_sys::move_ext::{Blocks, move_extents};
use fragmend_sys::same::{self, Compare, Same};
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Bytes exchanged by the first call for a file; the next ones are longer or shorter, so that none
/// locks the file for long.
const FIRST_TURN: u64 = 64 << 10;
const LONGEST_TURN: u64 = 1 << 20;
const LONG: Duration = Duration::from_millis(2);

/// What is exchanged at most before the copies are waited for, at first, and at most and at least. So
/// much is in flight when somebody comes who wants the file.
const FIRST_STEP: u64 = 256 << 10;
const LONGEST_STEP: u64 = 1 << 20;
const SHORTEST_STEP: u64 = 16 << 10;
/// A wait that is longer is followed by a shorter step, a shorter one by a longer.
const LONG_WAIT: Duration = Duration::from_millis(60);
const SHORT_WAIT: Duration = Duration::from_millis(20);
/// What takes longer ends with the step.
const LONG_PART: Duration = Duration::from_millis(100);
/// What is read at once before the next look at who waits.
const PIECE: u64 = 64 << 10;

/// How often a step that met a busy page is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// How long what the disk refused is tried to be put back, and the longest wait between two tries.
const PUTTING_BACK: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_millis(64);
/// How long dirty pages of others are waited for before another try.
const WRITING: Duration = Duration::from_millis(100);

/// How long much that others wrote is waited for before their file is left alone.
const SETTLING: Duration = Duration::from_millis(400);

/// What a receipt says of a move that was stopped for too long.
const STOPPED: &str = "this process was stopped for so long that others may have opened the file before the move was committed; it was committed at once";

/// Exchanges blocks with a donor.
pub(super) struct Exchange {
    stage: Option<Stage>,
    pages: Pages,
    compare: Compare,
    /// For what was just written under the lease: no writer waits for it, so it is read in one go.
    confirm: Compare,
    scratch: Vec<u8>,
    /// Bytes for the next call, and for the next step.
    turn: u64,
    step: u64,
    /// What has changed places, with its staged range.
    moved: Places,
    /// The same of what is not known to be on the device.
    in_flight: Places,
    /// A copy could not be written to its new place.
    unwritable: Option<Skip>,
    /// The disk has refused what somebody else wrote.
    refused: Option<Skip>,
    /// Who may have the file open meanwhile.
    hold: Hold,
}

impl Exchange {
    /// For one file; with `force`, also while others have it open.
    pub fn new(force: bool) -> Self {
        Self {
            stage: None,
            // In single pages, the file being opened for reading at random.
            pages: Pages::default(),
            compare: Compare::default(),
            confirm: Compare::in_one_go(),
            scratch: Vec::new(),
            turn: FIRST_TURN,
            step: FIRST_STEP,
            moved: Places::default(),
            in_flight: Places::default(),
            unwritable: None,
            refused: None,
            hold: Hold::new(force),
        }
    }

    /// Takes the lease once what others have written is on the device: our own copies would stand behind that in
    /// the disk's queue, and the commit might wait for it.
    fn keep_others_out(&mut self, file: &OpenFile) -> Result<(), Skip> {
        if !self.hold.is_held() && !self.hold.is_forced() && file.has_settled().is_err() {
            let _ = same::write_quietly(&file.fd, 0..i64::MAX as u64, SETTLING);
            file.has_settled()?;
        }
        self.hold.take(file, Stage::donor(&self.stage))
    }

    /// Notes that something that somebody else wrote is in memory only.
    fn refuse(&mut self, told: Option<io::Error>) -> Skip {
        let told = told.map_or(String::new(), |e| format!(" ({e})"));
        let why = format!(
            "the disk has refused{told} what somebody wrote to it, which may be in memory only, and stays there; write it anew, or copy the file to another disk"
        );
        self.refused.get_or_insert(Skip::new(SkipReason::Failed, why)).clone()
    }

    /// Waits for all copies that are on their way, and looks whether the device has them. Gives what went wrong with
    /// them; else none is on its way any more.
    fn confirm(&mut self, file: &OpenFile) -> Option<Skip> {
        let started = Instant::now();
        let mut wrong = None;
        for (_, range) in self.in_flight.all() {
            let found = self.is_there(file, range).err();
            wrong = wrong.or(found);
        }
        if let Some(skip) = wrong {
            self.unwritable.get_or_insert_with(|| skip.clone());
            return Some(skip);
        }
        if !self.in_flight.is_empty() {
            self.in_flight = Places::default();
            self.step = match started.elapsed() {
                took if took > LONG_WAIT => (self.step / 2).max(SHORTEST_STEP.max(file.block)),
                took if took < SHORT_WAIT => (self.step * 2).min(LONGEST_STEP),
                _ => self.step,
            };
        }
        None
    }

    /// Waits for the copies of a range, and looks whether the device has them.
    fn is_there(&mut self, file: &OpenFile, range: ByteRange) -> Result<(), Skip> {
        let span = range.start..range.end;
        let _ = cache::start_writeback(&file.fd, span.clone());
        let alone = self.hold.is_held();
        // Under the lease no writer waits for a read.
        let compare = if alone { &mut self.confirm } else { &mut self.compare };
        match compare.range(&file.fd, span.clone(), || true).map_err(skip_of)? {
            Same::Yes | Same::Stopped => Ok(()),
            // The copies are there: it was something else.
            Same::ButRefused(told) => {
                self.refuse(Some(told));
                Ok(())
            }
            Same::No(_, told) | Same::Changing(told @ Some(_)) => {
                let silent = || Skip::new(SkipReason::Failed, "the disk has other bytes");
                Err(told.map_or_else(silent, skip_of))
            }
            Same::Changing(None) if alone => {
                Err(Skip::new(SkipReason::Busy, "it changes under a lease"))
            }
            // Beside a forced move somebody writes: the pages that they left alone are there, and what becomes of
            // theirs they are told.
            Same::Changing(None) => Ok(()),
            Same::Unknown => cache::write_and_wait(&file.fd, span).map_err(skip_of),
        }
    }

    /// Exchanges once more whatever is not on the device, without a look at the new one: what the page
    /// cache holds is the only copy there is. Gives how many bytes went back.
    fn put_back(&mut self, file: &OpenFile) -> (u64, Result<(), Skip>) {
        // It was lost, or never held.
        let _ = self.hold.take(file, Stage::donor(&self.stage));
        // Nobody's error is taken: who opens the file next may be told of ours as well, and finds all bytes there.
        let ranges = self.in_flight.all();
        let (mut all, mut back) = (Ok(()), 0);
        // Whatever the kernel says, and though others may wait for the lease as long: bytes come first. With the donor
        // goes the only good copy that the disk has, and no space or memory may be there a moment later.
        let (until, mut wait) = (Instant::now() + PUTTING_BACK, FIRST_WAIT);
        for &(index, range) in &ranges {
            let mut done = Step::default();
            while done.moved < range.len() {
                let rest = ByteRange { start: range.start + done.moved, end: range.end };
                match self.exchange(file, index, rest, &mut done) {
                    Ok(()) => break,
                    // Behind the end there is nothing to keep.
                    Err(skip)
                        if Instant::now() > until
                            || file.size().is_ok_and(|size| size <= rest.start) =>
                    {
                        all = all.and(Err(skip));
                        break;
                    }
                    Err(_) => std::thread::sleep(wait),
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            back += done.moved;
        }
        let written = self.moved_back(file, &ranges);
        (back, all.and(written).and(self.hold.commit(file, Stage::donor(&self.stage))))
    }

    /// Waits for what went back to where it was.
    fn moved_back(&mut self, file: &OpenFile, ranges: &[(usize, ByteRange)]) -> Result<(), Skip> {
        for (_, range) in ranges {
            match self.compare.range(&file.fd, range.start..range.end, || true).map_err(skip_of)? {
                Same::No(_, told) | Same::Changing(told @ Some(_)) => {
                    return Err(self.refuse(told));
                }
                Same::Unknown => rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// After a step, or what there was of it: waits for its copies, lets it go back if they cannot be
    /// written, and lets others in who wait.
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

    /// Says that copies could not be written, and what came of that.
    fn went_back(&mut self, back: Result<(), Skip>) -> Skip {
        let why = self.unwritable.as_ref().map_or("", |skip| skip.detail.as_str());
        let what = match back {
            Ok(()) => "what could not be written is back where it was".into(),
            Err(skip) => format!("and it could not all be put back: {}", skip.detail),
        };
        let why = format!("the new place cannot be written ({why}); {what}");
        let skip = Skip::new(SkipReason::Failed, why);
        self.unwritable = Some(skip.clone());
        skip
    }

    /// Drops what the page cache holds of `part` and the device has as well. A folio that reaches
    /// beyond the part stays on the first try; then everything in its way goes. Whether nothing
    /// stayed: what somebody has mapped does.
    fn make_room(&mut self, file: &OpenFile, part: ByteRange) -> Result<bool, Skip> {
        // An old kernel that cannot tell has no large folios either.
        let cached = || cache::cached_pages(&file.fd, part.start..part.end).unwrap_or(0) > 0;
        // What is not gone by then is exchanged in shorter turns.
        let until = Instant::now() + LONG_PART;
        for wide in [part, part.align_outward(cache::largest_folio())] {
            while cached() && (wide == part || Instant::now() < until) {
                let span = wide.start..wide.end;
                let hold = &self.hold;
                let in_time = || wide == part || Instant::now() < until;
                match self.compare.drop(&file.fd, span, || !hold.is_awaited() && in_time()) {
                    Ok(Same::Stopped) if !in_time() => break,
                    Ok(Same::Yes | Same::Unknown | Same::Changing(_)) => break,
                    // Once more: now nobody waits.
                    Ok(Same::Stopped) => self.let_others_in(file)?,
                    Ok(Same::ButRefused(told)) => return Err(self.refuse(Some(told))),
                    Ok(Same::No(_, told)) => return Err(self.refuse(told)),
                    Err(e) => return Err(skip_of(e)),
                }
            }
        }
        Ok(!cached())
    }

    /// Reads a part into the page cache, and waits for it; nobody else waits for more than a piece of it.
    /// Whether it is there in single pages.
    fn prefetch(&mut self, file: &OpenFile, part: ByteRange) -> Result<bool, Skip> {
        let mut single = self.make_room(file, part)?;
        for piece in part.steps(PIECE) {
            // Best effort: if it fails, the exchange reads for itself.
            let _ = self.pages.bring_in(&file.fd, piece);
            if self.hold.is_awaited() {
                self.let_others_in(file)?;
                // They may read it, too, and ahead of that, which makes large folios.
                single = false;
            }
        }
        self.scratch.resize(part.len() as usize, 0);
        let _ = read_at(&file.fd, &mut self.scratch, part.start);
        Ok(single)
    }

    /// Exchanges a part in as many calls as it takes. Under large folios each block waits for a
    /// flush, and so would everybody else: unless its pages are `single` ones, block by block.
    fn exchange_in_turns(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        single: bool,
        done: &mut Step,
    ) -> Result<(), Skip> {
        if !single {
            self.turn = file.block;
        }
        let mut rest = part;
        while !rest.is_empty() {
            let next = ByteRange::at(rest.start, self.turn).intersect(rest);
            let started = Instant::now();
            self.exchange(file, index, next, done)?;
            self.turn = if started.elapsed() > LONG {
                (self.turn / 2).next_multiple_of(file.block)
            } else {
                (self.turn * 2).min(LONGEST_TURN)
            };
            rest.start = next.end;
        }
        Ok(())
    }

    /// One call to the kernel; adds what it did to `done`.
    fn exchange(
        &mut self,
        file: &OpenFile,
        index: usize,
        rest: ByteRange,
        done: &mut Step,
    ) -> Result<(), Skip> {
        let block = file.block;
        Stage::moved(&mut self.stage, index);
        let (donor, donor_start) = Stage::place(&self.stage, index, rest)?;
        let blocks = Blocks {
            orig: rest.start / block,
            donor: donor_start / block,
            len: rest.len() / block,
        };
        self.hold.exchanging();
        let started = Instant::now();
        // Safe to crash before, in and after this line: see the head of this file.
        let outcome = move_extents(&file.fd, donor, blocks);
        done.held = done.held.max(started.elapsed());
        reached(Point::Moved);
        let moved = (outcome.blocks * block).min(rest.len());
        for places in [&mut self.moved, &mut self.in_flight] {
            places.note(index, ByteRange::at(rest.start, moved));
        }
        done.moved += moved;
        done.by = Some(primitive::MOVE_EXT);
        if self.hold.is_lost() {
            // Before anything else: who has it open now may be syncing it.
            self.hold.commit(file, Stage::donor(&self.stage))?;
            return Err(Skip::new(SkipReason::Busy, STOPPED));
        }
        match outcome.error {
            Some(_) if file.size()? <= rest.start => {
                Err(Skip::new(SkipReason::SizeChanged, "the file ends before it now"))
            }
            Some(e) => Err(skip_of(e)),
            None if outcome.blocks < blocks.len => {
                Err(Skip::new(SkipReason::SizeChanged, "the kernel moved less than the range"))
            }
            None => Ok(()),
        }
    }

    /// Exchanges one step, trying again where somebody is just using its pages.
    fn step(
        &mut self,
        file: &OpenFile,
        index: usize,
        step: ByteRange,
        returns: bool,
        done: &mut Step,
    ) -> Result<(), Skip> {
        let before = done.moved;
        let mut backoff = Backoff::new(FIRST_WAIT, TRIES);
        loop {
            let rest = ByteRange { start: step.start + done.moved - before, end: step.end };
            let single = self.prefetch(file, rest)?;
            // What is to go back does, though nothing else moves.
            if let Some(skip) = self.unwritable.as_ref().filter(|_| !returns) {
                return Err(skip.clone());
            }
            // The lease was given back if somebody waited.
            self.keep_others_out(file)?;
            let Err(skip) = self.exchange_in_turns(file, index, rest, single, done) else { break };
            // Failed: a range that the file's new end has just cut is invalid to the kernel.
            let may_pass = matches!(skip.reason, SkipReason::Busy | SkipReason::Failed);
            if !may_pass || backoff.is_last() {
                return Err(skip);
            }
            // Somebody dirtied a page or holds it: write back, and try what is left.
            let _ = same::write_quietly(&file.fd, rest.start..rest.end, WRITING);
            backoff.wait();
        }
        Ok(())
    }
}

impl Mover for Exchange {
    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        if let Some(skip) = &self.refused {
            return Err(skip.clone());
        }
        (self.stage, self.unwritable) = (None, None);
        (self.moved, self.in_flight) = (Places::default(), Places::default());
        // No space is asked for in vain; and staging takes longer than anybody should wait.
        self.hold.take(file, Stage::donor(&self.stage))?;
        self.hold.commit(file, Stage::donor(&self.stage))?;
        // Data that is still on its way must be on the disk before its blocks are exchanged, or
        // the exchange meets dirty pages. What was refused is told here, if it was not yet.
        same::settled(&file.fd).map_err(|e| self.refuse(Some(e)))?;
        self.hold.free_space(file)?;
        let (stage, pieces) = Stage::new(file, ranges, Space::Choice, |_| Ok(()))?;
        self.stage = Some(stage);
        reached(Point::Staged);
        Ok(pieces)
    }

    fn drive(&mut self, job: &Job<'_>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    fn let_others_in(&mut self, file: &OpenFile) -> Result<(), Skip> {
        // While copies cannot be written, everybody is kept out until they are back.
        match self.confirm(file) {
            Some(skip) => Err(skip),
            None => self.hold.commit(file, Stage::donor(&self.stage)),
        }
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        // One step at most, and only where something went wrong with it.
        let mut done = Step::default();
        let concluded = self.conclude(file, &mut done);
        if !self.in_flight.is_empty() {
            self.stage = None;
            return concluded.and(self.hold.commit(file, Stage::donor(&self.stage)));
        }
        // The donor goes before the commit, so that its own mapping of the old blocks, which
        // nobody will ever read, mostly never reaches the journal; but not with the last inode.
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
    /// It goes back by the same way.
    fn returns(&self) -> bool {
        true
    }

    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange, _: &AtomicBool) -> Step {
        let mut done = Step::default();
        if self.hold.is_lost()
            && let Err(skip) = self.let_others_in(file)
        {
            return Step::none(skip);
        }
        // What has moved may go back.
        let returns = self.moved.holds(part);
        if !returns && let Some(skip) = self.unwritable.as_ref().or(self.refused.as_ref()) {
            return Step::none(skip.clone());
        }
        if let Err(skip) = self.keep_others_out(file) {
            return Step::none(skip);
        }
        let (mut rest, started) = (part, Instant::now());
        while !rest.is_empty() && done.skip.is_none() {
            let step = ByteRange::at(rest.start, self.step).intersect(rest);
            let exchanged = self.step(file, index, step, returns, &mut done);
            // Also what moved before the step failed.
            let concluded = self.conclude(file, &mut done);
            let refused = self.refused.clone().filter(|_| !returns);
            done.skip = concluded.and(exchanged).err().or(refused);
            rest.start = step.end;
            // What is left comes with the next call, after a look at Ctrl-C.
            if started.elapsed() > LONG_PART {
                break;
            }
        }
        done.held = done.held.max(self.hold.kept_out());
        done.note = self.hold.was_lost().then(|| STOPPED.into());
        done
    }
}
