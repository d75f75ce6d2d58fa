//! Has the kernel take a copied turn over, and handles what may go wrong with that.

use super::{
    Copying, EXCHANGES, FIRST_WAIT, LONG, LONGEST_TURN, QUICK, SHORTEST_TURN, TRIES, TakeOver,
};
use crate::donor::Stage;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::point::{Point, reached};
use crate::primitive;
use crate::sample::{CHANGES, Sampled};
use crate::turns::{all_data, all_of, changed, clean, cut_off, is_on_disk, nothing_staged, uncut};
use fragmend_apply::drive::{File, Step};
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::backoff;
use fragmend_sys::dedupe::{self, Shared};
use fragmend_sys::priority::Prompt;
use fragmend_sys::{cache, xfs};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The kernel's answer.
struct Answer {
    /// The primitive that was called.
    by: &'static str,
    /// Whether the kernel took all of the turn over.
    taken: Result<(), Skip>,
    /// Bytes that it took over, if those are not all.
    in_part: Option<u64>,
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
        let sampled = self.sampled.as_ref().filter(|s| self.exchanges() && s.index == index);
        let goes_on = || {
            let wanted = sampled.is_some_and(|sampled| sampled.lease.is_wanted());
            !wanted && !stop.load(Ordering::Relaxed)
        };
        uncut(file, ByteRange::at(turn.start, length), goes_on)?;
        // Where blocks are smaller than pages, the kernel drops what it takes over in part as a whole, and compares
        // only that part.
        let page = rustix::param::page_size() as u64;
        for at in [turn.start, turn.end].into_iter().filter(|at| !at.is_multiple_of(page)) {
            let whole = ByteRange::at(at / page * page, page);
            if !is_on_disk(&mut self.compare, file, whole, goes_on)? {
                return Err(changed());
            }
        }
        // The kernel would write dirty pages out with the file locked.
        clean(&file.fd, ByteRange::at(turn.start, length))?;
        if sampled.is_none() {
            let place = ByteRange::at(at, length);
            let held =
                self.pages.hold(&[(&file.fd, ByteRange::at(turn.start, length)), (donor, place)]);
            if held.is_err() && matches!(self.how, TakeOver::Share { whole: true, .. }) {
                // No turn is shorter here, and each try would read all of it again, without a check for Ctrl-C.
                self.failed = TRIES;
            }
            held?;
        }
        // A program that punched a hole freed space, and a copy of the zeroes would occupy it again.
        all_data(file, turn)?;
        reached(Point::Filled);
        // The kernel breaks a lease that is not released in time.
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
        let moved = match (&taken, in_part) {
            (Ok(()), _) => turn,
            // Whole blocks: the next turn begins behind them.
            (Err(_), Some(n)) => ByteRange::at(turn.start, n / self.block * self.block),
            (Err(_), None) => return taken,
        };
        Stage::moved(&mut self.stage, index);
        if !moved.is_empty() {
            (done.moved, done.by) = (moved.len(), Some(by));
            done.fallback = match &self.how {
                TakeOver::Share { instead, .. } => instead.clone(),
                TakeOver::Exchange { .. } => self.given_up.clone(),
            };
        }
        if by == primitive::DEDUPE {
            self.unshare(index, moved)?;
        }
        if taken.is_err() {
            self.taken_in_part(file, index, ByteRange { start: moved.end, ..turn }, moved)?;
        }
        taken
    }

    /// Has the donor free its part of the blocks that both share.
    fn unshare(&self, index: usize, part: ByteRange) -> Result<(), Skip> {
        let (donor, at) = Stage::place(&self.stage, index, part)?;
        if !part.is_empty() {
            // A program that overwrites shared blocks needs new space, which a full disk or a quota refuses;
            // and what was taken over in part belongs to the file alone when it is tried again. Best effort: at
            // the latest, sharing ends with the donor.
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(donor, how, at, part.len());
        }
        Ok(())
    }

    /// Continues behind the part of a turn that has moved. The file may share some of the `rest` as well,
    /// behind blocks that others have overwritten: then the donor frees all of that, and it is copied again, to
    /// other blocks; otherwise the donor keeps its space.
    fn taken_in_part(
        &mut self,
        file: &OpenFile,
        index: usize,
        rest: ByteRange,
        moved: ByteRange,
    ) -> Result<(), Skip> {
        if file.layout(rest).map_or(true, |layout| layout.shared_bytes(rest) > 0) {
            self.unshare(index, rest)?;
            if let Some(copy) = self.copies.get_mut(index) {
                self.repeated += copy.end.saturating_sub(rest.start);
                // The donor has no copy of it any more.
                copy.end = copy.end.min(rest.start);
            }
        }
        if !moved.is_empty() {
            self.restore(file, index, moved);
            self.failed = 0;
        }
        Ok(())
    }

    /// Asks the kernel to take over this many bytes of a turn.
    fn ask(
        &self,
        file: &OpenFile,
        index: usize,
        turn: ByteRange,
        length: u64,
    ) -> Result<Answer, Skip> {
        let (donor, at) = Stage::place(&self.stage, index, turn)?;
        let sampled = self.sampled.as_ref().filter(|s| self.exchanges() && s.index == index);
        let prompt = Prompt::begin();
        let started = Instant::now();
        let mut in_part = None;
        // Safe to crash before, in and after either call: see the head of `copying.rs`.
        let (by, taken) = match sampled {
            Some(Sampled { sample, .. }) => {
                let taken = xfs::commit_range(&file.fd, turn.start, donor, at, length, *sample);
                (primitive::COMMIT_RANGE, taken.map_err(skip_of))
            }
            None => {
                let taken = dedupe::share(donor, at, &file.fd, turn.start, length);
                in_part = match taken {
                    Ok(Shared::Bytes(n)) if n < length => Some(n),
                    _ => None,
                };
                let taken = taken.map_err(not_shared).and_then(|shared| all_of(shared, length));
                (primitive::DEDUPE, taken)
            }
        };
        let held = started.elapsed();
        drop(prompt);
        reached(Point::Moved);
        Ok(Answer { by, taken, in_part, held })
    }

    /// Whether an error may pass with the next call, which has been prepared for then.
    pub(super) fn may_pass(&mut self, skip: Skip) -> Result<(), Skip> {
        self.is_sound()?;
        // Failed, too: what was truncated within a tick may look unchanged.
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
        self.failed += 1;
        std::thread::sleep(backoff::wait_after(FIRST_WAIT, self.failed));
        // A shorter turn is done sooner.
        self.turn = (self.turn / 2).max(SHORTEST_TURN);
        Ok(())
    }

    /// Puts the page cache back as it was, for one turn. No page of the file is dropped here: another program
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
        copy.cold.retain(|part| part.end > turn.end);
    }
}

/// The error that the kernel does not take a copy over. Btrfs shares nothing between data with checksums and data
/// without, and shows of neither which it is.
fn not_shared(error: io::Error) -> Skip {
    if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
        let why = format!(
            "the kernel does not share it with a copy of it ({error}): on Btrfs where it was written with another nodatasum or nodatacow than the present one"
        );
        return Skip::new(SkipReason::Unsupported, why);
    }
    skip_of(error)
}
