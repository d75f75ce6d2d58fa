//! The priority of a thread: low while no program can depend on it, and normal while one can.
//!
//! I/O schedulers with classes (BFQ, mq-deadline) serve the idle class (`ioprio_set(2)`) last, or not at all for
//! seconds; and a thread that was begun with `nice` or under `SCHED_IDLE` hardly runs beside a busy one. A program
//! that waits for a file which this thread has locked or leased would wait for as long.

use std::cell::Cell;
use std::marker::PhantomData;

const WHO_PROCESS: i32 = 1;
const CLASS_SHIFT: i32 = 13;
/// Numbers of `linux/ioprio.h`.
const BEST_EFFORT: i32 = 2;
const IDLE: i32 = 3;
/// The default level.
const NORMAL: i32 = 4;

thread_local! {
    /// How many guards this thread has now.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    /// What was low before the first of them.
    static BEFORE: Cell<Low> = const { Cell::new(Low { io: None, policy: None, nice: 0 }) };
}

/// What is low of a thread's priorities.
#[derive(Clone, Copy, Default)]
struct Low {
    /// Its I/O class, if that is the idle class.
    io: Option<i32>,
    /// Its scheduling policy with its flags, if that is `SCHED_IDLE`.
    policy: Option<i32>,
    /// Its nice value above 0.
    nice: i32,
}

/// While one lives, this thread's I/O is not in the idle class, nor is the thread itself scheduled by `SCHED_IDLE`
/// (`sched_setscheduler(2)`) or nicer than others (`setpriority(2)`); afterwards that is restored. What is not low
/// is left unchanged, and so is what the kernel refuses to raise: it allows root to, and whom `RLIMIT_NICE` allows.
///
/// It is to be held from before a file is leased or locked until after the release, and around system calls
/// that hold a file's locks while they wait for the disk.
#[derive(Debug)]
pub struct Prompt {
    /// It must be dropped by the thread whose class it has changed.
    _here: PhantomData<*const ()>,
}

impl Prompt {
    /// Lasts from now until the last of this thread's guards is dropped, in whatever order.
    pub fn begin() -> Self {
        if GUARDS.replace(GUARDS.get() + 1) == 0 {
            BEFORE.set(raise());
        }
        Self { _here: PhantomData }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
        if GUARDS.get() == 0 {
            lower(BEFORE.take());
        }
    }
}

/// Whether the I/O of a thread, given by its number (0 for the calling thread), is of the idle class
/// (`ioprio_get(2)`); `None` where the kernel does not report it.
pub fn is_idle(thread: i32) -> Option<bool> {
    io_priority(thread).map(|value| value >> CLASS_SHIFT == IDLE)
}

/// Raises what is low of the calling thread; returns what it has raised.
fn raise() -> Low {
    let io = io_priority(0).filter(|now| now >> CLASS_SHIFT == IDLE);
    if io.is_some() {
        set(BEST_EFFORT << CLASS_SHIFT | NORMAL);
    }
    // SAFETY: no pointers are passed.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let flags = policy & libc::SCHED_RESET_ON_FORK;
    let is_idle = policy == libc::SCHED_IDLE | flags;
    let policy = (is_idle && schedule_by(libc::SCHED_OTHER | flags)).then_some(policy);
    let before = nice();
    Low { io, policy, nice: if before > 0 && be_nice(0) { before } else { 0 } }
}

/// Lowers the calling thread again.
fn lower(low: Low) {
    if let Some(before) = low.io {
        set(before);
    }
    // Another value was set meanwhile (renice), and stays.
    if low.nice > 0 && nice() == 0 {
        be_nice(low.nice);
    }
    if let Some(before) = low.policy {
        schedule_by(before);
    }
}

/// The calling thread's nice value: Linux has one for each.
fn nice() -> i32 {
    // SAFETY: no pointers are passed.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Sets the calling thread's nice value; returns whether that is allowed.
fn be_nice(nice: i32) -> bool {
    // SAFETY: no pointers are passed.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// Sets the calling thread's scheduling policy, of those without parameters; returns whether that is allowed.
fn schedule_by(policy: i32) -> bool {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: `none` lives throughout the call, which only reads it.
    unsafe { libc::sched_setscheduler(0, policy, &raw const none) == 0 }
}

fn io_priority(thread: i32) -> Option<i32> {
    // SAFETY: no pointers are passed.
    let value = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, thread) };
    i32::try_from(value).ok().filter(|value| *value >= 0)
}

fn set(value: i32) {
    // SAFETY: no pointers are passed.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_class_is_left_until_the_last_guard_goes() {
        let thread = std::thread::spawn(|| {
            drop(Prompt::begin());
            assert_eq!(is_idle(0), Some(false), "what was not idle stays as it was");
            crate::process::set_idle_io_priority().unwrap();
            let first = Prompt::begin();
            assert_eq!(is_idle(0), Some(false));
            let second = Prompt::begin();
            drop(first);
            assert_eq!(is_idle(0), Some(false), "one is left");
            drop(second);
            assert_eq!(is_idle(0), Some(true));
        });
        thread.join().unwrap();
    }

    /// Only root may raise itself again, and whom `RLIMIT_NICE` allows.
    #[test]
    fn a_nice_thread_is_nice_to_nobody_who_waits_for_it() {
        let may = rustix::process::geteuid().is_root();
        let now = || (unsafe { libc::sched_getscheduler(0) }, nice());
        let thread = std::thread::spawn(move || {
            let reset = libc::SCHED_RESET_ON_FORK;
            for (idle, other) in [
                (libc::SCHED_IDLE, libc::SCHED_OTHER),
                (libc::SCHED_IDLE | reset, libc::SCHED_OTHER | reset),
            ] {
                assert!(be_nice(19) && schedule_by(idle));
                let low = now();
                assert_eq!(low, (idle, 19));
                let prompt = Prompt::begin();
                assert_eq!(now(), if may { (other, 0) } else { low });
                drop(prompt);
                assert_eq!(now(), low);
            }
            // What is set meanwhile stays.
            let prompt = Prompt::begin();
            assert!(be_nice(15));
            drop(prompt);
            assert_eq!(now().1, 15);
        });
        thread.join().unwrap();
    }
}
