//! FragPicker, figure 10: YCSB's workload C on a store with blocks of 128 KiB on an aged ext4, on the Optane SSD; and what moving
//! the hottest half of the windows that it has read brings, against moving the store's files whole. The workload runs beside the mover.
//!
//! The paper ages the file system with files of the profile Dabre, of a root partition, loads the records, and deletes some of the
//! files to have space. Files here have the lengths of those of a Debian system, and come and go until as much as the partition holds
//! was written twice. How fragmented the paper's store is, and for how long its analysis runs, the paper does not state. With one read for
//! each block FragPicker moves 76 % less than all and the throughput is 0.7 % lower, with three 64 and 0.2, with ten 56 and none.
//! The store is one part in 32 of the paper's, with tables and levels as much smaller.

use crate::bed::{self, Moved};
use crate::experiment::{Experiment, Results};
use crate::loads::beside::Beside;
use crate::loads::lsm::{Options, Store};
use crate::loads::schedule::Programs;
use crate::loads::watched::Watched;
use crate::loads::ycsb::{Client, Fill, RECORDS, Workload};
use crate::loads::{Load, Scale, write_whole};
use crate::plot::Plot;
use crate::presets;
use crate::random::Random;
use crate::row::{Band, Row};
use crate::setup::DriveKind;
use fragmend_layout::{FileAccesses, FileId};
use fragmend_plan::{Policy, Settings};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use rayon::prelude::*;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig10",
    source: "FragPicker, figure 10",
    about: "reads of a key-value store on an aged ext4, after its hottest windows or all of its files were moved",
    is_long: true,
    run,
};

const PRESET: &str = "optane";
const DATABASE: &str = "db";
const SCALE: Scale = Scale::one_in(32);
/// Of the windows that were read, the share that FragPicker moves.
const HOT: f64 = 0.5;
/// Reads for each block of the store, to analyse and to measure.
const READS_OF_A_BLOCK: u64 = 3;
/// Bytes of the partition, of those of the records; and how often all of it is written with other files before.
const PARTITION: u64 = 6;
const AGED: u64 = 2;
/// What is free meanwhile, in hundredths of the bytes of the records: the records, and what a compaction needs. So much more is free
/// now and then.
const FREE_TO_LOAD: u64 = 115;
const CHURN: u64 = 20;
/// What is free for the mover.
const FREE_TO_MOVE: u64 = 140;
/// MB of the paper's store; by how many per cent FragPicker moves less of it than e4defrag; and the seconds of both.
const PAPER_MB: f64 = 23_000.0;
const MOVED: f64 = -66.0;
const SECONDS: [f64; 2] = [54.0, 331.0];
/// How many files of a thousand are shorter than so many bytes: those of `/usr`, `/etc` and `/var` of a Debian 12 with tools to build
/// programs, 135,849 files. The last row is a limit of ours: longer ones have half of all bytes there, and space that is free
/// where one was is not fragmented.
const LENGTHS: [(u32, u64); 17] = [
    (0, 1),
    (50, 165),
    (100, 328),
    (200, 629),
    (300, 983),
    (400, 1_324),
    (500, 1_883),
    (600, 2_942),
    (700, 4_900),
    (800, 9_891),
    (850, 15_159),
    (900, 24_576),
    (950, 53_660),
    (970, 91_673),
    (990, 268_836),
    (999, 5_279_185),
    (1000, 16_000_000),
];

/// Before, beside and after a run of the mover.
struct Measured {
    /// Reads a second.
    before: f64,
    beside: f64,
    after: f64,
    moved: Moved,
    /// Fragments of each 128 KiB of the store, before and after.
    split: [f64; 2],
    /// The share of the reads that are of the hottest windows, in per cent.
    hot_reads: f64,
}

/// Files that come and go.
struct Ageing {
    random: Random,
    files: Vec<PathBuf>,
    made: u64,
}

impl Ageing {
    /// The length of a file, between those of two rows.
    fn length(&mut self) -> u64 {
        let share = self.random.unit() * 1000.0;
        let behind = LENGTHS.partition_point(|(shorter, _)| f64::from(*shorter) <= share);
        let ((from, short), (to, long)) = (LENGTHS[behind - 1], LENGTHS[behind]);
        let part = (share - f64::from(from)) / f64::from(to - from);
        short + ((long - short) as f64 * part) as u64
    }

    /// Makes a file; returns its bytes.
    fn make(&mut self, files: &dyn FileSystem) -> u64 {
        let bytes = self.length();
        let path = PathBuf::from(format!("aged/{}", self.made));
        let file = files.create(&path).expect("an inode");
        write_whole(files, file, bytes, bytes, Access::Buffered).expect("room");
        files.close(file).expect("a file");
        self.files.push(path);
        self.made += 1;
        bytes
    }

    fn remove_any(&mut self, files: &dyn FileSystem) {
        let at = self.random.below(self.files.len() as u32) as usize;
        files.remove(&self.files.swap_remove(at)).expect("it is there");
    }

    /// Removes files until so many bytes are free.
    fn free(&mut self, files: &dyn FileSystem, bytes: u64) {
        while files.free_bytes().expect("mounted") < bytes {
            self.remove_any(files);
        }
        files.sync().expect("room");
    }
}

