//! Loads, simulated recordings of a part of all places at a time by the rule of `crates/trace/bpf/sampling.h`, and what plans from
//! them promise and save.

use super::{MIB, Random, device, read as direct};
use fragmend_layout::{CostModel, Extent, ExtentKind, FileAccesses, FileId, Layout, Op};
use fragmend_plan::{Plan, Settings, Survey, SurveyedFile, make};
use fragmend_trace::{Event, Existing, Filter, Level, Meta, Sampling, TraceWriter, read};
use std::collections::BTreeMap;
use std::path::Path;

/// How long a part of all places is recorded at a time, as a power of two of nanoseconds.
pub const TURN_SHIFT: u32 = 21;

/// A direct read.
#[derive(Clone, Copy)]
pub struct Read {
    pub time_ns: u64,
    pub inode: u64,
    pub offset: u64,
    pub length: u64,
}

/// What is read, and how files are fragmented: by the inode, its size, and the lengths of its fragments, again and again.
pub struct Load {
    pub reads: Vec<Read>,
    pub size: fn(u64) -> u64,
    pub fragments: &'static [u64],
    pub cost: CostModel,
}

/// Nanoseconds to the rate at that time: 1 in 2 to the power of this.
pub type Rate = fn(u64) -> u32;

/// The lowest rate.
pub const LOWEST: Rate = |_| 6;

/// Recordings of each load.
pub const SEEDS: u64 = 8;

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) >> 40
}

