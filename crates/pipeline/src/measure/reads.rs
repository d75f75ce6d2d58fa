//! Which reads of the device are replayed, in which order, and how many of them in flight.
//!
//! Runs of consecutive reads are drawn at random. Where one thread read through the page cache, the order of its misses tells
//! what was in flight together (`parts`), and they are replayed so. Otherwise that is not recorded, only how many were. Where
//! no more were than a window that the kernel reads ahead beside the one that is waited for ([`in_flight_of_streams`]), the
//! windows of a stream follow each other, two in flight, and other reads are replayed alone, the first window of each stream
//! too. Otherwise what is in flight together is of any file.

use fastrand::Rng;
use fragmend_layout::{Access, ByteRange, Op};
use fragmend_plan::readahead::PageCache;
use fragmend_plan::{Basis, Device, SurveyedFile, in_flight_of_streams, one_thread};
use std::collections::{BTreeMap, HashMap};

/// The most that is replayed in a round.
pub(super) const MOST_READS: usize = 2048;
pub(super) const MOST_BYTES: u64 = 64 << 20;
/// The most files, each of which is open meanwhile.
const MOST_FILES: usize = 256;
/// Consecutive reads that are drawn together, at least, and for each that is in flight: between two such runs the
/// disk is idle, and at the end of each fewer are in flight.
const RUN: usize = 64;
const RUN_FOR_EACH_IN_FLIGHT: usize = 128;
/// And at most: what a round does not reach in time is left out by whole runs.
const LONGEST_RUN: usize = 1024;
/// For each that is in flight on a device that seeks, whose time is not what fragments cost beside others.
const SEEKING_RUN_FOR_EACH_IN_FLIGHT: usize = 16;
/// Windows of a stream that are in flight.
const OF_A_STREAM: u32 = 2;
/// Longer reads are cut.
pub(super) const LONGEST: u64 = 4 << 20;
/// The most reads of which a sample is drawn: some ten MiB.
pub(super) const MOST_DRAWN: usize = 1 << 20;
/// A folded access counts as so many at most.
const MOST_TIMES: u32 = 64;

/// A read of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// Index of the file.
    pub file: usize,
    /// What of it.
    pub range: ByteRange,
    /// Whether it missed the page cache; if not, it goes past it.
    pub missed: bool,
}

/// What is in flight while reads are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFlight {
    /// So many.
    Always(u32),
    /// What was while one thread read through the page cache: they are misses of one file, in their order.
    AsRead,
}

/// Reads of files of one device.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The device number of the file system.
    pub device: u64,
    /// Reads in flight at a time.
    pub in_flight: InFlight,
    pub reads: Vec<Read>,
}

impl Run {
    /// Reads that are in flight when each is issued, of all of them.
    pub fn in_flight_before(&self) -> u64 {
        match self.in_flight {
            InFlight::Always(depth) => {
                let most = u64::from(depth - 1);
                (0..self.reads.len() as u64).map(|before| before.min(most)).sum()
            }
            InFlight::AsRead => self.places().iter().filter(|place| **place > 1).count() as u64,
        }
    }

    /// Of each read, how many before it follow each other and are continued by it.
    pub fn places(&self) -> Vec<u32> {
        let place = |pair: &[Read]| pair[0].range.end == pair[1].range.start;
        let mut places = vec![0; self.reads.len()];
        for (n, pair) in self.reads.windows(2).enumerate() {
            places[n + 1] = if place(pair) { places[n] + 1 } else { 0 };
        }
        places
    }

    /// Reads in flight at a time, on average.
    pub fn depth(&self) -> f64 {
        match self.in_flight {
            InFlight::Always(depth) => f64::from(depth),
            InFlight::AsRead => {
                1.0 + self.in_flight_before() as f64 / (self.reads.len() as f64).max(1.0)
            }
        }
    }
}

/// What is drawn from.
pub(super) struct Source<'a> {
    pub files: &'a [SurveyedFile],
    pub devices: &'a [Device],
    pub basis: Basis,
    /// Whether accesses are in the order in which they were done.
    pub ordered: bool,
    /// Reads that were in flight, and how many may be at most.
    pub depth: f64,
    pub most_in_flight: u32,
}

