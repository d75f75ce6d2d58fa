//! Waits for what the kernel has running.

use std::time::Duration;

/// `MEMBARRIER_CMD_GLOBAL` (linux/membarrier.h).
const GLOBAL: libc::c_int = 1;
/// Longer than a BPF program runs.
const ENOUGH: Duration = Duration::from_millis(10);

/// Waits for an RCU grace period: BPF programs that were running before, on any processor, have ended then
/// (`synchronize_rcu()`, kernel/sched/membarrier.c). Where the kernel does not support that, a short time.
pub fn period() {
    // SAFETY: the call has no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } < 0 {
        std::thread::sleep(ENOUGH);
    }
}
