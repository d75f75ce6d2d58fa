//! janusd, figure 6: the degrees of logical and of physical fragmentation of a phone's files have nothing to do with each other.

use super::{Bed, Kind, WEEK, units};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_layout::{Layout, Volume};
use fragmend_simfs::mounted::Primitive;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-fig6",
    source: "janusd, figure 6",
    about: "degrees of logical and of physical fragmentation of a phone's files",
    is_long: true,
    run,
};

/// As full as the phone of section 5.1, in per cent.
const FULL: u64 = 83;
/// Files with a degree of physical fragmentation of a half or more, in per cent, at most.
const HALF: f64 = 20.0;

fn run(seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (days, name) in [(WEEK, "after a week"), (crate::loads::mobile::DAYS, "after six months")] {
        let points = degrees(&Kind::new("simufs", FULL, Primitive::Copy).used(days, seed));
        let half = points.iter().filter(|(_, physical)| *physical >= 0.5).count();
        let half = half as f64 * 100.0 / points.len() as f64;
        rows.push(Row::new(
            format!("{name}: files with DoF^P >= 0.5"),
            "%",
            HALF,
            half,
            Band::AtMost,
        ));
        rows.push(Row::ours(
            format!("{name}: correlation of the degrees"),
            "",
            correlation(&points),
        ));
        lines.push((name.to_owned(), mean_by_degree(&points)));
    }
    let plot = Plot::Lines {
        name: "J-fig6".into(),
        title: "Mean DoF^P by DoF^L".into(),
        axes: ["DoF^L".into(), "DoF^P".into()],
        logarithmic: true,
        lines,
    };
    Results { rows, plots: vec![plot] }
}

/// The logical and the physical degree of each file of more than a flash page, which alone can be on several dies.
fn degrees(bed: &Bed) -> Vec<(f64, f64)> {
    let block = bed.files.block_bytes();
    let page = 2 * block;
    let large = bed.layouts("").into_iter().filter(|(_, layout)| layout.size > page);
    let degree = |layout: &Layout| {
        let units = units(layout.extents().iter().copied(), block);
        (bed.dof(layout), bed.dof_p(&units))
    };
    large.map(|(_, layout)| degree(&layout)).collect()
}

/// Pearson's coefficient; 0 where one of them is always the same.
fn correlation(points: &[(f64, f64)]) -> f64 {
    let n = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let product = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|point| of(point.0 - x, point.1 - y)).sum()
    };
    let spread = libm::sqrt(product(&|x, _| x * x) * product(&|_, y| y * y));
    if spread == 0.0 { 0.0 } else { product(&|x, y| x * y) / spread }
}

/// The mean physical degree of the files with each whole logical degree up to 8, as the paper's picture has it.
fn mean_by_degree(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let of = |degree: f64| {
        let these: Vec<f64> =
            points.iter().filter(|point| point.0.floor() == degree).map(|point| point.1).collect();
        let mean = these.iter().sum::<f64>() / these.len() as f64;
        (!these.is_empty()).then_some((degree, mean))
    };
    (1..=8).filter_map(|degree| of(f64::from(degree))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_that_rise_together_are_correlated() {
        assert!((correlation(&[(1.0, 0.1), (2.0, 0.2), (4.0, 0.4)]) - 1.0).abs() < 1e-9);
        assert!((correlation(&[(1.0, 0.4), (2.0, 0.3), (4.0, 0.1)]) + 1.0).abs() < 1e-9);
        assert_eq!(correlation(&[(1.0, 0.4), (1.0, 0.3)]), 0.0);
        assert_eq!(mean_by_degree(&[(1.0, 0.25), (1.5, 0.75), (9.0, 1.0)]), [(1.0, 0.5)]);
    }
}
