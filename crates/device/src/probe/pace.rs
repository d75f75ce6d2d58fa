//! A probe beside other programs: it waits while they use the device, and counts the bursts that they disturbed.

use fragmend_sys::block::{BlockDevice, Counters};
use std::time::{Duration, Instant};

/// How a probe shares the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It waits while others use the device, and rests after each burst.
    #[default]
    Yielding,
    /// It does not.
    Unlimited,
}

/// How long others may use the device until the next burst goes beside them: there may never be a pause.
const PATIENCE: Duration = Duration::from_millis(15);
/// How often is looked whether they do.
const LOOK: Duration = Duration::from_millis(2);
/// The longest rest after a burst, and the share of the burst's time.
const REST: Duration = Duration::from_millis(20);
const SHARE: f64 = 0.25;

/// The pace of a probe.
#[derive(Debug)]
pub struct Pace {
    manner: Manner,
    device: Option<BlockDevice>,
    before: Option<Counters>,
    bursts: u64,
    disturbed: u64,
}

impl Pace {
    /// A pace on this device; without one, others cannot be seen.
    pub fn new(manner: Manner, device: Option<BlockDevice>) -> Self {
        Self { manner, device, before: None, bursts: 0, disturbed: 0 }
    }

    /// The share of bursts beside which others used the device; `None` where that cannot be seen.
    pub fn disturbed(&self) -> Option<f64> {
        self.device.as_ref()?;
        Some(self.disturbed as f64 / self.bursts.max(1) as f64)
    }

    /// Waits before a burst.
    pub fn before(&mut self) {
        let counters = || self.device.as_ref().and_then(|device| device.counters().ok());
        let mut now = counters();
        if self.manner == Manner::Yielding {
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE
                && let Some(counted) = now
                && (counted.in_flight > 0
                    || self.before.is_some_and(|last| moved(counted, last) > 0))
            {
                self.before = now;
                std::thread::sleep(LOOK);
                now = counters();
            }
        }
        self.before = now;
    }

    /// Counts what others did beside a burst of this many bytes, and rests.
    pub fn after(&mut self, bytes: u64, lasted: Duration) {
        self.bursts += 1;
        let now = self.device.as_ref().and_then(|device| device.counters().ok());
        if let (Some(before), Some(now)) = (self.before, now) {
            // Bytes, because the kernel may split and merge requests.
            let done = now - before;
            self.disturbed += u64::from(besides_reads(done) > 0 || done.read_bytes > bytes);
        }
        self.before = now;
        if self.manner == Manner::Yielding {
            std::thread::sleep(lasted.mul_f64(SHARE).min(REST));
        }
    }
}

/// Requests between two looks.
fn moved(now: Counters, before: Counters) -> u64 {
    let done = now - before;
    done.reads + besides_reads(done)
}

/// Requests that are no reads, so none of a probe's.
fn besides_reads(done: Counters) -> u64 {
    done.writes + done.discards + done.flushes
}
