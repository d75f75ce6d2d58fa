//! The copy of a range in the donor: made step by step, and on the device before any of it is taken over.

use super::{Copy, Copying, LOOK, STEP, TRIES};
use crate::bytes::{read_at, write_at};
use crate::donor::Stage;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::sample::Sampled;
use crate::turns::{State, changed, cut_off, is_on_disk, nothing_staged, vacate, vacate_if_alone};
use crate::warm::{is_cached, is_cold};
use fragmend_layout::{ByteRange, Skip};
use fragmend_sys::cache;
use std::sync::atomic::{AtomicBool, Ordering};

impl Copying {
    /// Reads a part into the buffer; returns how many bytes there were. A program that waits for the file is
    /// let in between two reads.
    fn read(&mut self, file: &OpenFile, part: ByteRange) -> Result<usize, Skip> {
        self.buffer.resize(part.len() as usize, 0);
        let mut read = 0;
        // Where nobody waits, neither for a lease nor for the device, many extents are requested at once.
        let steps = if self.sampled.is_some() || self.others_read { LOOK } else { STEP };
        for step in part.steps(steps) {
            self.release_if_wanted();
            let to = &mut self.buffer[read..read + step.len() as usize];
            let got = self.pages.read(&file.fd, step, to).map_err(skip_of)?;
            read += got;
            if (got as u64) < step.len() {
                break;
            }
        }
        Ok(read)
    }

    /// Whether all that is cached of a part was read ahead and is what the device has; whether others had at least
    /// half of it cached; and whether what is cached of it, if anything, is what the device has. Notes what is to be
    /// dropped if it does not move.
    fn find_cached(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
    ) -> Result<(bool, bool, bool), Skip> {
        let requested = self.read_ahead.has(part);
        let ahead = requested && self.read_ahead.is_current(file)?;
        let cold = ahead || is_cold(file, part);
        if (requested || cold)
            && let Some(copy) = self.copies.get_mut(index)
        {
            copy.cold.push(part);
        }
        Ok((ahead, !requested && is_cached(file, part), cold))
    }

    /// Copies a part to its place in the donor, starts writing it to the device, and waits for the part before
    /// it. With `again`, the donor has a copy, and only blocks that differ are written. Returns whether the
    /// copy may be taken over: if others write to the part just now, the device may be about to refuse that.
    pub(super) fn copy(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        again: bool,
    ) -> Result<bool, Skip> {
        self.copies.get_mut(index).ok_or_else(nothing_staged)?.state = State::of(file)?;
        let (ahead, warm, cold) = self.find_cached(file, index, part)?;
        let sampled = self.sampled.as_ref().filter(|sampled| sampled.index == index);
        let goes_on = || sampled.is_none_or(|sampled| !sampled.lease.is_wanted());
        let drops = self.wants.drops_pages;
        let mut sure = true;
        if drops && sampled.is_none() && !self.unpinned.covers(file, part)? {
            // First, so that what is dropped is compared once.
            sure = cold || vacate_if_alone(&mut self.compare, file, part)?;
            self.unpinned.note(file, part)?;
        }
        // This also writes the part back: before an exchange, a store to a mapped page has to cause a fault.
        sure = sure && (ahead || is_on_disk(&mut self.compare, file, part, goes_on)?);
        if sure && drops && sampled.is_some() && !cold {
            // It was compared under the lease.
            let _ = cache::drop_clean(&file.fd, part.start..part.end);
            sure = vacate(&mut self.compare, file, part, goes_on)?;
        }
        if !sure {
            self.sampled = None;
        }
        let read = self.read(file, part)?;
        let mut repeatable = self.repeatable();
        let (donor, at) = Stage::place(&self.stage, index, part)?;
        let copy = self.copies.get_mut(index).ok_or_else(nothing_staged)?;
        if (read as u64) < part.len() && (read == 0 || part.end < copy.range.end) {
            return Err(cut_off());
        }
        if warm && !again {
            copy.warm.push(part);
        }
        let data = &self.buffer[..read];
        if again {
            self.other.resize(read, 0);
            let there = read_at(donor, &mut self.other, at).map_err(skip_of)?;
            self.other.truncate(there);
            let block = file.block as usize;
            for (n, now) in data.chunks(block).enumerate() {
                let then = self.other.get(n * block..n * block + now.len());
                if then != Some(now) {
                    if now.len() as u64 > repeatable {
                        // No further try.
                        self.failed = TRIES;
                        return Err(changed());
                    }
                    repeatable -= now.len() as u64;
                    self.repeated += now.len() as u64;
                    write_at(donor, now, at + (n * block) as u64).map_err(skip_of)?;
                }
            }
        } else {
            let once_more = copy.end.saturating_sub(part.start).min(part.len());
            if once_more > repeatable {
                self.failed = TRIES;
                return Err(changed());
            }
            self.repeated += once_more;
            write_at(donor, data, at).map_err(skip_of)?;
        }
        copy.end = copy.end.max(part.end);
        if (read as u64) < part.len() {
            // Where the file ends inside a block, the kernel requires the donor to end at the same place. No
            // other range's space is behind this one's.
            rustix::fs::ftruncate(donor, at + read as u64).map_err(|e| skip_of(e.into()))?;
            copy.end = part.start + read as u64;
        }
        if let Some(sampled) = self.sampled.as_mut().filter(|sampled| sampled.index == index) {
            let goes_on = sampled.fresh.end == part.start;
            let start = if goes_on { sampled.fresh.start } else { part.start };
            sampled.fresh = ByteRange { start, end: part.end };
            if cold {
                // An exchange needs no cached pages.
                let _ = cache::drop_clean(&file.fd, part.start..part.end);
            }
        }
        let now = ByteRange::at(at, read as u64);
        let before = std::mem::replace(&mut self.sent, now);
        let sent = cache::start_writeback(donor, now.start..now.end);
        let sent = sent.and_then(|()| cache::write_and_wait(donor, before.start..before.end));
        sent.map_err(skip_of).map_err(|skip| self.spoil(skip))?;
        Ok(sure)
    }

