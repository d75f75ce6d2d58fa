//! janusd, figures 15 to 17 and table 4: six months of a phone without a defragmenter, with the policy of `e4defrag` every one, two and
//! four weeks, and with janusdL, which remaps instead of copying, every week. Throughput and time are those of reading the files of the
//! six apps, cold, just before a defragmentation would be due, averaged over the weeks.

use super::{APPS, Bed, WEEK, prefix, whole_gb};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_simfs::mounted::{Primitive, Remap};
use rayon::prelude::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-fig15-table4",
    source: "janusd, figures 15 to 17, tables 3 and 4",
    about: "six months of a phone: throughput and copies of defragmenters",
    is_long: true,
    run,
};

/// As full as the phone of section 5.1, in per cent.
const FULL: u64 = 83;
/// Bytes of a program of the drives' logs (`simmmc.toml`, `simufs.toml`).
const LOG_PROGRAM: u64 = 8192;
/// Weeks of six months.
const WEEKS: u32 = 26;

/// A policy of section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Baseline,
    /// `e4defrag` every so many weeks.
    Copies(u32),
    /// janusdL every week.
    Remaps,
}
use Remedy::{Baseline, Copies, Remaps};

const RUNS: [(&str, Remedy); 7] = [
    ("simmmc", Baseline),
    ("simmmc", Remaps),
    ("simmmc", Copies(1)),
    ("simmmc", Copies(2)),
    ("simmmc", Copies(4)),
    ("simufs", Baseline),
    ("simufs", Remaps),
];

/// Table 3: the mean degrees of the files of the six apps before.
const DEGREES: [f64; 6] = [1.34, 1.99, 2.18, 2.55, 2.75, 3.02];
/// Gain of janusd's throughput, and of its launch times, over the baseline, in per cent; of that throughput janusdL alone has 97 %
/// (section 1).
const GAINS: [(&str, f64, f64); 2] = [("simmmc", 57.0, -29.0), ("simufs", 76.0, -36.0)];
const LOGICAL_ALONE: f64 = 0.97;
/// Table 4: what `e4defrag` copies in all, in GB, by the weeks between its runs.
const COPIED: [(u32, f64); 3] = [(1, 156.0), (2, 182.0), (4, 217.0)];

const GROWN: &str = "what the paper's apps write to their databases is not stated; here a few databases have most of the fragments";
const SPLIT: &str = "these drives are as fast as data sheets say, and a further request costs less than on the paper's, whose latency was \
                     raised by an amount that it does not state (J-fig7). Copies of the same ranges bring more than remaps, and \
                     why is not found: windows of readahead are spread over the channels alike";
const COPIES: &str = "in a week only what is written in it can be fragmented anew: 0.7 of all packages, photos, and databases. The paper's \
                      updates are not stated; its 217 GB in seven runs are 31 GB each, more than the 25 GB of the partition, \
                      so that its tool must have copied files more than once";

/// Six months with a policy.
struct Lived {
    /// MB/s at the end of each week, before it is defragmented.
    mbs: Vec<f64>,
    /// The time of a launch then, in milliseconds.
    launch_ms: f64,
    /// The mean degree of each app's files before the first week.
    degrees: [f64; APPS],
    /// The mean degree of physical fragmentation of their windows after the last week.
    window_dof_p: f64,
    /// What was moved, and what was written for that, with the drive's log and its compaction.
    moved_gb: f64,
    written_gb: f64,
}

impl Lived {
    fn mean_mbs(&self) -> f64 {
        self.mbs.iter().sum::<f64>() / self.mbs.len() as f64
    }
}

fn live(preset: &str, remedy: Remedy, seed: u64) -> Lived {
    let (primitive, every) = match remedy {
        Baseline => (Primitive::Copy, None),
        Copies(weeks) => (Primitive::Copy, Some(weeks)),
        Remaps => (Primitive::Remap(Remap::EXCLUSIVE), Some(1)),
    };
    let mut bed = Bed::aged(preset, FULL, primitive, seed);
    let degrees = std::array::from_fn(|app| bed.fragmentation(&prefix(app)).mean_dof);
    let log_bytes = |bed: &Bed| bed.machine().counters().log_programs * LOG_PROGRAM;
    let logged = log_bytes(&bed);
    let (mut mbs, mut launch_ms, mut moved, mut written) = (Vec::new(), 0.0, 0, 0);
    for week in 0..WEEKS {
        if every.is_some_and(|every| week.is_multiple_of(every)) {
            let summary = bed.defragment();
            moved += summary.moved_bytes;
            // Of remaps, only what was copied because the drive had refused one.
            let copied = summary.moved_by_primitive.get(Primitive::Copy.name()).copied();
            written += copied.unwrap_or(0);
        }
        bed.live(WEEK);
        mbs.push(bed.mean_throughput());
        launch_ms += bed.mean_launch_ms() / f64::from(WEEKS);
    }
    written += log_bytes(&bed) - logged;
    let of_windows = (0..APPS).map(|app| bed.dof_p_of_windows(app)).sum::<f64>();
    Lived {
        mbs,
        launch_ms,
        degrees,
        window_dof_p: of_windows / APPS as f64,
        moved_gb: whole_gb(moved),
        written_gb: whole_gb(written),
    }
}