/// The file system of a store of so many records.
fn formatted(bytes: u64) -> Rc<dyn FileSystem> {
    let mut setup = presets::named(PRESET).expect("a preset");
    if let DriveKind::InPlace(drive) = &mut setup.drive {
        drive.bytes = (PARTITION * bytes).next_multiple_of(1 << 20);
    }
    let machine = bed::machine(&setup);
    let mut options = inplace::Options::of(&machine);
    // One for each 16 KiB, as mke2fs makes them.
    options.inodes = machine.blocks() / 4;
    Rc::new(InPlace::format(&machine, &options).expect("room"))
}

/// An aged file system with a store of so many records, and free space for the mover.
fn aged(records: u64, seed: u64) -> (Rc<dyn FileSystem>, Rc<RefCell<Store>>) {
    let bytes = records * Options::rocksdb(SCALE).record;
    let files = formatted(bytes);
    let random = Random::new(seed, "F-fig10");
    let mut ageing = Ageing { random, files: Vec::new(), made: 0 };
    let (mut written, free) = (0, bytes * FREE_TO_LOAD / 100);
    while written < AGED * PARTITION * bytes {
        ageing.free(&*files, free + bytes * CHURN / 100);
        while files.free_bytes().expect("mounted") > free {
            written += ageing.make(&*files);
        }
    }
    let store = Rc::new(RefCell::new(Store::new(DATABASE, Options::rocksdb(SCALE))));
    Fill::new(&store, records).finish(&*files).expect("room");
    ageing.free(&*files, bytes * FREE_TO_MOVE / 100);
    (files, store)
}

/// Reads a second of so many.
fn throughput(
    files: &dyn FileSystem,
    store: &Rc<RefCell<Store>>,
    records: u64,
    reads: u64,
    seed: (u64, u32),
) -> f64 {
    let machine = files.machine();
    machine.wait_until_idle();
    let began = machine.now_ns();
    Client::new(store, Workload::C, records, reads, seed).finish(files).expect("a read");
    reads as f64 / (machine.now_ns() - began) as f64 * 1e9
}

fn measure(policy: Policy, records: u64, seed: u64) -> Measured {
    let (files, store) = aged(records, seed);
    let bytes = records * Options::rocksdb(SCALE).record;
    let reads = bytes / Options::rocksdb(SCALE).block * READS_OF_A_BLOCK;
    let split = || {
        let (fragments, _) = bed::fragments(&*files, DATABASE);
        fragments as f64 / (bytes as f64 / Options::rocksdb(SCALE).block as f64)
    };
    let split_before = split();
    let watched = Watched::new(&files);
    let before = throughput(&watched, &store, records, reads, (seed, 0));
    let mut programs = Programs::default();
    let endless = Client::new(&store, Workload::C, records, u64::MAX, (seed, 1));
    programs.add(files.machine(), endless);
    let beside = Beside::start(Rc::clone(&files), programs);
    let settings = Settings { policy, hot_fraction: HOT, ..Settings::default() };
    let seen = watched.take();
    let hot_reads = hot_reads(&seen);
    let moved = bed::defragment_below(&files, DATABASE, seen, &settings);
    let tally = beside.tally().expect("reads");
    drop(beside);
    files.sync().expect("room");
    Measured {
        before,
        beside: tally.operations_per_second(),
        after: throughput(&*files, &store, records, reads, (seed, 2)),
        moved,
        split: [split_before, split()],
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
    let records = SCALE.of(RECORDS);
    let policies = [Policy::Fragpicker, Policy::WholeFile];
    let measured: Vec<Measured> =
        policies.par_iter().map(|policy| measure(*policy, records, seed)).collect();
    let [picked, whole] = &measured[..] else { unreachable!("two policies") };
    let name = |what: &str| format!("{PRESET}: {what}");
    let fragments = format!(
        "the paper does not state how fragmented its store is; here 128 KiB are in {:.1} fragments",
        picked.split[0]
    );
    let hottest = format!(
        "a read asks a table of each level, and those of small levels are read again and again: {:.0} % of the reads are of the hottest \
         half of the windows, so that little is left where nothing was moved",
        picked.hot_reads
    );
    let rates = format!(
        "the paper's e4defrag moves {:.0} MB/s, as it reads what is fragmented with calls of 4 KiB, and its FragPicker {:.0}; here both \
         are moved by one mover, at {:.0} and {:.0} MB/s",
        PAPER_MB / SECONDS[1],
        PAPER_MB * (1.0 + MOVED / 100.0) / SECONDS[0],
        rate(whole),
        rate(picked)
    );
    let row = |what: &str, paper: f64, ours: f64, points: f64, because: &str| {
        Row::new(name(what), "%", paper, ours, Band::Points(points)).because(because)
    };
    let moved = |measured: &Measured| measured.moved.bytes as f64;
    let time = picked.moved.ns as f64 / whole.moved.ns as f64 * 100.0;
    let after = above(picked.after, whole.after);
    let bytes = (records * Options::rocksdb(SCALE).record) as f64;
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
        Row::ours(name("reads of the hottest half"), "%", picked.hot_reads),
        Row::ours(name("moved by conventional, of the records"), "%", moved(whole) / bytes * 100.0),
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
