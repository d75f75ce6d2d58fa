//! Whether a file system can do what rewriting needs: tried on a file without a name.

use fragmend_scan::fiemap;
use fragmend_sys::lease::{self, Lease};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The shortest accepted `lease-break-time`: a lease that the kernel breaks sooner would not outlast a slow
/// device.
const SHORTEST_BREAK: Duration = Duration::from_secs(10);

/// Whether an unnamed file in `root` can be allocated, mapped, punched and leased.
///
/// # Errors
/// What is missing.
pub(super) fn probe(root: &OwnedFd) -> Result<(), String> {
    let lacks = |what: &str, e: io::Error| {
        format!("cannot be rewritten: {what} ({e}); `fragmend scan` works on it")
    };
    let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, ".", how, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|e| lacks("no unnamed file can be made at its top", e.into()))?;
    let length = rustix::fs::fstatvfs(&file).map_or(4096, |s| s.f_bsize);
    let allocate = |how| rustix::fs::fallocate(&file, how, 0, length).map_err(io::Error::from);
    allocate(FallocateFlags::empty()).map_err(|e| lacks("no space can be allocated", e))?;
    fiemap::layout_of(&file).map_err(|e| lacks("it does not report where files are", e))?;
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        .map_err(|e| lacks("it cannot punch holes", e))?;
    Lease::try_out(&file).map_err(|e| lacks("it has no leases, to keep others out", e))?;
    match lease::break_time() {
        Ok(None) => Ok(()),
        Ok(Some(time)) if time >= SHORTEST_BREAK => Ok(()),
        Ok(Some(time)) => Err(format!(
            "/proc/sys/fs/lease-break-time is {} s, too short to keep others out; set it to {} or more",
            time.as_secs(),
            SHORTEST_BREAK.as_secs()
        )),
        Err(e) => Err(lacks("lease-break-time cannot be read", e)),
    }
}
