//! What every recording begins with: the kernel side is loaded and attached, and what recording costs is measured.

use super::kernel::{self, Kernel};
use super::loads::Answered;
use super::request::Request;
use super::runs;
use super::watch::Watch;
use super::{Meta, Options};
use crate::TraceError;
use std::time::{Instant, SystemTime};

/// A recording that has begun: accesses are seen from `started` on.
pub(super) struct Begun {
    pub kernel: Kernel,
    pub watch: Watch,
    pub started: Instant,
    /// What the disks had answered by then.
    pub answered: Answered,
    /// Of a recording that begins now.
    pub meta: Meta,
}

/// Begins.
pub(super) fn begin(options: &Options, request: &Request) -> Result<Begun, TraceError> {
    let undisturbed_ns = runs::syscall_ns();
    let kernel = kernel::start(options, request)?;
    let started = Instant::now();
    let answered = Answered::nothing(&kernel, &request.disks);
    let entry_ns = (runs::syscall_ns() - undisturbed_ns).max(0.0);
    let run = runs::Run { entry_ns, counted_ns: runs::counted_ns(&kernel) };
    let watch = Watch::new(options.overhead, options.places_shift, run);
    kernel.set_control(&watch.control())?;
    let meta = Meta::new(kernel.level, unix_ns());
    Ok(Begun { kernel, watch, started, answered, meta })
}

/// The wall clock: nanoseconds since 1970 UTC.
pub(super) fn unix_ns() -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}
