//! How fast to go, and when to let others go first.
//!
//! At the default pace the run watches its device. While no other program reads there, nothing is waited for. While
//! one does, the time that others wait for their requests decides: a [`Controller`] keeps their tail within a
//! [tolerance](Pacing::tolerance) of what it is undisturbed. Where that cannot be measured (no privilege, an old
//! kernel), steps are short and each is followed by a pause many times its length, so that at any instant the device
//! most likely has no request of ours.
//!
//! | module | its job |
//! |---|---|
//! | `presence` | whether others read from the device, by its statistics |
//! | [`control`] | what their requests bear, by how long they last |

pub mod control;
#[cfg(test)]
mod control_tests;
mod presence;
#[cfg(test)]
mod tests;

use crate::environment::Environment;
use crate::receipt::PacedBy;
use control::Controller;
use fragmend_layout::ByteRange;
use presence::Presence;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How fast data may be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// As fast as possible while no other program reads from the device, and yielding when one does.
    #[default]
    Yielding,
    /// At most this many bytes per second, whatever others do.
    BytesPerSecond(u64),
    /// As fast as possible.
    Unlimited,
}

/// How a run is paced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// How fast.
    pub rate: Rate,
    /// By which share the 99th percentile of what others wait for a request may become longer, where the rate yields.
    pub tolerance: f64,
}

/// Where their waits are not known, the pause after a step beside others is this many times as long as the step.
const YIELD: u32 = 8;
/// The longest such pause, however slow the device has become under their load: a program that waits for a file does
/// not notice so short a one. After a longer one, programs that wait are let in.
pub(crate) const SHORT: Duration = Duration::from_millis(10);
/// The longest time without moves that may be made up for: there is no burst after a stop, a suspended machine
/// or many files that were left alone.
const CREDIT: Duration = Duration::from_millis(250);
/// The longest pause between two checks for Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

/// Keeps the pace of one run on one device.
pub struct Pacer<'a> {
    environment: &'a dyn Environment,
    pacing: Pacing,
    /// Number of the device.
    device: u64,
    /// When the next byte may move, where a rate was given.
    next: Duration,
    presence: Presence<'a>,
    /// What is known of the waits of others, once others were seen.
    known: Option<Result<Controller, String>>,
    /// Time spent in pauses.
    pub paused: Duration,
}

impl<'a> Pacer<'a> {
    /// A pacer for the volume whose files' identities have this device number.
    pub fn new(pacing: Pacing, environment: &'a dyn Environment, device: u64) -> Self {
        let now = environment.now();
        let presence = Presence::new(environment, device);
        let (known, paused) = (None, Duration::ZERO);
        Self { environment, pacing, device, next: now, presence, known, paused }
    }

    /// From now on what this process reads comes from this device, and not from another one.
    pub fn begin(&mut self) {
        self.presence.begin();
    }

    /// The time of the environment's clock.
    pub fn now(&self) -> Duration {
        self.environment.now()
    }

    /// How long to pause after a step of `bytes` that lasted `busy` and has just ended.
    pub fn due(&mut self, bytes: u64, busy: Duration) -> Duration {
        match self.pacing.rate {
            Rate::Unlimited => Duration::ZERO,
            Rate::BytesPerSecond(rate) => {
                let now = self.now();
                let from = self.next.max(now.saturating_sub(CREDIT));
                self.next = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                self.next.saturating_sub(now)
            }
            Rate::Yielding if !self.presence.look() => Duration::ZERO,
            Rate::Yielding => match self.control() {
                Some(control) => control.pause(busy),
                None => (busy * YIELD).min(SHORT),
            },
        }
    }

    /// The controller with what has been counted by now, if that is known.
    fn control(&mut self) -> Option<&Controller> {
        if !matches!(self.known, Some(Err(_))) {
            let seen = self.environment.foreground(self.device);
            let tolerance = self.pacing.tolerance;
            self.known = Some(seen.map(|seen| match self.known.take() {
                Some(Ok(mut control)) => {
                    control.look(seen);
                    control
                }
                _ => Controller::new(tolerance, seen),
            }));
        }
        self.known.as_ref()?.as_ref().ok()
    }

    /// What to move in the next step: from `at` on, at most `full` bytes, at least `least`.
    pub fn part(&mut self, at: u64, full: u64, least: u64) -> ByteRange {
        let yields = self.pacing.rate == Rate::Yielding && self.presence.is_there();
        let bytes = match &mut self.known {
            _ if !yields => full,
            Some(Ok(control)) => control.step(full),
            _ => full.min(control::SHORTEST_STEP),
        };
        ByteRange::at(at, bytes.max(least))
    }

    /// Waits for `pause`, or until `stop`.
    pub fn pause(&mut self, pause: Duration, stop: &AtomicBool) {
        let since = self.now();
        while !stop.load(Ordering::Relaxed) {
            let left = pause.saturating_sub(self.now() - since);
            if left.is_zero() {
                break;
            }
            self.environment.wait(left.min(NAP));
        }
        self.paused += self.now() - since;
    }

    /// What the pace went by so far; `None` where it does not yield.
    pub fn by(&self) -> Option<PacedBy> {
        (self.pacing.rate == Rate::Yielding).then(|| match &self.known {
            None => PacedBy::NobodyRead,
            Some(Ok(_)) => PacedBy::BlockTracepoints,
            Some(Err(why)) => PacedBy::DiskStatistics { why: why.clone() },
        })
    }
}
