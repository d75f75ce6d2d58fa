//! FragPicker, figures 8 and 9: reads and updates with calls of 128 KiB, in order and in strides, of a file that was written past the
//! page cache as thirty-two blocks of 4 KiB and one of 128 KiB, again and again, in turns with a dummy file: on the simulated
//! ext4, F2FS and Btrfs, as it was written and after each policy.
//!
//! Btrfs's own defragmenter with a threshold of 128 KiB (Conv.-T) moves the runs of smaller extents. Of this file these are the
//! windows of the bypass option, which a test holds, so that policy stands for it.

pub(super) mod synthetic;

use crate::bed::{self, Moved};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use fragmend_plan::Policy;
use rayon::prelude::*;
use synthetic::{Calls, FILE, On, Synthetic};

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig8-9",
    source: "FragPicker, figures 8 and 9",
    about: "three policies on a file of small and large blocks, read and updated in order and in strides",
    is_long: false,
    run,
};

/// The policies, as the figures name them.
const POLICIES: [(Policy, &str); 3] = [
    (Policy::WholeFile, "conventional"),
    (Policy::Fragpicker, "fragpicker"),
    (Policy::Bypass, "bypass"),
];
/// What the paper says, for each pattern of [`Calls::ALL`]; in per cent.
struct Figure {
    preset: &'static str,
    on: On,
    /// The gain by FragPicker.
    gains: [Option<f64>; 4],
    /// By how many per cent the throughput after FragPicker differs from that after the conventional defragmenter.
    against: [Option<f64>; 4],
    /// By how many per cent it is lower after the bypass option, or Conv.-T, than after FragPicker, in strides.
    bypass: Option<f64>,
    /// Bytes that FragPicker writes, of the conventional defragmenter's, in order and in strides.
    writes: [Option<f64>; 2],
    /// Time that FragPicker needs less than the conventional defragmenter, in strides.
    time: Option<f64>,
}

const FIGURES: [Figure; 4] = [
    Figure {
        preset: "optane",
        on: On::Ext4,
        gains: [Some(75.0), None, Some(73.0), None],
        against: [Some(-0.1), None, Some(-2.0), None],
        bypass: Some(-12.0),
        writes: [Some(50.0), Some(27.0)],
        time: None,
    },
    Figure {
        preset: "optane",
        on: On::F2fs,
        gains: [Some(67.0), Some(79.0), Some(60.0), Some(62.0)],
        against: [None; 4],
        bypass: None,
        writes: [Some(48.0), Some(26.0)],
        time: None,
    },
    Figure {
        preset: "optane",
        on: On::Btrfs,
        // What is updated gets another place in any case.
        gains: [None, None, Some(0.0), Some(0.0)],
        against: [None; 4],
        bypass: Some(-13.0),
        writes: [None; 2],
        time: Some(-78.0),
    },
    Figure {
        preset: "sata-850pro",
        on: On::Ext4,
        gains: [Some(30.0), None, Some(17.0), None],
        against: [None; 4],
        bypass: None,
        // The same file as figure 8's.
        writes: [Some(50.0), Some(27.0)],
        time: None,
    },
];
/// In how many requests more a call is before the file is defragmented, in the mean, in order and in strides: one of two is in 32; and
/// those in strides begin at each eighth of a turn alike, and are in 32, 25, 17, 9, 1, 9, 17 and 25.
const FURTHER: [f64; 2] = [31.0 / 2.0, 127.0 / 8.0];
/// The share of calls in strides that are in two requests after the bypass option: those that begin within a window.
const MISALIGNED: f64 = 3.0 / 4.0;

/// What an update of a range in several extents costs on ext4, and not on F2FS, whose gain by the same updates is lower in the paper.
const HANDLES: &str = ": ext4 of Linux 5.7 takes a journal handle for each extent of such an update (ext4_overwrite_io), which costs nothing \
    here";

/// The throughput of a pattern of calls: before, and after each policy; in MB/s.
struct Measured {
    before: f64,
    after: [f64; 3],
    /// What each policy moved.
    moved: [Moved; 3],
}

