//! Keeps a recording within its budget: decides, from what it costs, how much is recorded.
//!
//! An attached program costs every system call of the machine some 90 ns, whatever it does, and a cached read of 4 KiB
//! lasts some 800 ns: so no choice of places alone could keep the loss of such a reader below a few per cent. What
//! programs ask for is therefore watched in turns with pauses, during which these programs are detached. What reaches
//! the device is what plans are made from, so it is never paused; if it costs too much, it is recorded in a part of the
//! places, which changes from turn to turn.
//!
//! The budget holds on average: what a quiet time has left over is spent on a burst, so that a load that comes seldom is
//! whole. A recording begins with little, because a load that is there from the start would spend all that is there: of a
//! recording of a few seconds, that is to keep to its limit, too.

use super::shared::Control;

/// Requests are watched for at least one part in so many of the time.
const MOST_PAUSED: u32 = 64;
/// What reaches the device is recorded in at least one place of 2 to the power of this.
pub(super) const MOST_SHIFT: u32 = 6;
/// The part of the limit that is aimed at: not all that a recording costs can be measured. A reader whose reads were to
/// cost 1.4 % more by these measurements needed about 3 % more processor time, as its caches are used by others.
const AIM: f64 = 0.4;
/// The budget of so many seconds can be saved up.
const SAVED_S: f64 = 10.0;
/// A recording begins with that of so many.
const FIRST_S: f64 = 0.5;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// Requests are watched for one part in so many of the time, a power of two.
    pub one_in: u32,
    /// What reaches the device is recorded in one of 2 to the power of this places.
    pub device_shift: u32,
}

/// What a recording costs, in processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// While requests are watched: the programs that see them, and their rows.
    pub requests: f64,
    /// Always: what accesses that reach the device cost, in the programs that see them and for their rows.
    pub device: f64,
    /// Always, whatever is recorded: the programs that find that something is not to be recorded, measuring and pausing.
    pub fixed: f64,
}

/// What is left of the budget, in seconds of a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Savings {
    limit: f64,
    left: f64,
}

impl Savings {
    /// Those of a recording that begins, with a limit in processors.
    pub fn new(limit: f64) -> Self {
        Self { limit, left: limit * AIM * FIRST_S }
    }

    /// Whether more was spent than there was.
    pub fn overspent(&self) -> bool {
        self.left < 0.0
    }

    /// The limit, in processors.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Enters what a time has cost.
    pub fn spend(&mut self, passed_s: f64, cost_s: f64) {
        let most = self.limit * AIM * SAVED_S;
        self.left = (self.left + self.limit * AIM * passed_s - cost_s).clamp(-most, most);
    }

    /// The rates for the next turn, after one at `now` that cost this.
    pub fn next(&self, now: Rates, cost: Cost, start: Rates) -> Rates {
        // Once it is thinned out, it is so for a while: each turn that is whole has a high price.
        let needed = if now == start { 0.0 } else { self.limit * AIM * SAVED_S / 2.0 };
        if self.left > needed { start } else { now.next(cost, self.limit).at_most(start) }
    }
}

impl Rates {
    /// All requests, and what reaches the device in one of 2 to the power of `shift` places.
    pub fn new(shift: u32) -> Self {
        Self { one_in: 1, device_shift: shift }
    }

    fn at_most(self, other: Self) -> Self {
        Self {
            one_in: self.one_in.max(other.one_in),
            device_shift: self.device_shift.max(other.device_shift),
        }
    }

    /// The same where only what reaches the device has been seen since.
    pub fn next_device(self, cost: Cost, savings: &Savings, start: Self) -> Self {
        let next = self.next(cost, savings.limit).at_most(start);
        Self { one_in: self.one_in, ..next }
    }

    /// The rates with which a recording that costs this at these ones stays within `limit` processors.
    fn next(self, cost: Cost, limit: f64) -> Self {
        let aim = (limit * AIM - cost.fixed).max(limit * AIM / 4.0);
        let mut next = self;
        let mut device = cost.device;
        while device > aim * 0.75 && next.device_shift < MOST_SHIFT {
            next.device_shift += 1;
            device /= 2.0;
        }
        if cost.device < aim * 0.25 {
            next.device_shift = self.device_shift.saturating_sub(1);
        }
        let left = (aim - device).max(aim / 4.0);
        let mut one_in = 1;
        while one_in < MOST_PAUSED && cost.requests / f64::from(one_in) > left {
            one_in *= 2;
        }
        // One step at a time back to more.
        next.one_in = one_in.max(self.one_in / 2);
        next
    }

    /// The setting of the kernel side while requests are watched; the parts of the places take turns, or it is the first
    /// one all the time.
    pub fn watching(self, turns: bool) -> Control {
        let device_mask = (1 << self.device_shift) - 1;
        Control { device_mask, weight: self.one_in, turns: turns.into(), pad: 0 }
    }

