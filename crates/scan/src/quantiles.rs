//! Medians over any number of values in a fixed amount of memory: counts by the six highest bits of a value.
//!
//! Exact for values below 64 and for multiples of a block up to 64 blocks, within 3 % beyond.

const BITS: u32 = 5;
const STEPS: usize = (65 - BITS as usize) << BITS;

/// Counts of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantiles {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Quantiles {
    fn default() -> Self {
        Self { counts: vec![0; STEPS], total: 0 }
    }
}

impl Quantiles {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts[step(value)] += 1;
        self.total += 1;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
    }

    /// The lower median, rounded down to its six highest bits; 0 when nothing was counted.
    pub fn median(&self) -> u64 {
        let mut left = self.total.div_ceil(2);
        for (step, count) in self.counts.iter().enumerate() {
            left = left.saturating_sub(*count);
            if left == 0 && self.total > 0 {
                return lowest(step);
            }
        }
        0
    }
}

/// Values below 2^BITS have steps of their own; above, each power of two has 2^BITS steps.
fn step(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (value >> shift) as usize
}

fn lowest(step: usize) -> u64 {
    let shift = (step >> BITS).saturating_sub(1);
    ((step - (shift << BITS)) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_value_of_a_step_leads_back_to_it() {
        for step_no in 0..STEPS {
            assert_eq!(step(lowest(step_no)), step_no);
        }
        assert_eq!(step(u64::MAX), STEPS - 1);
        for blocks in 0..64 {
            assert_eq!(lowest(step(blocks * 4096)), blocks * 4096);
        }
    }

    #[test]
    fn the_median_is_the_lower_one() {
        let mut q = Quantiles::default();
        assert_eq!(q.median(), 0);
        [4096, 8192, 12288, 16384].into_iter().for_each(|v| q.record(v));
        assert_eq!(q.median(), 8192);
        let mut other = Quantiles::default();
        (0..5).for_each(|_| other.record(4096));
        q.merge(&other);
        assert_eq!(q.median(), 4096);
    }
}
