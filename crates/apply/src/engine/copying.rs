//! Copy into a donor, then have the kernel take it over: for file systems that share or exchange
//! extents (XFS, Btrfs).
//!
//! A part of the file (F) is read, written into the donor's new space (D), and waited for until
//! it is on the device; then both are handed to the kernel, which takes D's space for F only if F
//! still holds what was copied. Nobody is locked out while the copy is made.
//!
//! - [`TakeOver::Share`], `FIDEDUPERANGE`: the kernel locks both files against writers and mapped
//!   stores, writes back, compares byte for byte, and makes F share D's blocks; on a difference it
//!   does nothing. Then D gives up its part, and F is their only owner.
//! - [`TakeOver::Exchange`], `XFS_IOC_COMMIT_RANGE`: the kernel exchanges both mappings, unless F
//!   has changed since it was sampled, while nobody else has it open: see [`super::sample`]. What is not
//!   exchanged is shared where that can be, and the receipt says why.
//!
//! In turns, because readers and writers of F wait for each call. How much a call takes over follows
//! from how long the last one took. What is compared is read page by page under the locks unless it is in the
//! page cache: so all of it is brought there right before, and known to be there. A turn at which
//! somebody has written to F in between is copied once more, block by block where it differs.
//!
//! What the device has refused of somebody's write is in the page cache alone, and both calls drop that: so what is
//! cached of a part is compared with the device right before it is copied ([`super::turns::is_on_disk`]).
//! Nothing that is dirty is left to the calls, which would write it out under the locks.
//!
//! A range whose first piece lies in it as a whole, and is no longer than [`LONGEST_PIECE`], is never in more
//! pieces than before, wherever it ends: the first turn is as long as that piece at least, so it joins
//! what it parts. One that begins inside a longer piece is in one more until its first turns are over.
//!
//! Btrfs writes what is copied into an extent elsewhere once a part of that is shared. So there all of a
//! range is copied before its first turn.
//!
//! Crash argument. If power fails
//!
//! - before the remapping is durable: F has its old blocks, untouched and still its own. D was
//!   never linked, and recovery frees what it held.
//! - after: F has D's blocks. Their bytes were written before the remapping began, and the commit
//!   that makes it durable (XFS: the log write, preceded by a flush; Btrfs: the super block,
//!   preceded by a flush) makes them durable first.
//! - in the middle of a range: an exchange is one logged operation, so each turn is in one of the
//!   two states as a whole; sharing goes stretch by stretch, so each stretch is.
//! - right after the commit: what has moved is durable. XFS forces its log up to what made a new unnamed inode, which
//!   is later than all that was done to F; F itself is not synced.
//! - after D is closed: the old blocks are free, and reused only once that is durable.

use super::donor::{Space, Stage};
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::sample::NoSample;
use super::sample::{CHANGES, Sampled, sample};
use super::turns::{
    State, all_data, all_of, changed, clean, cut_off, is_on_disk, nothing_staged, uncut,
};
use super::warm::{is_cached, is_cold};
use super::{Mover, primitive};
use crate::bytes::{read_at, write_at};
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, Extent, Moves, Relocated, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::dedupe::{self, Shared};
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::Compare;
use fragmend_sys::signals::Unstopped;
use fragmend_sys::{cache, xfs};
use rustix::fs::{Advice, FallocateFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often a turn that changed under its copy is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// How often it is exchanged at most, where sharing can stand in.
const EXCHANGES: u32 = 3;

/// Bytes of the first turn, and how short and how long they become.
const FIRST_TURN: u64 = 128 << 10;
const SHORTEST_TURN: u64 = 16 << 10;
const LONGEST_TURN: u64 = 1 << 20;
/// However long the first piece of a range is, and however busy the device.
const LONGEST_PIECE: u64 = 8 << 20;
const SHORTEST_PART: u64 = 64 << 10;
/// Bytes that are copied between two looks at Ctrl-C; so many more are on their way to the device at most.
const STEP: u64 = 256 << 10;
/// Bytes that are read between two looks at who waits for the file.
const LOOK: u64 = 64 << 10;
/// A call that takes longer is followed by a shorter one, a quicker one by a longer.
const LONG: Duration = Duration::from_millis(10);
const QUICK: Duration = Duration::from_millis(2);

/// Times of files may be as coarse as the slowest kernel's tick (100 Hz): a change in the tick of
/// the sample would not show.
pub(super) const TICK: Duration = Duration::from_millis(11);

/// How the donor's space becomes the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// `FIDEDUPERANGE`: fails only if the turn itself is written to.
    Share {
        /// All of a range is copied before any of it is shared.
        whole: bool,
        /// Why the ranges are not exchanged, where the file system could.
        instead: Option<String>,
    },
    /// `XFS_IOC_COMMIT_RANGE`: fails if the file is written to anywhere.
    Exchange {
        /// Then share it, where the file system can do that.
        or_share: bool,
    },
}

