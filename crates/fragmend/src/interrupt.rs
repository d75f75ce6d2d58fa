//! Ctrl-C, SIGTERM and SIGHUP, and for a verb that holds the terminal all others that would end it. The first signal
//! requests that the running verb ends at its next safe point. A later one ends the process at once, unless a range
//! would be left half written. So does the first, if the verb waits for another program (one that has to permit an
//! open, and does not answer) and nothing has been started.
//!
//! A thread of its own receives them: the kernel runs no handler in a thread that waits like that.

use fragmend_sys::signals::{self, Waiting};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Signals within this time count as one request: `timeout` and shells send two.
const ONE_REQUEST: Duration = Duration::from_millis(500);
/// How long the verb may wait for another program after the first signal.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the thread checks for more, after the first signal.
const LOOK: Duration = Duration::from_millis(50);
const STACK: usize = 128 << 10;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag that the signals set; never set before [`install`].
pub fn flag() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    FLAG.get().map_or(&NEVER, |flag| flag)
}

/// Handles the signals from now on, and returns the flag that they set. If SIGHUP was ignored when the
/// process started (`nohup`), it stays ignored.
///
/// Long-running verbs poll the flag; a further call returns the same one.
///
/// # Errors
/// The kernel refuses the handler.
pub fn install() -> anyhow::Result<&'static AtomicBool> {
    let mut handled = vec![SIGINT, SIGTERM];
    handled.extend((!signals::is_ignored(SIGHUP)).then_some(SIGHUP));
    handle(handled)
}

/// As [`install`], for a verb that must set something right before it ends, whatever ends it: each signal that would end the process
/// requests the same as SIGTERM. None from outside stops it, as Ctrl-Z does not, which is a key to it: the terminal would stay as it
/// is, for the shell.
///
/// # Errors
/// The kernel refuses the handler.
pub fn install_for_all() -> anyhow::Result<&'static AtomicBool> {
    let mut handled = signals::ending();
    handled.extend([SIGINT, SIGTERM]);
    handled.sort_unstable();
    handled.dedup();
    // A handler instead of the default action; nobody reads its flag.
    flag::register(SIGTSTP, Arc::default())?;
    flag::register(SIGCONT, Arc::clone(CONTINUED.get_or_init(Arc::default)))?;
    handle(handled)
}

static CONTINUED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether the process was stopped (SIGSTOP) and goes on, since this was asked last; false before [`install_for_all`].
pub fn was_continued() -> bool {
    CONTINUED.get().is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
}

fn handle(handled: Vec<i32>) -> anyhow::Result<&'static AtomicBool> {
    if let Some(flag) = FLAG.get() {
        return Ok(flag);
    }
    let asked = FLAG.get_or_init(Arc::default);
    for signal in &handled {
        flag::register(*signal, Arc::clone(asked))?;
    }
    let came = Signals::new(&handled)?;
    let thread = std::thread::Builder::new().name("signals".into()).stack_size(STACK);
    // Without the thread, the first signal still sets the flag.
    let own = handled.clone();
    if thread.spawn(move || listen(came, &own)).is_ok() {
        signals::leave_to_other_threads(&handled);
    }
    Ok(asked)
}

/// What is called before a signal ends the process at once, or once a range is whole: it sets right what the end would leave, such
/// as a terminal.
static BEFORE_END: OnceLock<fn()> = OnceLock::new();

/// Sets what is called then; the first call counts.
pub fn before_end(what: fn()) {
    BEFORE_END.get_or_init(|| what);
}

fn listen(mut came: Signals, handled: &[i32]) {
    signals::take_only(handled);
    let Some(first) = came.forever().next() else { return };
    let asked = Instant::now();
    let before = || BEFORE_END.get().into_iter().for_each(|what| what());
    let mut again: Option<(i32, Instant)> = None;
    loop {
        std::thread::sleep(LOOK);
        if let Some(signal) = came.pending().last()
            && asked.elapsed() > ONE_REQUEST
        {
            again.get_or_insert((signal, Instant::now()));
        }
        let waits = |since: Instant| since.elapsed() > PATIENCE;
        if let Some((signal, since)) = again {
            before();
            signals::end_by(signal, waits(since));
        } else if waits(asked) && Waiting::time().is_some_and(|time| time > PATIENCE) {
            before();
            signals::end_by(first, false);
        }
    }
}
