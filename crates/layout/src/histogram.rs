//! A distribution in powers of two, with an exact count per step: small, mergeable, and free of
//! floating point.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of values by the position of their highest bit. Step `k` holds values from `2^(k-1)`
/// to `2^k - 1`; step 0 holds zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Log2Histogram {
    counts: Vec<u64>,
}

impl Default for Log2Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 65] }
    }
}

impl Log2Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts a value `times` times.
    pub fn record_many(&mut self, value: u64, times: u64) {
        self.counts[(64 - value.leading_zeros()) as usize] += times;
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The steps that hold anything: lowest value of the step, count.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, c)| **c > 0).map(|(k, c)| {
            let low = if k == 0 { 0 } else { 1u64 << (k - 1) };
            (low, *c)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_step() {
        let mut h = Log2Histogram::default();
        [0, 1, 4095, 4096, u64::MAX].into_iter().for_each(|v| h.record(v));
        let steps: Vec<_> = h.steps().collect();
        assert_eq!(steps, [(0, 1), (1, 1), (2048, 1), (4096, 1), (1 << 63, 1)]);
        assert_eq!(h.total(), 5);
    }
}