/// Makes something of a file reach the device.
pub(super) type Flush = fn(&OpenFile, &[ByteRange]) -> io::Result<()>;

/// Makes what was done to a file durable, and gives its donor up.
pub(super) type Commit = fn(&OpenFile, OwnedFd) -> io::Result<()>;

/// Gives an empty donor what it needs to be the file's equal.
pub(super) type Prepare = fn(&OpenFile, &OwnedFd) -> Result<(), Skip>;

/// What a file system wants of a copy.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    /// How space is asked for.
    pub space: Space,
    /// What is done to an empty donor.
    pub prepare: Prepare,
    /// Gives what is still delayed of some ranges its place, if that does not take long.
    pub flush: Flush,
    /// Makes what has moved durable.
    pub commit: Commit,
}

/// Copies ranges of one file.
pub(super) struct Copying {
    how: TakeOver,
    wants: Wants,
    stage: Option<Stage>,
    sampled: Option<Sampled>,
    /// How long a sample has locked the file, of which no receipt has told yet.
    held: Duration,
    /// Why the staged range in hand is not exchanged any more.
    given_up: Option<String>,
    /// When the file was last changed at the last copy, and its size in bytes.
    state: State,
    /// Per staged range.
    copies: Vec<Copy>,
    /// Bytes of the next turn, and of a block: a turn is whole blocks.
    turn: u64,
    block: u64,
    /// How often the turn in hand has failed.
    failed: u32,
    /// Where in the file this try of it has come to with copying once more.
    recopied: u64,
    /// The part of the donor that was sent to the device last, and not waited for.
    sent: ByteRange,
    /// The donor could not be written. The kernel says so once, and the page cache goes on showing the
    /// copy that is not on the device: nothing of this donor may be taken over any more.
    unwritable: Option<Skip>,
    pages: Pages,
    compare: Compare,
    buffer: Vec<u8>,
    other: Vec<u8>,
}

/// How far a range has been copied.
struct Copy {
    range: ByteRange,
    /// Bytes of its first piece.
    first_piece: u64,
    /// Where in the file the copy ends.
    end: u64,
    /// What of it somebody had in the page cache.
    warm: Vec<ByteRange>,
}

impl Copying {
    /// One that takes space over in this way.
    pub fn new(file: &OpenFile, how: TakeOver, wants: Wants) -> Self {
        // What is asked for is read, and no more: readahead would fill the device's queue.
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        Self {
            how,
            wants,
            stage: None,
            sampled: None,
            held: Duration::ZERO,
            given_up: None,
            state: State::default(),
            copies: Vec::new(),
            turn: FIRST_TURN,
            block: file.block,
            failed: 0,
            recopied: 0,
            sent: ByteRange::default(),
            unwritable: None,
            pages: Pages::default(),
            compare: Compare::default(),
            buffer: Vec::new(),
            other: Vec::new(),
        }
    }

    /// Whether the range in hand is exchanged.
    fn exchanges(&self) -> bool {
        matches!(self.how, TakeOver::Exchange { .. }) && self.given_up.is_none()
    }

    /// Whether a range is copied as a whole before any of it is taken over.
    fn copies_ahead(&self) -> bool {
        !matches!(self.how, TakeOver::Share { whole: false, .. })
    }

