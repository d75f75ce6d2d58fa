//! What has arrived, and an estimate of what that costs: by its number, where run time is not counted.

use super::budget::{Cost, Rates};
use super::kernel::Kernel;
use crate::TraceError;
use std::time::Instant;

/// Processor time of an access where run time is not counted: in the programs that run only while requests are watched,
const REQUEST_NS: f64 = 600.0;
/// the same of one that reaches the device, which passes the tracepoints of its system call and of the block layer,
const DEVICE_REQUEST_NS: f64 = 800.0;
/// and what it costs besides, in those that run always, because it is recorded.
const DEVICE_NS: f64 = 700.0;
/// What it costs in them in any case.
const DEVICE_FIXED_NS: f64 = 250.0;
/// What this process does for one that is recorded, as a part of DEVICE_NS.
pub(super) const OWN_SHARE: f64 = 0.5;

/// Accesses up to a time: all, and those that reached the device.
#[derive(Clone, Copy)]
pub(super) struct Arrived {
    pub at: Instant,
    pub all: u64,
    pub device: u64,
}

/// What has arrived between two such times.
#[derive(Clone, Copy)]
pub(super) struct Arrivals {
    pub seconds: f64,
    pub requests: f64,
    pub device: f64,
}

impl Arrived {
    /// Up to now.
    pub fn now(kernel: &Kernel) -> Result<Self, TraceError> {
        let stats = kernel.stats()?;
        let all = stats.events.iter().sum();
        Ok(Self { at: Instant::now(), all, device: stats.device_events })
    }

    /// What has come since then.
    pub fn since(&self, before: &Self) -> Arrivals {
        let device = (self.device - before.device) as f64;
        Arrivals {
            seconds: (self.at - before.at).as_secs_f64().max(1e-9),
            requests: (self.all - before.all) as f64 - device,
            device,
        }
    }
}

impl Arrivals {
    /// What the programs have cost for these, as an estimate by their number while requests were watched and what reaches
    /// the device was recorded at these rates.
    pub fn by_number(&self, rates: Rates) -> Cost {
        let processors = |ns: f64| ns / 1e9 / self.seconds;
        let all = self.device * f64::from(1u32 << rates.device_shift);
        Cost {
            requests: processors(self.requests * REQUEST_NS + all * DEVICE_REQUEST_NS),
            device: processors(self.device * DEVICE_NS),
            fixed: processors(all * DEVICE_FIXED_NS),
        }
    }
}
