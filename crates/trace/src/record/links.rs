//! The attached programs, which a second thread detaches where the first one may wait for the reader of a pipe.

use crate::TraceError;
use libbpf_rs::Link;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often it is checked whether a recording is over.
const LOOK: Duration = Duration::from_millis(50);

/// The programs' links; dropping the last clone detaches them.
#[derive(Clone, Default)]
pub(super) struct Links(Arc<Mutex<Attached>>);

#[derive(Default)]
struct Attached {
    lasting: Vec<Link>,
    /// Those of the programs that can be paused.
    pausable: Vec<Link>,
    /// When all were detached for good.
    ended: Option<Instant>,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, Attached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps these until the end.
    pub fn keep(&self, links: Vec<Link>) {
        self.lock().lasting.extend(links);
    }

    /// Keeps these until the next pause; after the end, detaches them.
    pub fn resume(&self, links: Vec<Link>) {
        let mut attached = self.lock();
        if attached.ended.is_none() {
            attached.pausable = links;
        }
    }

    /// Detaches the programs that can be paused.
    pub fn pause(&self) {
        self.lock().pausable.clear();
    }

    /// Detaches all programs for good and waits for those that are running. Returns when that was done first.
    pub fn detach(&self) -> Instant {
        let mut attached = self.lock();
        attached.pausable.clear();
        attached.lasting.clear();
        *attached.ended.get_or_insert_with(|| {
            fragmend_sys::grace::period();
            Instant::now()
        })
    }
}

/// Calls `work`, and meanwhile from another thread `end`, as soon as it is `over`.
///
/// # Errors
/// Those of `work`; [`TraceError::Kernel`] where no thread can be started.
pub(super) fn ending<T>(
    over: &(dyn Fn() -> bool + Sync),
    end: &(dyn Fn() + Sync),
    work: impl FnOnce() -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let wait = || {
            while !over() && !done.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK);
            }
            end();
        };
        let failed = |e| TraceError::Kernel(format!("no thread can be started: {e}"));
        let thread = Builder::new().name("end".into()).spawn_scoped(scope, wait).map_err(failed)?;
        let _done = Done(&done, thread.thread().clone());
        work()
    })
}

/// Ends the thread when it is dropped, also in a panic.
struct Done<'a>(&'a AtomicBool, std::thread::Thread);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}
