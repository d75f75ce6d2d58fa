//! FAST'24, figure 8: throughput of reading 4 KiB at intervals from data that was written in
//! order. It drops where the interval begins to leave dies out, and is lowest where all of it
//! comes from one die: the die granularity and the stripe of a drive.

use crate::experiment::{Experiment, Found};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::ssd::Ssd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub static EXPERIMENT: Experiment = Experiment {
    name: "d-fig8",
    source: "FAST'24, figure 8",
    about: "reads of 4 KiB at intervals show a drive's die granularity and stripe",
    run,
};

/// A drive of the paper.
struct Drive {
    preset: &'static str,
    /// Commands under way.
    depth: usize,
    /// Where throughput first drops, in KiB: twice the die granularity.
    drop_kib: u32,
    /// Where it is lowest, in KiB: the stripe.
    stripe_kib: u32,
    /// Throughput without gaps, in MB/s.
    clean: f64,
    /// The lowest, in per cent of that.
    floor: f64,
}

const DRIVES: [Drive; 4] = [
    Drive {
        preset: "nvme-a",
        depth: 512,
        drop_kib: 64,
        stripe_kib: 1024,
        clean: 2600.0,
        floor: 6.5,
    },
    Drive {
        preset: "nvme-b",
        depth: 512,
        drop_kib: 64,
        stripe_kib: 256,
        clean: 3020.0,
        floor: 18.5,
    },
    Drive { preset: "sata-a", depth: 32, drop_kib: 8, stripe_kib: 32, clean: 400.0, floor: 15.5 },
    Drive { preset: "sata-b", depth: 32, drop_kib: 32, stripe_kib: 256, clean: 400.0, floor: 20.7 },
];

/// Written in order and read, in units of 4 KiB.
const AREA: u32 = (1 << 30) / 4096;
/// Reads of one measurement.
const READS: u32 = 4096;
/// It drops where less than this share is left of the interval before.
const DROP: f64 = 0.85;

fn run(_seed: u64) -> Found {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for drive in &DRIVES {
        let setup = presets::named(drive.preset).expect("a preset");
        let written = written(&setup);
        let intervals = (0..).map(|n| 4 << n).take_while(|kib| *kib <= 1024);
        let at = |kib: u32| (kib, throughput(&written, kib / 4, drive.depth));
        let measured: Vec<(u32, f64)> = intervals.map(at).collect();
        let clean = measured[0].1;
        let drop = measured.windows(2).find(|pair| pair[1].1 < pair[0].1 * DROP);
        let first = drop.map_or(0, |pair| pair[1].0);
        let lowest = measured.iter().map(|(_, mbs)| *mbs).fold(f64::INFINITY, f64::min);
        let stripe =
            measured.iter().find(|(_, mbs)| *mbs < lowest * 1.02).map_or(0, |(kib, _)| *kib);
        let mut row = |what: &str, unit: &str, paper: f64, ours: f64, band| {
            rows.push(Row::new(format!("{}: {what}", drive.preset), unit, paper, ours, band));
        };
        row("without gaps", "MB/s", drive.clean, clean, Band::Percent(10.0));
        row("first drop at", "KiB", drive.drop_kib.into(), first.into(), Band::Exact);
        row("lowest at", "KiB", drive.stripe_kib.into(), stripe.into(), Band::Exact);
        row("lowest", "%", drive.floor, lowest / clean * 100.0, Band::Points(3.0));
        let points = measured.iter().map(|(kib, mbs)| (f64::from(*kib), *mbs)).collect();
        lines.push((drive.preset.to_owned(), points));
    }
    let plot = Plot::Lines {
        name: "d-fig8".into(),
        title: "Reads of 4 KiB at intervals".into(),
        axes: ["from start to start, KiB".into(), "MB/s".into()],
        logarithmic: true,
        lines,
    };
    Found { rows, plots: vec![plot] }
}

/// A drive with data that was written in order, idle.
fn written(setup: &Setup) -> Ssd {
    let mut ssd = setup.ssd();
    let step = 1024;
    for start in (0..AREA).step_by(step) {
        let units = Units::new(start, step as u32);
        let command = Command::Write { units, hint: Hint::None, fua: false };
        let at = ssd.idle_at();
        ssd.submit(at, &command).expect("room");
    }
    ssd
}

/// MB/s of reading a unit every `interval` units.
fn throughput(ssd: &Ssd, interval: u32, depth: usize) -> f64 {
    let mut ssd = ssd.clone();
    let start = ssd.idle_at();
    let (mut now, mut under_way) = (start, BinaryHeap::new());
    let mut last = start;
    for n in 0..READS {
        if under_way.len() >= depth
            && let Some(Reverse(end)) = under_way.pop()
        {
            now = now.max(end);
        }
        let unit = (u64::from(n) * u64::from(interval) % u64::from(AREA)) as u32;
        let done = ssd.submit(now, &Command::Read(Units::new(unit, 1))).expect("a read");
        last = last.max(done.done_ns);
        under_way.push(Reverse(done.done_ns));
    }
    f64::from(READS) * 4096.0 / ((last - start) as f64 / 1e9) / 1e6
}