    /// Samples the file, so that every change from now on shows; or gives up exchanging the range,
    /// where sharing stands in.
    fn sample(&mut self, file: &OpenFile, index: usize, from: u64) -> Result<(), Skip> {
        self.sampled = None;
        let (donor, at) = Stage::place(&self.stage, index, ByteRange::at(from, file.block))?;
        match sample(file, index, from, donor, at, &mut self.held) {
            Ok(sampled) => {
                self.sampled = Some(sampled);
                Ok(())
            }
            // It writes the donor's pages out, and this may be what came of it.
            Err(NoSample::OfDonor(skip)) => Err(self.spoil(skip)),
            Err(NoSample::OfFile(skip))
                if matches!(skip.reason, SkipReason::Busy | SkipReason::Unsupported) =>
            {
                self.give_up(skip)
            }
            Err(NoSample::OfFile(skip)) => Err(skip),
        }
    }

    /// Lets in who waits for the file; what was copied so far may be old then.
    fn give_back(&mut self) {
        self.sampled =
            self.sampled.take().filter(|s| !s.lease.is_wanted() && !Unstopped::is_wanted());
    }

    /// Notes that the donor could not be written.
    fn spoil(&mut self, skip: Skip) -> Skip {
        self.unwritable.get_or_insert(skip).clone()
    }

    /// # Errors
    /// The donor could not be written.
    fn is_sound(&self) -> Result<(), Skip> {
        self.unwritable.clone().map_or(Ok(()), Err)
    }

    fn give_up(&mut self, skip: Skip) -> Result<(), Skip> {
        match (&self.how, skip.reason) {
            (TakeOver::Exchange { or_share: false }, SkipReason::Unsupported) => {
                let why = format!("{}, and this XFS cannot share blocks", skip.detail);
                return Err(Skip::new(skip.reason, why));
            }
            (TakeOver::Exchange { or_share: false }, _) => return Err(skip),
            _ => self.given_up = Some(skip.detail),
        }
        Ok(())
    }

    /// Reads a part into the buffer; gives how much of it there was. Who waits for the file is let in meanwhile.
    fn read(&mut self, file: &OpenFile, part: ByteRange) -> Result<usize, Skip> {
        self.buffer.resize(part.len() as usize, 0);
        let mut read = 0;
        for step in part.steps(LOOK) {
            self.give_back();
            let to = &mut self.buffer[read..read + step.len() as usize];
            let got = self.pages.read(&file.fd, step, to).map_err(skip_of)?;
            read += got;
            if (got as u64) < step.len() {
                break;
            }
        }
        Ok(read)
    }

