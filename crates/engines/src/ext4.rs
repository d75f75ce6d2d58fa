//! ext4: `EXT4_IOC_MOVE_EXT` with a donor whose place was compared first.
//!
//! Crash argument, for `data=ordered` with a journal. A step exchanges the blocks under a range of the file (F)
//! with those of an unnamed donor (D) in one journal transaction T per few blocks, after copying the contents
//! into the page cache pages of F that now belong to the new blocks. If power fails
//!
//! - before T commits: F still has its old blocks, untouched. D was never linked, so recovery frees whatever it
//!   held.
//! - after T commits: ordered mode has written the copied pages to the new blocks before the commit, so F has
//!   the new blocks with the same bytes. The old ones belong to D, which is on the orphan list, and are freed
//!   by recovery.
//! - in the middle of a range: each block is in one of the two states above.
//! - after D is closed: its blocks are freed in T or in a later transaction. Freed blocks are not allocated
//!   again before the transaction that freed them has committed, so not while F could still return to them.
//!
//! Until T commits, what other programs sync of F would not be durable: they are kept out (`super::hold`). Fast
//! commits replay onto the mapping of the last full commit and do not record exchanges: a file system that
//! makes them is refused unless forced.
//!
//! Without a journal, or with `data=writeback`, nothing orders the copied pages before the new mapping: such a
//! file system is refused unless forced. With `data=journal` the kernel refuses the exchange.
//!
//! A new place that cannot be written (a thin disk without space, a bad sector). The kernel reports that only
//! when the copies are waited for, and commits all the same. So the copies of each step are waited for and
//! compared with what the device has: before the next step, before other programs are let in, before anything
//! is dropped from the page cache, and before D, which still holds the old blocks, is closed. Where they differ
//! the step goes back, from the page cache to the old blocks, while all other programs are kept out. What is in
//! flight under the lease is one step. Not covered: a power cut, or `SIGKILL`, between the failed write and the
//! return of the step, and a machine so short of memory that it drops a page in between.
//!
//! Another program's write that the disk refused, at the old place, is in the page cache only, in a clean page:
//! that is never dropped (`fragmend_sys::same`), nothing goes back for it, and no more of the file moves.
//! Nothing here consumes the error of a descriptor: neither of the program that wrote nor of the next one that
//! opens the file.
//!
//! The kernel holds both inodes' locks for a step, and reads what it copies under them. So the pages are read
//! *before*, without locks. They must be single pages: on 6.16 to 6.19 an exchange under a large folio dirties
//! all of it, and each further block of it waits for a flush. A file opened for reading at random
//! (`POSIX_FADV_RANDOM`) is read into single pages; pages that were cached before are dropped first, see
//! `Exchange::make_room`; pages that a program has mapped cannot be dropped, and are exchanged in short turns,
//! see `Exchange::exchange_in_turns`. Measured for 128 KiB in 32 extents: 0.3 ms under the locks instead of 4
//! ms.

use super::donor::unnamed;
use super::exchange::Exchange;
use super::mounted::OpenFile;
use super::{Engine, Moves, ordering};
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::inode::flags;
use fragmend_sys::mounts::Mount;
use fragmend_sys::root::Root;
use rustix::fs::Advice;
use std::cell::Cell;

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
    /// Checks the mount's journal mode; `force` accepts any but `data=journal`.
    ///
    /// # Errors
    /// Why the mount cannot promise what it must, or cannot move extents at all.
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
    fn mover(&self, file: &mut OpenFile) -> Result<Moves, Skip> {
        if !self.force && self.is_fast(file)? {
            return Err(Skip::new(SkipReason::Unsupported, FAST));
        }
        // No readahead beyond what is requested: it would come in large folios.
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        Ok(Box::new(Exchange::new(self.force)))
    }
}

impl Ext4 {
    /// Whether it makes fast commits; determined once.
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
