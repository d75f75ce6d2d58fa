//! The controller: how much of this process's input and output other programs' requests bear.
//!
//! The set point is a tail: at most [`TAIL`] of the requests of others may last longer than the time that all but
//! that share of undisturbed ones stay below, by more than the tolerance. Undisturbed are those that found no request
//! of this process in flight; they are measured all the time, so that a foreground that becomes slower by
//! itself is not taken for a disturbed one.
//!
//! Let `a` be the share of slow requests among the undisturbed ones, and `b` that among those beside ours. If a share
//! `d` of all is beside ours, `a + d (b - a)` of all are slow; so this process may work for a share of
//! `d = (TAIL - a) / (b - a)` of the time, and all of the time where that is more than 1. Both are estimated from recent
//! requests and not summed up over the run: in a sum, chance alone becomes a debt that is never paid off. At first a few
//! slow requests are assumed, so that the run begins slowly. `d` has a lower bound, and so has each pause
//! an upper one: no foreground stops a run for good, and no stop is followed by a burst, as nothing is saved up.
//!
//! Steps become shorter while a larger share of the requests beside them is slow, and longer while it is not: a step
//! that nobody feels is as long as it may be.
//!
//! A pure function of what it is shown: no clock, no system call.

use crate::environment::Foreground;
use fragmend_layout::Latencies;
use std::time::Duration;

/// The share of slow requests that is the set point: the time that is kept is the 99th percentile.
const TAIL: f64 = 0.01;
/// Undisturbed requests that must be known before one is called slow: with fewer there is no 99th percentile.
const ENOUGH: u64 = 100;
/// Requests that are remembered, undisturbed and beside ours: with more of them the older ones count half.
const REMEMBERED: u64 = 4096;
const REMEMBERED_BESIDE: u64 = 1024;
/// Requests beside ours that are assumed to have been, and how many of them were slow.
const ASSUMED: f64 = 16.0;
const ASSUMED_SLOW: f64 = 1.0;
/// The least share of the time in which this process works, and the longest pause after a step.
const LEAST: f64 = 0.02;
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the first step beside others, and of the shortest.
const FIRST_STEP: u64 = 64 << 10;
pub(super) const SHORTEST_STEP: u64 = 16 << 10;
/// Requests beside ours by which the length of steps is judged, or fewer of them with so many slow ones.
const JUDGED: u64 = 64;
const SUFFICE: u64 = 4;
/// Steps become shorter where a share of more than this many times [`TAIL`] was slow, and longer below half of that.
const HARD: f64 = 4.0;

/// Decides, for one device.
#[derive(Clone, Debug)]
pub struct Controller {
    /// By what share the tail may become longer.
    tolerance: f64,
    /// What was seen so far.
    seen: Foreground,
    /// Recent requests.
    recent: Foreground,
    step: u64,
    /// Requests beside ours since the length of steps was judged, and the slow ones of them.
    beside: u64,
    slow_beside: u64,
}

impl Controller {
    /// With a tolerance of 0.1, the tail may become a tenth longer. `seen` is what has been counted before.
    pub fn new(tolerance: f64, seen: Foreground) -> Self {
        let recent = Foreground::default();
        Self { tolerance, seen, recent, step: FIRST_STEP, beside: 0, slow_beside: 0 }
    }

    /// Takes what has been counted by now.
    pub fn look(&mut self, seen: Foreground) {
        let alone = seen.alone.since(&self.seen.alone);
        let beside = seen.beside.since(&self.seen.beside);
        self.seen = seen;
        remember(&mut self.recent.alone, &alone, REMEMBERED);
        remember(&mut self.recent.beside, &beside, REMEMBERED_BESIDE);
        let Some(most) = self.longest() else { return };
        self.beside += beside.count();
        self.slow_beside += beside.above(most);
        if self.beside >= JUDGED || self.slow_beside >= SUFFICE {
            let share = self.slow_beside as f64 / self.beside as f64;
            if share > HARD * TAIL {
                self.step = (self.step / 2).max(SHORTEST_STEP);
            } else if share < HARD / 2.0 * TAIL {
                self.step *= 2;
            }
            (self.beside, self.slow_beside) = (0, 0);
        }
    }

    /// How long to pause after a step that lasted `busy`.
    pub fn pause(&self, busy: Duration) -> Duration {
        let share = self.share();
        busy.mul_f64((1.0 - share) / share).min(LONGEST_PAUSE)
    }

    /// Bytes of the next step, at most `full`.
    pub fn step(&mut self, full: u64) -> u64 {
        self.step = self.step.min(full.max(SHORTEST_STEP));
        self.step
    }

    /// The share of the time in which this process may work, above 0 and up to 1.
    fn share(&self) -> f64 {
        let Some(most) = self.longest() else { return LEAST };
        let Foreground { alone, beside } = &self.recent;
        let undisturbed = alone.above(most) as f64 / alone.count() as f64;
        let disturbed =
            (beside.above(most) as f64 + ASSUMED_SLOW) / (beside.count() as f64 + ASSUMED);
        let (left, each) = (TAIL - undisturbed, disturbed - undisturbed);
        if each <= left { 1.0 } else { (left / each).max(LEAST) }
    }

    /// Above this a request is slow, in nanoseconds; `None` until enough undisturbed ones are known.
    fn longest(&self) -> Option<u64> {
        let alone = &self.recent.alone;
        let most = || (alone.quantile(1.0 - TAIL) as f64 * (1.0 + self.tolerance)) as u64;
        (alone.count() >= ENOUGH).then(most)
    }
}

/// Adds what is new to what is remembered.
fn remember(known: &mut Latencies, new: &Latencies, most: u64) {
    known.add(new);
    if known.count() > most {
        known.halve();
    }
}
