//! How fast each range of a file reads, beside what the drive can do. A range that is in one extent, and yet slow, is
//! fragmented where no extent map shows it: its data is on few dies, because it was overwritten, or written between
//! other data (FAST'24, sections 3.2 and 5.1).

use super::meter::{Limits, Meter};
use super::reader::{Failed, Read, Reader};
use fastrand::Rng;
use fragmend_layout::{CostModel, Split};
use fragmend_sys::fiemap::{Fiemap, Mapped, flags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// What is timed at once, in bytes: the longest request of most devices, and what FAST'24 read files with.
pub const PART: u64 = 1 << 20;
/// How often each part is timed, and how often again if it seems slow: other programs slow single reads down.
const ROUNDS: u32 = 5;
const AGAIN: u32 = 6;
/// So many parts are timed; of a larger file, evenly distributed ones.
const MOST_PARTS: u64 = 4096;
/// A part is slow if it lasts this many times as long as the drive needs for it. The model is a few per cent off, and
/// the dies of a drive are never perfectly even.
pub const SLOW: f64 = 1.3;

/// A part of a file, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Where it is in the file.
    pub range: Range<u64>,
    /// In how many extents it is that do not continue each other on the device.
    pub fragments: u64,
    /// Where it begins on the device, in bytes, as the file system reports it.
    pub physical: u64,
    /// How long a read of it lasts, in nanoseconds: the lower quartile.
    pub ns: f64,
    /// How long the drive needs for as many requests of as many bytes.
    pub expected_ns: f64,
}

impl Part {
    /// How many times longer it lasts.
    pub fn ratio(&self) -> f64 {
        self.ns / self.expected_ns
    }

    /// Whether it lasts longer than its fragments explain.
    pub fn is_slow(&self) -> bool {
        self.ratio() > SLOW
    }

    /// Whether it is slow although the extent map has it in one extent.
    pub fn is_slow_inside(&self) -> bool {
        self.fragments == 1 && self.is_slow()
    }
}

/// The parts of a file, and what was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Those that were timed, in order.
    pub parts: Vec<Part>,
    /// Bytes that are data on the device as they are in the file.
    pub data_bytes: u64,
    /// Whether every part was timed as often as it was to be.
    pub complete: bool,
}

/// A part that is to be timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// Where it is in the file.
    pub range: Range<u64>,
    /// In how many extents it is that do not continue each other on the device.
    pub fragments: u64,
    /// Where it begins on the device, in bytes, as the file system reports it.
    pub physical: u64,
}

/// Whether an extent is on the device as it is in the file.
fn is_plain(extent: &Mapped) -> bool {
    let not = flags::UNKNOWN
        | flags::DELALLOC
        | flags::ENCODED
        | flags::DATA_ENCRYPTED
        | flags::DATA_INLINE
        | flags::DATA_TAIL
        | flags::NOT_ALIGNED
        | flags::UNWRITTEN;
    extent.flags & not == 0
}

/// The parts of a file that are wholly data, and the bytes of such data.
///
/// # Errors
/// Where the file system has no FIEMAP.
pub fn map(file: &File) -> io::Result<(Vec<Mapping>, u64)> {
    let end = file.metadata()?.len();
    let mut runs: Vec<Mapped> = Vec::new();
    Fiemap::default().for_each(file, 0..end, true, |extent| {
        if !is_plain(&extent) {
            return;
        }
        match runs.last_mut() {
            Some(last)
                if last.logical + last.length == extent.logical
                    && last.physical + last.length == extent.physical =>
            {
                last.length += extent.length;
            }
            _ => runs.push(extent),
        }
    })?;
    let data_bytes = runs.iter().map(|run| run.length.min(end.saturating_sub(run.logical))).sum();
    Ok((parts(&runs, end), data_bytes))
}

/// The whole parts of a file of `end` bytes that runs of data cover, none of which continues the one before it on the device.
pub fn parts(runs: &[Mapped], end: u64) -> Vec<Mapping> {
    let mut parts = Vec::new();
    let mut first = 0;
    for start in (0..end / PART).map(|n| n * PART) {
        let range = start..start + PART;
        while runs.get(first).is_some_and(|run| run.logical + run.length <= range.start) {
            first += 1;
        }
        let (mut covered, mut fragments, mut physical) = (0, 0, 0);
        for run in runs[first..].iter().take_while(|run| run.logical < range.end) {
            let run_end = (run.logical + run.length).min(range.end);
            let run_start = run.logical.max(range.start);
            if fragments == 0 {
                physical = run.physical + (run_start - run.logical);
            }
            covered += run_end - run_start;
            fragments += 1;
        }
        if covered == PART {
            parts.push(Mapping { range, fragments, physical });
        }
    }
    let step = (parts.len() as u64).div_ceil(MOST_PARTS).max(1) as usize;
    parts.into_iter().step_by(step).collect()
}

