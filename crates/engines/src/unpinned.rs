//! That no device writes to pages of a file, known beyond the end of a lease.
//!
//! A page can be pinned to be written to only after a write fault on a shared mapping, which sets the file's
//! times before the page becomes writable (`file_update_time()`, fs/inode.c, in `ext4_page_mkwrite()`,
//! `xfs_write_fault()` and `btrfs_page_mkwrite()`). A fault that is under way refers to its page, which stays
//! in the page cache for as long. So where nothing of a part was cached, no page of it is pinned until the
//! file's time of change (ctime) is another one. File times may be coarse: so it must have been older than
//! [`COARSEST`].
//!
//! Where programs open a file again and again, this saves comparing its pages with the device, and reading them
//! once more, under each new lease.
//!
//! Not seen: on XFS, a program that has opened the file by its handle for invisible I/O
//! (`XFS_IOC_OPEN_BY_HANDLE`) sets no times. So it does not count there where a lease is to prove it.

use super::mounted::OpenFile;
use super::turns::State;
use super::warm::is_cold;
use fragmend_layout::{ByteRange, Skip};
use std::time::Duration;

/// ext4 with inodes of 128 bytes counts in seconds; two more, so that no tick matters.
pub(super) const COARSEST: Duration = Duration::from_secs(3);

/// A part of a file, and the file's state when no page of the part was cached.
#[derive(Debug, Default)]
pub(super) struct Unpinned(Option<(State, ByteRange)>);

impl Unpinned {
    /// Notes that no page of a part is pinned now, if none is cached, and if a later change would show.
    /// Parts that follow each other add up.
    ///
    /// # Errors
    /// A system error.
    pub fn note(&mut self, file: &OpenFile, part: ByteRange) -> Result<(), Skip> {
        let state = State::of(file)?;
        if !state.is_older_than(COARSEST) || !is_cold(file, part) {
            return Ok(());
        }
        let start = match self.0 {
            Some((then, noted)) if then == state && noted.end == part.start => noted.start,
            _ => part.start,
        };
        self.0 = Some((state, ByteRange { start, end: part.end }));
        Ok(())
    }

    /// Whether no page of a part is pinned now.
    ///
    /// # Errors
    /// A system error.
    pub fn covers(&self, file: &OpenFile, part: ByteRange) -> Result<bool, Skip> {
        let Some((state, noted)) = self.0 else { return Ok(false) };
        Ok(noted.intersect(part) == part && State::of(file)? == state)
    }
}
