//! A simulated drive of the lab as a reader, in its own virtual time.

#![allow(dead_code)] // each test file uses its part

use fragmend_device::probe::reader::{Failed, Read, Reader};
use fragmend_flash::device::Device;
use fragmend_lab::measured::DriveReader;
use fragmend_lab::presets;
use fragmend_lab::setup::Setup;
use std::ops::{Deref, DerefMut};

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
    reader: DriveReader,
    pub noise: Noise,
    pub rng: fastrand::Rng,
    times: u32,
}

impl Simulated {
    /// The drive of this name, the first part of which is written in order.
    pub fn named(name: &str) -> Self {
        Self::of(&presets::named(name).expect("a drive"))
    }

    pub fn of(setup: &Setup) -> Self {
        Self::read_by(DriveReader::of(setup))
    }

    pub fn new(device: Box<dyn Device>, written: u64) -> Self {
        Self::read_by(DriveReader::new(device, written))
    }

    fn read_by(reader: DriveReader) -> Self {
        let rng = fastrand::Rng::with_seed(1);
        Self { reader, noise: Noise::default(), rng, times: 0 }
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

impl Deref for Simulated {
    type Target = DriveReader;

    fn deref(&self) -> &DriveReader {
        &self.reader
    }
}

impl DerefMut for Simulated {
    fn deref_mut(&mut self) -> &mut DriveReader {
        &mut self.reader
    }
}

impl Reader for Simulated {
    fn capacity_bytes(&self) -> u64 {
        self.reader.capacity_bytes()
    }

    fn unit_bytes(&self) -> u32 {
        self.reader.unit_bytes()
    }

    fn max_request_bytes(&self) -> u32 {
        self.reader.max_request_bytes()
    }

    fn max_depth(&self) -> u32 {
        self.reader.max_depth()
    }

    fn elapsed(
        &mut self,
        reads: &[Read],
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> Result<u64, Failed> {
        let ns = self.reader.elapsed(reads, depth, ended)?;
        Ok(self.disturbed(ns))
    }

    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        self.reader.holds_data(at)
    }
}
