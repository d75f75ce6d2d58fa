//! Deferring signals while an operation must not be interrupted (`sigaction(2)`,
//! `pthread_sigmask(3)`).
//!
//! A signal that ends or stops the process affects all of its threads, whichever thread the kernel delivers
//! it to. So the working thread blocks every signal, and for the other threads the signals with the default
//! action get a handler that only notes them. Afterwards masks and handlers are restored, and signals that
//! arrived meanwhile are delivered. `SIGKILL` and `SIGSTOP` cannot be deferred.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Signals that end or stop a process by default, besides the real-time signals. Faults of the process itself
/// (`SIGSEGV` and the like) are not among them: the process cannot continue after those.
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

/// Signals that stop a process by default and can be deferred: Ctrl-Z, and use of the terminal by a
/// background process.
const STOPPING: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The signals that end this process by default and can be handled: not those that it ignores, nor its own faults (`SIGSEGV` and the
/// like).
pub fn ending() -> Vec<i32> {
    let ends = |signal: &i32| !STOPPING.contains(signal) && !is_ignored(*signal);
    DEADLY.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(ends).collect()
}

/// The signals that the handler has noted, as a bit set.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// The signals that are deferred now.
static PUT_OFF: Mutex<PutOff> =
    Mutex::new(PutOff { undisturbed: 0, unstopped: 0, signals: Vec::new() });

struct PutOff {
    undisturbed: usize,
    unstopped: usize,
    signals: Vec<Signal>,
}

struct Signal {
    number: i32,
    /// How many guards defer it.
    guards: usize,
    /// The default action, where a handler that only notes has replaced it.
    replaced: Option<libc::sigaction>,
}

/// While it lives, no signal that can be deferred ends, stops or interrupts this thread's work.
#[derive(Debug)]
pub struct Undisturbed(Guard);

/// While it lives, no signal that can be deferred stops the process (`SIGTSTP`, `SIGTTIN`,
/// `SIGTTOU`); signals that end it are not deferred.
#[derive(Debug)]
pub struct Unstopped(Guard);

/// Defers some signals.
#[derive(Debug)]
struct Guard {
    signals: Vec<i32>,
    /// Those that this thread had not blocked before.
    blocked: Vec<i32>,
    /// It must be dropped by the thread whose mask it has changed.
    _here: PhantomData<*const ()>,
}

extern "C" fn note(signal: i32) {
    NOTED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
}

fn put_off() -> MutexGuard<'static, PutOff> {
    PUT_OFF.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Undisturbed {
    /// From now until it is dropped.
    pub fn begin() -> Self {
        // All signals, including faults and those that cannot be blocked: see `mask`.
        let guard = Guard::begin((1..=libc::SIGRTMAX()).collect());
        put_off().undisturbed += 1;
        Self(guard)
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        put_off().undisturbed -= 1;
        self.0.end();
    }
}

impl Unstopped {
    /// From now until it is dropped.
    pub fn begin() -> Self {
        let guard = Guard::begin(STOPPING.to_vec());
        put_off().unstopped += 1;
        Self(guard)
    }

    /// Whether a deferred signal is pending that will stop the process.
    pub fn is_wanted() -> bool {
        let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigpending writes the set, and sigismember reads it.
        let here = |signal: &i32| unsafe {
            libc::sigpending(pending.as_mut_ptr()) == 0
                && libc::sigismember(pending.as_ptr(), *signal) == 1
        };
        let noted = NOTED.load(Ordering::Relaxed);
        STOPPING.iter().any(|signal| noted & 1 << (signal - 1) != 0) || STOPPING.iter().any(here)
    }
}

impl Drop for Unstopped {
    fn drop(&mut self) {
        put_off().unstopped -= 1;
        self.0.end();
    }
}

impl Guard {
    fn begin(signals: Vec<i32>) -> Self {
        let before = mask(libc::SIG_BLOCK, &signals);
        // SAFETY: the set is one that the kernel wrote.
        let is_new = |signal: &&i32| unsafe { libc::sigismember(&raw const before, **signal) == 0 };
        let blocked = signals.iter().filter(is_new).copied().collect();
        let mut all = put_off();
        let replaceable = |s: i32| DEADLY.contains(&s) || s >= libc::SIGRTMIN();
        for number in signals.iter().copied().filter(|s| replaceable(*s)) {
            match all.signals.iter_mut().find(|known| known.number == number) {
                Some(known) => known.guards += 1,
                None => {
                    let replaced = note_if_default(number);
                    all.signals.push(Signal { number, guards: 1, replaced });
                }
            }
        }
        Self { signals, blocked, _here: PhantomData }
    }

    /// Restores masks and handlers, and delivers the signals that arrived meanwhile.
    fn end(&mut self) {
        let mut all = put_off();
        let mut come = Vec::new();
        for number in self.signals.drain(..) {
            let Some(at) = all.signals.iter().position(|known| known.number == number) else {
                continue;
            };
            all.signals[at].guards -= 1;
            if all.signals[at].guards > 0 {
                continue;
            }
            if let Some(action) = all.signals.swap_remove(at).replaced {
                // SAFETY: the action is one that the kernel returned for this signal.
                unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
            }
            let bit = 1 << (number - 1);
            if NOTED.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                come.push(number);
            }
        }
        drop(all);
        for number in come {
            // SAFETY: no pointers are passed.
            unsafe { libc::kill(libc::getpid(), number) };
        }
        mask(libc::SIG_UNBLOCK, &self.blocked);
    }
}