fn run(seed: u64) -> Results {
    let lived: Vec<Lived> =
        RUNS.par_iter().map(|(preset, remedy)| live(preset, *remedy, seed)).collect();
    let of = |preset: &str, remedy| {
        let found = RUNS.iter().position(|run| *run == (preset, remedy));
        &lived[found.expect("it is one of the runs")]
    };
    let mut rows = Vec::new();
    let mean = |degrees: &[f64]| degrees.iter().sum::<f64>() / degrees.len() as f64;
    let (paper, ours) = (mean(&DEGREES), mean(&of("simmmc", Baseline).degrees));
    let row = Row::new("DoF^L of the apps' files before", "", paper, ours, Band::Percent(30.0));
    rows.push(row.because(GROWN));
    for (preset, gain, launch) in GAINS {
        let (baseline, remaps) = (of(preset, Baseline), of(preset, Remaps));
        let name = |what: &str| format!("{preset}: {what}");
        rows.push(Row::ours(name("baseline"), "MB/s", baseline.mean_mbs()));
        rows.push(Row::ours(name("baseline, DoF^P of windows"), "", baseline.window_dof_p));
        rows.push(Row::ours(name("janusdL, DoF^P of windows"), "", remaps.window_dof_p));
        let logical = (100.0 + gain) * LOGICAL_ALONE - 100.0;
        let ours = (remaps.mean_mbs() / baseline.mean_mbs() - 1.0) * 100.0;
        rows.push(
            Row::new(name("janusdL over it"), "%", logical, ours, Band::Points(12.0))
                .because(SPLIT),
        );
        let ours = (remaps.launch_ms / baseline.launch_ms - 1.0) * 100.0;
        rows.push(
            Row::new(name("janusdL, time of a launch"), "%", launch, ours, Band::Points(12.0))
                .because(SPLIT),
        );
    }
    let baseline = of("simmmc", Baseline).mean_mbs();
    for (weeks, paper) in COPIED {
        let run = of("simmmc", Copies(weeks));
        let name = |what: &str| format!("e4defrag every {weeks} weeks: {what}");
        let gain = (run.mean_mbs() / baseline - 1.0) * 100.0;
        rows.push(Row::ours(name("over baseline"), "%", gain));
        rows.push(Row::ours(name("DoF^P of windows"), "", run.window_dof_p));
        rows.push(
            Row::new(name("copied"), "GB", paper, run.written_gb, Band::Percent(30.0))
                .because(COPIES),
        );
    }
    let (remaps, copies) = (of("simmmc", Remaps), of("simmmc", Copies(1)));
    rows.push(Row::ours("janusdL: remapped", "GB", remaps.moved_gb));
    rows.push(Row::ours("janusdL: written", "GB", remaps.written_gb));
    let share = remaps.written_gb * 100.0 / copies.written_gb;
    rows.push(Row::new("janusdL: written, of e4defrag's weekly", "%", 1.0, share, Band::AtMost));
    Results { rows, plots: vec![plot(&lived)] }
}

fn plot(lived: &[Lived]) -> Plot {
    let line = |((preset, remedy), lived): (&(&str, Remedy), &Lived)| {
        let points = lived.mbs.iter().enumerate().map(|(week, mbs)| (week as f64 + 1.0, *mbs));
        let remedy = match remedy {
            Baseline => "no defragmenter".to_owned(),
            Copies(weeks) => format!("e4defrag every {weeks} weeks"),
            Remaps => "janusdL every week".to_owned(),
        };
        (format!("{preset}, {remedy}"), points.collect())
    };
    Plot::Lines {
        name: "J-fig15".into(),
        title: "Reading the apps' files".into(),
        axes: ["weeks".into(), "MB/s".into()],
        logarithmic: false,
        lines: RUNS.iter().zip(lived).map(line).collect(),
    }
}
