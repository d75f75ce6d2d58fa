//! Page cache control on a range of one file.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Starts writing the dirty pages of `range` (bytes) without waiting for them
/// (`sync_file_range(2)`, `SYNC_FILE_RANGE_WRITE`). No metadata, no journal commit.
pub fn start_writeback(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes the dirty pages of `range` (bytes) and waits for them. No journal commit.
pub fn write_and_wait(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, range, all)
}

/// Asks the kernel to drop the clean pages of `range` (bytes): `POSIX_FADV_DONTNEED`.
pub fn drop_clean(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(range.end.saturating_sub(range.start));
    Ok(rustix::fs::fadvise(file, range.start, len, rustix::fs::Advice::DontNeed)?)
}

fn sync_range(file: impl AsFd, range: Range<u64>, flags: u32) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    let rc = unsafe {
        libc::sync_file_range(
            file.as_fd().as_raw_fd(),
            range.start as i64,
            range.end.saturating_sub(range.start) as i64,
            flags,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Pages of `range` (bytes) that are in the page cache now (`cachestat(2)`, Linux 6.5).
///
/// # Errors
/// `ENOSYS` on older kernels.
pub fn cached_pages(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same on every architecture
    let span = [range.start, range.end.saturating_sub(range.start)];
    let mut stat = [0u64; 5];
    // SAFETY: cachestat reads two u64 (offset, length) and writes five u64.
    let rc = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            span.as_ptr(),
            stat.as_mut_ptr(),
            0u32,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(stat[0]) }
}
