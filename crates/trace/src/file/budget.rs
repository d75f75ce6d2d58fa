//! Limits the time for looking up paths, which takes far longer than writing a row: to a share of
//! the time that passes, with a reserve for the first files.

use std::time::{Duration, Instant};

/// The reserve, and so the longest that look-ups hold up a batch.
pub const RESERVE: Duration = Duration::from_millis(300);
/// One part in so many of the time that passes.
const SHARE: u32 = 10;

/// What is left of the time for look-ups.
pub struct Budget {
    left: Duration,
    /// What look-ups needed beyond that.
    debt: Duration,
    refilled: Instant,
}

impl Budget {
    /// A whole reserve.
    pub fn new(now: Instant) -> Self {
        Self { left: RESERVE, debt: Duration::ZERO, refilled: now }
    }

    /// Adds the share of the time since the last call, up to the reserve.
    pub fn refill(&mut self, now: Instant) {
        let share = now.saturating_duration_since(self.refilled) / SHARE;
        let gain = share.saturating_sub(self.debt);
        self.debt = self.debt.saturating_sub(share);
        self.left = (self.left + gain).min(self.left.max(RESERVE));
        self.refilled = now;
    }

    /// Makes at least this much available.
    pub fn grant(&mut self, time: Duration) {
        self.left = self.left.max(time);
    }

    /// Takes what a look-up needed.
    pub fn spend(&mut self, time: Duration) {
        self.debt += time.saturating_sub(self.left);
        self.left = self.left.saturating_sub(time);
    }

    /// Whether a file may be looked up; again, only while more than half of the reserve is left.
    pub fn allows(&self, again: bool) -> bool {
        self.left > if again { RESERVE / 2 } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_get_their_share_and_no_more() {
        let start = Instant::now();
        let (mut budget, mut spent) = (Budget::new(start), Duration::ZERO);
        const LOOK_UP: Duration = Duration::from_millis(1);
        for ms in 0..100_000 {
            budget.refill(start + Duration::from_millis(ms));
            while budget.allows(false) {
                budget.spend(LOOK_UP);
                spent += LOOK_UP;
            }
        }
        assert!(spent >= Duration::from_secs(9) && spent <= Duration::from_secs(11), "{spent:?}");
        // An hour later it is still the reserve that can be spent at once.
        budget.refill(start + Duration::from_secs(3600));
        assert!(budget.allows(true));
        budget.spend(RESERVE);
        assert!(!budget.allows(false));
        budget.grant(RESERVE * 3);
        budget.refill(start + Duration::from_secs(3601));
        budget.spend(RESERVE * 2);
        assert!(budget.allows(true));
    }
}
