//! janusd, figures 15 to 17 and table 3: six months of a phone without a defragmenter, with `e4defrag` and with janusdL every week, and with
//! janusd, which is janusdL and janusdP. Throughput and time are those of reading the files of the six apps, cold, just before a
//! defragmentation would be due, averaged over the weeks.
//!
//! **Why remaps bring less than copies of the same ranges.** They save as many requests, and no sensing at all: rows count both. These drives
//! map 4 KiB and sense 8. A page of a database was programmed beside whatever was written with it, or beside padding, and a remap leaves
//! it there; a copy programs neighbours into one flash page. Where the drive and the file system have units of a flash page (the paper's
//! figure 10 has one logical address for each), both sense the same. Channels count, too: a copy is spread over them anew.

use super::life::{Lived, Remedy, live};
use super::{Kind, PARTS, mean};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row};
use Remedy::{Baseline, Copies, Janusd, JanusdL};
use rayon::prelude::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-fig15-17",
    source: "janusd, figures 15 to 17, table 3",
    about: "six months of a phone: throughput and launches by defragmenter",
    is_long: true,
    run,
};

/// Table 3: the mean degrees of the files of the six apps before.
const DEGREES: [f64; 6] = [1.34, 1.99, 2.18, 2.55, 2.75, 3.02];
/// Gain of janusd's throughput over the baseline, on average, and the change of the launch of the app that gains most, in per cent.
const GAINS: [(&str, f64, f64); 2] = [("simmmc", 57.0, -29.0), ("simufs", 76.0, -36.0)];
/// janusdL's throughput, of janusd's, in per cent (section 1).
const LOGICAL_ALONE: f64 = 97.0;
/// Bytes of a flash page.
const FLASH_PAGE: u32 = 8192;

const GROWN: &str = "the mean is of all files of the apps, caches and journals included, and what the paper's apps write is not stated: \
                     J-fig2-5 has other numbers of databases";
const COPIES: &str = "copies save sensings of flash pages, and remaps do not; janusdP looks at the channels alone, and few files are on half \
                      of them or fewer";

/// Why a remap gains less than in the paper, by the requests of reads before and after, and the flash pages.
fn bound(baseline: [f64; 2], after: [f64; 2]) -> String {
    let most = (baseline[0] / after[0] - 1.0) * 100.0;
    let [requests, pages] = baseline;
    let [fewer, same] = after;
    format!(
        "a remap saves requests, {fewer:.1} for a MiB instead of {requests:.1}, so that it gains no more than some {most:.0} %, whatever \
         one costs: the paper's files were more fragmented. It saves no sensing: {same:.0} flash pages for a MiB, and {pages:.0} before, \
         where 128 would do, because a unit of 4 KiB was programmed beside whatever was written with it; with units of a flash page it gains more"
    )
}

/// The same of launches, whose time is what is judged.
fn launches(baseline: &Lived, both: &Lived) -> String {
    let (before, after) = (baseline.launch_requests, both.launch_requests);
    format!(
        "a launch reads packages, which updates write anew, and one of eight databases: {before:.1} requests for a MiB, and {after:.1} \
         after a remap, so that on average it cannot save more than {:.0} %. What a launch of the paper's apps reads is not stated",
        (1.0 - after / before) * 100.0
    )
}

/// A phone that is lived on.
#[derive(Clone, Copy)]
struct Run {
    preset: &'static str,
    remedy: Remedy,
    /// Whether drive and file system have units of a flash page.
    whole_pages: bool,
    /// One part in so many of the partition.
    parts: u32,
}

impl Run {
    fn lived(&self, seed: u64) -> Lived {
        let unit_bytes = self.whole_pages.then_some(FLASH_PAGE);
        let kind = Kind { unit_bytes, parts: self.parts, ..self.remedy.on(self.preset) };
        live(&kind, self.remedy, seed)
    }
}

/// What is compared on both drives; on one with units of a flash page; and on half the scale.
fn runs() -> [Vec<Run>; 4] {
    let of = |preset, remedies: &[Remedy], whole_pages, parts| {
        let run = |remedy: &Remedy| Run { preset, remedy: *remedy, whole_pages, parts };
        remedies.iter().map(run).collect()
    };
    let all = [Baseline, JanusdL, Janusd, Copies(1)];
    let without_both = [Baseline, JanusdL, Copies(1)];
    [
        of("simmmc", &all, false, PARTS),
        of("simufs", &all, false, PARTS),
        of("simmmc", &without_both, true, PARTS),
        of("simmmc", &without_both, false, 2 * PARTS),
    ]
}

