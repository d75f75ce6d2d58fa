//! FAST'24, figure 8: the throughput of reads of 4 KiB at multiples of an interval, from data that was
//! written in order. It drops where the interval begins to leave dies out, and is lowest where all reads are
//! of one die: this shows the stripe unit (the paper's die granularity) and the stripe of a drive.
//!
//! By the text the reads are in order, 512 of them in flight with NVMe. The artefact's alignment_NVMe.sh and
//! alignment_SATA.sh choose them at random, 32 in flight (8 jobs of depth 4), and so do we: the throughputs
//! of the figure, without gaps and at each step down, are those of 32 random reads among that many dies.

use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::random::Random;
use crate::raw;
use crate::row::{Band, Row};
use fragmend_flash::command::Units;
use fragmend_flash::ssd::Ssd;

pub static EXPERIMENT: Experiment = Experiment {
    name: "D-fig8",
    source: "FAST'24, figure 8",
    about: "reads of 4 KiB at intervals show a drive's die granularity and stripe",
    is_long: false,
    run,
};

/// A drive of the paper.
struct Drive {
    preset: &'static str,
    /// The interval at which throughput first drops, in KiB: two stripe units.
    drop_kib: u32,
    /// The interval at which it is lowest, in KiB: the stripe.
    stripe_kib: u32,
    /// Throughput without gaps, in MB/s.
    clean: f64,
    /// The lowest throughput, in per cent of that.
    floor: f64,
    /// Why our figure may be out of its band.
    because: &'static str,
}

const DRIVES: [Drive; 4] = [
    Drive {
        preset: "nvme-a",
        drop_kib: 64,
        stripe_kib: 1024,
        clean: 2600.0,
        floor: 6.5,
        because: "",
    },
    Drive {
        preset: "nvme-b",
        drop_kib: 64,
        stripe_kib: 256,
        clean: 3020.0,
        floor: 18.5,
        because: "",
    },
    Drive { preset: "sata-a", drop_kib: 8, stripe_kib: 32, clean: 400.0, floor: 15.5, because: "" },
    Drive {
        preset: "sata-b",
        drop_kib: 32,
        stripe_kib: 256,
        clean: 400.0,
        floor: 20.7,
        because: "half of its 16 dies still answer more than the 98,000 reads a second that it has \
                  without gaps; only a quarter of them answer fewer",
    },
];
/// The drive whose throughput without gaps follows from that of one die, and from its data sheet.
const FOLLOWS: &str = "sata-a";
/// Drives whose stripe is not a power of two, and the stripe in KiB; the text has no throughputs of them.
const ODD: [(&str, u32); 2] = [("nvme-c", 584), ("nvme-d", 604)];
/// The least and the most by which throughput falls, in per cent, at each doubling of the interval from 64
/// KiB to the stripe, "for both" NVMe drives.
const FALLS: [f64; 2] = [41.0, 49.0];

/// The area that is written in order and read, in units of 4 KiB.
const AREA: u32 = (1 << 30) / 4096;
/// Reads of one measurement, and of one where there are many.
const READS: u32 = 8192;
const FEW_READS: u32 = 1024;
/// Reads in flight.
const DEPTH: usize = 32;
/// Throughput drops where it is less than this share of that at the interval before.
const DROP: f64 = 0.85;