    /// The same in a pause.
    pub fn paused(self, turns: bool) -> Control {
        Control { weight: 0, ..self.watching(turns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: f64 = 0.02;
    const ALL: Rates = Rates { one_in: 1, device_shift: 0 };

    #[test]
    fn what_fits_is_recorded_whole() {
        assert_eq!(ALL.next(Cost { requests: 0.001, device: 0.001, fixed: 0.0 }, LIMIT), ALL);
        assert_eq!(ALL.next(Cost::default(), LIMIT), ALL);
    }

    /// A reader of the page cache on two processors that loses 17 %.
    #[test]
    fn requests_are_paused_and_what_reaches_the_device_is_not() {
        let paused = ALL.next(Cost { requests: 0.2, ..Cost::default() }, LIMIT);
        assert_eq!(paused, Rates { one_in: 32, device_shift: 0 });
        let most = ALL.next(Cost { requests: 9.0, ..Cost::default() }, LIMIT);
        assert_eq!(most, Rates { one_in: MOST_PAUSED, device_shift: 0 });
    }

    #[test]
    fn what_reaches_the_device_is_thinned_out_by_places_and_comes_back() {
        let (mut rates, mut shifts) = (ALL, Vec::new());
        for device in [0.02, 0.02, 0.5, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001] {
            rates = rates.next(Cost { device, ..Cost::default() }, LIMIT);
            shifts.push(rates.device_shift);
        }
        assert_eq!(shifts, [2, 4, 6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(rates.one_in, 1);
    }

    #[test]
    fn a_load_that_ends_is_recorded_whole_again_step_by_step() {
        let (mut rates, mut steps) = (Rates { one_in: 16, device_shift: 0 }, Vec::new());
        for _ in 0..5 {
            rates = rates.next(Cost::default(), LIMIT);
            steps.push(rates.one_in);
        }
        assert_eq!(steps, [8, 4, 2, 1, 1]);
    }

    #[test]
    fn a_burst_is_whole_as_long_as_the_savings_last() {
        let cost = Cost { requests: 0.2, ..Cost::default() };
        let mut savings = Savings::new(LIMIT);
        // A quiet time comes first.
        (0..100).for_each(|_| savings.spend(0.1, 0.0));
        let (mut rates, mut whole_s) = (ALL, 0.0);
        while rates == ALL {
            savings.spend(0.1, 0.1 * cost.requests);
            rates = savings.next(rates, cost, ALL);
            whole_s += 0.1;
        }
        assert!((0.3..0.6).contains(&whole_s), "{whole_s}");
        assert_eq!(rates.one_in, 32);
        // In the long run it keeps to the limit.
        let mut spent = whole_s * cost.requests;
        for _ in 0..1000 {
            let now = cost.requests / f64::from(rates.one_in) * 0.1;
            spent += now;
            savings.spend(0.1, now);
            rates = savings.next(rates, cost, ALL);
        }
        assert!(spent <= 100.0 * LIMIT, "{spent}");
        // A quiet time saves up for the next burst.
        (0..100).for_each(|_| savings.spend(0.1, 0.0));
        assert_eq!(savings.next(rates, cost, ALL), ALL);
    }

    /// Whatever the load costs, as long as that is noticed in time.
    #[test]
    fn a_recording_that_begins_under_load_keeps_to_its_limit_after_seconds() {
        for requests in [0.03, 0.1, 0.3, 1.0] {
            let cost = Cost { requests, ..Cost::default() };
            let (mut savings, mut rates, mut spent) = (Savings::new(LIMIT), ALL, 0.0);
            for step in 1..=500 {
                let now = cost.requests / f64::from(rates.one_in) * 0.02;
                spent += now;
                savings.spend(0.02, now);
                rates = savings.next(rates, cost, ALL);
                let passed = f64::from(step) * 0.02;
                assert!(passed < 5.0 || spent <= passed * LIMIT, "{spent} after {passed} s");
            }
        }
    }

    /// What cannot be saved is not saved twice: what is left for the rest is less.
    #[test]
    fn what_costs_in_any_case_leaves_less_for_the_rest() {
        let cost = |fixed| Cost { requests: 0.05, device: 0.002, fixed };
        assert_eq!(ALL.next(cost(0.0), LIMIT), Rates { one_in: 16, device_shift: 0 });
        assert_eq!(ALL.next(cost(0.006), LIMIT), Rates { one_in: 64, device_shift: 1 });
        assert_eq!(ALL.next(cost(1.0), LIMIT), ALL.next(cost(0.006), LIMIT));
    }

    #[test]
    fn what_was_asked_for_from_the_start_is_kept() {
        let start = Rates::new(3);
        let savings = Savings::new(LIMIT);
        assert_eq!(savings.next(start, Cost::default(), start), start);
        let mut poor = savings;
        poor.spend(1.0, 10.0);
        assert_eq!(poor.next(start, Cost::default(), start), start);
        assert_eq!((start.watching(false).device_mask, start.watching(false).turns), (7, 0));
        let paused = start.paused(true);
        assert_eq!((paused.weight, paused.device_mask, paused.turns), (0, 7, 1));
    }
}
