//! Counting the run time of BPF programs (`BPF_ENABLE_STATS` of `bpf(2)`, since Linux 5.8).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const BPF_ENABLE_STATS: libc::c_int = 32;

/// The part of `union bpf_attr` for statistics (linux/bpf.h).
#[repr(C)]
struct Enable {
    /// `BPF_STATS_RUN_TIME`.
    kind: u32,
}

/// Makes the kernel count run time and runs of all BPF programs while the result is open; each run then lasts two
/// looks at the clock longer. `/proc/PID/fdinfo` of a program shows them (`run_time_ns`, `run_cnt`).
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` before Linux 5.8.
pub fn enable() -> io::Result<OwnedFd> {
    let attributes = Enable { kind: 0 };
    // SAFETY: the kernel reads `attributes`, whose size is passed.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, &raw const attributes, size_of::<Enable>())
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
