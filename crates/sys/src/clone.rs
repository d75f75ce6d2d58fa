//! `FICLONERANGE` (linux/fs.h, ioctl_ficlonerange(2)): makes a range of one file share the blocks of a range
//! of another, whatever its content was. For tests.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const FICLONERANGE: libc::c_ulong = 0x4020_940D;

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dest_offset: u64,
}

const _: () = assert!(size_of::<CloneRange>() == 32);

/// Makes `length` bytes of `file` at `offset` share the blocks of `source` at `source_offset`. All three
/// numbers are multiples of the block size.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` where the file system has no shared extents, `EINVAL` for ranges that are
/// unaligned or extend beyond the end of `source`.
pub fn clone_range(
    source: impl AsFd,
    source_offset: u64,
    file: impl AsFd,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    let arg = CloneRange {
        src_fd: source.as_fd().as_raw_fd().into(),
        src_offset: source_offset,
        src_length: length,
        dest_offset: offset,
    };
    // SAFETY: FICLONERANGE reads exactly this 32-byte structure.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FICLONERANGE, &raw const arg) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
