//! Shutting a file system down: `EXT4_IOC_SHUTDOWN` / `FS_IOC_SHUTDOWN` (uapi/linux/fs.h,
//! fs/ext4/ext4.h), and the same on F2FS (`F2FS_IOC_SHUTDOWN`, uapi/linux/f2fs.h).
//!
//! From then on no write is issued to the disk, not even the journal's own buffers, until the file system is
//! unmounted and mounted again, which replays the journal. For tests.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const IOC_SHUTDOWN: libc::c_ulong = 0x8004_587D;
const NO_LOG_FLUSH: u32 = 2;

/// Shuts the file system of `file` down, as a power cut would. Needs `CAP_SYS_ADMIN`.
pub fn cut_power(file: impl AsFd) -> io::Result<()> {
    let mut how = NO_LOG_FLUSH;
    // SAFETY: the ioctl reads one u32.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), IOC_SHUTDOWN, &raw mut how) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
