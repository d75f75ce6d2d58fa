//! A clock that advances only with waits and operations, and the load of other programs.

use fragmend_apply::{Environment, OwnIo};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where a simulated run takes place.
#[derive(Debug, Default)]
pub struct World {
    now: Cell<Duration>,
    own: Cell<OwnIo>,
    read_by_others: Cell<(Duration, Duration, u64)>,
    stopped: Cell<Option<Duration>>,
    /// Set to end the run; [`Fault::Stop`](crate::Fault::Stop) does so.
    pub stop: AtomicBool,
}

impl World {
    /// A world at time zero, in which no other program reads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Other programs read this many bytes a second during `when`.
    pub fn others_read(&self, when: Range<Duration>, bytes_per_second: u64) {
        self.read_by_others.set((when.start, when.end, bytes_per_second));
    }

    /// When a fault told the run to end.
    pub fn stopped(&self) -> Option<Duration> {
        self.stopped.get()
    }

    /// Tells the run to end.
    pub(crate) fn end(&self) {
        self.stopped.set(self.stopped.get().or(Some(self.now.get())));
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Lets the disk be busy for `time`, and counts these bytes.
    pub(crate) fn work(&self, time: Duration, read: u64, written: u64) {
        self.wait(time);
        let OwnIo { read_bytes, written_bytes } = self.own.get();
        self.own
            .set(OwnIo { read_bytes: read_bytes + read, written_bytes: written_bytes + written });
    }
}

impl Environment for World {
    fn now(&self) -> Duration {
        self.now.get()
    }

    fn wait(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    /// All volumes are on one disk.
    fn read_from(&self, _: u64) -> Option<u64> {
        let (from, to, rate) = self.read_by_others.get();
        let so_long = self.now.get().clamp(from, to.max(from)) - from;
        let by_others = (so_long.as_micros() as u64).saturating_mul(rate) / 1_000_000;
        Some(by_others + self.own.get().read_bytes)
    }

    fn own_io(&self) -> OwnIo {
        self.own.get()
    }

    fn give_way(&self) {}
}
