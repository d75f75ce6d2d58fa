//! How long requests lasted: a distribution whose steps are narrow enough to see ten per cent.
//!
//! From [`UNIT_NS`] times 32 on, each doubling has 32 steps, so that a step is at most 3.2 % wide; below that a step
//! is [`UNIT_NS`]. The kernel side of the pace counts in the same steps (`trace/bpf/foreground.bpf.c`).

/// Width of the narrowest steps, in nanoseconds.
pub const UNIT_NS: u64 = 256;
/// Steps of a doubling, as a logarithm.
const PER_DOUBLING_LOG: u32 = 5;
/// All steps; the last one has whatever lasted longer than 17 seconds.
pub const LATENCY_STEPS: usize = 736;

/// Counts of requests by how long they lasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: Vec<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; LATENCY_STEPS] }
    }
}

impl Latencies {
    /// Of counts by step; what is missing is 0.
    pub fn of_counts(counts: &[u64]) -> Self {
        let mut counts = counts.to_vec();
        counts.resize(LATENCY_STEPS, 0);
        Self { counts }
    }

    /// Counts a request that lasted so long.
    pub fn record(&mut self, ns: u64) {
        self.counts[step_of(ns)] += 1;
    }

    /// How many requests were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds another distribution's counts.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |(now, then): (&u64, &u64)| now.saturating_sub(*then);
        Self { counts: self.counts.iter().zip(&earlier.counts).map(less).collect() }
    }

    /// Gives what was counted so far half its weight beside what comes.
    pub fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
    }

    /// The time in nanoseconds below which this share of the requests stayed, from 0 to 1, as the end of its step; 0 if
    /// there were none.
    pub fn quantile(&self, share: f64) -> u64 {
        let all = self.count();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0;
        let step = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        step.map_or(0, |step| start_of(step + 1))
    }

    /// How many requests lasted longer than `ns`, apart from those of its step.
    pub fn above(&self, ns: u64) -> u64 {
        self.counts[step_of(ns) + 1..].iter().sum()
    }
}

/// The step of a time.
fn step_of(ns: u64) -> usize {
    let units = ns / UNIT_NS;
    let doublings = (u64::BITS - units.leading_zeros()).saturating_sub(PER_DOUBLING_LOG + 1);
    let step = (u64::from(doublings) << PER_DOUBLING_LOG) + (units >> doublings);
    (step as usize).min(LATENCY_STEPS - 1)
}

/// The shortest time of a step.
fn start_of(step: usize) -> u64 {
    let doublings = (step >> PER_DOUBLING_LOG).saturating_sub(1);
    ((step - (doublings << PER_DOUBLING_LOG)) as u64 * UNIT_NS) << doublings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_and_are_narrow() {
        for step in 0..LATENCY_STEPS - 1 {
            let (start, end) = (start_of(step), start_of(step + 1));
            assert_eq!((step_of(start), step_of(end - 1)), (step, step));
            assert!(end - start == UNIT_NS || (end - start) * 32 <= start, "{start} to {end}");
        }
        assert_eq!(step_of(u64::MAX), LATENCY_STEPS - 1);
    }

    #[test]
    fn quantiles_and_excess_are_those_of_what_was_recorded() {
        let mut seen = Latencies::default();
        assert_eq!(seen.quantile(0.99), 0);
        (1..=1000).for_each(|n| seen.record(n * 1000));
        let p99 = seen.quantile(0.99);
        assert!((990_000..1_025_000).contains(&p99), "{p99}");
        assert_eq!(seen.above(p99), 0, "its step reaches to the longest");
        assert!((190..=200).contains(&seen.above(800_000)));
        let mut later = seen.clone();
        later.record(5_000_000);
        assert_eq!(later.since(&seen).count(), 1);
        assert_eq!(later.above(p99), 1);
        later.halve();
        assert!(later.count() <= 500);
    }
}