/// Runs of reads within the limits of a round, and how many reads were recorded.
pub(super) fn draw(source: &Source, rng: &mut Rng) -> (Vec<Run>, u64) {
    let mut recorded = 0;
    let mut lists: BTreeMap<u64, Vec<Vec<Read>>> = BTreeMap::new();
    for (index, file) in source.files.iter().enumerate() {
        // Of what is compressed, reads past the cache may come from it after all.
        if file.layout.extents().iter().any(|e| e.kind.is_encoded()) {
            continue;
        }
        let most = MOST_DRAWN / source.files.len().max(1);
        let mut reads = fetched(index, file, source.basis, most);
        if !source.ordered {
            // What was read twice would be read twice in a row, and the rest by its place.
            rng.shuffle(&mut reads);
        }
        recorded += reads.len() as u64;
        lists.entry(file.layout.file.device).or_default().push(reads);
    }
    let one_thread = one_thread(source.files, source.basis, source.ordered);
    let mut runs: Vec<Run> = Vec::new();
    for (device, lists) in lists {
        let seeks = |d: &Device| d.device == device && !d.profile.cost.seeks().is_empty();
        let in_flight = (source.depth.round() as u32).clamp(1, source.most_in_flight.max(1));
        let as_read = |in_flight, reads: &[Read]| Run { device, in_flight, reads: reads.to_vec() };
        let run = |in_flight, reads: &[Read]| as_read(InFlight::Always(in_flight), reads);
        let seeks = source.devices.iter().any(seeks);
        let one_thread = one_thread.contains(&device) && !seeks;
        let streams = if in_flight > 1 && !seeks { streams(&lists, source.depth) } else { None };
        if one_thread && in_flight_of_streams(source.depth, 1.0, true).is_some() {
            let of_file = |reads: &Vec<Read>| -> Vec<Run> {
                reads.chunks(RUN).map(|reads| as_read(InFlight::AsRead, reads)).collect()
            };
            runs.extend(lists.iter().flat_map(of_file));
        } else if let Some((streams, others)) = streams {
            let of_stream = |stream: &Vec<Read>| -> Vec<Run> {
                stream.chunks(RUN).map(|reads| run(OF_A_STREAM, reads)).collect()
            };
            runs.extend(streams.iter().flat_map(of_stream));
            runs.extend(others.chunks(RUN).map(|reads| run(1, reads)));
        } else if in_flight > 1 {
            // What is in flight at a time is of any file; what follows is of the same one.
            let each = if seeks { SEEKING_RUN_FOR_EACH_IN_FLIGHT } else { RUN_FOR_EACH_IN_FLIGHT };
            let length = (each * in_flight as usize).clamp(RUN, LONGEST_RUN);
            runs.extend(mixed(lists, rng).chunks(length).map(|reads| run(in_flight, reads)));
        } else {
            runs.extend(lists.concat().chunks(RUN).map(|reads| run(1, reads)));
        }
    }
    rng.shuffle(&mut runs);
    limit(&mut runs);
    (runs, recorded)
}

/// The streams among the reads of files, without their first windows, and the other reads; if streams are all that was in
/// flight beside each other.
fn streams(lists: &[Vec<Read>], depth: f64) -> Option<(Vec<Vec<Read>>, Vec<Read>)> {
    let (mut streams, mut others) = (Vec::new(), Vec::new());
    for reads in lists {
        let (mut missed, direct): (Vec<Read>, Vec<Read>) = reads.iter().partition(|r| r.missed);
        missed.sort_by_key(|read| read.range);
        let mut of_file: Vec<Vec<Read>> = Vec::new();
        // The stream that ends there.
        let mut ends: HashMap<u64, usize> = HashMap::new();
        for read in missed {
            let stream = ends.remove(&read.range.start).unwrap_or(of_file.len());
            ends.insert(read.range.end, stream);
            match of_file.get_mut(stream) {
                Some(stream) => stream.push(read),
                None => of_file.push(vec![read]),
            }
        }
        others.extend(direct);
        for mut stream in of_file {
            others.push(stream.remove(0));
            streams.push(stream);
        }
    }
    streams.retain(|stream| !stream.is_empty());
    // The first of each may be issued when what it continues has been read.
    let streamed = streams.iter().map(|stream| stream.len() - 1).sum::<usize>() as f64;
    let all = streams.iter().map(Vec::len).sum::<usize>() + others.len();
    let share = streamed / (all as f64).max(1.0);
    in_flight_of_streams(depth, share, false).map(|_| (streams, others))
}

