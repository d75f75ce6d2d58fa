//! `FIDEDUPERANGE` (linux/fs.h, ioctl_fideduperange(2)): makes a range of one file share the
//! blocks of another, if and only if both hold the same bytes.
//!
//! The kernel locks both files against writers and mapped stores, writes back what is dirty,
//! compares byte for byte, and remaps; on any difference it does nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The most that every kernel takes in one call, in bytes (`MAX_DEDUPE_LENGTH` of Btrfs).
pub const LONGEST: u64 = 16 << 20;

const FIDEDUPERANGE: libc::c_ulong = 0xC018_9436;
const FILE_DEDUPE_RANGE_DIFFERS: i32 = 1;

/// `struct file_dedupe_range` with one `struct file_dedupe_range_info`.
#[repr(C)]
struct DedupeRange {
    src_offset: u64,
    src_length: u64,
    dest_count: u16,
    reserved: [u16; 3],
    dest_fd: i64,
    dest_offset: u64,
    bytes_deduped: u64,
    status: i32,
    info_reserved: u32,
}

const _: () = assert!(size_of::<DedupeRange>() == 56);

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// So many bytes, from the start of the range, are shared now.
    Bytes(u64),
    /// The files differ somewhere in the range: nothing was done.
    Differs,
}

/// Makes `length` bytes of `file` at `offset` share the blocks of `source` at `source_offset`.
/// All three are multiples of the block size, or reach to the end of both files.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` where the file system has no shared extents, `EINVAL` for files that
/// must not share (checksummed with unchecksummed, unaligned ranges), `EPERM` for a file that the
/// caller may not write, `ETXTBSY` for a swap file.
pub fn share(
    source: impl AsFd,
    source_offset: u64,
    file: impl AsFd,
    offset: u64,
    length: u64,
) -> io::Result<Shared> {
    let mut arg = DedupeRange {
        src_offset: source_offset,
        src_length: length,
        dest_count: 1,
        reserved: [0; 3],
        dest_fd: file.as_fd().as_raw_fd().into(),
        dest_offset: offset,
        bytes_deduped: 0,
        status: 0,
        info_reserved: 0,
    };
    // SAFETY: FIDEDUPERANGE reads and writes the header and `dest_count` = 1 entry: exactly this
    // 56-byte structure.
    let rc = unsafe { libc::ioctl(source.as_fd().as_raw_fd(), FIDEDUPERANGE, &raw mut arg) };
    match arg.status {
        _ if rc < 0 => Err(io::Error::last_os_error()),
        FILE_DEDUPE_RANGE_DIFFERS => Ok(Shared::Differs),
        status if status < 0 => Err(io::Error::from_raw_os_error(-status)),
        _ => Ok(Shared::Bytes(arg.bytes_deduped)),
    }
}
