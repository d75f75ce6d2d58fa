//! InDeF, figure 13: throughput, and what is moved for it, by the per cent of ranges that are truncated. The text says that up to about 30 per
//! cent reads stay as fast, while more and more is moved.
//!
//! All plans are made of the same files; the one that moves least is carried out first, and of each further one what is left.

use super::indef::{moved, planned, planned_bytes, read};
use super::indef_loads::{MAIL, Macro, SERVER};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row, change};
use fragmend_plan::{Policy, Settings};
use fragmend_simfs::segments::Primitive;

pub static EXPERIMENT: Experiment = Experiment {
    name: "I-fig13",
    source: "InDeF, figure 13",
    about: "grep and what is moved for it, by how many ranges are truncated",
    is_long: true,
    run,
};

/// Up to where the text sees no significant change, and what is none here, in per cent.
const FLAT: f64 = 30.0;
const INSIGNIFICANT: f64 = 10.0;
/// The per cent that are truncated, the most first.
const SWEEP: [f64; 10] = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0, 0.0];

/// Why reads become slower at once.
const ALIKE: &str = "a file that was written beside others is fragmented all over here, and so has no requests of a low priority (I-fig12: of all bytes)";

/// A point of the figure.
struct Point {
    truncated: f64,
    mbs: f64,
    moved_bytes: u64,
}

fn run(seed: u64) -> Results {
    let (mut rows, mut read_lines, mut moved_lines) = (Vec::new(), Vec::new(), Vec::new());
    for load in [SERVER, MAIL] {
        let name = load.name;
        let points = sweep(&load, seed);
        let at = |truncated| points.iter().find(|point| point.truncated == truncated);
        if let (Some(flat), Some(all)) = (at(FLAT), at(0.0)) {
            let what = format!("{name}: grep where {FLAT} % are truncated, against none");
            let ours = change(all.mbs, flat.mbs);
            let row = Row::new(what, "%", 0.0, ours, Band::Points(INSIGNIFICANT));
            rows.push(row.because(ALIKE));
            let what = format!("{name}: moved where {FLAT} % are truncated, against none");
            let ours = change(all.moved_bytes as f64, flat.moved_bytes as f64);
            rows.push(Row::ours(what, "%", ours));
        }
        for point in &points {
            let what = format!("{name}: grep where {} % are truncated", point.truncated);
            rows.push(Row::ours(what, "MB/s", point.mbs));
        }
        let line = |of: fn(&Point) -> f64| {
            (name.to_owned(), points.iter().map(|point| (point.truncated, of(point))).collect())
        };
        read_lines.push(line(|point| point.mbs));
        moved_lines.push(line(|point| point.moved_bytes as f64 / 1e6));
    }
    let plot = |name: &str, title: &str, axis: &str, lines| Plot::Lines {
        name: name.into(),
        title: title.into(),
        axes: ["truncated, %".into(), axis.into()],
        logarithmic: false,
        lines,
    };
    let plots = vec![
        plot("I-fig13-reads", "Grep by truncated ranges", "MB/s", read_lines),
        plot("I-fig13-moved", "What is moved by truncated ranges", "MB", moved_lines),
    ];
    Results { rows, plots }
}

fn sweep(load: &Macro, seed: u64) -> Vec<Point> {
    let aged = load.aged(load.parts, seed);
    let seen = read(&aged.fs, &aged.files).seen;
    let plans = SWEEP.map(|truncated| {
        let truncate_percent = Some(truncated);
        let settings = Settings { policy: Policy::Iodp, truncate_percent, ..Settings::default() };
        (truncated, planned(&aged.fs, seen.clone(), &settings))
    });
    let point = |(truncated, plan)| {
        moved(&aged.fs, &plan, Primitive::InDevice);
        let mbs = read(&aged.fs, &aged.files).mbs;
        Point { truncated, mbs, moved_bytes: planned_bytes(&plan) }
    };
    plans.into_iter().map(point).collect()
}
