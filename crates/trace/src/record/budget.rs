//! Keeps a recording within its budget: decides, from what it costs, how much is recorded.
//!
//! An attached program costs every system call of the machine some 90 ns, whatever it does, and a cached read of 4 KiB
//! lasts some 800 ns: so no choice of places alone could keep the loss of such a reader below a few per cent. First,
//! requests are therefore watched in turns with pauses, during which the programs are detached. Only where that does
//! not suffice, places are left out. Misses are never paused: they are rare, and what plans are made from. Their
//! places are thinned out if they alone cost too much.

use super::shared::Control;
use crate::sampling::ALL_PLACES;

/// Requests are watched for at least one part in so many of the time.
const MOST_PAUSED: u32 = 64;
/// Accesses are recorded in at least one place of 2 to the power of this.
pub(super) const MOST_SHIFT: u32 = 6;
/// The part of the limit that is aimed at: not all that a recording costs can be measured. A reader whose reads were to
/// cost 1.4 % more by these measurements needed about 3 % more processor time, as its caches are used by others.
const AIM: f64 = 0.4;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// Requests are watched for one part in so many of the time, a power of two.
    pub one_in: u32,
    /// They are recorded in one of 2 to the power of this places.
    pub requests_shift: u32,
    /// The same for misses.
    pub misses_shift: u32,
}

/// What a recording costs, in processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// While requests are watched: the programs that see them.
    pub programs: f64,
    /// Also then: this process, which writes the rows.
    pub own: f64,
    /// Always: the programs for misses, on average over some turns.
    pub always: f64,
}

impl Rates {
    /// Everything, in one of 2 to the power of `shift` places.
    pub fn new(shift: u32) -> Self {
        Self { one_in: 1, requests_shift: shift, misses_shift: shift }
    }

    /// The rates with which a recording that costs this at these ones stays within `limit` processors.
    pub fn next(self, cost: Cost, limit: f64) -> Self {
        let aim = limit * AIM;
        let mut next = self;
        if cost.always > aim {
            next.misses_shift = (self.misses_shift + 1).min(MOST_SHIFT);
        }
        let left = (aim - cost.always).max(aim / 4.0);
        let watching = cost.programs + cost.own;
        let mut one_in = 1;
        while one_in < MOST_PAUSED && watching / f64::from(one_in) > left {
            one_in *= 2;
        }
        // One step at a time back to more.
        next.one_in = one_in.max(self.one_in / 2);
        if watching / f64::from(one_in) > left {
            next.requests_shift = (self.requests_shift + 1).min(MOST_SHIFT);
        }
        next
    }

    /// The setting of the kernel side while requests are watched.
    pub fn watching(self) -> Control {
        Control {
            requests_below: ALL_PLACES >> self.requests_shift,
            misses_below: ALL_PLACES >> self.misses_shift,
            weight: self.one_in,
            pad: 0,
        }
    }

    /// The same in a pause.
    pub fn paused(self) -> Control {
        Control { weight: 0, ..self.watching() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_recorded_whole() {
        let all = Rates::new(0);
        assert_eq!(all.next(Cost { programs: 0.001, own: 0.001, always: 0.001 }, 0.01), all);
        assert_eq!(all.next(Cost::default(), 0.01), all);
    }

    /// A reader of the page cache on two processors that loses 17 %.
    #[test]
    fn an_expensive_recording_is_paused_first_and_thinned_out_then() {
        let (all, limit) = (Rates::new(0), 0.02);
        let cost = Cost { programs: 0.1, own: 0.1, always: 0.0 };
        let paused = all.next(cost, limit);
        assert_eq!(paused, Rates { one_in: 32, ..all });
        // Still too much: fewer places, down to the least.
        let cost = Cost { programs: 0.9, ..cost };
        let (mut rates, mut shifts) = (paused, Vec::new());
        for _ in 0..8 {
            rates = rates.next(cost, limit);
            shifts.push(rates.requests_shift);
        }
        assert_eq!((rates.one_in, rates.misses_shift), (64, 0));
        assert_eq!(shifts, [1, 2, 3, 4, 5, 6, 6, 6]);
    }

    #[test]
    fn a_load_that_ends_is_recorded_whole_again_step_by_step() {
        let mut rates = Rates { one_in: 16, requests_shift: 2, misses_shift: 0 };
        let mut steps = Vec::new();
        for _ in 0..5 {
            rates = rates.next(Cost::default(), 0.02);
            steps.push(rates.one_in);
        }
        assert_eq!(steps, [8, 4, 2, 1, 1]);
        assert_eq!(
            rates.requests_shift, 2,
            "a place that was left out once is not complete any more"
        );
    }

    #[test]
    fn misses_are_thinned_out_only_if_they_alone_cost_too_much() {
        let cost = Cost { always: 0.5, ..Cost::default() };
        let rates = Rates::new(0).next(cost, 0.02);
        assert_eq!((rates.misses_shift, rates.requests_shift, rates.one_in), (1, 0, 1));
    }
}
