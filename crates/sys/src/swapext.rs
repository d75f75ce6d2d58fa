//! `XFS_IOC_SWAPEXT` (xfs_fs.h of the kernel): swaps the whole mappings of two XFS files, as `xfs_fsr(8)`
//! does, on XFS of every version.
//!
//! The kernel locks both files, writes both back, and fails unless the first still has the times that the
//! caller saw: so a change since the copy is detected.

use crate::xfs::ioctl;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const XFS_IOC_SWAPEXT: libc::c_ulong = 0xC0C0_586D;

/// A timestamp of a file: seconds and nanoseconds.
pub type Time = (i64, u32);

/// The times of a file that change when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Of the last modification.
    pub modified: Time,
    /// Of the last change.
    pub changed: Time,
}

/// `struct xfs_bstime`.
#[repr(C)]
struct BulkTime {
    seconds: i64,
    nanoseconds: i32,
}

impl From<Time> for BulkTime {
    fn from((seconds, nanoseconds): Time) -> Self {
        Self { seconds, nanoseconds: nanoseconds as i32 }
    }
}

/// `struct xfs_swapext` with its `struct xfs_bstat`, of which the kernel reads two times.
#[repr(C)]
struct SwapExtents {
    version: i64,
    target: i64,
    temporary: i64,
    offset: i64,
    length: i64,
    pad: [u8; 16],
    stat_before: [u8; 56],
    modified: BulkTime,
    changed: BulkTime,
    stat_after: [u8; 48],
}

const _: () = assert!(size_of::<SwapExtents>() == 192);

/// Swaps all that `file` and `donor` map, both of `size` bytes and open for reading and writing, unless the
/// times of `file` differ from `times`. Durable after the next `fsync`.
///
/// # Errors
/// `EBUSY` when the file has changed, `EFAULT` when a size differs, `EINVAL` for a swap file or for
/// incompatible inodes: the donor has more extents, the inodes have different space beside their extended
/// attributes, or, where quotas are enforced, different owners.
pub fn swap_extents(file: impl AsFd, donor: impl AsFd, size: u64, times: Times) -> io::Result<()> {
    let mut arg = SwapExtents {
        version: 0,
        target: file.as_fd().as_raw_fd().into(),
        temporary: donor.as_fd().as_raw_fd().into(),
        offset: 0,
        length: size as i64,
        pad: [0; 16],
        stat_before: [0; 56],
        modified: times.modified.into(),
        changed: times.changed.into(),
        stat_after: [0; 48],
    };
    // SAFETY: XFS_IOC_SWAPEXT reads exactly this 192-byte structure.
    unsafe { ioctl(file.as_fd(), XFS_IOC_SWAPEXT, &raw mut arg) }
}
