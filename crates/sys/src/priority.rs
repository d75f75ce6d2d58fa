//! The priority of a thread on the disk (`ioprio_set(2)`) and on the processor (`setpriority(2)`): low while no
//! program can depend on it, and normal while one waits.
//!
//! Schedulers of disks with classes (BFQ, mq-deadline) serve the idle class last, or not at all for seconds. A
//! program that waits for a file which this thread has locked or leased would wait for as long. So as long as
//! one could, the thread leaves the idle class ([`Prompt`]). On the processor it need not leave its place for that
//! while it can check whether a program waits: a busy processor delays it by tens of milliseconds ([`Hurry`]).

use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::cell::Cell;
use std::marker::PhantomData;

const WHO_PROCESS: i32 = 1;
const CLASS_SHIFT: i32 = 13;
/// Numbers of `linux/ioprio.h`.
const BEST_EFFORT: i32 = 2;
const IDLE: i32 = 3;
/// The default level.
const NORMAL: i32 = 4;

/// The nice value of a thread that gives way: programs that wake up beside it run at once, and it still has a tenth
/// of a processor that others keep busy.
const GIVING_WAY: i32 = 10;

thread_local! {
    /// How many guards this thread has now.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    /// The thread's class before the first of them, if that was the idle class.
    static BEFORE: Cell<Option<i32>> = const { Cell::new(None) };
    /// The thread's nice value before it gave way, if it does.
    static NICE: Cell<Option<i32>> = const { Cell::new(None) };
    /// How many guards of [`Hurry`] this thread has now.
    static HURRIES: Cell<u32> = const { Cell::new(0) };
}

/// From now on, this thread's I/O is in the idle class, and its nice value is at least 10. Best effort: an old
/// scheduler of disks knows no priorities.
pub fn give_way() {
    set(IDLE << CLASS_SHIFT);
    if let Some(now) = nice(None).filter(|now| *now < GIVING_WAY)
        && setpriority_process(None, GIVING_WAY).is_ok()
    {
        NICE.set(Some(now));
    }
}

/// While one lives, this thread has the nice value from before it gave way, and its I/O is not in the idle class
/// ([`Prompt`]). Best effort: without `CAP_SYS_NICE` the nice value stays.
///
/// It is to be held where [`Prompt`] is and another program may be waiting already.
#[derive(Debug)]
pub struct Hurry {
    _prompt: Prompt,
}

impl Hurry {
    /// Lasts from now until the last of this thread's guards is dropped, in whatever order.
    pub fn begin() -> Self {
        if HURRIES.replace(HURRIES.get() + 1) == 0 {
            NICE.get().map(|before| setpriority_process(None, before));
        }
        Self { _prompt: Prompt::begin() }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        HURRIES.set(HURRIES.get() - 1);
        if HURRIES.get() == 0 {
            NICE.get().map(|_| setpriority_process(None, GIVING_WAY));
        }
    }
}

/// The nice value of a thread (`None`: the calling one), if the kernel reports it.
pub fn nice(thread: Option<Pid>) -> Option<i32> {
    getpriority_process(thread).ok()
}

/// While one lives, this thread's I/O is not in the idle class (`ioprio_set(2)`); afterwards its class is
/// restored. Any other class is left unchanged, and where the kernel refuses, so is the idle class.
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
            BEFORE.set(current().filter(|now| now >> CLASS_SHIFT == IDLE));
            if BEFORE.get().is_some() {
                set(BEST_EFFORT << CLASS_SHIFT | NORMAL);
            }
        }
        Self { _here: PhantomData }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
        if GUARDS.get() == 0
            && let Some(before) = BEFORE.take()
        {
            set(before);
        }
    }
}

/// Whether the I/O of a thread, given by its number (0 for the calling thread), is of the idle class
/// (`ioprio_get(2)`); `None` where the kernel does not report it.
pub fn is_idle(thread: i32) -> Option<bool> {
    io_priority(thread).map(|value| value >> CLASS_SHIFT == IDLE)
}

fn current() -> Option<i32> {
    io_priority(0)
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
            give_way();
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

    #[test]
    fn a_hurry_is_over_when_its_guard_goes() {
        let thread = std::thread::spawn(|| {
            let usual = nice(None).unwrap();
            drop(Hurry::begin());
            assert_eq!(nice(None), Some(usual), "it did not give way");
            give_way();
            let low = nice(None).unwrap();
            assert_eq!(low, usual.max(GIVING_WAY));
            let hurry = Hurry::begin();
            drop(Hurry::begin());
            // Raising it again is root's right.
            assert_eq!(
                nice(None),
                Some(if rustix::process::geteuid().is_root() { usual } else { low })
            );
            drop(hurry);
            assert_eq!(nice(None), Some(low));
        });
        thread.join().unwrap();
    }
}