fn run(_seed: u64) -> Results {
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for figure in &FIGURES {
        let cases: Vec<Measured> =
            Calls::ALL.par_iter().map(|calls| figure.measure(*calls)).collect();
        rows.extend(figure.rows(&cases));
        for (calls, case) in Calls::ALL.iter().zip(&cases) {
            let gains = case.after.map(|mbs| mbs / case.before * 100.0);
            groups.push((figure.name(calls.name()), gains.to_vec()));
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

/// By how many per cent one figure is above another.
fn above(one: f64, other: f64) -> f64 {
    (one / other - 1.0) * 100.0
}

impl Figure {
    fn name(&self, what: &str) -> String {
        format!("{}, {}: {what}", self.preset, self.on.name())
    }

    fn measure(&self, calls: Calls) -> Measured {
        let setup = presets::named(self.preset).expect("a preset");
        let written = || Synthetic::written(&setup, self.on, FILE);
        let measured = POLICIES.map(|(policy, _)| {
            let file = written();
            let moved = file.defragment(&bed::policy(policy), calls);
            (file.play(calls), moved)
        });
        let before = written().play(calls);
        Measured {
            before,
            after: measured.map(|(mbs, _)| mbs),
            moved: measured.map(|(_, moved)| moved),
        }
    }

    /// The rows, from the cases in the order of [`Calls::ALL`].
    fn rows(&self, cases: &[Measured]) -> Vec<Row> {
        let [in_order, strides, ..] = cases else { return Vec::new() };
        let row =
            |what: &str, paper: Option<f64>, ours: f64, points: f64, because: String| match paper {
                Some(paper) => Row::new(self.name(what), "%", paper, ours, Band::Points(points))
                    .because(because),
                None => Row::ours(self.name(what), "%", ours),
            };
        let share = |case: &Measured, figure: fn(&Moved) -> u64| {
            figure(&case.moved[1]) as f64 / figure(&case.moved[0]) as f64 * 100.0
        };
        let mut rows = Vec::new();
        for (pattern, case, paper) in
            [("in order", in_order, self.writes[0]), ("in strides", strides, self.writes[1])]
        {
            let what = format!("writes {pattern}, of conventional");
            rows.push(row(
                &what,
                paper,
                share(case, |moved| moved.written_bytes),
                3.0,
                String::new(),
            ));
        }
        for (n, ((calls, case), paper)) in Calls::ALL.iter().zip(cases).zip(self.gains).enumerate()
        {
            let ours = above(case.after[1], case.before);
            let further_us = |gain: f64| gain / 100.0 * Calls::us(case.after[1]) / FURTHER[n % 2];
            let because = paper.map_or_else(String::new, |paper| {
                let (needs, costs) = (further_us(paper), further_us(ours));
                let handles = self.on == On::Ext4 && n >= 2 && needs > costs;
                format!(
                    "a further request costs {costs:.1} us here; the paper's gain needs {needs:.1}{}",
                    if handles { HANDLES } else { "" }
                )
            });
            rows.push(row(&format!("{}, gain", calls.name()), paper, ours, 5.0, because));
        }
        for ((calls, case), paper) in Calls::ALL.iter().zip(cases).zip(self.against) {
            let (what, ours) = (calls.name(), above(case.after[1], case.after[0]));
            rows.push(row(
                &format!("{what}, against conventional"),
                paper,
                ours,
                5.0,
                String::new(),
            ));
        }
        let bypass = above(strides.after[2], strides.after[1]);
        let second_us = |below: f64| {
            Calls::us(strides.after[1]) * (1.0 / (1.0 + below / 100.0) - 1.0) / MISALIGNED
        };
        let because = self.bypass.map_or_else(String::new, |paper| {
            format!(
                "a second request costs {:.1} us here; the paper's figure needs {:.1}, more than a further one of many",
                second_us(bypass),
                second_us(paper)
            )
        });
        rows.push(row(
            "reads in strides, bypass against fragpicker",
            self.bypass,
            bypass,
            5.0,
            because,
        ));
        let time = share(strides, |moved| moved.ns) - 100.0;
        rows.push(row(
            "time in strides, against conventional",
            self.time,
            time,
            10.0,
            String::new(),
        ));
        rows
    }
}
