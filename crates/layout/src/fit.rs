//! From what a device answered while a trace was recorded to a cost model: a line through the latencies of its reads.
//!
//! A request of `L` bytes that is one of `k` in flight when it is issued lasts
//!
//! ```text
//! latency(L, k) = a + b L + (k - 1) (c + d L)        a, b, c, d >= 0
//! ```
//!
//! `a + b L` is a request by itself; `c + d L` is what each one before it adds: all of a request on a device that serves
//! one after the other, next to nothing where others hide behind the queue. The last of `k` requests that are issued
//! together is done after `latency(L, k)`, and by Little's law a device with `k` always in flight completes one every
//! `latency(L, k) / k`.
//!
//! The fit is of least squares of relative errors, with a class of requests weighing as many as it has, up to a limit,
//! and the less the farther it is from the line (Huber's weights): a few requests behind a stall of the device do not
//! bend it. Where the requests do not determine the four figures, there is no model, and [`Undetermined`] says why.

use crate::{CostModel, CostSource, ObservedLoad, RequestCost};
use std::fmt;

/// Why the requests that were seen do not say what reads cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undetermined {
    /// The device seeks, and the histogram has no distances.
    Seeks,
    /// There were too few reads.
    TooFew,
    /// All reads had about one length.
    OneLength,
    /// No more than one read was in flight.
    NeverTogether,
    /// More were in flight than one at almost any time.
    NeverAlone,
    /// The long ones were those with others in flight, or the short ones.
    Confounded,
    /// Latencies have little to do with length and number in flight: the device was busy with something else.
    Scattered,
}

impl fmt::Display for Undetermined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seeks => "the device seeks, and how far was not seen",
            Self::TooFew => "too few reads reached it",
            Self::OneLength => "all requests were of about one length",
            Self::NeverTogether => "there was never more than one request in flight",
            Self::NeverAlone => "no request was ever alone in flight",
            Self::Confounded => "short and long requests had different numbers in flight",
            Self::Scattered => "its latencies follow neither length nor number in flight",
        })
    }
}

impl std::error::Error for Undetermined {}

/// Fewer reads than this determine nothing.
const FEWEST: u64 = 100;
/// A class with fewer requests is left out: a mean of a few is that of an outlier.
const FEWEST_OF_CLASS: u64 = 8;
/// A class weighs no more than one with so many requests: with thousands, the line's error is what matters.
const HEAVIEST: f64 = 1000.0;
/// Most mean relative error of latencies.
const SCATTER: f64 = 0.3;
/// Residuals beyond so many times the usual one weigh less (Huber's constant for 95 % efficiency).
const HUBER: f64 = 1.345;
/// Smallest part of a column that the others must leave unexplained.
const INDEPENDENT: f64 = 0.01;

/// Requests of one class: mean length, mean number of others in flight, mean latency.
#[derive(Clone, Copy, Debug)]
struct Class {
    bytes: f64,
    others: f64,
    ns: f64,
    weight: f64,
}

impl Class {
    /// What each of the four figures is multiplied by, relative to the latency.
    fn row(&self) -> [f64; 4] {
        [1.0, self.bytes, self.others, self.bytes * self.others].map(|x| x / self.ns)
    }

    fn residual(&self, figures: &[f64; 4]) -> f64 {
        self.row().iter().zip(figures).map(|(x, f)| x * f).sum::<f64>() - 1.0
    }
}

impl CostModel {
    /// What reads cost by the requests that were seen on a device.
    ///
    /// # Errors
    /// Why they do not determine it.
    pub fn observed(load: &ObservedLoad, rotational: bool) -> Result<Self, Undetermined> {
        if rotational {
            return Err(Undetermined::Seeks);
        }
        let classes = classes(load)?;
        let figures = fit(&classes).ok_or(Undetermined::Scattered)?;
        let weight: f64 = classes.iter().map(|c| c.weight).sum();
        let error = |c: &Class| c.weight * c.residual(&figures).abs();
        if classes.iter().map(error).sum::<f64>() / weight > SCATTER {
            return Err(Undetermined::Scattered);
        }
        model(&classes, figures).ok_or(Undetermined::Scattered)
    }
}

