//! A reader that runs beside something else and notes how long it waits: `O_DIRECT`, one request
//! at a time, at random aligned offsets of a file of its own.

use crate::random::Random;
use crate::replay::{Aligned, Mode, open};
use hdrhistogram::Histogram;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running reader; stopped when dropped.
pub struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Waits>>,
}

impl Reader {
    /// Reads `request_bytes` at a time from `path`, a new request every `interval` at most.
    ///
    /// # Panics
    /// When the file cannot be opened, or is shorter than one request.
    pub fn start(path: &Path, request_bytes: u64, interval: Duration, seed: u64) -> Self {
        let file = open(path, Mode::Direct).expect("the reader's file");
        let slots = file.metadata().expect("its size").len() / request_bytes;
        assert!(slots > 0, "the reader's file holds less than one request");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut waits = Waits::default();
            let mut buffer = Aligned::new(request_bytes as usize);
            let mut random = Random::new(seed);
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                let at = random.below(slots) * request_bytes;
                file.read_exact_at(buffer.bytes(), at).expect("the reader's file can be read");
                let wait = start.elapsed();
                waits.note(wait);
                std::thread::sleep(interval.saturating_sub(wait));
            }
            waits
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it and returns its latencies.
    pub fn finish(mut self) -> Waits {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a reader finishes once");
        thread.join().expect("the reader did not panic")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How long a reader waited for its requests, in one round or several.
#[derive(Clone, Debug)]
pub struct Waits(Histogram<u64>);

impl Default for Waits {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are a valid precision"))
    }
}

impl Waits {
    /// Notes one wait.
    pub fn note(&mut self, wait: Duration) {
        self.0.record(wait.as_nanos() as u64).expect("the histogram grows by itself");
    }

    /// Adds another round.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows by itself");
    }

    /// Requests issued.
    pub fn requests(&self) -> u64 {
        self.0.len()
    }

    /// The latency below which this share of them stayed, from 0 to 1.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }
}
