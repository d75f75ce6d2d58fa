//! The busy times of a resource that does one thing at a time: a channel, the link, the processor.
//!
//! Reservations are made in the order of commands, not of their times: a transfer that waits for a busy die
//! leaves the channel free until then, and a later reservation may fill that gap.

use std::collections::VecDeque;

/// The reserved times of one resource.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Start and end of each reserved span, in order; spans do not touch each other.
    spans: VecDeque<(u64, u64)>,
    busy_ns: u64,
}

impl Timeline {
    /// Reserves `len` consecutive nanoseconds, not before `earliest`; returns when they begin. No later call
    /// reserves time before `now`.
    pub fn reserve(&mut self, now: u64, earliest: u64, len: u64) -> u64 {
        if len == 0 {
            return earliest;
        }
        self.busy_ns += len;
        while self.spans.front().is_some_and(|(_, end)| *end <= now) {
            self.spans.pop_front();
        }
        let mut at = self.spans.partition_point(|(_, end)| *end <= earliest);
        let mut start = earliest;
        while let Some((busy, end)) = self.spans.get(at) {
            if start + len <= *busy {
                break;
            }
            start = start.max(*end);
            at += 1;
        }
        self.insert(at, start, start + len);
        start
    }

    /// Inserts a span before the one at `at`, joined with those that it touches.
    fn insert(&mut self, at: usize, start: u64, end: u64) {
        let joins_next = self.spans.get(at).is_some_and(|(busy, _)| *busy == end);
        let joins_last = at > 0 && self.spans[at - 1].1 == start;
        match (joins_last, joins_next) {
            (true, true) => {
                self.spans[at - 1].1 = self.spans[at].1;
                self.spans.remove(at);
            }
            (true, false) => self.spans[at - 1].1 = end,
            (false, true) => self.spans[at].0 = start,
            (false, false) => self.spans.insert(at, (start, end)),
        }
    }

    /// The same resource with nothing reserved.
    pub fn idle(&self) -> Self {
        Self { spans: VecDeque::new(), busy_ns: self.busy_ns }
    }

    /// When the last reservation ends; may be 0 if it is past.
    pub fn free_at(&self) -> u64 {
        self.spans.back().map_or(0, |(_, end)| *end)
    }

    /// The sum of all reservations, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// How long a transfer of `bytes` lasts at a rate, in nanoseconds, rounded up; `u64::MAX` if that is longer.
pub fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    match bytes.checked_mul(1_000_000_000) {
        Some(all) => all.div_ceil(bytes_per_second),
        None => {
            let all = u128::from(bytes) * 1_000_000_000;
            u64::try_from(all.div_ceil(bytes_per_second.into())).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_is_filled_and_what_touches_is_joined() {
        let mut line = Timeline::default();
        assert_eq!(line.reserve(0, 100, 10), 100);
        assert_eq!(line.reserve(0, 50, 60), 110, "too long for the gap");
        assert_eq!(line.reserve(0, 50, 50), 50);
        assert_eq!(line.spans, [(50, 170)]);
        assert_eq!(line.reserve(170, 170, 5), 170);
        assert_eq!((line.spans.len(), line.busy_ns()), (1, 125));
    }

    #[test]
    fn rates_round_up() {
        assert_eq!(transfer_ns(16384, 800 << 20), 19532);
        assert_eq!(transfer_ns(1, 1_000_000_000), 1);
        assert_eq!(transfer_ns(0, 5), 0);
        // 64 GiB a second, for a minute and more.
        assert_eq!(transfer_ns(1 << 42, 1 << 36), 64_000_000_000);
        assert_eq!(transfer_ns(u64::MAX, 1), u64::MAX);
    }

    proptest! {
        #[test]
        fn nothing_is_reserved_twice(asked in prop::collection::vec((0u64..50, 0u64..200, 1u64..40), 1..80)) {
            let (mut line, mut now) = (Timeline::default(), 0);
            let mut all: Vec<(u64, u64)> = Vec::new();
            for (later, wait, len) in asked {
                now += later;
                let start = line.reserve(now, now + wait, len);
                prop_assert!(start >= now + wait);
                // It is the earliest free time.
                let free = |at: u64| all.iter().all(|(s, e)| at + len <= *s || *e <= at);
                prop_assert!(free(start));
                prop_assert!((now + wait..start).all(|at| !free(at)));
                all.push((start, start + len));
            }
        }
    }
}