/// The reads of files, those of each in their order, and of which file the next one is at random: when each was done is not
/// known.
fn mixed(lists: Vec<Vec<Read>>, rng: &mut Rng) -> Vec<Read> {
    let mut turns: Vec<usize> = Vec::new();
    for (n, reads) in lists.iter().enumerate() {
        turns.extend(std::iter::repeat_n(n, reads.len()));
    }
    rng.shuffle(&mut turns);
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    turns.into_iter().filter_map(|n| lists[n].next()).collect()
}

/// Leaves out what is beyond the limits of a round.
pub(super) fn limit(runs: &mut Vec<Run>) {
    let (mut reads, mut bytes) = (0, 0);
    let mut files: Vec<usize> = Vec::new();
    runs.retain_mut(|run| {
        run.reads.retain(|Read { file, range, .. }| {
            let known = files.contains(file);
            let fits = reads < MOST_READS
                && bytes + range.len() <= MOST_BYTES
                && (known || files.len() < MOST_FILES);
            if fits {
                (reads, bytes) = (reads + 1, bytes + range.len());
                files.extend((!known).then_some(*file));
            }
            fits
        });
        !run.reads.is_empty()
    });
}

/// The reads of the device by a file's accesses, in whole blocks, none longer than [`LONGEST`]. A trace may say anything: where
/// there would be more than `most`, each access counts once and with its first bytes, or only some of them.
pub(super) fn fetched(index: usize, file: &SurveyedFile, basis: Basis, most: usize) -> Vec<Read> {
    let most = most.max(MOST_READS);
    let size = file.layout.size / file.block_bytes * file.block_bytes;
    let mut cache = PageCache::new(file.layout.size, file.window);
    let mut out = Vec::new();
    let parts =
        |a: &Access| (u64::from(a.length) / LONGEST + 2) * u64::from(a.count.min(MOST_TIMES));
    let many = file.accesses.iter().map(parts).fold(0, u64::saturating_add) > most as u64;
    let mut take = |range: ByteRange, times: u32, missed: bool| {
        let whole = range.align_outward(file.block_bytes);
        let whole = whole.intersect(ByteRange { start: 0, end: size });
        let (times, steps) = if many { (1, 1) } else { (times, usize::MAX) };
        for _ in 0..times {
            let parts = whole.steps(LONGEST).filter(|part| !part.is_empty()).take(steps);
            let reads = parts.map(|range| Read { file: index, range, missed });
            out.extend(reads.take(most.saturating_sub(out.len())));
        }
    };
    let every = if many { file.accesses.len() / most + 1 } else { 1 };
    for (index, access) in file.accesses.iter().enumerate().step_by(every) {
        // Where a part of all places was recorded, as often as that.
        let times = file.recorded.get(index).map_or(access.count, |recorded| recorded.times);
        let times = times.min(MOST_TIMES);
        let range = access.range();
        match (access.op, basis) {
            (Op::Read, _) if access.direct => take(range, times, access.op == Op::Miss),
            (Op::Miss, Basis::MissesRecorded) => take(range, times, access.op == Op::Miss),
            (Op::Read | Op::Fault, Basis::ImitatedCache | Basis::AssumedCold) => {
                cache.read(access.thread, range, |fetch| take(fetch, 1, true));
            }
            _ => {}
        }
    }
    out
}
