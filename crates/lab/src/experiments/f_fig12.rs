//! FragPicker, figure 12: reads of 128 KiB of the file of figures 8 and 9, uniform or zipfian, after FragPicker has moved
//! the hottest ten to a hundred per cent of the windows that the same reads have touched.
//!
//! The paper states neither how many reads there are nor the exponent. As many are made as the file has calls, as fio
//! does unless it is told otherwise. What of the file is hot depends on the exponent, so the rows of zipfian reads are for
//! information: with that of YCSB, whose reads the paper calls zipfian elsewhere (section 5.3.1), with fio's, and with larger ones.
//!
//! The windows of each share are among those of the next one, and what was moved stays where it is: so one file is measured after
//! each share in turn.

use super::f_fig8_9::synthetic::{CALL, On, Synthetic};
use crate::experiment::{Experiment, Results};
use crate::loads::distribution::{THETA, Zipf};
use crate::plot::Plot;
use crate::presets;
use crate::random::Random;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_layout::{ByteRange, Op};
use fragmend_plan::{Policy, Settings};
use rayon::prelude::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig12",
    source: "FragPicker, figure 12",
    about: "moving only the hottest windows, under uniform and zipfian reads",
    is_long: true,
    run,
};

const PRESET: &str = "optane";
/// Calls that the file of 1 GB has: whole turns of two.
const CALLS: u64 = 8192;
/// Exponents of zipfian reads: YCSB's, fio's default (`FIO_DEF_ZIPF`), and larger ones.
const EXPONENTS: [f64; 4] = [THETA, 1.1, 1.5, 2.0];
/// The hottest windows that are moved, in per cent.
const HOT: [u32; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// The throughput of reads before anything is moved, and after each share was.
struct Sweep {
    /// Windows that the reads touch.
    touched: usize,
    plain: f64,
    /// MB/s, and MB that were moved up to then.
    points: Vec<(f64, f64)>,
}

/// The reads of a distribution, which is uniform without an exponent.
fn reads(exponent: Option<f64>, seed: u64) -> Vec<ByteRange> {
    let mut random = Random::new(seed, "F-fig12");
    let zipf = exponent.map(|exponent| Zipf::new(CALLS, exponent));
    let mut draw = || match &zipf {
        Some(zipf) => zipf.draw_scattered(&mut random),
        None => random.below_u64(CALLS),
    };
    (0..CALLS).map(|_| ByteRange::at(draw() * CALL, CALL)).collect()
}

fn touched(reads: &[ByteRange]) -> usize {
    let mut starts: Vec<u64> = reads.iter().map(|read| read.start).collect();
    starts.sort_unstable();
    starts.dedup();
    starts.len()
}

fn sweep(setup: &Setup, reads: &[ByteRange]) -> Sweep {
    let file = Synthetic::written(setup, On::Ext4, CALLS * CALL);
    let play = || file.play_at(reads.iter().copied(), Op::Read);
    let (plain, mut moved_mb) = (play(), 0.0);
    let points = HOT.iter().map(|percent| {
        let hot_fraction = f64::from(*percent) / 100.0;
        let settings = Settings { policy: Policy::Fragpicker, hot_fraction, ..Settings::default() };
        moved_mb += file.defragment_for(&settings, reads, Op::Read).bytes as f64 / 1e6;
        (play(), moved_mb)
    });
    Sweep { touched: touched(reads), plain, points: points.collect() }
}

impl Sweep {
    /// By how many per cent the throughput rises up to the `n`th share.
    fn gain(&self, n: usize) -> f64 {
        (self.points[n].0 / self.plain - 1.0) * 100.0
    }

    fn last(&self) -> usize {
        self.points.len() - 1
    }

    fn rows(&self, name: &str) -> Vec<Row> {
        let row = |what: &str, unit: &str, ours: f64| {
            Row::ours(format!("{PRESET}: {name}: {what}"), unit, ours)
        };
        vec![
            row("windows touched", "", self.touched as f64),
            row("gain with the hottest 10 %", "%", self.gain(0)),
            row(
                "gain with the hottest 10 %, of that with all",
                "%",
                self.gain(0) / self.gain(self.last()) * 100.0,
            ),
            row("moved with the hottest 10 %", "MB", self.points[0].1),
            row("moved with all", "MB", self.points[self.last()].1),
        ]
    }

    fn line(&self, name: &str) -> (String, Vec<(f64, f64)>) {
        let points = HOT.iter().zip(&self.points).map(|(hot, (mbs, _))| (f64::from(*hot), *mbs));
        (name.into(), points.collect())
    }
}

fn run(seed: u64) -> Results {
    let setup = presets::named(PRESET).expect("a preset");
    let exponents: Vec<Option<f64>> = std::iter::once(None).chain(EXPONENTS.map(Some)).collect();
    let sweeps: Vec<(String, Sweep)> = exponents
        .par_iter()
        .map(|exponent| {
            let name = exponent.map_or("uniform".into(), |exponent| format!("zipfian, {exponent}"));
            (name, sweep(&setup, &reads(*exponent, seed)))
        })
        .collect();
    let (_, uniform) = &sweeps[0];
    let rises = |two: &[(f64, f64)]| two[1].0 > two[0].0 && two[1].1 > two[0].1;
    let rising = uniform.points.windows(2).filter(|two| rises(two)).count();
    let steps = (HOT.len() - 1) as f64;
    let what = format!("{PRESET}: uniform: steps in which throughput and writes rise");
    let mut rows = vec![Row::new(what, "", steps, rising as f64, Band::Exact)];
    rows.extend(sweeps.iter().flat_map(|(name, sweep)| sweep.rows(name)));
    let plot = Plot::Lines {
        name: "F-fig12".into(),
        title: "Throughput after the hottest windows were moved".into(),
        axes: ["hottest windows, %".into(), "MB/s".into()],
        logarithmic: false,
        lines: sweeps.iter().map(|(name, sweep)| sweep.line(name)).collect(),
    };
    Results { rows, plots: vec![plot] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipfian_reads_touch_fewer_windows_the_larger_the_exponent() {
        let touched = |exponent| {
            let reads = reads(exponent, 1);
            assert!(reads.iter().all(|read| read.start % CALL == 0 && read.end <= CALLS * CALL));
            touched(&reads)
        };
        // Of n windows, n reads leave out n / e if they are uniform.
        let uniform = CALLS as f64 * (1.0 - (-1.0_f64).exp());
        assert!((touched(None) as f64 / uniform - 1.0).abs() < 0.03);
        assert!(touched(None) > touched(Some(1.1)) && touched(Some(1.1)) > 4 * touched(Some(2.0)));
    }
}