    /// Copies a part to its place in the donor, and sends it on its way to the device, behind the one before it. `again`:
    /// the donor has a copy, and only what differs is written. Gives whether it may be taken over: what others
    /// write just now may be about to be refused.
    fn copy(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        again: bool,
    ) -> Result<bool, Skip> {
        self.state = State::of(file)?;
        let (warm, cold) = (is_cached(file, part), is_cold(file, part));
        let sampled = self.sampled.as_ref().filter(|sampled| sampled.of == index);
        let goes_on = || sampled.is_none_or(|sampled| !sampled.lease.is_wanted());
        // It also writes it back: before an exchange who stores to a mapped page has to meet a fault.
        let sure = is_on_disk(&mut self.compare, file, part, goes_on)?;
        if !sure {
            self.sampled = None;
        }
        let read = self.read(file, part)?;
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
                    write_at(donor, now, at + (n * block) as u64).map_err(skip_of)?;
                }
            }
        } else {
            write_at(donor, data, at).map_err(skip_of)?;
        }
        copy.end = copy.end.max(part.end);
        if (read as u64) < part.len() {
            // Where the file ends inside a block, the kernel wants the donor to end with it. No
            // other range's space lies behind this one's.
            rustix::fs::ftruncate(donor, at + read as u64).map_err(|e| skip_of(e.into()))?;
            copy.end = part.start + read as u64;
        }
        if let Some(sampled) = self.sampled.as_mut().filter(|sampled| sampled.of == index) {
            let goes_on = sampled.fresh.end == part.start;
            let start = if goes_on { sampled.fresh.start } else { part.start };
            sampled.fresh = ByteRange { start, end: part.end };
            if cold {
                // An exchange needs no pages.
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

    /// The turn with which a part begins.
    fn turn(&self, index: usize, part: ByteRange) -> Result<ByteRange, Skip> {
        let copy = self.copies.get(index).ok_or_else(nothing_staged)?;
        // The kernel takes over whole blocks, and says nothing of what it leaves out.
        let whole = |bytes: u64| (bytes / self.block * self.block).max(self.block);
        let mut turn = whole(self.turn).min(whole(part.len()));
        if part.start == copy.range.start {
            turn = turn.max(copy.first_piece);
        }
        Ok(ByteRange::at(part.start, turn).intersect(copy.range))
    }

    /// What the donor lacks of a turn, or, where all of a range is not copied before, of the next one.
    fn lacks(&self, index: usize, turn: ByteRange) -> Result<ByteRange, Skip> {
        let copy = self.copies.get(index).ok_or_else(nothing_staged)?;
        if let Some(Sampled { fresh, .. }) = self.sampled.as_ref().filter(|_| self.exchanges()) {
            // Also what was copied before the last sample.
            let is_fresh = fresh.start <= turn.start && turn.start < fresh.end;
            return Ok(ByteRange { start: if is_fresh { fresh.end } else { turn.start }, ..turn });
        }
        if self.failed > 0 {
            return Ok(ByteRange { start: self.recopied.max(turn.start), ..turn });
        }
        // One turn more, so that the device works meanwhile.
        let end = if self.copies_ahead() { copy.end } else { turn.end + self.turn };
        Ok(ByteRange { start: copy.end, end }.intersect(copy.range))
    }

    /// Copies a step of what the donor lacks of the turn. Gives whether it lacks nothing now, and all is on the
    /// device.
    fn fill(&mut self, file: &OpenFile, index: usize, turn: ByteRange) -> Result<bool, Skip> {
        self.give_back();
        if self.exchanges() && self.sampled.as_ref().is_none_or(|s| s.of != index) {
            if self.recopied > turn.start {
                // Others come faster than it is copied.
                return Err(changed());
            }
            self.sample(file, index, turn.start)?;
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
        // All of an extent, before any of it is shared.
        let all = self.copies_ahead() && turn.start == range.start;
        let wait = if all { range } else { turn };
        let (donor, at) = Stage::place(&self.stage, index, wait)?;
        let written = cache::write_and_wait(donor, at..at + wait.len()).map_err(skip_of);
        written.map_err(|skip| self.spoil(skip))?;
        Ok(true)
    }

    /// Has the kernel take a copied turn over.
    fn take_over(
        &mut self,
        file: &OpenFile,
        index: usize,
        turn: ByteRange,
        done: &mut Relocated,
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
        let goes_on = || sampled.is_none_or(|sampled| !sampled.lease.is_wanted());
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
        let prompt = Prompt::begin();
        let started = Instant::now();
        let mut in_part = false;
        // Safe to crash before, in and after either call: see the head of this file.
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
        done.held = held;
        if held > LONG {
            self.turn = (self.turn / 2).max(SHORTEST_TURN);
        } else if held < QUICK {
            self.turn = (self.turn * 2).min(LONGEST_TURN);
        }
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

    /// Whether what went wrong may go well at the next call, which has been prepared for.
    fn may_pass(&mut self, skip: Skip) -> Result<(), Skip> {
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
    fn restore(&mut self, file: &OpenFile, index: usize, turn: ByteRange) {
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

impl Mover for Copying {
    /// There is no way back: the old space of what was shared is gone.
    fn moves(&self) -> Moves {
        Moves::Parts { prepared: self.copies_ahead(), returns: false, shortest: SHORTEST_PART }
    }

    /// What is shared, too: others keep the old blocks.
    fn takes(&self, parts: &[Extent]) -> Result<(), Skip> {
        match parts.iter().any(|e| e.kind.is_encoded()) {
            true => Err(Skip::new(SkipReason::Encoded, "")),
            false => Ok(()),
        }
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        (self.stage, self.sampled, self.failed, self.unwritable) = (None, None, 0, None);
        (self.recopied, self.sent, self.block) = (0, ByteRange::default(), file.block);
        let Wants { space, prepare, flush, .. } = self.wants;
        flush(file, ranges).map_err(skip_of)?;
        let mut maps = Fiemap::default();
        let mut copy_of = |range: &ByteRange| -> Result<Copy, Skip> {
            let lies = fiemap::layout_within(&mut maps, &file.fd, *range, false);
            let lies = lies.map_err(skip_of)?;
            // A part of an extent stays occupied until all of it is free: killed between two turns,
            // a range would leave behind what of its new extent was not yet taken.
            let first = match self.how {
                TakeOver::Share { whole: true, .. } => range.len(),
                _ => lies.within(*range).next().map_or(0, |piece| piece.length),
            };
            let first_piece = first.min(LONGEST_PIECE);
            Ok(Copy { range: *range, first_piece, end: range.start, warm: Vec::new() })
        };
        self.copies = ranges.iter().map(&mut copy_of).collect::<Result<_, _>>()?;
        let (stage, pieces) = Stage::new(file, ranges, space, |donor| {
            let _ = rustix::fs::fadvise(donor, 0, None, Advice::Random);
            prepare(file, donor)
        })?;
        self.stage = Some(stage);
        reached(Point::Staged);
        Ok(pieces)
    }

    fn prepare(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Result<(), Skip> {
        let range = self.copies.get(index).ok_or_else(nothing_staged)?.range;
        if part.start == range.start {
            (self.given_up, self.failed, self.recopied) = (None, 0, 0);
            if self.exchanges() {
                self.sample(file, index, part.start)?;
            }
        }
        self.give_back();
        match self.copy(file, index, part, false) {
            Ok(true) => {}
            // Nothing of it is taken over before it is copied once more.
            Ok(false) => self.failed = 1,
            Err(skip) => {
                self.sampled = None;
                return Err(skip);
            }
        }
        Ok(())
    }

    /// One attempt at one turn, or a step of its copy: whoever calls looks after pace and Ctrl-C in between.
    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated {
        let mut done = Relocated::default();
        let turn = match self.turn(index, part) {
            Ok(turn) => turn,
            Err(skip) => return Relocated { skip: Some(skip), ..done },
        };
        let taken = match self.fill(file, index, turn) {
            Ok(true) => self.take_over(file, index, turn, &mut done).map(|()| true),
            other => other,
        };
        match taken {
            Ok(false) => {}
            Ok(true) => {
                self.failed = 0;
                self.restore(file, index, turn);
                if self.copies.get(index).is_some_and(|copy| turn.end >= copy.range.end) {
                    (self.sampled, self.recopied) = (None, 0);
                }
            }
            Err(skip) => {
                done.skip = self.may_pass(skip).err();
                if done.skip.is_some() {
                    (self.failed, self.sampled, self.recopied) = (0, None, 0);
                }
                if done.skip.as_ref().is_some_and(|s| s.reason == SkipReason::Failed)
                    && State::of(file).is_ok_and(|now| now != self.state)
                {
                    done.skip = Some(changed());
                }
            }
        }
        done.held = done.held.max(std::mem::take(&mut self.held));
        done
    }

    fn let_others_in(&mut self, _: &OpenFile) -> Result<(), Skip> {
        self.give_back();
        Ok(())
    }

    fn keep_nobody_out(&mut self, _: &OpenFile) -> Result<(), Skip> {
        self.sampled = None;
        Ok(())
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        self.sampled = None;
        let Some((donor, moved)) = self.stage.take().and_then(Stage::end) else { return Ok(()) };
        let _prompt = Prompt::begin();
        (self.wants.commit)(file, donor).map_err(skip_of)?;
        reached(Point::Settled);
        moved.restore_cache(file);
        Ok(())
    }
}
