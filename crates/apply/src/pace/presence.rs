//! Whether other programs read from a device, by its statistics: bytes that were read there and not by this process.
//!
//! What this process reads is known only as a sum over all devices, so it is counted while its files are on that
//! device, and at no other time ([`Presence::begin`]).

use crate::environment::Environment;
use std::time::Duration;

/// How long after the last read of another program others count as reading.
pub(super) const WARY: Duration = Duration::from_millis(500);
/// Reads of others up to this many bytes within this time are ignored: metadata, a stray page.
pub(super) const NOISE_BYTES: u64 = 16 * 1024;
pub(super) const NOISE: Duration = Duration::from_millis(100);
/// For so long after others were seen to read, nobody looks again: looking takes processor time as well.
const SURE: Duration = Duration::from_millis(50);

/// Watches one device.
pub(super) struct Presence<'a> {
    environment: &'a dyn Environment,
    /// Number of the device.
    device: u64,
    /// What had been read from the device, and by this process from any device, when the run last turned to
    /// this one.
    since: Reads,
    /// Bytes that others had read there by the time `counted`, from when on their reads are added up.
    foreign: u64,
    counted: Duration,
    /// When others were last seen to read.
    pressed: Option<Duration>,
}

/// Bytes that have been read.
#[derive(Clone, Copy, Default)]
struct Reads {
    /// From one device, by all programs.
    there: u64,
    /// By this process, from any device.
    own: u64,
}

impl Reads {
    /// The present counts.
    fn now(environment: &dyn Environment, device: u64) -> Self {
        let there = environment.read_from(device).unwrap_or(0);
        Self { there, own: environment.own_io().read_bytes }
    }
}

impl<'a> Presence<'a> {
    /// Of other programs on the device with this number.
    pub fn new(environment: &'a dyn Environment, device: u64) -> Self {
        let (counted, since) = (environment.now(), Reads::now(environment, device));
        Self { environment, device, since, foreign: 0, counted, pressed: None }
    }

    /// From now on what this process reads comes from this device, and not from another one.
    pub fn begin(&mut self) {
        (self.since, self.foreign) = (Reads::now(self.environment, self.device), 0);
        self.counted = self.environment.now();
    }

    /// Looks whether another program reads from the device, or did recently.
    pub fn look(&mut self) -> bool {
        let now = self.environment.now();
        if self.pressed.is_some_and(|at| now - at < SURE) {
            return true;
        }
        let Reads { there, own } = Reads::now(self.environment, self.device);
        let read = there.saturating_sub(self.since.there);
        // A read of ours is counted for this process at once, and for the device when it is completed.
        let foreign = read.saturating_sub(own.saturating_sub(self.since.own));
        let is_loud = foreign > self.foreign + NOISE_BYTES;
        if is_loud {
            self.pressed = Some(now);
        }
        // However short the steps are, few bytes in each of them add up.
        if is_loud || now - self.counted > NOISE {
            (self.foreign, self.counted) = (self.foreign.max(foreign), now);
        }
        self.is_there()
    }

    /// Whether one did recently, by the last look.
    pub fn is_there(&self) -> bool {
        self.pressed.is_some_and(|at| self.environment.now() - at < WARY)
    }
}
