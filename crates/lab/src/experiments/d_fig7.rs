//! FAST'24, figure 7: how long reading 8 MiB of a drive takes in units of 32 KiB to 8 MiB, one
//! request after the other and 32 at a time.

use crate::experiment::{Experiment, Found};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::host::Host;
use fragmend_flash::ssd::Ssd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub static EXPERIMENT: Experiment = Experiment {
    name: "d-fig7",
    source: "FAST'24, figure 7",
    about: "what one more request costs, alone and among others",
    run,
};

/// Drives, and microseconds of one more request at depth 1.
const DRIVES: [(&str, f64); 4] =
    [("nvme-a", 85.0), ("nvme-b", 85.0), ("sata-a", 136.0), ("sata-b", 136.0)];
/// Units of 4 KiB that are read.
const ALL: u32 = 2048;
const DEPTH: usize = 32;
/// "Within a few milliseconds", in ms.
const FEW: f64 = 3.0;

fn run(_seed: u64) -> Found {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (name, paper) in DRIVES {
        let setup = presets::named(name).expect("a preset");
        let written = written(&setup);
        let counts = || (0..=8).map(|n| 1_u32 << n);
        let alone: Vec<(f64, f64)> = counts()
            .map(|count| (f64::from(count), one_by_one(&setup, &written, ALL / count)))
            .collect();
        let among: Vec<(f64, f64)> = counts()
            .map(|count| (f64::from(count), side_by_side(&setup, &written, ALL / count)))
            .collect();
        let per_request = slope(&alone) * 1000.0;
        let what = format!("{name}: one more request at depth 1");
        rows.push(Row::new(what, "us", paper, per_request, Band::Percent(10.0)));
        let spread = among.iter().map(|(_, ms)| *ms).fold(0.0, f64::max)
            - among.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
        let what = format!("{name}: from the fewest to the most requests at depth {DEPTH}");
        rows.push(Row::new(what, "ms", FEW, spread, Band::AtMost));
        for (depth, points) in [(1, alone), (DEPTH, among)] {
            lines.push((format!("{name}, depth {depth}"), points));
        }
    }
    let plot = Plot::Lines {
        name: "d-fig7".into(),
        title: "Reading 8 MiB in ever smaller units".into(),
        axes: ["requests".into(), "ms".into()],
        logarithmic: true,
        lines,
    };
    Found { rows, plots: vec![plot] }
}

/// A drive with data that was written in order, idle.
fn written(setup: &Setup) -> Ssd {
    let mut ssd = setup.ssd();
    for start in (0..ALL).step_by(256) {
        let units = Units::new(start, 256);
        let command = Command::Write { units, hint: Hint::None, fua: false };
        let at = ssd.idle_at();
        ssd.submit(at, &command).expect("room");
    }
    ssd
}

/// Milliseconds of one request after the other.
fn one_by_one(setup: &Setup, ssd: &Ssd, unit: u32) -> f64 {
    let mut path = setup.host.clone();
    (path.queue_depth, path.request_bytes, path.bio_bytes) = (1, 8 << 20, 8 << 20);
    let mut ssd = ssd.clone();
    let start = ssd.idle_at();
    let mut host = Host::new(&path, &mut ssd, start);
    for at in (0..ALL).step_by(unit as usize) {
        host.read(&[Units::new(at, unit)]).expect("a read");
    }
    (host.now - start) as f64 / 1e6
}

/// Milliseconds of many at a time.
fn side_by_side(setup: &Setup, ssd: &Ssd, unit: u32) -> f64 {
    let mut ssd = ssd.clone();
    let start = ssd.idle_at();
    let (mut now, mut last, mut under_way) = (start, start, BinaryHeap::new());
    for at in (0..ALL).step_by(unit as usize) {
        if under_way.len() >= DEPTH
            && let Some(Reverse(end)) = under_way.pop()
        {
            now = now.max(end);
        }
        now += setup.host.request_ns;
        let done = ssd.submit(now, &Command::Read(Units::new(at, unit))).expect("a read").done_ns;
        under_way.push(Reverse(done));
        last = last.max(done);
    }
    (last - start) as f64 / 1e6
}

/// The slope of the line that fits points best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mean_x, mean_y) = (
        points.iter().map(|(x, _)| x).sum::<f64>() / n,
        points.iter().map(|(_, y)| y).sum::<f64>() / n,
    );
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    above / below
}
