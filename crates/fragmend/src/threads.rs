//! The threads that work on many files at once. Where fewer may be started than there are processors (a limit
//! of processes, for a user or for a cgroup), the work is done in those that there are, or in this one.

use rayon::{ThreadBuilder, ThreadPoolBuilder};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Starts them. To be called before anything uses them: rayon starts them by itself otherwise, all or none,
/// and ends the process where it may not.
pub fn start() {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok());
    let processors = || thread::available_parallelism().map_or(1, |n| n.get());
    let most = asked.filter(|n| *n > 0).unwrap_or_else(processors);
    let (hand, taken) = channel::<ThreadBuilder>();
    let taken = Arc::new(Mutex::new(taken));
    let wait = || {
        let taken = Arc::clone(&taken);
        let work = move || {
            let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
            if let Ok(worker) = next {
                worker.run();
            }
        };
        thread::Builder::new().spawn(work).ok()
    };
    let started = (0..most).map_while(|_| wait()).count();
    let pool = ThreadPoolBuilder::new().num_threads(started.max(1));
    let pool = if started == 0 { pool.use_current_thread() } else { pool };
    let gone = |_| std::io::Error::other("a thread has ended");
    // An error would mean that there are threads already.
    let _ = pool.spawn_handler(move |worker| hand.send(worker).map_err(gone)).build_global();
}
