//! This process's I/O account and I/O priority, and the version of the kernel.

use std::io;

/// Bytes that the kernel has charged to this process (`/proc/self/io`, proc_pid_io(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoAccount {
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes dirtied or written towards storage.
    pub write_bytes: u64,
}

/// This process's account so far.
pub fn io_account() -> io::Result<IoAccount> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let field = |name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
    };
    Ok(IoAccount { read_bytes: field("read_bytes:"), write_bytes: field("write_bytes:") })
}

/// Puts this thread's I/O in the idle class (`ioprio_set(2)`): schedulers with priorities serve all
/// other I/O first.
pub fn set_idle_io_priority() -> io::Result<()> {
    const WHO_PROCESS: i32 = 1;
    const CLASS_IDLE: i32 = 3 << 13;
    // SAFETY: no pointers are passed.
    let rc = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Major and minor number of the running kernel (`uname(2)`); `None` if they cannot be read.
pub fn kernel_release() -> Option<(u32, u32)> {
    version(rustix::system::uname().release().to_str().ok()?)
}

/// Major and minor number in a kernel's release, as `uname -r` prints it.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
