//! ext4: `EXT4_IOC_MOVE_EXT` with a donor that was looked at first.
//!
//! Crash argument, for `data=ordered` with a journal. A step exchanges the blocks under a range
//! of the file (F) with those of an unnamed donor (D) in one journal transaction T per few
//! blocks, after copying the contents into the page cache pages of F that now belong to the new
//! blocks. If power fails
//!
//! - before T commits: F still has its old blocks, untouched. D was never linked, so recovery
//!   frees whatever it held.
//! - after T commits: ordered mode has written the copied pages to the new blocks before the
//!   commit, so F has the new blocks with the same bytes. The old ones belong to D, which is on
//!   the orphan list, and are freed by recovery.
//! - in the middle of a range: each block is in one of the two states above.
//! - after D is closed: its blocks are freed in T or in a later transaction. Freed blocks are not
//!   handed out before the transaction that freed them has committed, so not while F could
//!   still come back to them.
//!
//! Until T commits, what others sync of F would not be durable: they are kept out (`super::hold`).
//! Fast commits replay onto the mapping of the last full commit and do not know of exchanges: a file
//! system that makes them is refused unless forced.
//!
//! Without a journal, or with `data=writeback`, nothing orders the copied pages before the new
//! mapping: such a file system is refused unless forced. `data=journal` the kernel refuses.
//!
//! A new place that cannot be written (a thin disk with nothing left, a bad sector). The kernel says
//! so only when the copies are waited for, and commits all the same. So they are waited for before
//! anything is dropped from the page cache, and before D, which still holds the old blocks, is
//! closed; on an error all goes back, from the page cache to the old blocks. A power cut between the
//! failed write and that, or a machine so short of memory that it drops a page in between, is not
//! covered.
//!
//! The kernel holds both inodes' locks for a step, and reads what it copies while it does. So
//! the pages are read *before*, without locks. They must be single pages: on 6.16 to 6.19 an
//! exchange under a large folio dirties all of it, and each further block of it waits for a
//! flush. A file opened for reading at random (`POSIX_FADV_RANDOM`) is read into single pages; what was cached before is
//! dropped first, see `Exchange::make_room`; what somebody has mapped cannot be, and is exchanged
//! in short turns, see `Exchange::exchange_in_turns`. Measured for 128 KiB in 32 pieces: 0.3 ms
//! under the locks instead of 4 ms.

use super::donor::{Space, Stage, unnamed};
use super::errno::skip_of;
use super::hold::Hold;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::{Engine, Mover, ordering, primitive};
use crate::bytes::read_at;
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, Moves, Relocated, Skip, SkipReason};
use fragmend_sys::cache;
use fragmend_sys::inode::flags;
use fragmend_sys::mounts::Mount;
use fragmend_sys::move_ext::{Blocks, move_extents};
use fragmend_sys::root::Root;
use rustix::fs::Advice;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Bytes exchanged by the first call for a file; the next ones are longer or shorter, so that none
/// locks the file for long.
const FIRST_TURN: u64 = 64 << 10;
const LONGEST_TURN: u64 = 1 << 20;
const LONG: Duration = Duration::from_millis(2);

/// What is exchanged at most before others are let in, and what is read.
const LONGEST_STEP: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;

/// How often a step that met a busy page is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// What a receipt says of a move that was stopped for too long.
const STOPPED: &str = "this process was stopped for so long that others may have opened the file before the move was committed; it was committed at once";

/// Why fast commits are refused.
const FAST: &str = "it makes fast commits, which know nothing of moved blocks: after a power cut, bytes that others wrote and synced there would be gone; turn them off with tune2fs -O ^fast_commit while it is not mounted, or --force to accept that (Linux 6.18 may hang on it, too)";

/// The engine of every ext4 whose journal orders data before mappings.
pub(super) struct Ext4 {
    dev: u64,
    force: bool,
    /// Whether it makes fast commits, once that is known.
    fast: Cell<Option<bool>>,
}

impl Ext4 {
    /// Looks at the mount's journal mode; `force` takes it whatever it is.
    ///
    /// # Errors
    /// Why it cannot promise what it must, or cannot move extents at all.
    pub fn new(mount: &Mount, root: &Root, force: bool) -> Result<Self, String> {
        let mode = ordering::data_mode(mount)?;
        let safe = mode == "ordered";
        if mode == "journal" {
            return Err("mounted with data=journal, where the kernel cannot move extents; mount it with data=ordered".into());
        }
        if !safe && !force {
            let what =
                if mode.is_empty() { "it has no journal" } else { "mounted with data=writeback" };
            return Err(format!(
                "{what}, so a power cut could leave moved ranges without their data; use data=ordered, or --force to accept that"
            ));
        }
        let fast = ordering::has_fast_commits(mount, root).ok();
        match fast {
            Some(true) if !force => Err(FAST.into()),
            _ => Ok(Self { dev: mount.dev, force, fast: Cell::new(fast) }),
        }
    }
}

