//! FragPicker, figures 8 and 9: a file of thirty-two blocks of 4 KiB and one of 128 KiB in turns, which a dummy file
//! keeps apart, read and updated with direct calls of 128 KiB, in order and in strides; before and after the
//! production planner has chosen ranges of it by three policies, and the production mover has moved them, on a
//! volume in memory (`synthetic`). The calls, the file's blocks and the moved ones are then played on a drive.
//!
//! The variant of a conventional defragmenter that moves only extents below 128 KiB chooses what the bypass option
//! chooses of this file: all of the small blocks, and none of the large ones.

mod synthetic;

use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use fragmend_plan::Policy;
use rayon::prelude::*;
use synthetic::{Calls, Synthetic};

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig8-9",
    source: "FragPicker, figures 8 and 9",
    about: "three policies on a file of small and large blocks, read and updated in order and in strides",
    run,
};

/// The policies, as the figures name them.
const POLICIES: [(Policy, &str); 3] = [
    (Policy::WholeFile, "conventional"),
    (Policy::Fragpicker, "fragpicker"),
    (Policy::Bypass, "bypass"),
];
/// Bytes that FragPicker writes, in per cent of the conventional defragmenter's, in order and in strides.
const WRITES: [f64; 2] = [50.0, 27.0];

/// The figures of a drive.
struct Drive {
    preset: &'static str,
    /// The gain of reads and of updates in order by FragPicker, in per cent.
    gains: [f64; 2],
    /// By how many per cent reads and updates in order differ from those after the conventional defragmenter, and
    /// reads in strides after the bypass option from those after FragPicker; the paper has them of Optane only.
    against: Option<[f64; 3]>,
}

const DRIVES: [Drive; 2] = [
    Drive { preset: "optane", gains: [75.0, 73.0], against: Some([-0.1, -2.0, -12.0]) },
    Drive { preset: "sata-850pro", gains: [30.0, 17.0], against: None },
];
/// Of two calls in order, one is in so many requests more before it is defragmented.
const FURTHER: f64 = 31.0;

/// The throughput of a pattern of calls on a drive: before, and after each policy; in MB/s.
struct Measured {
    before: f64,
    after: [f64; 3],
    /// Bytes that each policy moved.
    moved: [u64; 3],
}

fn run(_seed: u64) -> Results {
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for drive in &DRIVES {
        let setup = presets::named(drive.preset).expect("a preset");
        let cases: Vec<Measured> = Calls::ALL
            .par_iter()
            .map(|calls| {
                let mut moved = [0; 3];
                let after = [0, 1, 2].map(|n| {
                    let mut file = Synthetic::new();
                    moved[n] = file.defragment(POLICIES[n].0, *calls);
                    file.play(&setup, *calls)
                });
                Measured { before: Synthetic::new().play(&setup, *calls), after, moved }
            })
            .collect();
        rows.extend(drive.rows(&cases));
        for (calls, case) in Calls::ALL.iter().zip(&cases) {
            let gains = case.after.map(|mbs| mbs / case.before * 100.0);
            groups.push((format!("{}, {}", drive.preset, calls.name()), gains.to_vec()));
        }
    }
    let plot = Plot::Bars {
        name: "F-fig8-9".into(),
        title: "Throughput after defragmentation".into(),
        axis: "per cent of that before".into(),
        series: POLICIES.iter().map(|(_, name)| (*name).to_owned()).collect(),
        groups,
    };
    Results { rows, plots: vec![plot] }
}

impl Drive {
    /// The rows, from the cases in the order of [`Calls::ALL`].
    fn rows(&self, cases: &[Measured]) -> Vec<Row> {
        let [reads, strides, updates, stride_updates] = cases else { return Vec::new() };
        let name = |what: &str| format!("{}: {what}", self.preset);
        let share = |case: &Measured| case.moved[1] as f64 / case.moved[0] as f64 * 100.0;
        let gain = |case: &Measured| (case.after[1] / case.before - 1.0) * 100.0;
        let against = |case: &Measured, one: usize, other: usize| {
            (case.after[one] / case.after[other] - 1.0) * 100.0
        };
        // Two calls, one of which is in 32 requests, last longer than after the move by what 31 requests cost.
        let further_us = |gain: f64| gain / 100.0 * 2.0 * Calls::us(reads.after[1]) / FURTHER;
        let because = format!(
            "a further request costs {:.1} us here, with FAST'24's host; the paper's gain of reads needs {:.1}",
            further_us(gain(reads)),
            further_us(self.gains[0])
        );
        let points = |what: &str, paper: f64, ours: f64, points: f64| {
            Row::new(name(what), "%", paper, ours, Band::Points(points)).because(because.clone())
        };
        let mut rows = vec![
            points("writes in order, of conventional", WRITES[0], share(reads), 3.0),
            points("writes in strides, of conventional", WRITES[1], share(strides), 3.0),
            points("reads in order, gain", self.gains[0], gain(reads), 5.0),
            points("updates in order, gain", self.gains[1], gain(updates), 5.0),
            Row::ours(name("reads in strides, gain"), "%", gain(strides)),
            Row::ours(name("updates in strides, gain"), "%", gain(stride_updates)),
        ];
        let compared = [
            ("reads in order, against conventional", against(reads, 1, 0)),
            ("updates in order, against conventional", against(updates, 1, 0)),
            ("reads in strides, bypass against fragpicker", against(strides, 2, 1)),
        ];
        rows.extend(compared.into_iter().enumerate().map(|(n, (what, ours))| match self.against {
            Some(paper) => points(what, paper[n], ours, 5.0),
            None => Row::ours(name(what), "%", ours),
        }));
        rows
    }
}
