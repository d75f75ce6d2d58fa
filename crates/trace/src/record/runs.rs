//! What the runs of the kernel side's programs cost: the run time that the kernel counts, without its looks at the clock,
//! and what it does to get there.

use super::budget::Cost;
use super::kernel::Kernel;
use super::sources::PAUSABLE;
use fragmend_sys::bpf_stats::{self, RunTime};
use std::time::{Duration, Instant};

/// The program for system calls.
const SYS_EXIT: &str = "on_sys_exit";

/// What a program costs that does next to nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// How much longer a system call lasts because it is attached.
    pub entry_ns: f64,
    /// What the kernel counts as its run time: most of that is the look at the clock.
    pub counted_ns: f64,
}

impl Run {
    /// What the programs cost in a window, before which they had run so often: those that can be paused, and others.
    pub fn cost(
        &self,
        before: &[(String, RunTime)],
        after: &[(String, RunTime)],
        window: Duration,
    ) -> Cost {
        let mut cost = Cost::default();
        for ((name, before), (_, after)) in before.iter().zip(after) {
            // Other tracepoints do not divert system calls.
            let share = if name == SYS_EXIT { 1.0 } else { 0.5 };
            let runs = (after.runs - before.runs) as f64;
            let counted = (after.ns - before.ns) as f64 - runs * self.counted_ns;
            let ns = counted.max(0.0) + runs * self.entry_ns * share;
            let pausable = PAUSABLE.contains(&name.as_str());
            let of = if pausable { &mut cost.requests } else { &mut cost.device };
            *of += ns / 1e9 / window.as_secs_f64();
        }
        cost
    }
}

/// How long a system call lasts that does next to nothing: the least of some measurements, because other programs
/// may run in between.
pub(super) fn syscall_ns() -> f64 {
    const ROUNDS: u32 = 10;
    const CALLS: u32 = 500;
    let round = |_| {
        let begun = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// What the kernel counts as the run time of the program for system calls when one does next to nothing, in nanoseconds;
/// 0 where that is not attached, or run time is not counted.
pub(super) fn counted_ns(kernel: &Kernel) -> f64 {
    const ROUNDS: u32 = 5;
    const CALLS: u32 = 200;
    let Ok(_counting) = bpf_stats::enable() else { return 0.0 };
    let program = || {
        let all = kernel.run_times();
        all.iter().find(|(name, _)| name == SYS_EXIT).map_or(RunTime::default(), |(_, run)| *run)
    };
    let round = |_| {
        let before = program();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        let after = program();
        (after.ns - before.ns) as f64 / (after.runs - before.runs).max(1) as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