fn run(seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let mut falls: Vec<f64> = Vec::new();
    for drive in &DRIVES {
        let setup = presets::named(drive.preset).expect("a preset");
        let written = raw::preconditioned(&setup, AREA);
        let intervals = (0..).map(|n| 4 << n).take_while(|kib| *kib <= 1024);
        let at = |kib: u32| (kib, throughput(&written, kib / 4, READS, DEPTH, seed));
        let measured: Vec<(u32, f64)> = intervals.map(at).collect();
        let clean = measured[0].1;
        let drop = measured.windows(2).find(|pair| pair[1].1 < pair[0].1 * DROP);
        let first = drop.map_or(0, |pair| pair[1].0);
        let lowest = measured.iter().map(|(_, mbs)| *mbs).fold(f64::INFINITY, f64::min);
        let stripe =
            measured.iter().find(|(_, mbs)| *mbs < lowest * 1.02).map_or(0, |(kib, _)| *kib);
        let row = |what: &str, unit: &str, paper: f64, ours: f64, band| {
            let name = format!("{}: {what}", drive.preset);
            Row::new(name, unit, paper, ours, band).because(drive.because)
        };
        // The drives' files have stripes, and the times of one die and of all, from this figure.
        let without_gaps = row("without gaps", "MB/s", drive.clean, clean, Band::Percent(10.0));
        rows.extend([
            if drive.preset == FOLLOWS { without_gaps } else { without_gaps.fitted() },
            row("first drop at", "KiB", drive.drop_kib.into(), first.into(), Band::Exact),
            row("lowest at", "KiB", drive.stripe_kib.into(), stripe.into(), Band::Exact).fitted(),
            row("lowest", "%", drive.floor, lowest / clean * 100.0, Band::Points(3.0)).fitted(),
        ]);
        if drive.preset.starts_with("nvme") {
            let doubled = measured.windows(2).filter(|pair| pair[0].0 >= 64);
            let until = doubled.filter(|pair| pair[1].0 <= drive.stripe_kib);
            falls.extend(until.map(|pair| (1.0 - pair[1].1 / pair[0].1) * 100.0));
        }
        let points = measured.iter().map(|(kib, mbs)| (f64::from(*kib), *mbs)).collect();
        lines.push((drive.preset.to_owned(), points));
    }
    let least = falls.iter().copied().fold(f64::INFINITY, f64::min);
    let most = falls.iter().copied().fold(0.0, f64::max);
    for (what, paper, ours) in [("least", FALLS[0], least), ("most", FALLS[1], most)] {
        let name = format!("nvme-a, nvme-b: {what} fall where the interval doubles");
        rows.push(Row::new(name, "%", paper, ours, Band::Points(3.0)));
    }
    let plot = Plot::Lines {
        name: "D-fig8".into(),
        title: "Reads of 4 KiB at intervals".into(),
        axes: ["from start to start, KiB".into(), "MB/s".into()],
        logarithmic: true,
        lines,
    };
    let odd = odd(seed, &mut rows);
    Results { rows, plots: vec![plot, odd] }
}

/// The throughput of drives whose stripe is not a power of two, at every multiple of 4 KiB.
fn odd(seed: u64, rows: &mut Vec<Row>) -> Plot {
    let mut lines = Vec::new();
    for (preset, stripe) in ODD {
        let written = raw::preconditioned(&presets::named(preset).expect("a preset"), AREA);
        let at = |kib: u32| (kib, throughput(&written, kib / 4, FEW_READS, DEPTH, seed));
        let measured: Vec<(u32, f64)> = (1..=256).map(|n| at(4 * n)).collect();
        let lowest = measured.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(kib, _)| *kib);
        let name = format!("{preset}: lowest at");
        rows.push(Row::new(name, "KiB", stripe.into(), lowest.into(), Band::Exact).fitted());
        if preset == "nvme-c" {
            for kib in [64_usize, 128] {
                let of_last = measured[kib / 4 - 1].1 / measured[kib / 4 - 2].1 * 100.0;
                let name = format!("{preset}: dip at {kib} KiB, of {} KiB", kib - 4);
                let why = "584 KiB are no whole number of stripe units on a number of dies that 64 and \
                           128 KiB would share a factor with: within the stripe this drive must go \
                           about it in a way that the text does not tell";
                rows.push(Row::new(name, "%", DROP * 100.0, of_last, Band::AtMost).because(why));
            }
        }
        let points = measured.iter().map(|(kib, mbs)| (f64::from(*kib), *mbs)).collect();
        lines.push((preset.to_owned(), points));
    }
    Plot::Lines {
        name: "D-fig8c".into(),
        title: "Reads of 4 KiB at intervals".into(),
        axes: ["from start to start, KiB".into(), "MB/s".into()],
        logarithmic: false,
        lines,
    }
}

/// MB/s of reading units at random multiples of `interval` units.
fn throughput(ssd: &Ssd, interval: u32, reads: u32, depth: usize, seed: u64) -> f64 {
    let mut random = Random::new(seed, "alignment");
    let place = |_| Units::new(random.below(AREA / interval) * interval, 1);
    let ns = raw::read(ssd.clone(), (0..reads).map(place), depth, 0);
    f64::from(reads) * 4096.0 / (ns as f64 / 1e9) / 1e6
}
