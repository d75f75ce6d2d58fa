//! Whether one kind of reads lasts longer than another, by a factor: a sequential test over pairs.
//!
//! The two kinds are measured in turn, in random order, at places that are drawn anew each time; what disturbs one
//! of a pair disturbs the other as well. The mean of the logarithms of the ratios, without the largest and the
//! smallest 15 % of them, has a confidence interval (Yuen, Biometrika 1974). The test ends when the interval is on
//! one side of the factor. So both answers are statements that hold with the given error, whatever the true ratio
//! is; where it is too near to the factor there is no answer.

use super::meter::Meter;
use super::reader::{Failed, Read};
use fastrand::Rng;

/// A size that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub bytes: u64,
    /// How many comparisons it rests on.
    pub comparisons: u32,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first kind lasts longer by more than the factor.
    Longer,
    /// It does not.
    NotLonger,
    /// Noise does not permit an answer.
    Unclear,
}

/// The share of ratios that is left out on either side.
const TRIMMED: f64 = 0.15;
/// Pairs before the first look.
const FIRST: usize = 6;
/// Pairs without an answer after which there will be none.
const LAST: usize = 300;
/// Half the width of the interval, in standard errors, of many pairs.
const WIDTH: f64 = 5.0;
/// How much wider it is with few pairs, times the degrees of freedom.
const WIDER: f64 = 14.0;
/// The chance that a verdict is wrong, at most: that of one look at few pairs, whose times are disturbed by half (a test
/// measures it), times the looks that are taken.
pub const ERROR: f64 = 1e-4;

/// A kind of reads: draws a list of them.
pub type Kind<'a> = &'a mut dyn FnMut(&mut Rng) -> Vec<Read>;

/// Compares the time of bursts of two kinds.
///
/// # Errors
/// When a read fails, or the budget is spent.
pub fn compare(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    first: Kind<'_>,
    second: Kind<'_>,
    factor: f64,
) -> Result<Verdict, Failed> {
    let mut ratios: Vec<f64> = Vec::with_capacity(FIRST);
    while ratios.len() < LAST {
        let (a, b) = (first(rng), second(rng));
        let (a, b) = if rng.bool() {
            let a = meter.burst(&a)?;
            (a, meter.burst(&b)?)
        } else {
            let b = meter.burst(&b)?;
            (meter.burst(&a)?, b)
        };
        ratios.push((a as f64 / b as f64).ln());
        // Looks become rarer, as each is another chance to be wrong.
        let n = ratios.len();
        if n >= FIRST && (n < 16 || n.is_multiple_of(n.ilog2() as usize)) {
            let (low, high) = interval(&mut ratios.clone());
            if low > factor.ln() {
                return Ok(Verdict::Longer);
            }
            if high < factor.ln() {
                return Ok(Verdict::NotLonger);
            }
        }
    }
    Ok(Verdict::Unclear)
}

/// The confidence interval of the trimmed mean.
fn interval(values: &mut [f64]) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    let out = (n as f64 * TRIMMED) as usize;
    let kept = &values[out..n - out];
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    // Winsorized: those that are left out count as the outermost of the others.
    let (least, most) = (kept[0], kept[kept.len() - 1]);
    let winsorized = values.iter().map(|value| value.clamp(least, most));
    let middle = winsorized.clone().sum::<f64>() / n as f64;
    let squares: f64 = winsorized.map(|value| (value - middle).powi(2)).sum();
    let freedom = (kept.len() - 1) as f64;
    let error = (squares / (kept.len() as f64 * freedom)).sqrt();
    // Student's distribution of few pairs is wider; this is more than its quantiles.
    let width = WIDTH * (1.0 + WIDER / freedom) * error;
    (mean - width, mean + width)
}

/// The mean of the middle half of some values: as robust as a median, and closer to the mean.
pub fn middle_mean(values: &[f64]) -> f64 {
    inner_mean(values, values.len() / 4)
}

/// The mean of all values but so many at each end, which must leave some.
pub fn inner_mean(values: &[f64], out: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let kept = &values[out..values.len() - out];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// The mean of values that are no more than [`UNUSUAL`] times their lower quartile: an outlier does not count, but what
/// happens now and then, as two reads that meet on a die, does.
pub fn usual_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let most = sorted[(sorted.len() - 1) / 4] * UNUSUAL;
    let kept = || sorted.iter().take_while(|value| **value <= most);
    kept().sum::<f64>() / kept().count() as f64
}

/// A longer time than this many times the lower quartile is not the device's own.
const UNUSUAL: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_does_not_move_the_middle() {
        assert_eq!(middle_mean(&[7.0]), 7.0);
        assert_eq!(middle_mean(&[1.0, 2.0]), 1.5);
        assert_eq!(middle_mean(&[900.0, 2.0, 4.0, 1.0]), 3.0);
        assert_eq!(usual_mean(&[1.0, 1.0, 2.0, 900.0, 1.0]), 1.25);
        assert_eq!(usual_mean(&[0.0, 0.0]), 0.0);
    }

    /// How often an interval excludes the true mean, of ratios as two uniform times with 50 % of jitter have them.
    #[test]
    fn the_interval_holds_the_truth() {
        let mut rng = Rng::with_seed(7);
        let mut draw = || (0.5 + rng.f64()).ln();
        for n in [6, 8, 12, 30, 100] {
            let missed = (0..40_000).filter(|_| {
                let mut ratios: Vec<f64> = (0..n).map(|_| draw() - draw()).collect();
                let (low, high) = interval(&mut ratios);
                low > 0.0 || high < 0.0
            });
            let missed = missed.count();
            assert!(missed <= 4, "{missed} of 40,000 with {n} pairs");
        }
    }
}
