//! The thread that answers requests, when the drive is done with them and the mode allows.
//!
//! **Accounting.** The real host is the load of a discrete-event simulation: the next event may only happen once the
//! host has sent everything that it sends before it. So the earliest request in flight is answered when the host is
//! quiet ([`super::quiet`]), and the virtual time is then the time when that is done. What the host sends next
//! arrives at that instant, however long it needed: its own time costs nothing, and the depth at which a program
//! keeps requests in flight is the depth that the drive has. If the host is later than the settling time, its
//! request arrives at a later instant than it would have, by as much as the next completion is away.
//!
//! **Paced.** A request is answered when its virtual time, times the factor, has really passed.
//!
//! If the thread panics, every request is answered with an error from then on, and none is left to wait.

use super::drive::{Drive, Inner, Kept, State};
use super::quiet::Watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::thread::JoinHandle;
use std::time::Instant;

/// The thread. When this is dropped, everything in flight is answered, and what arrives later is answered at once.
pub struct Worker {
    drive: Drive,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(drive: &Drive) -> std::io::Result<Self> {
        let at_work = drive.clone();
        let thread = std::thread::Builder::new().name("drive".into());
        let thread = thread.spawn(move || {
            // Sleeps of microseconds; without it, the kernel may add 50.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            if catch_unwind(AssertUnwindSafe(|| work(at_work.inner()))).is_err() {
                at_work.state().fail();
            }
        })?;
        Ok(Self { drive: drive.clone(), thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.drive.state().over = true;
        self.drive.changed();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(drive: &Inner) {
    let watch = Watch::start();
    let mut state = drive.state();
    loop {
        let Some(next) = state.table.next_at() else {
            if state.over {
                return;
            }
            state = drive.wait(state);
            continue;
        };
        state = match drive.mode.factor() {
            _ if state.over => answer(drive, state),
            None => account(drive, state, &watch),
            Some(factor) => pace(drive, state, drive.real(next, factor)),
        };
    }
}

/// Answers what is done next.
fn answer<'a>(drive: &'a Inner, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    let done = state.complete();
    // The host may send the next request before the answer has returned here.
    drop(state);
    done.into_iter().for_each(Kept::give);
    let mut state = drive.state();
    state.last = Instant::now();
    state
}

/// Answers what is done next, if the host is quiet.
fn account<'a>(
    drive: &'a Inner,
    state: MutexGuard<'a, State>,
    watch: &Watch,
) -> MutexGuard<'a, State> {
    let (arrivals, last, settle) = (state.arrivals, state.last, state.settle);
    let caught_up = state.level.is_reached(state.table.in_flight());
    drop(state);
    let quiet = watch.look(last, caught_up, settle);
    let mut state = drive.state();
    match quiet {
        Some(how) if state.arrivals == arrivals && state.arriving == 0 => {
            state.was_quiet(how);
            answer(drive, state)
        }
        _ => state,
    }
}

/// Answers what is done next, if that is due.
fn pace<'a>(drive: &'a Inner, state: MutexGuard<'a, State>, due: Instant) -> MutexGuard<'a, State> {
    match due.checked_duration_since(Instant::now()) {
        Some(early) if !early.is_zero() => drive.wait_for(state, early),
        _ => answer(drive, state),
    }
}
