//! The next step, a pure function of the time and of what is known.
//!
//! The order is: end, record, plan, move, wait. A recording that is due goes before a move, because it is the evidence that a
//! plan rests on, and a move may last; no recording and no move are at work at the same time. All else that forbids
//! a move (hours, budget, pressure) delays it: the batch stays at the head of its queue until the next plan takes its place.
//!
//! A recording may last longer than its period, on a busy machine for one: what was due meanwhile is left out, so that there
//! is time for plans and moves.
//!
//! The clock may be set to any time at any moment: a time that is further ahead than one period is no appointment of
//! this schedule, so it is due.

use crate::Time;
use crate::policy::Policy;
use std::time::Duration;

/// The wait before load or budget are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing more.
    End,
    /// A recording.
    Record,
    /// A plan from the latest recording.
    Plan,
    /// The first batch of the queue.
    Move,
    /// Nothing until a time.
    Wait(Time, Why),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The next recording.
    Recording,
    /// An hour in which data may move.
    Hours,
    /// Bytes of the budget.
    Budget,
    /// Programs that wait for I/O.
    Pressure,
}

impl Why {
    /// In words that continue "waiting for".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Recording => "the next recording",
            Self::Hours => "an allowed hour",
            Self::Budget => "budget: the next move may write more than is left of the day's",
            Self::Pressure => "other programs, which wait for I/O",
        }
    }
}

/// What is known besides the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// The process is to end.
    pub stop: bool,
    /// The most bytes that the next batch can write; `None` if nothing is queued.
    pub next_batch: Option<u64>,
    /// Bytes that may still be written.
    pub budget_left: u64,
    /// The share of the last ten seconds in which programs waited for I/O, in per cent; `None` where the kernel does not
    /// report it.
    pub io_pressure_percent: Option<f64>,
}

/// When something was last begun, and what it has left to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    once: bool,
    next_recording: Option<Time>,
    next_plan: Option<Time>,
    /// There is a recording that no plan was made from.
    unplanned: bool,
    /// A recording was tried.
    tried: bool,
}

impl Schedule {
    /// Everything is due; with `once`, it ends when one recording was made, planned for and what may move now has moved.
    pub fn new(once: bool) -> Self {
        Self { once, ..Self::default() }
    }

    /// A recording was made at this time already, by an earlier process.
    pub fn after(mut self, recorded: Time, policy: &Policy) -> Self {
        if !self.once {
            self.next_recording = Some(recorded.after(policy.recording.every));
        }
        self
    }

    /// The next step.
    pub fn next(&self, now: Time, policy: &Policy, known: &Known) -> Step {
        if known.stop {
            return Step::End;
        }
        let every = policy.recording.every;
        if is_due(self.next_recording, now, every) && !(self.once && self.tried) {
            return Step::Record;
        }
        if self.unplanned && is_due(self.next_plan, now, policy.planning_every) {
            return Step::Plan;
        }
        let next = self.next_recording.unwrap_or(now);
        let (until, why) = match known.next_batch {
            None => (next, Why::Recording),
            Some(bytes) => match hindrance(now, policy, known, bytes) {
                None => return Step::Move,
                Some((until, why)) => (until.min(next), why),
            },
        };
        if self.once { Step::End } else { Step::Wait(until, why) }
    }

    /// A recording was begun and has ended at these times; `usable` if a plan can be made from it.
    pub fn recorded(&mut self, [began, ended]: [Time; 2], usable: bool, policy: &Policy) {
        let every = policy.recording.every;
        let periods = ended.since(began).as_millis() / every.as_millis().max(1) + 1;
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.next_recording = Some(began.after(every.saturating_mul(periods)));
        self.unplanned |= usable;
        self.tried = true;
    }

    /// Another policy applies: the latest recording, if there is one, is planned for anew.
    pub fn reloaded(&mut self, recorded: bool) {
        self.next_plan = None;
        self.unplanned = recorded;
    }

    /// A plan was made, or tried, at this time.
    pub fn planned(&mut self, now: Time, policy: &Policy) {
        self.next_plan = Some(now.after(policy.planning_every));
        self.unplanned = false;
    }
}

fn is_due(at: Option<Time>, now: Time, every: Duration) -> bool {
    at.is_none_or(|at| at <= now || at.since(now) > every)
}

