//! Ctrl-C and SIGTERM, in one place: the first asks the running verb to end at its next safe
//! point, a second Ctrl-C ends the process at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// What a shell reports for a process that SIGINT ended.
const KILLED_BY_SIGINT: i32 = 128 + SIGINT;

/// Handles the signals from now on and gives the flag that they set.
///
/// Long-running verbs poll it; calling this again gives the same flag.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn install() -> anyhow::Result<&'static AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(flag);
    }
    let asked = FLAG.get_or_init(Arc::default);
    // In this order: the first signal finds the flag unset and only sets it.
    flag::register_conditional_shutdown(SIGINT, KILLED_BY_SIGINT, Arc::clone(asked))?;
    flag::register(SIGINT, Arc::clone(asked))?;
    flag::register(SIGTERM, Arc::clone(asked))?;
    Ok(asked)
}