fn run(seed: u64) -> Results {
    let runs = runs();
    let each = |runs: &Vec<Run>| -> Vec<(Remedy, Lived)> {
        runs.par_iter().map(|run| (run.remedy, run.lived(seed))).collect()
    };
    let lived: Vec<_> = runs.par_iter().map(each).collect();
    let mut rows = Vec::new();
    let (paper, ours) = (mean(&DEGREES), mean(&lived[0][0].1.degrees));
    let row = Row::new("DoF^L of the apps' files before", "", paper, ours, Band::Percent(30.0));
    rows.push(row.because(GROWN));
    for ((preset, gain, launch), lived) in GAINS.into_iter().zip(&lived) {
        rows.extend(judged(preset, gain, launch, lived));
    }
    rows.extend(gains("simmmc, units of 8 KiB", &lived[2]));
    rows.extend(gains("simmmc, half the scale", &lived[3]));
    Results { rows, plots: vec![plot(&lived[..2])] }
}

/// The throughput of a policy over the baseline, in per cent.
fn gain(lived: &Lived, baseline: &Lived) -> f64 {
    (lived.mean_mbs() / baseline.mean_mbs() - 1.0) * 100.0
}

/// Gains over the baseline, and the requests and flash pages that are sensed, of each policy.
fn gains(name: &str, lived: &[(Remedy, Lived)]) -> Vec<Row> {
    let baseline = &lived[0].1;
    let mut rows = vec![Row::ours(format!("{name}: baseline"), "MB/s", baseline.mean_mbs())];
    let mut each = |what: &str, unit: &str, figure: &dyn Fn(&Lived) -> f64| {
        let row = |(remedy, lived): &(Remedy, Lived)| {
            Row::ours(format!("{name}: {}, {what}", remedy.name()), unit, figure(lived))
        };
        rows.extend(lived.iter().map(row));
    };
    each("over baseline", "%", &|lived| gain(lived, baseline));
    each("requests a MiB", "", &|lived| lived.requests);
    each("requests a MiB of a launch", "", &|lived| lived.launch_requests);
    each("flash pages a MiB", "", &|lived| lived.pages);
    each("busiest channel, of an even share", "%", &|lived| lived.busiest_percent);
    rows
}

fn judged(preset: &str, paper: f64, launch: f64, lived: &[(Remedy, Lived)]) -> Vec<Row> {
    let of = |remedy| {
        let found = lived.iter().find(|(other, _)| *other == remedy);
        &found.expect("it is one of the runs").1
    };
    let (baseline, both) = (of(Baseline), of(Janusd));
    let [before, after] = [baseline, both].map(|lived| [lived.requests, lived.pages]);
    let mut rows = gains(preset, lived);
    let name = |what: &str| format!("{preset}: {what}");
    let ours = gain(both, baseline);
    rows.push(
        Row::new(name("janusd over baseline, on average"), "%", paper, ours, Band::Points(12.0))
            .because(bound(before, after)),
    );
    let share = of(JanusdL).mean_mbs() * 100.0 / both.mean_mbs();
    rows.push(Row::new(name("janusdL, of janusd"), "%", LOGICAL_ALONE, share, Band::Points(12.0)));
    let share = both.mean_mbs() * 100.0 / of(Copies(1)).mean_mbs();
    rows.push(
        Row::new(name("janusd, of e4defrag_1w"), "%", 100.0, share, Band::AtLeast).because(COPIES),
    );
    let each = both.launch_ms.iter().zip(&baseline.launch_ms);
    let ours = each.map(|(with, without)| (with / without - 1.0) * 100.0);
    let ours = ours.fold(f64::INFINITY, f64::min);
    rows.push(
        Row::new(name("janusd, a launch at best"), "%", launch, ours, Band::Points(12.0))
            .because(launches(baseline, both)),
    );
    rows
}

fn plot(drives: &[Vec<(Remedy, Lived)>]) -> Plot {
    let mut lines = Vec::new();
    for ((preset, ..), lived) in GAINS.iter().zip(drives) {
        for (remedy, Lived { mbs, .. }) in lived {
            let points = mbs.iter().enumerate().map(|(week, mbs)| (week as f64 + 1.0, *mbs));
            lines.push((format!("{preset}, {}", remedy.name()), points.collect()));
        }
    }
    Plot::Lines {
        name: "J-fig15".into(),
        title: "Reading the apps' files".into(),
        axes: ["weeks".into(), "MB/s".into()],
        logarithmic: false,
        lines,
    }
}
