//! A clock that advances only with waits and operations, and the load of other programs.

use fragmend_apply::{Environment, Foreground, OwnIo};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where a simulated run takes place.
#[derive(Debug, Default)]
pub struct World {
    now: Cell<Duration>,
    own: Cell<OwnIo>,
    read_by_others: Cell<(Duration, Duration, u64)>,
    waits: RefCell<Option<Waits>>,
    stopped: Cell<Option<Duration>>,
    /// Set to end the run; [`Fault::Stop`](crate::Fault::Stop) does so.
    pub stop: AtomicBool,
}

/// Requests of other programs, and how long they have lasted.
#[derive(Debug)]
struct Waits {
    interval: Duration,
    lasts: Duration,
    /// One in so many of those beside an operation of this process waits for the rest of it besides; none if it is 0.
    one_in: u64,
    next: Duration,
    sent: u64,
    seen: Foreground,
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

    /// From now on other programs send a request each `interval`. Undisturbed it lasts between `lasts` and twice that; one in
    /// `one_in` of those beside an operation of this process waits for the rest of it besides, and none if it is 0.
    pub fn others_wait(&self, interval: Duration, lasts: Duration, one_in: u64) {
        let (next, sent, seen) = (self.now.get(), 0, Foreground::default());
        *self.waits.borrow_mut() = Some(Waits { interval, lasts, one_in, next, sent, seen });
    }

    /// Lets the clock advance, beside an operation of this process or without one.
    fn pass(&self, time: Duration, working: bool) {
        let end = self.now.get() + time;
        self.now.set(end);
        let mut waits = self.waits.borrow_mut();
        let Some(waits) = waits.as_mut() else { return };
        while waits.next < end {
            // Weyl's sequence spreads them evenly.
            let part =
                (waits.sent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as f64 / 2f64.powi(32);
            let undisturbed = waits.lasts.mul_f64(1.0 + part);
            let disturbed = waits.one_in > 0 && waits.sent.is_multiple_of(waits.one_in);
            let rest = if disturbed { end - waits.next } else { Duration::ZERO };
            if working {
                waits.seen.beside.record((undisturbed + rest).as_nanos() as u64);
            } else {
                waits.seen.alone.record(undisturbed.as_nanos() as u64);
            }
            waits.sent += 1;
            waits.next += waits.interval;
        }
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
        self.pass(time, true);
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
        self.pass(time, false);
    }

    /// All volumes are on one disk.
    fn read_from(&self, _: u64) -> Option<u64> {
        let (from, to, rate) = self.read_by_others.get();
        let so_long = self.now.get().clamp(from, to.max(from)) - from;
        let by_others = (so_long.as_micros() as u64).saturating_mul(rate) / 1_000_000;
        Some(by_others + self.own.get().read_bytes)
    }

    fn foreground(&self, _: u64) -> Result<Foreground, String> {
        let waits = self.waits.borrow();
        let seen = waits.as_ref().map(|waits| waits.seen.clone());
        seen.ok_or_else(|| "other programs only read here, and wait for nothing".into())
    }

    fn own_io(&self) -> OwnIo {
        self.own.get()
    }

    fn give_way(&self) {}
}
