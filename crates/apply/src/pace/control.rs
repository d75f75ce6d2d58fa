//! The controller: how much of this process's input and output other programs' requests bear.
//!
//! The set point is a tail: at most [`TAIL`] of the requests of others may last longer than the time that all but
//! that share of undisturbed ones stay below, by more than the tolerance. Undisturbed are those that had no request
//! of this process in flight beside them; they are measured all the time, so that a foreground that becomes slower by
//! itself is not taken for a disturbed one.
//!
//! Each request of others earns [`TAIL`], and each slow one costs 1: that is the integral of what the set point leaves
//! over, the *debt*. No step begins while there is a debt. It is bounded on both sides: what was left over is no licence
//! for a burst, and after [`LONGEST_PAUSE`] a step begins in any case, so that no foreground can stop the run for
//! good. Steps become shorter while a larger share of the requests beside them is slow, and longer while it is not:
//! a step that nobody feels is as long as it may be.
//!
//! A pure function of what it is shown: no clock, no system call.

use crate::environment::Foreground;
use fragmend_layout::Latencies;
use std::time::Duration;

/// The share of slow requests that is the set point: the time that is kept is the 99th percentile.
const TAIL: f64 = 0.01;
/// Undisturbed requests that must be known before one is called slow: with fewer there is no 99th percentile.
const ENOUGH: u64 = 100;
/// Undisturbed requests that are remembered: with more of them the older ones count half.
const REMEMBERED: u64 = 4096;
/// Slow requests that may be left over, and that may be owed.
const MOST_CREDIT: f64 = 2.0;
const MOST_DEBT: f64 = 64.0;
/// After a pause of this length a step begins, whatever is owed.
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
    /// Recent undisturbed requests.
    undisturbed: Latencies,
    debt: f64,
    step: u64,
    /// Requests beside ours since the length of steps was judged, and the slow ones of them.
    beside: u64,
    slow_beside: u64,
}

impl Controller {
    /// With a tolerance of 0.1, the tail may become a tenth longer. `seen` is what has been counted before.
    pub fn new(tolerance: f64, seen: Foreground) -> Self {
        Self {
            tolerance,
            seen,
            undisturbed: Latencies::default(),
            debt: 0.0,
            step: FIRST_STEP,
            beside: 0,
            slow_beside: 0,
        }
    }

    /// Takes what has been counted by now.
    pub fn look(&mut self, seen: Foreground) {
        let alone = seen.alone.since(&self.seen.alone);
        let beside = seen.beside.since(&self.seen.beside);
        self.seen = seen;
        self.undisturbed.add(&alone);
        if self.undisturbed.count() > REMEMBERED {
            self.undisturbed.halve();
        }
        let Some(most) = self.longest() else { return };
        let (count, slow) = (beside.count(), beside.above(most));
        let all = (alone.count() + count) as f64;
        let owed = (slow + alone.above(most)) as f64 - all * TAIL;
        self.debt = (self.debt + owed).clamp(-MOST_CREDIT, MOST_DEBT);
        self.beside += count;
        self.slow_beside += slow;
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

    /// Whether the next step may begin after a pause of this length.
    pub fn goes_on(&self, paused: Duration) -> bool {
        paused >= LONGEST_PAUSE || self.longest().is_some() && self.debt <= 0.0
    }

    /// Bytes of the next step, at most `full`.
    pub fn step(&mut self, full: u64) -> u64 {
        self.step = self.step.min(full.max(SHORTEST_STEP));
        self.step
    }

    /// Above this a request is slow, in nanoseconds; `None` until enough undisturbed ones are known.
    fn longest(&self) -> Option<u64> {
        let known = self.undisturbed.count() >= ENOUGH;
        known
            .then(|| (self.undisturbed.quantile(1.0 - TAIL) as f64 * (1.0 + self.tolerance)) as u64)
    }
}
