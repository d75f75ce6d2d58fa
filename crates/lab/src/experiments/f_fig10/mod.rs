//! FragPicker, figure 10: YCSB's workload C on a store with blocks of 128 KiB on an aged ext4, on the Optane SSD; and what moving
//! the hottest half of the windows that it has read brings, against moving the store's files whole. The workload runs beside the mover.
//!
//! The paper ages the file system with files of the profile Dabre, of a root partition, loads the records, and deletes some of the
//! files to have space. Files here have the lengths of those of a Debian system, and come and go until as much as the partition holds
//! was written twice. How fragmented the paper's store is, and for how long its analysis runs, the paper does not state: rows show what a
//! longer one changes. The store is one part in 32 of the paper's, with tables and levels as much smaller.

mod aged;

use crate::bed::{self, Moved};
use crate::experiment::{Experiment, Results};
use crate::loads::beside::Beside;
use crate::loads::schedule::Programs;
use crate::loads::watched::Watched;
use crate::loads::ycsb::{Client, Workload};
use crate::loads::{Load, Scale};
use crate::plot::Plot;
use crate::row::{Band, Row};
use aged::{DATABASE, PRESET, Stored};
use fragmend_layout::{FileAccesses, FileId};
use fragmend_plan::{Policy, Settings};
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::mounted::Primitive;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig10",
    source: "FragPicker, figure 10",
    about: "reads of a key-value store on an aged ext4, after its hottest windows or all of its files were moved",
    is_long: true,
    run,
};

const SCALE: Scale = Scale::one_in(32);
/// Of the windows that were read, the share that FragPicker moves.
const HOT: f64 = 0.5;
/// Reads for each block of the store, to analyse and to measure; and those of a longer analysis.
const READS: u64 = 3;
const MORE_READS: u64 = 10;
/// MB of the paper's store; by how many per cent FragPicker moves less of it than e4defrag; and the seconds of both.
const PAPER_MB: f64 = 23_000.0;
const MOVED: f64 = -66.0;
const SECONDS: [f64; 2] = [54.0, 331.0];

/// A run of the mover: what chooses, what moves, and how many reads of each block were seen.
type Case = (Policy, Primitive, u64);
/// The last one reads as e4defrag does, which "inefficiently issues 4KB read I/Os" (section 5.3.1).
const CASES: [Case; 4] = [
    (Policy::Fragpicker, Primitive::Copy, READS),
    (Policy::WholeFile, Primitive::Copy, READS),
    (Policy::Fragpicker, Primitive::Copy, MORE_READS),
    (Policy::WholeFile, Primitive::CopyByBlock, READS),
];

/// Before, beside and after a run of the mover.
struct Measured {
    /// Reads a second.
    before: f64,
    beside: f64,
    after: f64,
    moved: Moved,
    /// What it moved, of the bytes of all records, in per cent.
    of_store: f64,
    /// Fragments of each 128 KiB of the store, before and after.
    split: [f64; 2],
    /// The share of the reads that are of the hottest windows, in per cent.
    hot_reads: f64,
}

impl Stored {
    /// Reads a second of so many by a client with this number, through this view of the file system.
    fn reads_a_second(&self, files: &dyn FileSystem, reads: u64, seed: (u64, u32)) -> f64 {
        let machine = files.machine();
        machine.wait_until_idle();
        let began = machine.now_ns();
        self.client(reads, seed).finish(files).expect("a read");
        reads as f64 / (machine.now_ns() - began) as f64 * 1e9
    }

    fn client(&self, reads: u64, seed: (u64, u32)) -> Client {
        Client::new(&self.store, Workload::C, self.records(), reads, seed)
    }
}

fn measure((policy, primitive, reads_of_a_block): Case, scale: Scale, seed: u64) -> Measured {
    let stored = Stored::aged(scale, primitive, seed);
    let (files, reads) = (&stored.files, stored.blocks() * reads_of_a_block);
    let (split, watched) = (stored.split(), Watched::new(files));
    let before = stored.reads_a_second(&watched, reads, (seed, 0));
    let mut programs = Programs::default();
    programs.add(files.machine(), stored.client(u64::MAX, (seed, 1)));
    let beside = Beside::start(Rc::clone(files), programs);
    let settings = Settings { policy, hot_fraction: HOT, ..Settings::default() };
    let seen = watched.take();
    let hot_reads = hot_reads(&seen);
    let moved = bed::defragment_below(files, DATABASE, seen, &settings);
    let tally = beside.tally().expect("reads");
    drop(beside);
    files.sync().expect("room");
    Measured {
        before,
        beside: tally.operations_per_second(),
        after: stored.reads_a_second(&**files, reads, (seed, 2)),
        moved,
        of_store: moved.bytes as f64 / stored.bytes() as f64 * 100.0,
        split: [split, stored.split()],
        hot_reads,
    }
}

