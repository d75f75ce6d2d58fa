//! A copied turn that the kernel takes over, and what may go wrong with that.

use super::{
    Copying, EXCHANGES, FIRST_WAIT, LONG, LONGEST_TURN, QUICK, SHORTEST_TURN, TRIES, TakeOver,
};
use crate::donor::Stage;
use crate::drive::Step;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::point::{Point, reached};
use crate::primitive;
use crate::sample::{CHANGES, Sampled};
use crate::turns::{all_data, all_of, changed, clean, cut_off, nothing_staged, uncut};
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::dedupe::{self, Shared};
use fragmend_sys::priority::Prompt;
use fragmend_sys::{cache, xfs};
use rustix::fs::FallocateFlags;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the kernel has said.
struct Answer {
    /// What it was asked by.
    by: &'static str,
    /// Whether it took all of the turn over.
    taken: Result<(), Skip>,
    /// It took some of it over, and not all.
    in_part: bool,
    /// How long the file was locked.
    held: Duration,
}

impl Copying {
    /// Has the kernel take a copied turn over.
    pub(super) fn take_over(
        &mut self,
        file: &OpenFile,
        index: usize,
        turn: ByteRange,
        stop: &AtomicBool,
        done: &mut Step,
    ) -> Result<(), Skip> {
        self.is_sound()?;
        let (donor, at) = Stage::place(&self.stage, index, turn)?;
        let copied = self.copies.get(index).ok_or_else(nothing_staged)?.end;
        let end = turn.end.min(file.size()?);
        if end <= turn.start {
            return Err(cut_off());
        }
        // The file is longer or shorter than its copy.
        if copied.min(turn.end) != end {
            return Err(changed());
        }
        let length = end - turn.start;
        let sampled = self.sampled.as_ref().filter(|s| self.exchanges() && s.of == index);
        let goes_on = || {
            let wanted = sampled.is_some_and(|sampled| sampled.lease.is_wanted());
            !wanted && !stop.load(Ordering::Relaxed)
        };
        uncut(file, ByteRange::at(turn.start, length), goes_on)?;
        // The kernel would write it out with the file locked.
        clean(&file.fd, ByteRange::at(turn.start, length))?;
        if sampled.is_none() {
            let place = ByteRange::at(at, length);
            let held =
                self.pages.hold(&[(&file.fd, ByteRange::at(turn.start, length)), (donor, place)]);
            if held.is_err() && matches!(self.how, TakeOver::Share { whole: true, .. }) {
                // No turn is shorter, and all of it would be read anew, while nobody looks at Ctrl-C.
                self.failed = TRIES;
            }
            held?;
        }
        // Who punches a hole frees space, and a copy of the zeroes would take it again.
        all_data(file, turn)?;
        reached(Point::Filled);
        // The kernel takes a lease away from who does not give it back.
        if sampled.is_some_and(|sampled| !sampled.lease.is_held()) {
            self.sampled = None;
            return Err(changed());
        }
        let Answer { by, taken, in_part, held } = self.ask(file, index, turn, length)?;
        done.held = held;
        if held > LONG {
            self.turn = (self.turn / 2).max(SHORTEST_TURN);
        } else if held < QUICK {
            self.turn = (self.turn * 2).min(LONGEST_TURN);
        }
        let (donor, at) = Stage::place(&self.stage, index, turn)?;
        if by == primitive::DEDUPE && (taken.is_ok() || in_part) {
            // Who overwrites what is shared needs new space, which a full disk or a quota refuses; and what
            // was taken over in part is the file's own when it is tried again. Best effort: at the latest it
            // ends with the donor.
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(donor, how, at, turn.len());
        }
        if in_part {
            Stage::moved(&mut self.stage, index);
            // The donor has no copy of it any more.
            if let Some(copy) = self.copies.get_mut(index) {
                copy.end = copy.end.min(turn.start);
            }
        }
        taken?;
        (done.moved, done.by) = (turn.len(), Some(by));
        done.fallback = match &self.how {
            TakeOver::Share { instead, .. } => instead.clone(),
            TakeOver::Exchange { .. } => self.given_up.clone(),
        };
        Stage::moved(&mut self.stage, index);
        Ok(())
    }

    /// Asks the kernel to take over so many bytes of a turn.
    fn ask(
        &self,
        file: &OpenFile,
        index: usize,
        turn: ByteRange,
        length: u64,
    ) -> Result<Answer, Skip> {
        let (donor, at) = Stage::place(&self.stage, index, turn)?;
        let sampled = self.sampled.as_ref().filter(|s| self.exchanges() && s.of == index);
        let prompt = Prompt::begin();
        let started = Instant::now();
        let mut in_part = false;
        // Safe to crash before, in and after either call: see the head of `copying.rs`.
        let (by, taken) = match sampled {
            Some(Sampled { sample, .. }) => {
                let taken = xfs::commit_range(&file.fd, turn.start, donor, at, length, *sample);
                (primitive::COMMIT_RANGE, taken.map_err(skip_of))
            }
            None => {
                let taken = dedupe::share(donor, at, &file.fd, turn.start, length);
                in_part = matches!(taken, Ok(Shared::Bytes(n)) if n < length);
                let taken = taken.map_err(skip_of).and_then(|shared| all_of(shared, length));
                (primitive::DEDUPE, taken)
            }
        };
        let held = started.elapsed();
        drop(prompt);
        reached(Point::Moved);
        Ok(Answer { by, taken, in_part, held })
    }

    /// Whether what went wrong may go well at the next call, which has been prepared for.
    pub(super) fn may_pass(&mut self, skip: Skip) -> Result<(), Skip> {
        self.is_sound()?;
        // Failed: a range that the file's new end has just cut is invalid to the kernel.
        let passes = matches!(skip.reason, SkipReason::Busy | SkipReason::Failed);
        let in_vain = skip.reason != SkipReason::Busy || self.failed + 1 >= EXCHANGES;
        let shares = self.how == TakeOver::Exchange { or_share: true } && self.exchanges();
        let is_other = matches!(
            skip.reason,
            SkipReason::SizeChanged | SkipReason::LayoutChanged | SkipReason::Shared
        );
        if shares && in_vain && !is_other {
            let busy = skip.reason == SkipReason::Busy;
            self.give_up(if busy { Skip::new(SkipReason::Busy, CHANGES) } else { skip })?;
        } else if !passes || self.failed + 1 >= TRIES {
            return Err(skip);
        }
        (self.sampled, self.recopied) = (None, 0);
        std::thread::sleep(FIRST_WAIT * (1 << self.failed));
        self.failed += 1;
        // The less, the sooner it is done.
        self.turn = (self.turn / 2).max(SHORTEST_TURN);
        Ok(())
    }

    /// Puts the page cache back as it was, as far as the turn goes. Of the file nothing is dropped here: somebody
    /// may have written there since.
    pub(super) fn restore(&mut self, file: &OpenFile, index: usize, turn: ByteRange) {
        let Ok((donor, at)) = Stage::place(&self.stage, index, turn) else { return };
        let _ = cache::drop_clean(donor, at..at + turn.len());
        let Some(copy) = self.copies.get_mut(index) else { return };
        for part in copy.warm.iter().map(|part| part.intersect(turn)) {
            // Best effort.
            let _ = self.pages.bring_in(&file.fd, part);
        }
        copy.warm.retain(|part| part.end > turn.end);
    }
}