/// What forbids to move this many bytes now, and when that may be over.
fn hindrance(now: Time, policy: &Policy, known: &Known, bytes: u64) -> Option<(Time, Why)> {
    if !policy.hours.allow(now) {
        let next = policy.hours.next(now).unwrap_or_else(|| now.after(Time::DAY));
        return Some((next, Why::Hours));
    }
    if bytes > known.budget_left {
        return Some((now.after(LOOK_AGAIN), Why::Budget));
    }
    let pressed =
        known.io_pressure_percent.is_some_and(|p| p > policy.yielding.io_pressure_percent);
    pressed.then(|| (now.after(LOOK_AGAIN), Why::Pressure))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn policy() -> Policy {
        let text = "paths = [\"/srv\"]\nhours = [\"01:00-02:00\"]\ntime_zone = \"UTC\"\n[budget]\nbytes_per_day = \"1M\"\n[[rule]]\nmode = \"move\"";
        Policy::parse(text).unwrap()
    }

    fn at(minute: u64) -> Time {
        Time::from_ms(0).after(minute as u32 * MINUTE)
    }

    fn queued(bytes: u64) -> Known {
        Known { next_batch: Some(bytes), budget_left: 100, ..Known::default() }
    }

    #[test]
    fn it_records_then_plans_then_moves() {
        let (policy, mut schedule) = (policy(), Schedule::new(false));
        assert_eq!(schedule.next(at(60), &policy, &queued(1)), Step::Record);
        schedule.recorded([at(60); 2], true, &policy);
        assert_eq!(schedule.next(at(61), &policy, &queued(1)), Step::Plan);
        schedule.planned(at(61), &policy);
        assert_eq!(schedule.next(at(61), &policy, &queued(100)), Step::Move);
        assert_eq!(
            schedule.next(at(61), &policy, &Known::default()),
            Step::Wait(at(75), Why::Recording)
        );
        // The next recording goes before the rest of the queue, and there is no plan before its time.
        assert_eq!(schedule.next(at(75), &policy, &queued(1)), Step::Record);
        schedule.recorded([at(75); 2], true, &policy);
        assert_eq!(schedule.next(at(76), &policy, &queued(1)), Step::Move);
        let stop = Known { stop: true, ..queued(1) };
        assert_eq!(schedule.next(at(76), &policy, &stop), Step::End);
    }

    #[test]
    fn recordings_that_last_longer_than_their_period_leave_time_for_plans_and_moves() {
        let (policy, mut schedule) = (policy(), Schedule::new(false));
        schedule.recorded([at(60), at(92)], true, &policy);
        assert_eq!(schedule.next(at(92), &policy, &queued(1)), Step::Plan);
        schedule.planned(at(92), &policy);
        assert_eq!(schedule.next(at(92), &policy, &queued(1)), Step::Move);
        assert_eq!(schedule.next(at(105), &policy, &queued(1)), Step::Record);
    }

    #[test]
    fn what_forbids_a_move_delays_it() {
        let (policy, mut schedule) = (policy(), Schedule::new(false));
        schedule.recorded([at(10); 2], false, &policy);
        let next = |now, known: &Known| schedule.next(now, &policy, known);
        assert_eq!(next(at(11), &queued(1)), Step::Wait(at(25), Why::Hours));
        schedule.recorded([at(70); 2], false, &policy);
        let next = |now, known: &Known| schedule.next(now, &policy, known);
        let soon = at(71).after(LOOK_AGAIN);
        assert_eq!(next(at(71), &queued(101)), Step::Wait(soon, Why::Budget));
        let pressure = |percent| Known { io_pressure_percent: Some(percent), ..queued(1) };
        assert_eq!(next(at(71), &pressure(20.1)), Step::Wait(soon, Why::Pressure));
        assert_eq!(next(at(71), &pressure(20.0)), Step::Move);
    }

    #[test]
    fn once_is_one_recording_one_plan_and_what_may_move() {
        let (policy, mut schedule) = (policy(), Schedule::new(true).after(at(59), &policy()));
        assert_eq!(schedule.next(at(60), &policy, &queued(1)), Step::Record);
        schedule.recorded([at(60); 2], true, &policy);
        assert_eq!(schedule.next(at(61), &policy, &queued(1)), Step::Plan);
        schedule.planned(at(61), &policy);
        assert_eq!(schedule.next(at(62), &policy, &queued(1)), Step::Move);
        assert_eq!(schedule.next(at(90), &policy, &queued(101)), Step::End);
        assert_eq!(schedule.next(at(90), &policy, &Known::default()), Step::End);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let policy = policy();
        let mut schedule = Schedule::new(false).after(at(100_000), &policy);
        assert_eq!(schedule.next(at(60), &policy, &Known::default()), Step::Record);
        schedule.recorded([at(100_000); 2], true, &policy);
        schedule.planned(at(100_000), &policy);
        schedule.recorded([at(60); 2], true, &policy);
        assert_eq!(schedule.next(at(61), &policy, &Known::default()), Step::Plan);
    }
}