/// The share of reads, in per cent, that are of the hottest windows; each read is of a whole block.
fn hot_reads(seen: &[FileAccesses]) -> f64 {
    let mut windows: BTreeMap<(FileId, u64), u64> = BTreeMap::new();
    for file in seen {
        for access in &file.accesses {
            *windows.entry((file.file, access.offset)).or_default() += 1;
        }
    }
    let mut counts: Vec<u64> = windows.into_values().collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let hot = (counts.len() as f64 * HOT).ceil() as usize;
    counts[..hot].iter().sum::<u64>() as f64 / counts.iter().sum::<u64>() as f64 * 100.0
}

/// By how many per cent one figure is above another.
fn above(one: f64, other: f64) -> f64 {
    (one / other - 1.0) * 100.0
}

/// MB/s of a run of the mover.
fn rate(measured: &Measured) -> f64 {
    measured.moved.bytes as f64 / measured.moved.ns as f64 * 1e3
}

fn run(seed: u64) -> Results {
    let measured: Vec<Measured> =
        CASES.par_iter().map(|case| measure(*case, SCALE, seed)).collect();
    let [picked, whole, longer, by_block] = &measured[..] else { unreachable!("four cases") };
    let name = |what: &str| format!("{PRESET}: {what}");
    let fragments = format!(
        "the paper states neither how fragmented its store is nor how many reads it has seen; here 128 KiB are in {:.1} fragments, and \
         {READS} reads for each block are seen",
        picked.split[0]
    );
    let hottest = format!(
        "a read asks a table of each level, and those of small levels are read again and again: {:.0} % of the reads are of the hottest \
         half of the windows, so that little is left where nothing was moved",
        picked.hot_reads
    );
    let rates = format!(
        "the paper's e4defrag moves {:.0} MB/s, as it reads what is fragmented with calls of 4 KiB, and its FragPicker {:.0}; here both \
         are moved by one mover, at {:.0} and {:.0} MB/s. Block by block it moves {:.0} MB/s, as each read waits behind an operation of \
         the workload, all calls of which the drive has at once here",
        PAPER_MB / SECONDS[1],
        PAPER_MB * (1.0 + MOVED / 100.0) / SECONDS[0],
        rate(whole),
        rate(picked),
        rate(by_block)
    );
    let row = |what: &str, paper: f64, ours: f64, points: f64, because: &str| {
        Row::new(name(what), "%", paper, ours, Band::Points(points)).because(because)
    };
    let moved = |measured: &Measured| measured.moved.bytes as f64;
    let time = picked.moved.ns as f64 / whole.moved.ns as f64 * 100.0;
    let after = above(picked.after, whole.after);
    let rows = vec![
        row(
            "moved, against conventional",
            MOVED,
            above(moved(picked), moved(whole)),
            10.0,
            &fragments,
        ),
        row("throughput after, against conventional", -3.4, after, 3.0, &hottest),
        row("time, of conventional", SECONDS[0] / SECONDS[1] * 100.0, time, 10.0, &rates),
        row("gain of conventional", 20.1, above(whole.after, whole.before), 10.0, &fragments),
        Row::ours(name("gain of fragpicker"), "%", above(picked.after, picked.before)),
        Row::ours(name("throughput beside conventional"), "%", above(whole.beside, whole.before)),
        Row::ours(name("throughput beside fragpicker"), "%", above(picked.beside, picked.before)),
        Row::ours(
            name("longer analysis: moved, against conventional"),
            "%",
            above(moved(longer), moved(whole)),
        ),
        Row::ours(
            name("longer analysis: gain of fragpicker"),
            "%",
            above(longer.after, longer.before),
        ),
        Row::ours(
            name("time, of conventional that reads block by block"),
            "%",
            picked.moved.ns as f64 / by_block.moved.ns as f64 * 100.0,
        ),
        Row::ours(name("reads of the hottest half"), "%", picked.hot_reads),
        Row::ours(name("moved by conventional, of the records"), "%", whole.of_store),
        Row::ours(name("fragments of 128 KiB before"), "", picked.split[0]),
        Row::ours(name("fragments of 128 KiB after fragpicker"), "", picked.split[1]),
        Row::ours(name("fragments of 128 KiB after conventional"), "", whole.split[1]),
    ];
    let bars = |measured: &Measured| vec![measured.before, measured.beside, measured.after];
    let plot = Plot::Bars {
        name: "F-fig10".into(),
        title: "YCSB C before, beside and after the mover".into(),
        axis: "reads/s".into(),
        series: ["before", "beside", "after"].map(str::to_owned).to_vec(),
        groups: vec![("conventional".into(), bars(whole)), ("fragpicker".into(), bars(picked))],
    };
    Results { rows, plots: vec![plot] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved_hardly_depends_on_the_size_of_the_store() {
        // Records that fill whole blocks of the drive.
        let moved = |parts| measure(CASES[0], Scale::one_in(parts), 42).of_store;
        let (small, smaller) = (moved(80), moved(160));
        assert!((small - smaller).abs() < 8.0, "{small} and {smaller} %");
        assert!((10.0..50.0).contains(&small), "{small} %");
    }
}
