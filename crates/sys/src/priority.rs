//! The I/O class of a thread (`ioprio_set(2)`): idle while no program can depend on its I/O, and best effort
//! while one can.
//!
//! Schedulers with classes (BFQ, mq-deadline) serve the idle class last, or not at all for seconds. A program
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
    /// The thread's class before the first of them, if that was the idle class.
    static BEFORE: Cell<Option<i32>> = const { Cell::new(None) };
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
}
