//! Ctrl-C, SIGTERM and SIGHUP, in one place. The first asks the running verb to end at its next safe
//! point; one that comes later, when that has not happened, ends the process at once, but for where a
//! range would be left half written. So does the first, where the verb waits for somebody else (a
//! program that was to allow an open, and does not answer) and nothing is begun.
//!
//! A thread of its own takes them: the kernel runs no handler in one that waits like that.

use fragmend_sys::signals::{self, Waiting};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Signals that come within so much time are one request: `timeout` and shells send two.
const ONE_REQUEST: Duration = Duration::from_millis(500);
/// So long may the verb wait for somebody else once it was asked to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the thread looks, once asked.
const LOOK: Duration = Duration::from_millis(50);
const STACK: usize = 128 << 10;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag that the signals set; never set before [`install`].
pub fn flag() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    FLAG.get().map_or(&NEVER, |flag| flag)
}

/// Handles the signals from now on and gives the flag that they set. What was started with SIGHUP
/// ignored (`nohup`) goes on ignoring it.
///
/// Long-running verbs poll it; calling this again gives the same flag.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn install() -> anyhow::Result<&'static AtomicBool> {
    if let Some(flag) = FLAG.get() {
        return Ok(flag);
    }
    let asked = FLAG.get_or_init(Arc::default);
    let mut heard = vec![SIGINT, SIGTERM];
    heard.extend((!signals::is_ignored(SIGHUP)).then_some(SIGHUP));
    for signal in &heard {
        flag::register(*signal, Arc::clone(asked))?;
    }
    let came = Signals::new(&heard)?;
    let thread = std::thread::Builder::new().name("signals".into()).stack_size(STACK);
    // Without it, the first is still heard.
    let own = heard.clone();
    if thread.spawn(move || listen(came, &own)).is_ok() {
        signals::leave_to_other_threads(&heard);
    }
    Ok(asked)
}

fn listen(mut came: Signals, heard: &[i32]) {
    signals::take_only(heard);
    let Some(first) = came.forever().next() else { return };
    let asked = Instant::now();
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
            signals::end_by(signal, waits(since));
        } else if waits(asked) && Waiting::time().is_some_and(|time| time > PATIENCE) {
            signals::end_by(first, false);
        }
    }
}
