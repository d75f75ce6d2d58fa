//! Limits that a shell, systemd or cron may have set and that could keep this process from finishing what it
//! has begun. They are checked, and memory is allocated, while the file is still whole.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io;

/// The least processor time, in seconds, that must be left before the kernel ends the process: far more than a
/// range needs.
const CPU_SECONDS: u64 = 10;

/// How much memory, and how much stack, is allocated in advance.
const SPARE: usize = 1 << 20;
const STACK: usize = 64 << 10;

/// Checks that this process may write up to `end` in a file, and does not soon exceed its limit on processor
/// time.
///
/// # Errors
/// The limit, and how to raise it.
pub(crate) fn allow(end: u64) -> io::Result<()> {
    allow_size(end)?;
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    if let Some(most) = getrlimit(Resource::Cpu).maximum.filter(|most| *most < used + CPU_SECONDS) {
        let what =
            format!("this process may use {most} s of a processor (ulimit -t), {used} are used");
        return Err(io::Error::other(what));
    }
    Ok(())
}

/// Checks that this process may write up to `end` in a file.
///
/// # Errors
/// The limit, and how to raise it.
pub(crate) fn allow_size(end: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current.filter(|size| *size < end) {
        None => Ok(()),
        Some(size) => Err(io::Error::other(format!(
            "files are limited to {size} bytes here (ulimit -f), the range ends at {end}; raise that"
        ))),
    }
}

/// Memory that is certainly there: allocated while it can still be refused.
pub(crate) struct Buffers {
    /// The buffer for reading a range back.
    pub back: Vec<u8>,
    spare: Vec<u8>,
}

impl Buffers {
    /// Memory for a range of this many bytes.
    ///
    /// # Errors
    /// When the process may not have that much (`ulimit -v`, `ulimit -d`).
    pub fn allocate(bytes: usize) -> io::Result<Self> {
        Ok(Self { back: filled(bytes)?, spare: filled(SPARE)? })
    }

    /// Releases the spare part, for all small allocations from here on.
    pub fn release_spare(&mut self) {
        touch_stack();
        self.spare = Vec::new();
    }
}

/// Memory that is written to, so that the kernel has really allocated it.
fn filled(bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    let refused =
        |_| io::Error::new(io::ErrorKind::OutOfMemory, "no memory for a range (ulimit -v, -d)");
    buffer.try_reserve_exact(bytes).map_err(refused)?;
    let page = [1; 4096];
    while buffer.len() < bytes {
        buffer.extend_from_slice(&page[..page.len().min(bytes - buffer.len())]);
    }
    Ok(black_box(buffer))
}

#[inline(never)]
fn touch_stack() {
    black_box([1u8; STACK]);
}