/// The classes of reads, if they can determine a model.
fn classes(load: &ObservedLoad) -> Result<Vec<Class>, Undetermined> {
    let usable = |r: &&crate::ObservedRequests| {
        !r.write && r.count >= FEWEST_OF_CLASS && r.bytes > 0 && r.total_ns > 0
    };
    let class = |r: &crate::ObservedRequests| {
        let count = r.count as f64;
        Class {
            bytes: r.bytes as f64 / count,
            others: (r.in_flight as f64 / count - 1.0).max(0.0),
            ns: r.total_ns as f64 / count,
            weight: count.min(HEAVIEST),
        }
    };
    let reads: Vec<_> = load.requests.iter().filter(usable).collect();
    if reads.iter().map(|r| r.count).fold(0, u64::saturating_add) < FEWEST {
        return Err(Undetermined::TooFew);
    }
    let classes: Vec<Class> = reads.into_iter().map(class).collect();
    let least = |figure: fn(&Class) -> f64| classes.iter().map(figure).fold(f64::MAX, f64::min);
    let most = |figure: fn(&Class) -> f64| classes.iter().map(figure).fold(0.0, f64::max);
    if most(|c| c.bytes) < 3.0 * least(|c| c.bytes) {
        return Err(Undetermined::OneLength);
    }
    if most(|c| c.others) < 0.5 {
        return Err(Undetermined::NeverTogether);
    }
    if least(|c| c.others) > 0.5 {
        return Err(Undetermined::NeverAlone);
    }
    if independent(&classes) < INDEPENDENT {
        return Err(Undetermined::Confounded);
    }
    Ok(classes)
}

/// The share of the number in flight that length does not explain, and the other way round; the smaller one. 0 if one
/// follows from the other.
fn independent(classes: &[Class]) -> f64 {
    let weight: f64 = classes.iter().map(|c| c.weight).sum();
    let mean =
        |f: &dyn Fn(&Class) -> f64| classes.iter().map(|c| c.weight * f(c)).sum::<f64>() / weight;
    let (x, y) = (|c: &Class| c.bytes.ln(), |c: &Class| (1.0 + c.others).ln());
    let (mean_x, mean_y) = (mean(&x), mean(&y));
    let xx = mean(&|c| (x(c) - mean_x).powi(2));
    let yy = mean(&|c| (y(c) - mean_y).powi(2));
    let xy = mean(&|c| (x(c) - mean_x) * (y(c) - mean_y));
    1.0 - xy * xy / (xx * yy).max(f64::MIN_POSITIVE)
}

/// The four figures, none negative.
fn fit(classes: &[Class]) -> Option<[f64; 4]> {
    let mut weights: Vec<f64> = classes.iter().map(|c| c.weight).collect();
    let mut best = None;
    for _ in 0..12 {
        let figures = least_squares(classes, &weights)?;
        let residuals: Vec<f64> = classes.iter().map(|c| c.residual(&figures).abs()).collect();
        let usual = (median_of(classes, &residuals) / 0.6745).max(0.01);
        weights = classes
            .iter()
            .zip(&residuals)
            .map(|(c, r)| c.weight * (HUBER * usual / r.max(1e-9)).min(1.0))
            .collect();
        best = Some(figures);
    }
    best
}