    /// The turn at the start of a part.
    pub(super) fn turn(&self, index: usize, part: ByteRange) -> Result<ByteRange, Skip> {
        let copy = self.copies.get(index).ok_or_else(nothing_staged)?;
        // The kernel takes over whole blocks, and does not report what it leaves out.
        let whole = |bytes: u64| (bytes / self.block * self.block).max(self.block);
        let mut turn = whole(self.turn).min(whole(part.len()));
        if part.start == copy.range.start {
            turn = turn.max(copy.first_extent);
        }
        Ok(ByteRange::at(part.start, turn).intersect(copy.range))
    }

    /// What the donor lacks of a turn, and, where not all of a range is copied before, of the next one.
    fn lacks(&self, index: usize, turn: ByteRange) -> Result<ByteRange, Skip> {
        let copy = self.copies.get(index).ok_or_else(nothing_staged)?;
        if let Some(Sampled { fresh, .. }) = self.sampled.as_ref().filter(|_| self.exchanges()) {
            // What was copied before the last sample counts as missing.
            let is_fresh = fresh.start <= turn.start && turn.start < fresh.end;
            return Ok(ByteRange { start: if is_fresh { fresh.end } else { turn.start }, ..turn });
        }
        if self.failed > 0 {
            return Ok(ByteRange { start: self.recopied.max(turn.start), ..turn });
        }
        // One turn more, so that the device has work meanwhile.
        let end = if self.copies_ahead() { copy.end } else { turn.end + self.turn };
        // The copy may end where the file does, in the middle of a block: behind that nothing is lacking.
        let start = copy.end.next_multiple_of(self.block);
        Ok(ByteRange { start, end }.intersect(copy.range))
    }

    /// Copies a step of what the donor lacks of the turn. Returns whether it lacks nothing now, and all of that
    /// is on the device.
    pub(super) fn fill(
        &mut self,
        file: &OpenFile,
        index: usize,
        turn: ByteRange,
        stop: &AtomicBool,
    ) -> Result<bool, Skip> {
        self.release_if_wanted();
        if self.exchanges() && self.sampled.as_ref().is_none_or(|s| s.index != index) {
            if self.recopied > turn.start {
                // Programs that open the file come faster than it is copied.
                return Err(changed());
            }
            self.sample(file, index, turn.start, stop)?;
        }
        if !self.copies_ahead() && !self.others_read && self.failed == 0 && self.pages.is_quick() {
            self.read_ahead.request(file, &self.copies, index, &mut self.pages)?;
        }
        let lacks = self.lacks(index, turn)?;
        let part = ByteRange::at(lacks.start, STEP).intersect(lacks);
        let copy = self.copies.get(index).ok_or_else(nothing_staged)?;
        let (range, copied) = (copy.range, copy.end);
        if !part.is_empty() {
            let sure = self.copy(file, index, part, copied >= part.end)?;
            if !sure || self.exchanges() && self.sampled.is_none() {
                return Err(changed());
            }
            self.recopied = part.end;
            if part.end < lacks.end {
                return Ok(false);
            }
        }
        let is_last = turn.end >= range.end && self.failed == 0;
        if is_last && !self.copies_ahead() && !self.others_read {
            self.copy_next(file, index + 1, stop);
        }
        // All of an extent is waited for before any of it is shared.
        let all = self.copies_ahead() && turn.start == range.start;
        let wait = if all { range } else { turn };
        let (donor, at) = Stage::place(&self.stage, index, wait)?;
        let written = cache::write_and_wait(donor, at..at + wait.len()).map_err(skip_of);
        written.map_err(|skip| self.spoil(skip))?;
        Ok(true)
    }

    /// Copies a step of a range before the turn of it comes, so that the device writes that while the kernel takes
    /// over the last turn of the range before it, and is not waited for. Nothing rests on it: whatever hinders
    /// this copy is met again, and reported, when the turn comes, and the range is copied then.
    fn copy_next(&mut self, file: &OpenFile, index: usize, stop: &AtomicBool) {
        let begins = |copy: &&Copy| copy.moves && copy.end == copy.range.start;
        let Some(range) = self.copies.get(index).filter(begins).map(|copy| copy.range) else {
            return;
        };
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(turn) = self.turn(index, ByteRange::at(range.start, self.turn)) else { return };
        let step = ByteRange::at(turn.start, STEP).intersect(turn);
        // What is copied in vain is copied once more.
        if step.len() > self.repeatable() {
            return;
        }
        if self.copy(file, index, step, false) != Ok(true)
            && let Some(copy) = self.copies.get_mut(index)
        {
            self.repeated += step.len();
            let cold = std::mem::take(&mut copy.cold);
            *copy = Copy { moves: true, cold, ..Copy::none(range, copy.first_extent) };
        }
    }
}
