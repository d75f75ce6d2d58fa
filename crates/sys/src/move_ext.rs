//! `EXT4_IOC_MOVE_EXT` (fs/ext4/ext4.h): exchanges the blocks under a range of one ext4 file with those of a
//! donor, and copies the contents through the page cache.
//!
//! The kernel holds the locks of both inodes, so concurrent readers and writers see either the old or the new
//! blocks, with the same bytes. An exchange is *not* atomic over a range: the kernel reports how many blocks
//! were exchanged, also on error. It passes over holes of either file and does not count them
//! (fs/ext4/move_extent.c): only in a range without holes are those blocks the first ones.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor_fd: u32,
    orig_start: u64,
    donor_start: u64,
    len: u64,
    moved_len: u64,
}

const _: () = assert!(size_of::<MoveExtent>() == 40);
const EXT4_IOC_MOVE_EXT: libc::c_ulong = 0xC028_660F;

/// Two ranges of equal length, in blocks of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First block of the range in the file whose data moves.
    pub orig: u64,
    /// First block of the range in the donor.
    pub donor: u64,
    /// Number of blocks.
    pub len: u64,
}

/// The progress of one call.
#[derive(Debug)]
pub struct Moved {
    /// The number of blocks that were exchanged; the first ones of the range if neither file has a hole in it.
    pub blocks: u64,
    /// Why it ended before the end of the range, if it did.
    pub error: Option<io::Error>,
}

/// Exchanges `blocks` between `orig` and `donor`, both open for reading and writing.
///
/// Known errors: `EBUSY` (a page could not be released, often because it is mapped and dirty), `EOPNOTSUPP`
/// (data journalling, encryption, DAX, bigalloc, quota files), `ETXTBSY` (swap file), `EPERM` (immutable or
/// append-only), `EINVAL` (not on one file system, range past the end).
pub fn move_extents(orig: impl AsFd, donor: impl AsFd, blocks: Blocks) -> Moved {
    let mut arg = MoveExtent {
        reserved: 0,
        donor_fd: donor.as_fd().as_raw_fd() as u32,
        orig_start: blocks.orig,
        donor_start: blocks.donor,
        len: blocks.len,
        moved_len: 0,
    };
    // SAFETY: EXT4_IOC_MOVE_EXT reads and writes exactly this 40-byte structure.
    let rc = unsafe { libc::ioctl(orig.as_fd().as_raw_fd(), EXT4_IOC_MOVE_EXT, &raw mut arg) };
    let error = (rc < 0).then(io::Error::last_os_error);
    Moved { blocks: arg.moved_len, error }
}