impl Engine for Ext4 {
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip> {
        if !self.force && self.is_fast(file)? {
            return Err(Skip::new(SkipReason::Unsupported, FAST));
        }
        // No readahead beyond what is asked for: it would come in large folios.
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        Ok(Box::new(Exchange {
            stage: None,
            // In single pages, the file being opened for reading at random.
            pages: Pages::default(),
            scratch: Vec::new(),
            turn: FIRST_TURN,
            exchanged: Vec::new(),
            unwritable: None,
            hold: Hold::new(self.force),
        }))
    }
}

impl Ext4 {
    /// Whether it makes fast commits; asked once.
    fn is_fast(&self, file: &OpenFile) -> Result<bool, Skip> {
        if let Some(known) = self.fast.get() {
            return Ok(known);
        }
        let fast = ordering::counts_fast_commits(self.dev, &unnamed(file)?).map_err(|e| {
            let why = format!("cannot tell whether the file system makes fast commits: {e}");
            Skip::new(SkipReason::Unsupported, why)
        })?;
        self.fast.set(Some(fast));
        Ok(fast)
    }
}

/// See [`super::may_move`]; these attributes mean something on ext4 alone.
pub(super) fn may_move(attributes: u32) -> Result<(), Skip> {
    if attributes & flags::JOURNAL_DATA != 0 {
        return Err(Skip::new(SkipReason::JournalledData, ""));
    }
    if attributes & flags::INLINE_DATA != 0 {
        return Err(Skip::new(SkipReason::InlineData, ""));
    }
    if attributes & flags::EXTENTS == 0 {
        return Err(Skip::new(SkipReason::NoExtents, ""));
    }
    Ok(())
}

/// Exchanges blocks with a donor.
struct Exchange {
    stage: Option<Stage>,
    pages: Pages,
    scratch: Vec<u8>,
    /// Bytes for the next call.
    turn: u64,
    /// What has changed places, with its staged range.
    exchanged: Vec<(usize, ByteRange)>,
    /// A copy could not be written to its new place.
    unwritable: Option<Skip>,
    /// Who may have the file open meanwhile.
    hold: Hold,
}

impl Exchange {
    /// Waits until a range is on the device. The kernel tells an error once, so it is kept.
    fn write_out(&mut self, file: &OpenFile, range: ByteRange) -> bool {
        let written = cache::write_and_wait(&file.fd, range.start..range.end).map_err(skip_of);
        if let Err(skip) = written
            && !self.exchanged.is_empty()
        {
            self.unwritable.get_or_insert(skip);
        }
        self.unwritable.is_none()
    }

    /// Waits until all that has changed places is on the device.
    fn write_all_out(&mut self, file: &OpenFile) {
        for (_, range) in self.exchanged.clone() {
            self.write_out(file, range);
        }
    }

    /// Notes that a range has changed places, or has done so once more.
    fn note(&mut self, index: usize, range: ByteRange) {
        if !self.exchanged.iter().any(|(_, known)| known.overlaps(range)) {
            match self.exchanged.last_mut() {
                Some((of, last)) if *of == index && last.end == range.start => last.end = range.end,
                _ => self.exchanged.push((index, range)),
            }
            return;
        }
        let without = |(of, known): (usize, ByteRange)| {
            let head = ByteRange { end: known.end.min(range.start), ..known };
            let tail = ByteRange { start: known.start.max(range.end), ..known };
            [(of, head), (of, tail)]
        };
        let rest = std::mem::take(&mut self.exchanged).into_iter().flat_map(without);
        self.exchanged = rest.filter(|(_, part)| !part.is_empty()).collect();
    }

