//! A simulated drive of the lab as a reader, in its own virtual time.

#![allow(dead_code)] // each test file uses its part

use fragmend_device::probe::reader::{Failed, Read, Reader};
use fragmend_flash::command::{Command, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::Drive;
use fragmend_flash::ssd::Ssd;
use fragmend_lab::presets;
use fragmend_lab::setup::{DriveKind, Setup};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What disturbs times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// Each time is multiplied by a factor that is evenly distributed from 1 minus to 1 plus this.
    pub jitter: f64,
    /// The share of times that are 3 to 20 times as long.
    pub outliers: f64,
    /// Every other so many times are three times as long: something else is at work for a while. 0: never.
    pub phases: u32,
}

/// A drive, and the host that reads it.
pub struct Simulated {
    pub device: Box<dyn Device>,
    /// What the drive answers for from its media.
    pub written: Range<u64>,
    pub noise: Noise,
    pub rng: fastrand::Rng,
    now: u64,
    times: u32,
    request_ns: u64,
    max_request_bytes: u32,
    max_depth: u32,
}

/// How much of a drive is written in order.
pub const WRITTEN: u64 = 320 << 20;

impl Simulated {
    /// The drive of this name, the first part of which is written in order.
    pub fn named(name: &str) -> Self {
        Self::of(&presets::named(name).expect("a drive"))
    }

    pub fn of(setup: &Setup) -> Self {
        let bytes = WRITTEN.min(setup.capacity_bytes());
        let device: Box<dyn Device> = match &setup.drive {
            DriveKind::Flash(drive) => Box::new(written(drive, bytes)),
            _ => setup.device(),
        };
        let mut simulated = Self::new(device, bytes);
        simulated.request_ns = setup.host.request_ns;
        simulated.max_request_bytes = setup.host.request_bytes;
        simulated.max_depth = setup.host.queue_depth;
        simulated
    }

    pub fn new(device: Box<dyn Device>, written: u64) -> Self {
        let now = device.idle_at();
        Self {
            device,
            written: 0..written,
            noise: Noise::default(),
            rng: fastrand::Rng::with_seed(1),
            now,
            times: 0,
            request_ns: 500,
            max_request_bytes: 1 << 20,
            max_depth: 32,
        }
    }

    fn disturbed(&mut self, ns: u64) -> u64 {
        let Noise { jitter, outliers, phases } = self.noise;
        self.times += 1;
        let mut ns = ns as f64 * (1.0 + jitter * (2.0 * self.rng.f64() - 1.0));
        if self.rng.f64() < outliers {
            ns *= 3.0 + 17.0 * self.rng.f64();
        }
        if phases > 0 && self.times / phases % 2 == 1 {
            ns *= 3.0;
        }
        ns as u64
    }
}

/// A flash drive whose first bytes are written in order.
pub fn written(drive: &Drive, bytes: u64) -> Ssd {
    let mut ssd = Ssd::new(drive).expect("a consistent drive");
    let units = (bytes / u64::from(ssd.unit_bytes())).min(ssd.units().into()) as u32;
    ssd.precondition(Units::new(0, units)).expect("space");
    ssd
}

impl Reader for Simulated {
    fn capacity_bytes(&self) -> u64 {
        u64::from(self.device.units()) * u64::from(self.device.unit_bytes())
    }

    fn unit_bytes(&self) -> u32 {
        self.device.unit_bytes()
    }

    fn max_request_bytes(&self) -> u32 {
        self.max_request_bytes
    }

    fn max_depth(&self) -> u32 {
        32
    }

    /// In virtual time, which nobody waits for.
    fn elapsed(&mut self, reads: &[Read], depth: u32, _: &dyn Fn() -> bool) -> Result<u64, Failed> {
        let start = self.now.max(self.device.idle_at());
        let depth = depth.min(self.max_depth) as usize;
        let (mut now, mut last, mut in_flight) = (start, start, BinaryHeap::new());
        for Read { at, bytes } in reads {
            if in_flight.len() >= depth
                && let Some(Reverse(end)) = in_flight.pop()
            {
                now = now.max(end);
            }
            now += self.request_ns;
            let unit = self.device.unit_bytes();
            let units = Units::new((at / u64::from(unit)) as u32, bytes / unit);
            let done = self.device.submit(now, &Command::Read(units)).expect("a read").done_ns;
            in_flight.push(Reverse(done));
            last = last.max(done);
        }
        self.now = last;
        Ok(self.disturbed(last - start))
    }

    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        Ok(Some(self.written.contains(&at)))
    }
}