/// How many a recording has this access stand for: none if it does not record it.
fn weight(read: &Read, shift: u32, seed: u64) -> u32 {
    let (mask, turn) = ((1 << shift) - 1, read.time_ns >> TURN_SHIFT);
    let place = (read.inode + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = place.wrapping_add(read.offset / MIB);
    let place = mix(place.wrapping_add((turn & !mask).wrapping_mul(0xd134_2543_de82_ef95)));
    if (place ^ turn) & mask == 0 { 1 << shift } else { 0 }
}

fn id(inode: u64) -> FileId {
    FileId { device: 7, inode, generation: 1 }
}

fn event(read: &Read, count: u32) -> Event {
    Event {
        time_ns: read.time_ns,
        file: id(read.inode),
        offset: read.offset,
        length: read.length as u32,
        bytes: read.length * u64::from(count),
        count,
        pid: 1,
        thread: 1,
        uid: 0,
        comm: [0; 16],
        op: Op::Read,
        direct: true,
        windowed: false,
    }
}

/// The trace of a recording of these reads, with the turns of each.
pub fn recorded(reads: &[Read], rate: Rate, seed: u64, at: &Path) -> Vec<FileAccesses> {
    let mut writer = TraceWriter::create(at, Existing::ReplaceTrace, Box::new(|_| None)).unwrap();
    let event = |read: &Read| {
        let count = weight(read, rate(read.time_ns), seed);
        (count > 0).then(|| event(read, count))
    };
    writer.append(&reads.iter().filter_map(event).collect::<Vec<_>>()).unwrap();
    let mut meta = Meta::new(Level::Both, 0);
    meta.sampling = Some(Sampling {
        region_bytes: MIB,
        watched_ns: 0,
        places_ppm: 100_000,
        turn_ns: 1 << TURN_SHIFT,
        most: 64,
    });
    writer.finish(&meta).unwrap();
    read(at, &Filter { fold_if_misses: true, turns: true, ..Filter::default() }).unwrap().files
}

/// The layout of a file once these ranges are contiguous.
fn layout(load: &Load, inode: u64, moved: &BTreeMap<u64, u64>) -> Layout {
    let size = (load.size)(inode);
    let mut layout = Layout::new(id(inode), size);
    let (mut at, mut n, mut left) = (0, 0u64, load.fragments[0]);
    while at < size {
        let next = moved.range(at + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        let (length, physical) = match moved.get(&at) {
            Some(length) => (*length, (1 << 40) / 3 + (inode << 30) % (1 << 40) / 1024 + 2 * at),
            None => (left.min(next - at).min(size - at), (inode << 30) + 2 * at + n * 4096),
        };
        layout.push(Extent { logical: at, physical, length, kind: ExtentKind::Data });
        at += length;
        let mut gone = length;
        while gone >= left {
            gone -= left;
            n += 1;
            left = load.fragments[n as usize % load.fragments.len()];
        }
        left -= gone;
    }
    layout
}

/// The files of a load once these ranges are contiguous (by inode and start, each with its length), with these accesses.
pub fn surveyed(
    load: &Load,
    files: Vec<FileAccesses>,
    moved: &BTreeMap<u64, BTreeMap<u64, u64>>,
) -> Survey {
    let device = device(load.cost.clone());
    let none = BTreeMap::new();
    let file = |f: FileAccesses| {
        let inode = f.file.inode;
        let layout = layout(load, inode, moved.get(&inode).unwrap_or(&none));
        let file = SurveyedFile::new(format!("/mnt/{inode}").into(), layout, f.accesses, &device);
        SurveyedFile { recorded: f.recorded, ..file }
    };
    let files = files.into_iter().map(file).collect();
    Survey { files, devices: vec![device.clone()], misses: true, ..Survey::default() }
}

/// The reads of everything, file by file, equal ones once.
pub fn whole(reads: &[Read]) -> Vec<FileAccesses> {
    let mut files: BTreeMap<u64, BTreeMap<(u64, u64), u32>> = BTreeMap::new();
    for read in reads {
        let file = files.entry(read.inode).or_default();
        *file.entry((read.offset, read.length)).or_default() += 1;
    }
    let file = |(inode, counts): (u64, BTreeMap<_, _>)| {
        let accesses = counts.iter().map(|((offset, length), n)| direct(*offset, *length, *n));
        FileAccesses { accesses: accesses.collect(), ..FileAccesses::of(id(inode)) }
    };
    files.into_iter().map(file).collect()
}

/// The seconds that these moves save in one replay of everything.
pub fn saves(load: &Load, plan: &Plan, everything: &[FileAccesses]) -> f64 {
    let ranges = |f: &fragmend_plan::PlannedFile| {
        (f.file.inode, f.ranges.iter().map(|r| (r.offset, r.length)).collect())
    };
    let moved: BTreeMap<u64, BTreeMap<u64, u64>> = plan.files.iter().map(ranges).collect();
    let files = || everything.iter().filter(|f| moved.contains_key(&f.file.inode)).cloned();
    let lasts = |moved| make(surveyed(load, files().collect(), moved), &Settings::default());
    let [before, after] = [&BTreeMap::new(), &moved].map(|m| lasts(m).summary.seconds_before);
    before - after
}

/// Seconds, means over recordings: what plans promise, what their moves save, and what these cost by their price.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    pub promised: f64,
    pub kept: f64,
    pub cost: f64,
}

/// Plans from recordings of a load.
pub fn compare(name: &str, load: &Load, rate: Rate, settings: &Settings) -> Found {
    let dir = tempfile::tempdir().unwrap();
    let everything = whole(&load.reads);
    let mut found = Found::default();
    for seed in 0..SEEDS {
        let files = recorded(&load.reads, rate, seed, &dir.path().join("trace"));
        let plan = make(surveyed(load, files, &BTreeMap::new()), settings);
        let summary = &plan.summary;
        let gib = summary.bytes_to_move as f64 / f64::from(1 << 30);
        found.promised += summary.seconds_saved / SEEDS as f64;
        found.kept += saves(load, &plan, &everything) / SEEDS as f64;
        found.cost += summary.min_gain_s_per_gib * gib / SEEDS as f64;
    }
    let Found { promised, kept, cost } = found;
    println!("{name}: promised {promised:.2} s, saves {kept:.2} s, for {cost:.2} s");
    found
}

/// Reads of all of these (inode, offset, length) in an order that says nothing, so far apart.
pub fn shuffled(mut what: Vec<(u64, u64, u64)>, spacing_ns: u64) -> Vec<Read> {
    let mut random = Random(0xb5ad_4ece_da1c_e2a9);
    for n in (1..what.len()).rev() {
        what.swap(n, random.below(n as u64 + 1) as usize);
    }
    let read = |(n, (inode, offset, length)): (usize, (u64, u64, u64))| Read {
        time_ns: n as u64 * spacing_ns,
        inode,
        offset,
        length,
    };
    what.into_iter().enumerate().map(read).collect()
}

/// A price of so many reads, each of which saves `saved_s` by `bytes`.
pub fn priced(reads: f64, saved_s: f64, bytes: u64) -> Settings {
    let price = reads * saved_s * f64::from(1 << 30) / bytes as f64;
    Settings { min_gain_s_per_gib: Some(price), ..Settings::default() }
}
