//! Signals put off for as long as something must not be left half done (`sigaction(2)`,
//! `pthread_sigmask(3)`).
//!
//! A signal that would end or stop the process does so to all of it, whichever thread the kernel
//! picks. So two things are done: the working thread blocks every signal, and those that are left
//! to their default action get a handler that only notes them, for the other threads. Afterwards
//! everything is as it was, and what came meanwhile comes then. `SIGKILL` and `SIGSTOP` cannot be
//! put off.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What ends or stops a process by default, besides the real-time signals. Faults of our own
/// (`SIGSEGV` and its like) are not among them: nothing goes on after those.
const DEADLY: [i32; 18] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// The signals that came to another thread, bit by bit.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// How many guards there are, and the actions that the first of them replaced.
static REPLACED: Mutex<(usize, Vec<(i32, libc::sigaction)>)> = Mutex::new((0, Vec::new()));

/// While it lives, no signal that can be put off ends, stops or interrupts this thread's work.
#[derive(Debug)]
pub struct Undisturbed {
    mask: libc::sigset_t,
    /// The mask is this thread's.
    _here: PhantomData<*const ()>,
}

extern "C" fn note(signal: i32) {
    NOTED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
}

impl Undisturbed {
    /// From now until it is dropped.
    pub fn begin() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset writes the set, pthread_sigmask reads it and writes the old one; both
        // are live, and neither call fails for these arguments.
        let mask = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), mask.as_mut_ptr());
            mask.assume_init()
        };
        let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
        if replaced.0 == 0 {
            let deadly = DEADLY.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
            replaced.1 = deadly.filter_map(|s| Some((s, note_if_default(s)?))).collect();
        }
        replaced.0 += 1;
        Self { mask, _here: PhantomData }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.0 -= 1;
        if replaced.0 == 0 {
            for (signal, action) in replaced.1.drain(..) {
                // SAFETY: the action is one that the kernel gave us for this signal.
                unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            }
            let noted = NOTED.swap(0, Ordering::Relaxed);
            for signal in (1..=64).filter(|signal| noted & 1 << (signal - 1) != 0) {
                // SAFETY: no pointers are passed.
                unsafe { libc::kill(libc::getpid(), signal) };
            }
        }
        drop(replaced);
        // SAFETY: the mask is the one that this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut())
        };
    }
}

/// Has a signal noted that is left to its default action; gives the action that this replaced.
fn note_if_default(signal: i32) -> Option<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction writes one action to the live pointer. All-zero is a valid action: no
    // flags, an empty mask; its handler touches an atomic and nothing else. The kernel may have
    // given a handler to somebody else in between; then this one notes that signal, too, and the
    // other comes back.
    unsafe {
        let read = libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr());
        if read < 0 || old.assume_init_ref().sa_sigaction != libc::SIG_DFL {
            return None;
        }
        let mut noting: libc::sigaction = std::mem::zeroed();
        noting.sa_sigaction = note as extern "C" fn(i32) as libc::sighandler_t;
        noting.sa_flags = libc::SA_RESTART;
        (libc::sigaction(signal, &raw const noting, old.as_mut_ptr()) == 0)
            .then(|| old.assume_init())
    }
}

/// Makes a write beyond the process's limit of file sizes an error (`EFBIG`), not the end of the
/// process (`SIGXFSZ`), unless somebody handles that.
///
/// # Errors
/// Those of `sigaction(2)`.
pub fn no_end_by_file_size() -> io::Result<()> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: one action is written to the live pointer; SIG_IGN has no handler to be sound.
    let rc = unsafe {
        let read = libc::sigaction(libc::SIGXFSZ, std::ptr::null(), now.as_mut_ptr());
        let mut now = now.assume_init();
        if read < 0 || now.sa_sigaction != libc::SIG_DFL {
            read
        } else {
            now.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(libc::SIGXFSZ, &raw const now, std::ptr::null_mut())
        }
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends this process a signal, as somebody else would: for tests.
///
/// # Errors
/// `EINVAL` when there is no such signal.
pub fn send_to_this_process(signal: i32) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    let rc = unsafe { libc::kill(libc::getpid(), signal) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_meanwhile_comes_afterwards_to_whatever_thread() {
        static CAME: AtomicU64 = AtomicU64::new(0);
        extern "C" fn came(_: i32) {
            CAME.fetch_add(1, Ordering::SeqCst);
        }
        // Somebody's own handler: it runs once the guard is gone, if this thread gets the signal.
        // SAFETY: the handler touches an atomic alone.
        unsafe { libc::signal(libc::SIGUSR2, came as extern "C" fn(i32) as libc::sighandler_t) };
        let outer = Undisturbed::begin();
        let inner = Undisturbed::begin();
        // Other threads of this test program do not block it: it would end them all.
        for signal in [libc::SIGUSR1, libc::SIGTSTP, libc::SIGRTMAX()] {
            send_to_this_process(signal).unwrap();
        }
        // SAFETY: no pointers are passed.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(CAME.load(Ordering::SeqCst), 0);
        drop(inner);
        assert_eq!(CAME.load(Ordering::SeqCst), 0, "one guard is left");
        // They are left to be noted by this thread, which blocks them; take them away, or they end
        // the test program.
        for signal in [libc::SIGUSR1, libc::SIGTSTP, libc::SIGRTMAX()] {
            // SAFETY: no pointers are passed.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
            REPLACED.lock().unwrap().1.retain(|(replaced, _)| *replaced != signal);
        }
        drop(outer);
        assert_eq!(CAME.load(Ordering::SeqCst), 1);
    }
}