    /// Exchanges all that has changed places once more, without a look at the new one: what the
    /// page cache holds is the only copy there is.
    fn put_back(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let mut all = Ok(());
        for (index, range) in self.exchanged.clone() {
            let mut done = Relocated::default();
            for attempt in 1..=TRIES {
                let rest = ByteRange { start: range.start + done.moved, end: range.end };
                match self.exchange(file, index, rest, &mut done) {
                    Ok(()) => break,
                    Err(skip) if skip.reason != SkipReason::Busy || attempt == TRIES => {
                        all = all.and(Err(skip));
                        break;
                    }
                    Err(_) => std::thread::sleep(FIRST_WAIT),
                }
            }
        }
        // Errors of the copies' writing were told before; this waits for the old blocks' pages.
        let written = rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()));
        all.and(written).and(self.hold.commit(file))
    }

    /// Drops what the page cache holds of `part`, once it is on the device. A folio that reaches
    /// beyond the part stays on the first try; then everything in its way goes. Whether nothing
    /// stayed: what somebody has mapped does.
    fn make_room(&mut self, file: &OpenFile, part: ByteRange) -> bool {
        let cached = |range: ByteRange| cache::cached_pages(&file.fd, range.start..range.end);
        let mut drop = |range: ByteRange| {
            if self.write_out(file, range) {
                let _ = cache::drop_clean(&file.fd, range.start..range.end);
            }
        };
        // An old kernel that cannot tell has no large folios either.
        if cached(part).unwrap_or(0) > 0 {
            drop(part);
            if cached(part).unwrap_or(0) > 0 {
                drop(part.align_outward(cache::largest_folio()));
            }
        }
        cached(part).unwrap_or(0) == 0
    }

    /// Reads a part into the page cache, and waits for it; nobody else waits for more than a piece of it.
    /// Whether it is there in single pages.
    fn prefetch(&mut self, file: &OpenFile, part: ByteRange) -> Result<bool, Skip> {
        let mut single = self.make_room(file, part);
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
        done: &mut Relocated,
    ) -> Result<(), Skip> {
        if !single {
            self.turn = file.block;
        }
        let mut rest = part;
        while !rest.is_empty() {
            let next = ByteRange::at(rest.start, self.turn).intersect(rest);
            let started = Instant::now();
            self.exchange(file, index, next, done)?;
            self.turn = match started.elapsed() > LONG {
                true => (self.turn / 2).next_multiple_of(file.block),
                false => (self.turn * 2).min(LONGEST_TURN),
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
        done: &mut Relocated,
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
        self.note(index, ByteRange::at(rest.start, moved));
        done.moved += moved;
        done.by = Some(primitive::MOVE_EXT);
        if self.hold.is_lost() {
            // Before anything else: who has it open now may be syncing it.
            self.hold.commit(file)?;
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
        done: &mut Relocated,
    ) -> Result<(), Skip> {
        let before = done.moved;
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let rest = ByteRange { start: step.start + done.moved - before, end: step.end };
            let single = self.prefetch(file, rest)?;
            // It was given back if somebody waited.
            self.hold.take(file)?;
            if let Some(skip) = &self.unwritable {
                return Err(skip.clone());
            }
            let Err(skip) = self.exchange_in_turns(file, index, rest, single, done) else { break };
            // Failed: a range that the file's new end has just cut is invalid to the kernel.
            let may_pass = matches!(skip.reason, SkipReason::Busy | SkipReason::Failed);
            if !may_pass || attempt == TRIES {
                return Err(skip);
            }
            // Somebody dirtied a page or holds it: write back, and try what is left.
            self.write_out(file, rest);
            std::thread::sleep(wait);
            wait *= 2;
        }
        Ok(())
    }
}

impl Mover for Exchange {
    /// It goes back by the same way.
    fn moves(&self) -> Moves {
        Moves::Parts { prepared: false, returns: true, shortest: 0 }
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        (self.stage, self.exchanged, self.unwritable) = (None, Vec::new(), None);
        // No space is asked for in vain; and staging takes longer than anybody should wait.
        self.hold.take(file)?;
        self.hold.commit(file)?;
        // Data that is still on its way must be on the disk before its blocks are exchanged, or
        // the exchange meets dirty pages. And the commit makes freed space free.
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        let (stage, pieces) = Stage::new(file, ranges, Space::Choice, |_| Ok(()))?;
        for range in ranges {
            self.make_room(file, *range);
        }
        self.stage = Some(stage);
        reached(Point::Staged);
        Ok(pieces)
    }

    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated {
        let mut done = Relocated::default();
        if self.hold.is_lost()
            && let Err(skip) = self.let_others_in(file)
        {
            return Relocated { skip: Some(skip), ..done };
        }
        if let Err(skip) = self.hold.take(file) {
            return Relocated { skip: Some(skip), ..done };
        }
        // A plan that somebody wrote by hand may have parts of any length.
        let exchanged = part.steps(LONGEST_STEP).try_for_each(|step| {
            self.step(file, index, step, &mut done)?;
            // The sooner the copies are on their way, the shorter the journal's next commit.
            let _ = cache::start_writeback(&file.fd, step.start..step.end);
            if self.hold.must_commit() { self.let_others_in(file) } else { Ok(()) }
        });
        done.skip = exchanged.err();
        // Also what moved before the step that failed.
        if self.hold.must_commit()
            && let Err(skip) = self.let_others_in(file)
        {
            done.skip.get_or_insert(skip);
        }
        done.note = self.hold.was_lost().then(|| STOPPED.into());
        done
    }

    fn let_others_in(&mut self, file: &OpenFile) -> Result<(), Skip> {
        self.write_all_out(file);
        // While copies cannot be written, everybody is kept out until all is back: see `settle`.
        self.unwritable.clone().map_or_else(|| self.hold.commit(file), Err)
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        self.write_all_out(file);
        if let Some(Skip { detail, .. }) = self.unwritable.take() {
            let back = self.put_back(file);
            self.stage = None;
            let what = match back {
                Ok(()) => "what had moved is back where it was".into(),
                Err(skip) => format!("and it could not all be put back: {}", skip.detail),
            };
            let why = format!("the new place cannot be written ({detail}); {what}");
            return Err(Skip::new(SkipReason::Failed, why));
        }
        // The donor goes before the commit, so that its own mapping of the old blocks, which
        // nobody will ever read, mostly never reaches the journal.
        let moved = self.stage.take().and_then(Stage::close);
        self.hold.commit(file)?;
        let Some(moved) = moved else { return Ok(()) };
        reached(Point::Settled);
        moved.restore_cache(file);
        Ok(())
    }
}
