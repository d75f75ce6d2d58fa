//! Random numbers of some distributions. Logarithms and powers are those of `libm`, so that a seed has the same numbers on every
//! machine.

use crate::random::Random;

/// A number of a gamma distribution with this shape and mean: Marsaglia and Tsang, "A simple method for generating gamma variables",
/// ACM TOMS 2000, for shapes of 1 and more.
pub fn gamma(random: &mut Random, shape: f64, mean: f64) -> f64 {
    let d = shape.max(1.0) - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
        // 1 - u: never zero.
        let u = 1.0 - random.unit();
        if v > 0.0 && libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return d * v * mean / shape.max(1.0);
        }
    }
}

/// A number of the standard normal distribution: Marsaglia's polar method.
fn normal(random: &mut Random) -> f64 {
    loop {
        let (x, y) = (2.0 * random.unit() - 1.0, 2.0 * random.unit() - 1.0);
        let s = x * x + y * y;
        if s > 0.0 && s < 1.0 {
            return x * (-2.0 * libm::log(s) / s).sqrt();
        }
    }
}

/// Zipfian numbers as YCSB draws them: Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD'94.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

/// YCSB's exponent.
pub const THETA: f64 = 0.99;

impl Zipf {
    /// Numbers below `items`, which is not 0, of which 0 is the most frequent; `theta` is not 1.
    pub fn new(items: u64, theta: f64) -> Self {
        let zeta = |n: u64| (1..=n).map(|i| 1.0 / libm::pow(i as f64, theta)).sum::<f64>();
        let all = zeta(items);
        let eta = (1.0 - libm::pow(2.0 / items as f64, 1.0 - theta)) / (1.0 - zeta(2) / all);
        Self { items, theta, zeta: all, eta }
    }

    /// The next number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + libm::pow(0.5, self.theta) {
            return 1.min(self.items - 1);
        }
        let share = libm::pow(self.eta * u - self.eta + 1.0, 1.0 / (1.0 - self.theta));
        ((self.items as f64 * share) as u64).min(self.items - 1)
    }

    /// The same number, scattered over all items, so that frequent ones are not neighbours (YCSB's scrambled zipfian).
    pub fn draw_scattered(&self, random: &mut Random) -> u64 {
        scatter(self.draw(random)) % self.items
    }
}

/// The 64-bit FNV-1a hash of a number's bytes, by which YCSB scatters items and keys.
pub fn scatter(number: u64) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    number.to_le_bytes().into_iter().fold(0xCBF2_9CE4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_numbers_have_their_mean_and_variance() {
        let mut random = Random::new(1, "gamma");
        let numbers: Vec<f64> = (0..20_000).map(|_| gamma(&mut random, 1.5, 128.0)).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let variance = numbers.iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / 20_000.0;
        assert!((mean - 128.0).abs() < 3.0, "{mean}");
        // The variance of a gamma distribution is mean² / shape.
        assert!((variance / (128.0 * 128.0 / 1.5) - 1.0).abs() < 0.06, "{variance}");
    }

    #[test]
    fn zipfian_numbers_have_their_frequencies() {
        let (zipf, mut random) = (Zipf::new(1000, THETA), Random::new(1, "zipf"));
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        let zeta: f64 = (1..=1000).map(|i| 1.0 / f64::from(i).powf(THETA)).sum();
        for rank in [0, 1] {
            let expected = 100_000.0 / zeta / f64::from(rank + 1).powf(THETA);
            let found = f64::from(counts[rank as usize]);
            assert!((found / expected - 1.0).abs() < 0.05, "{rank}: {found} and not {expected}");
        }
        // Half of all draws are of the first few per cent.
        let hot: u32 = counts[..50].iter().sum();
        assert!((55_000..65_000).contains(&hot), "{hot}");
        assert_eq!(Zipf::new(1, THETA).draw(&mut random), 0);
    }

    #[test]
    fn scattered_numbers_are_all_over() {
        let (zipf, mut random) = (Zipf::new(1000, THETA), Random::new(1, "zipf"));
        let mut draw = || zipf.draw_scattered(&mut random);
        let low = (0..1000).filter(|_| draw() < 500).count();
        assert!((200..800).contains(&low), "{low}");
    }
}