/// Changes this thread's mask, and returns the previous one. The C library excludes the signals that it uses
/// itself.
fn mask(how: i32, signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset writes the set, sigaddset changes it or refuses the number,
    // pthread_sigmask reads it and writes the old one; both are live.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        signals.iter().for_each(|s| _ = libc::sigaddset(set.as_mut_ptr(), *s));
        libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Blocks `signals` in this thread and in those that it starts from now on, so that an older thread receives
/// them, even while this one is blocked in the kernel.
pub fn leave_to_other_threads(signals: &[i32]) {
    mask(libc::SIG_BLOCK, signals);
}

/// Blocks all signals but these in this thread: another thread receives the others, and may defer them.
pub fn take_only(signals: &[i32]) {
    let others: Vec<i32> = (1..=libc::SIGRTMAX()).filter(|s| !signals.contains(s)).collect();
    mask(libc::SIG_BLOCK, &others);
}

/// Whether a signal is ignored, as the parent of this process may have set it (`nohup`).
pub fn is_ignored(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: one action is written to the live pointer; all-zero is a valid one.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// While it lives, this thread waits for another process, which may never respond, and the process may be
/// killed safely.
#[derive(Debug)]
pub struct Waiting(());

/// Since when a thread waits.
static WAITING: Mutex<Option<Instant>> = Mutex::new(None);

impl Waiting {
    /// From now until it is dropped.
    pub fn begin() -> Self {
        *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Self(())
    }

    /// How long a thread has been waiting; `None` if none is.
    pub fn time() -> Option<Duration> {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Ends the process by a signal, regardless of handlers, unless signals are deferred now
/// ([`Undisturbed`], and [`Unstopped`] unless `at_once`). Returns only in that case.
pub fn end_by(signal: i32, at_once: bool) {
    // Locked to the end, so that no guard begins in between.
    let guards = put_off();
    if guards.undisturbed > 0 || guards.unstopped > 0 && !at_once {
        return;
    }
    // SAFETY: SIG_DFL has no handler to be sound; no pointers are passed to kill.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        mask(libc::SIG_UNBLOCK, &[signal]);
        libc::kill(libc::getpid(), signal);
    }
    // Whichever thread receives it, the whole process ends.
    std::thread::sleep(Duration::from_secs(1));
}

/// Installs a handler that notes a signal, if it has the default action; returns the replaced action.
fn note_if_default(signal: i32) -> Option<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction writes one action to the live pointer. All-zero is a valid action: no flags, an empty
    // mask; the handler only modifies an atomic. Another thread may have installed a handler in between; then
    // that signal is noted too, and the other handler is restored at the end.
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

/// Makes a write beyond the process's file size limit fail with `EFBIG` instead of ending the process by
/// `SIGXFSZ`, unless that signal has a handler.
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

/// Sends this process a signal: for tests.
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
        // A handler of the program's own: it runs once the guard is dropped, if this thread receives the
        // signal.
        // SAFETY: the handler touches an atomic alone.
        unsafe { libc::signal(libc::SIGUSR2, came as extern "C" fn(i32) as libc::sighandler_t) };
        let outer = Undisturbed::begin();
        let inner = Undisturbed::begin();
        // Other threads of this test program do not block these signals: by default they would end the
        // program.
        for signal in [libc::SIGUSR1, libc::SIGTSTP, libc::SIGRTMAX()] {
            send_to_this_process(signal).unwrap();
        }
        // SAFETY: no pointers are passed.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(CAME.load(Ordering::SeqCst), 0);
        drop(inner);
        assert_eq!(CAME.load(Ordering::SeqCst), 0, "one guard is left");
        // They would be delivered when the guard is dropped, and end the test program: they are ignored
        // instead.
        for signal in [libc::SIGUSR1, libc::SIGTSTP, libc::SIGRTMAX()] {
            // SAFETY: no pointers are passed.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
            let mut all = put_off();
            for known in all.signals.iter_mut().filter(|known| known.number == signal) {
                known.replaced = None;
            }
        }
        drop(outer);
        assert_eq!(CAME.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_stop_waits_and_an_end_does_not() {
        static CAME: AtomicU64 = AtomicU64::new(0);
        extern "C" fn came(_: i32) {
            CAME.fetch_add(1, Ordering::SeqCst);
        }
        // With a handler, so that the test program is not stopped; raised, so that this thread receives it.
        for signal in [libc::SIGTTIN, libc::SIGWINCH] {
            // SAFETY: the handler touches an atomic alone.
            unsafe { libc::signal(signal, came as extern "C" fn(i32) as libc::sighandler_t) };
        }
        let guard = Unstopped::begin();
        // SAFETY: no pointers are passed.
        unsafe { libc::raise(libc::SIGTTIN) };
        assert!(CAME.load(Ordering::SeqCst) == 0 && Unstopped::is_wanted());
        // SAFETY: no pointers are passed.
        unsafe { libc::raise(libc::SIGWINCH) };
        assert_eq!(CAME.load(Ordering::SeqCst), 1, "others come");
        drop(guard);
        assert!(CAME.load(Ordering::SeqCst) == 2 && !Unstopped::is_wanted());
    }
}
