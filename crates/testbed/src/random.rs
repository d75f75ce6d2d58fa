//! Pseudorandom numbers that are the same on every run: one seed, one sequence.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Draws ranks `0..n` with probability proportional to `1 / (rank + 1)^exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Share of all draws at or below each rank.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// YCSB's exponent, which FragPicker's database workload uses (section 5.3.1).
    pub const YCSB: f64 = 0.99;

    /// Over `n` ranks, at least one.
    pub fn new(n: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=n.max(1))
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|c| *c /= sum);
        Self { cumulative }
    }

    /// The next rank.
    pub fn draw(&self, random: &mut Random) -> usize {
        let u = random.unit();
        self.cumulative.partition_point(|c| *c <= u).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_prefers_low_ranks_as_its_formula_says() {
        let (zipf, mut random) = (Zipf::new(1000, Zipf::YCSB), Random::new(7));
        let draws = 100_000;
        let first = (0..draws).filter(|_| zipf.draw(&mut random) == 0).count() as f64;
        let sum: f64 = (1..=1000).map(|r| f64::from(r).powf(-Zipf::YCSB)).sum();
        let expected = f64::from(draws) / sum;
        assert!((first / expected - 1.0).abs() < 0.05, "{first} against {expected}");
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let drawn = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
