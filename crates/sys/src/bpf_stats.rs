//! Counting the run time of BPF programs (`BPF_ENABLE_STATS` of `bpf(2)`, since Linux 5.8).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_ENABLE_STATS: libc::c_int = 32;

/// The part of `union bpf_attr` for statistics (linux/bpf.h).
#[repr(C)]
struct Enable {
    /// `BPF_STATS_RUN_TIME`.
    kind: u32,
}

/// Makes the kernel count run time and runs of all BPF programs while the result is open; each run then lasts two
/// looks at the clock longer. [`run_time`] reads them.
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

/// What a BPF program has run so far, while that was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Nanoseconds, summed over the processors.
    pub ns: u64,
    /// Runs.
    pub runs: u64,
}

/// The part of `union bpf_attr` for information (linux/bpf.h).
#[repr(C)]
struct InfoByFd {
    fd: u32,
    length: u32,
    info: u64,
}

/// `struct bpf_prog_info` (linux/bpf.h) up to the counts. All that the caller may ask for before them is not asked for.
#[repr(C)]
struct ProgramInfo {
    before: [u64; 24],
    run_time_ns: u64,
    run_cnt: u64,
}

/// The counts of a program. Before Linux 5.1 they are 0.
///
/// # Errors
/// Those of `bpf(2)`.
pub fn run_time(program: impl AsFd) -> io::Result<RunTime> {
    let mut info = ProgramInfo { before: [0; 24], run_time_ns: 0, run_cnt: 0 };
    let mut attributes = InfoByFd {
        fd: program.as_fd().as_raw_fd() as u32,
        length: size_of::<ProgramInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: the kernel reads and writes `attributes`, whose size is passed, and writes at most `length` bytes of
    // `info`. The addresses and lengths in there are 0, so it writes nowhere else.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD,
            &raw mut attributes,
            size_of::<InfoByFd>(),
        ) < 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(RunTime { ns: info.run_time_ns, runs: info.run_cnt })
}