/// The weighted median of the residuals.
fn median_of(classes: &[Class], residuals: &[f64]) -> f64 {
    let mut sorted: Vec<(f64, f64)> =
        residuals.iter().copied().zip(classes.iter().map(|c| c.weight)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = sorted.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut so_far = 0.0;
    let middle = sorted.iter().find(|(_, weight)| {
        so_far += weight;
        so_far >= half
    });
    middle.map_or(0.0, |(residual, _)| *residual)
}

/// Least squares with no figure below zero: of every choice of figures that are not zero, the best feasible one. There
/// are sixteen choices, so none is left out. The first figure, or the second, is never zero: a request takes time.
fn least_squares(classes: &[Class], weights: &[f64]) -> Option<[f64; 4]> {
    let error = |figures: &[f64; 4]| -> f64 {
        classes.iter().zip(weights).map(|(c, w)| w * c.residual(figures).powi(2)).sum()
    };
    (1u8..16)
        .filter(|kept| kept & 0b11 != 0)
        .filter_map(|kept| solve(classes, weights, kept))
        .filter(|figures| figures.iter().all(|f| *f >= 0.0 && f.is_finite()))
        .min_by(|a, b| error(a).total_cmp(&error(b)))
}

/// The normal equations for the figures whose bits are set in `kept`, by Gauss's elimination; the others are 0.
fn solve(classes: &[Class], weights: &[f64], kept: u8) -> Option<[f64; 4]> {
    let columns: Vec<usize> = (0..4).filter(|i| kept >> i & 1 == 1).collect();
    let n = columns.len();
    // Bytes are large: each column is measured by its own length.
    let sum = |i: usize, j: usize| -> f64 {
        let product = |c: &Class| c.row()[i] * c.row()[j];
        classes.iter().zip(weights).map(|(c, w)| w * product(c)).sum()
    };
    let scale: Vec<f64> = columns.iter().map(|i| sum(*i, *i).sqrt()).collect();
    if scale.iter().any(|s| *s <= 0.0) {
        return None;
    }
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|r| {
            let right: f64 =
                classes.iter().zip(weights).map(|(c, w)| w * c.row()[columns[r]]).sum();
            let left = (0..n).map(|k| sum(columns[r], columns[k]) / (scale[r] * scale[k]));
            left.chain([right / scale[r]]).collect()
        })
        .collect();
    for p in 0..n {
        let largest = (p..n).max_by(|a, b| rows[*a][p].abs().total_cmp(&rows[*b][p].abs()))?;
        rows.swap(p, largest);
        if rows[p][p].abs() < 1e-9 {
            return None;
        }
        let pivot = rows[p].clone();
        for row in rows.iter_mut().skip(p + 1) {
            let factor = row[p] / pivot[p];
            row.iter_mut().zip(&pivot).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut found = vec![0.0; n];
    for r in (0..n).rev() {
        let known: f64 = (r + 1..n).map(|k| rows[r][k] * found[k]).sum();
        found[r] = (rows[r][n] - known) / rows[r][r];
    }
    let mut figures = [0.0; 4];
    columns.iter().zip(&found).zip(&scale).for_each(|((i, x), s)| figures[*i] = x / s);
    Some(figures)
}

/// The figures as a table. It goes no farther than what was seen: beyond it, [`CostModel`] continues its lines.
fn model(classes: &[Class], [a, b, c, d]: [f64; 4]) -> Option<CostModel> {
    let lengths = |f: fn(f64, f64) -> f64, from| classes.iter().map(|c| c.bytes).fold(from, f);
    let (shortest, longest) = (lengths(f64::min, f64::MAX), lengths(f64::max, 0.0));
    let deepest = classes.iter().map(|c| c.others + 1.0).fold(1.0, f64::max).ceil() as u32;
    let steps = std::iter::successors(Some(1u32), |n| n.checked_mul(2));
    let in_flight: Vec<u32> = steps.take_while(|n| *n < deepest).chain([deepest]).collect();
    let cost = |bytes: f64, n: u32| {
        let many = f64::from(n);
        let ns = a + b * bytes + (many - 1.0) * (c + d * bytes);
        RequestCost {
            request_bytes: bytes as u64,
            in_flight: n,
            burst_ns: (ns as u64).max(1),
            interval_ns: ((ns / many) as u64).max(1),
            split_ns: None,
            stream_ns: None,
        }
    };
    let reads = [shortest, longest].into_iter();
    let reads = reads.flat_map(|bytes| in_flight.iter().map(move |n| cost(bytes, *n)));
    CostModel::new(CostSource::Observed, reads.collect(), Vec::new()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceKind, ObservedRequests, Split};

    /// Mean latency of a class, in nanoseconds.
    type Latency<'a> = &'a dyn Fn(u64, u32) -> f64;

    /// `count` requests of each of these classes: length and number in flight.
    fn load(classes: &[(u64, u32)], count: u64, ns: Latency) -> ObservedLoad {
        let requests = |(bytes, n): &(u64, u32)| ObservedRequests {
            write: false,
            up_to_bytes: bytes.next_power_of_two(),
            up_to_in_flight: n.next_power_of_two(),
            count,
            bytes: bytes * count,
            in_flight: u64::from(*n) * count,
            total_ns: (ns(*bytes, *n) * count as f64) as u64,
        };
        ObservedLoad { requests: classes.iter().map(requests).collect(), ..ObservedLoad::default() }
    }

    fn every_class() -> Vec<(u64, u32)> {
        let lengths = [4096, 16 << 10, 128 << 10];
        lengths.into_iter().flat_map(|bytes| [1, 2, 7, 30].map(|n| (bytes, n))).collect()
    }

    fn card(bytes: u64, n: u32) -> f64 {
        f64::from(n) * (600_000.0 + 10.0 * bytes as f64)
    }

    fn wide(bytes: u64, n: u32) -> f64 {
        80_000.0 + 0.3 * bytes as f64 + f64::from(n - 1) * (900.0 + 0.1 * bytes as f64)
    }

    #[test]
    fn the_figures_are_found_again() {
        for (name, ns) in [("card", &card as Latency), ("wide", &wide)] {
            let found = CostModel::observed(&load(&every_class(), 50, ns), false).unwrap();
            assert_eq!(found.source, CostSource::Observed);
            for (bytes, requests) in [(4096, 1), (1 << 17, 1), (1 << 17, 8), (1 << 17, 30)] {
                let read = found.read_ns(Split { requests, ..Split::whole(bytes) }, 1.0);
                let truly = ns(bytes / requests, requests as u32);
                assert!((read / truly - 1.0).abs() < 0.01, "{name}, {bytes} in {requests}: {read}");
            }
        }
    }

    #[test]
    fn noise_and_a_stall_do_not_bend_it() {
        // Each class is off by up to 15 %, and one of the deep ones stood behind a stall of a second.
        let noisy = |bytes: u64, n: u32| {
            let off = (bytes.wrapping_mul(2_654_435_761) ^ (u64::from(n) * 97)) % 31;
            wide(bytes, n) * (0.85 + off as f64 / 100.0)
        };
        let mut seen = load(&every_class(), 200, &noisy);
        seen.requests[6].total_ns += 1_000_000_000;
        let found = CostModel::observed(&seen, false).unwrap();
        for (bytes, requests) in [(4096, 1), (1 << 17, 1), (1 << 17, 8), (1 << 17, 30)] {
            let read = found.read_ns(Split { requests, ..Split::whole(bytes) }, 1.0);
            let truly = wide(bytes / requests, requests as u32);
            assert!((read / truly - 1.0).abs() < 0.2, "{bytes} in {requests}: {read} of {truly}");
        }
    }

    #[test]
    fn a_guessed_drive_is_found_by_what_it_answers() {
        for kind in [DeviceKind::Card, DeviceKind::Flash, DeviceKind::Nvme] {
            let drive = CostModel::guessed(kind);
            let burst = |bytes: u64, n: u32| {
                let split = Split { requests: u64::from(n), ..Split::whole(bytes * u64::from(n)) };
                drive.read_ns(split, 1.0)
            };
            let found = CostModel::observed(&load(&every_class(), 50, &burst), false).unwrap();
            // What matters is what is saved: 128 KiB in 8 and 32 requests, and in one.
            for requests in [8, 32] {
                let saved = |model: &CostModel| {
                    let read = |requests| Split { requests, ..Split::whole(1 << 17) };
                    model.read_ns(read(requests), 1.0) - model.read_ns(read(1), 1.0)
                };
                let (ours, truly) = (saved(&found), saved(&drive));
                let alone = drive.read_ns(Split::whole(1 << 17), 1.0);
                assert!(
                    (ours - truly).abs() < 0.15 * alone.max(truly),
                    "{kind:?}: {ours}, {truly}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_determined_is_refused() {
        let why =
            |seen: &ObservedLoad, rotational| CostModel::observed(seen, rotational).unwrap_err();
        let of = |classes: &[(u64, u32)]| why(&load(classes, 100, &wide), false);
        assert_eq!(why(&load(&every_class(), 50, &wide), true), Undetermined::Seeks);
        assert_eq!(why(&load(&every_class(), 8, &wide), false), Undetermined::TooFew);
        assert_eq!(why(&ObservedLoad::default(), false), Undetermined::TooFew);
        assert_eq!(of(&[(4096, 1), (4096, 2), (8192, 7)]), Undetermined::OneLength);
        assert_eq!(of(&[(4096, 1), (1 << 17, 1)]), Undetermined::NeverTogether);
        assert_eq!(of(&[(4096, 3), (1 << 17, 30)]), Undetermined::NeverAlone);
        assert_eq!(of(&[(4096, 32), (1 << 17, 1)]), Undetermined::Confounded);
        // As if by chance.
        let chance =
            |bytes: u64, n: u32| [1e5, 3e6, 4e4, 9e7][(bytes as usize / 4096 + n as usize) % 4];
        assert_eq!(why(&load(&every_class(), 50, &chance), false), Undetermined::Scattered);
        // Writes say nothing of reads.
        let mut writes = load(&every_class(), 50, &wide);
        writes.requests.iter_mut().for_each(|r| r.write = true);
        assert_eq!(why(&writes, false), Undetermined::TooFew);
    }
}