/// The most that [`measure`] reads.
pub fn most(reader: &dyn Reader, mappings: &[Mapping], time: Duration) -> Limits {
    let each = PART.div_ceil(reader.max_request_bytes().into());
    let reads = mappings.len() as u64 * u64::from(ROUNDS + AGAIN);
    Limits { bytes: reads * PART, requests: reads * each, time }
}

/// Times the parts, in another order each time.
///
/// # Errors
/// When a read fails.
pub fn measure(
    meter: &mut Meter<'_>,
    seed: u64,
    (mappings, data_bytes): (Vec<Mapping>, u64),
    costs: &CostModel,
) -> Result<Parts, Failed> {
    let mut rng = Rng::with_seed(seed);
    let longest = u64::from(meter.reader().max_request_bytes());
    let mut times = vec![Vec::new(); mappings.len()];
    let mut order: Vec<usize> = (0..mappings.len()).collect();
    let mut complete = true;
    let expected = |mapping: &Mapping| {
        // At least one request for each fragment, and none is longer than the device permits.
        let requests = mapping.fragments.max(PART.div_ceil(longest));
        costs.read_ns(Split { requests, ..Split::whole(PART) }, 1.0)
    };
    'rounds: for round in 0..ROUNDS + AGAIN {
        if round >= ROUNDS {
            order.retain(|n| lower_quartile(&times[*n]) > SLOW * expected(&mappings[*n]));
        }
        rng.shuffle(&mut order);
        for n in &order {
            let range = &mappings[*n].range;
            let starts = (range.start..range.end).step_by(longest as usize);
            let reads = starts.map(|at| {
                let bytes = longest.min(range.end - at) as u32;
                Read { at, bytes }
            });
            match meter.burst(&reads.collect::<Vec<_>>()) {
                Ok(ns) => times[*n].push(ns as f64),
                Err(Failed::Spent) => {
                    complete = false;
                    break 'rounds;
                }
                Err(why) => return Err(why),
            }
        }
    }
    let part = |(mapping, times): (Mapping, Vec<f64>)| {
        let expected_ns = expected(&mapping);
        let Mapping { range, fragments, physical } = mapping;
        let ns = lower_quartile(&times);
        let part = Part { range, fragments, physical, ns, expected_ns };
        (!times.is_empty()).then_some(part)
    };
    let parts = mappings.into_iter().zip(times).filter_map(part).collect();
    Ok(Parts { parts, data_bytes, complete })
}

/// The lower quartile of some times; 0 if there are none.
fn lower_quartile(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_that_are_wholly_data_are_timed() {
        let run = |logical: u64, physical: u64, length: u64| Mapped {
            logical: logical << 20,
            physical: physical << 20,
            length: length << 20,
            flags: 0,
        };
        let half = |logical: u64, physical: u64| Mapped {
            logical: logical << 19,
            physical: physical << 19,
            length: 1 << 19,
            flags: 0,
        };
        // Two parts in one run, one in two halves, one with a hole, and one behind that.
        let runs = [run(0, 100, 2), half(4, 900), half(5, 700), half(6, 300), run(4, 500, 1)];
        let found = parts(&runs, 5 << 20);
        let expected: Vec<(u64, u64)> =
            found.iter().map(|m| (m.range.start >> 20, m.fragments)).collect();
        assert_eq!(expected, [(0, 1), (1, 1), (2, 2), (4, 1)]);
        let places: Vec<u64> = found.iter().map(|m| m.physical >> 19).collect();
        assert_eq!(places, [200, 202, 900, 1000]);
        // What is behind the last whole part is left out.
        assert_eq!(parts(&runs, (5 << 20) - 1).len(), 3);
        let long = [run(0, 0, 10_000)];
        assert_eq!(parts(&long, 10_000 << 20).len(), 3334);
    }
}
