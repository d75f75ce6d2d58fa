//! What requests cost: bursts and intervals by length and number in flight, at random places, as FAST'24's figure 7
//! has them, but that reads begin at any block, not at a multiple of their length: so do those of files, which a drive
//! stores in the order in which they are written. A read that begins within a flash page touches one more.
//!
//! What a *split* costs is measured apart: a burst of neighbours, which are one contiguous part of the device. What one read
//! fetches was usually written at one time, and so is spread over the dies as this is, wherever the file system has put it.
//! As it begins at any block, its requests end within flash pages, as fragments do: two that share one have it sensed twice.
//!
//! On a device that seeks, requests follow each other at the distance of one unit, so that no seek is part of
//! their cost: [`super::seeks`] measures that apart, and a model adds both. The gap keeps the kernel from merging them.

use super::area::Areas;
use super::compare::usual_mean;
use super::meter::{Limits, Meter};
use super::reader::{Failed, Read, Reader};
use fastrand::Rng;
use fragmend_layout::RequestCost;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Numbers of requests in flight that are measured.
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The longest request that is measured.
const LONGEST: u32 = 1 << 20;

/// What is measured of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Lengths of requests in bytes, ascending.
    pub lengths: Vec<u32>,
    /// Numbers of requests in flight, ascending.
    pub depths: Vec<u32>,
}

impl Grid {
    /// Powers of two from the smallest to the longest request, and to the most in flight.
    pub fn of(reader: &dyn Reader) -> Self {
        let longest = reader.max_request_bytes().min(LONGEST).max(reader.unit_bytes());
        let powers = std::iter::successors(Some(reader.unit_bytes()), |bytes| bytes.checked_mul(2));
        let mut lengths: Vec<u32> = powers.take_while(|bytes| *bytes <= longest).collect();
        let whole = longest / reader.unit_bytes() * reader.unit_bytes();
        if lengths.last() != Some(&whole) {
            lengths.push(whole);
        }
        let most = reader.max_depth();
        Self { lengths, depths: DEPTHS.into_iter().filter(|depth| *depth <= most).collect() }
    }

    /// The same without lengths that fit into none of the areas.
    pub fn within(mut self, areas: &Areas) -> Self {
        self.lengths.retain(|length| areas.filled.iter().any(|area| fits(area, (*length).into())));
        self
    }

    /// The most that measuring it reads.
    pub fn most(&self) -> Limits {
        let (mut bytes, mut requests) = (0, 0);
        for (length, depth) in self.cells() {
            let runs = (0..rounds(length)).filter(|round| has_run(length, *round)).count() as u64;
            let bursts = u64::from(depth * bursts(length, depth) * rounds(length));
            let of_run = run(length, depth) + stream(length, depth);
            let all = bursts + u64::from(of_run) * runs + u64::from(depth);
            let splits = if is_split(length, depth) { bursts } else { 0 };
            requests += all + splits;
            bytes += (all + splits) * u64::from(length);
        }
        Limits { bytes, requests, time: Duration::MAX }
    }

    /// By number in flight, so that what there is no time for is missing as a whole column.
    fn cells(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let row = |depth: u32| self.lengths.iter().map(move |length| (*length, depth));
        self.depths.iter().flat_map(move |depth| row(*depth))
    }
}

/// Whether an area, which begins at a block, has a place for a read of this length.
fn fits(area: &Range<u64>, length: u64) -> bool {
    area.start + length <= area.end
}

/// How often each figure is measured at most.
fn rounds(length: u32) -> u32 {
    match length >> 10 {
        0..=32 => 20,
        33..=128 => 12,
        _ => 4,
    }
}

/// Bursts of a round. Few requests either meet on a die or do not; the mean of many varies less.
fn bursts(length: u32, depth: u32) -> u32 {
    match length >> 10 {
        0..=128 => (32 / depth).clamp(2, 8),
        _ => (16 / depth).clamp(1, 4),
    }
}

/// The most bytes of a burst of neighbours: a read of many fragments, and no more than what is surely full of data.
const WIDEST: u64 = 4 << 20;

/// How often cuts are drawn of which no piece is longer than a request may be, before they are even.
const TRIES: u32 = 16;

/// Whether a burst of so many neighbours is measured.
fn is_split(length: u32, depth: u32) -> bool {
    depth > 1 && u64::from(length) * u64::from(depth) <= WIDEST
}

/// Requests of a run of which each continues the one before, two in flight as a file's windows are; 0 where there is none.
fn stream(length: u32, depth: u32) -> u32 {
    let most =
        u32::try_from(WIDEST / u64::from(length)).unwrap_or(u32::MAX).min(run(length, depth));
    if depth == 2 && most > depth { most } else { 0 }
}

/// Fewer rounds than this are not enough.
const FEW: usize = 2;
/// A figure that was measured this often, and whose standard error is a smaller share of it than [`PRECISE`], is not
/// measured any more.
const ENOUGH: usize = 3;
const PRECISE: f64 = 0.008;

/// Whether there is a run in a round: it has many more requests than bursts have, and varies less.
fn has_run(length: u32, round: u32) -> bool {
    round.is_multiple_of(rounds(length) / 4)
}

/// Requests of the run of a round. It ends about as a burst does: the time of one is taken off for that, so the run is
/// long beside it.
fn run(length: u32, depth: u32) -> u32 {
    match length >> 10 {
        0..=32 => (16 * depth).max(96),
        33..=128 => (5 * depth).max(40),
        _ => (2 * depth).max(12),
    }
}

/// The costs, and whether all of the grid was measured in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A figure for every length and number in flight that was measured.
    pub reads: Vec<RequestCost>,
    /// Whether this is all that was to be measured, and often enough.
    pub complete: bool,
}

/// Times of a cell of the grid.
#[derive(Default)]
struct Cell {
    rounds: usize,
    bursts: Vec<f64>,
    runs: Vec<f64>,
    /// Bursts of neighbours.
    splits: Vec<f64>,
    /// Runs of requests that continue each other.
    streams: Vec<f64>,
}

/// Measures the grid. What there is no time for is left out: numbers in flight, from the largest on.
///
/// # Errors
/// When a read fails, or there is no time for single requests.
pub fn measure(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    areas: &Areas,
    grid: &Grid,
    seeks: bool,
) -> Result<Costs, Failed> {
    let unit = grid.lengths[0].into();
    let longest = grid.lengths[grid.lengths.len() - 1].into();
    let mut places = Places { areas, rng, unit, longest, next: seeks.then_some(0) };
    let mut cells: BTreeMap<(u32, u32), Cell> = BTreeMap::new();
    let most = grid.lengths.iter().map(|length| rounds(*length)).max().unwrap_or(0);
    let mut end = None;
    'rounds: for round in 0..most {
        for (length, depth) in grid.cells().filter(|(length, _)| round < rounds(*length)) {
            let cell = cells.entry((length, depth)).or_default();
            if cell.is_precise() {
                continue;
            }
            if let Err(why) = measure_cell(meter, &mut places, cell, (length, depth), round) {
                end = Some(why);
                break 'rounds;
            }
        }
    }
    match end {
        None | Some(Failed::Spent) => {}
        Some(why) => return Err(why),
    }
    let mut reads = Vec::new();
    for depth in &grid.depths {
        let row = grid.lengths.iter().map(|length| {
            let cell = cells.get(&(*length, *depth)).filter(|cell| !cell.runs.is_empty())?;
            Some(cell.cost(*length, *depth))
        });
        let Some(row) = row.collect::<Option<Vec<_>>>() else { break };
        reads.extend(row);
    }
    let complete = reads.len() == grid.lengths.len() * grid.depths.len()
        && cells.values().all(|cell| cell.rounds >= FEW);
    if reads.is_empty() { Err(Failed::Spent) } else { Ok(Costs { reads, complete }) }
}

/// Measures bursts and a run of one length and depth.
fn measure_cell(
    meter: &mut Meter<'_>,
    places: &mut Places<'_>,
    cell: &mut Cell,
    (length, depth): (u32, u32),
    round: u32,
) -> Result<(), Failed> {
    if round == 0 {
        // To warm up: it is not counted.
        meter.burst(&places.draw(length, depth))?;
    }
    for _ in 0..bursts(length, depth) {
        cell.bursts.push(meter.burst(&places.draw(length, depth))? as f64);
    }
    if is_split(length, depth) {
        for _ in 0..bursts(length, depth) {
            let Some(neighbours) = places.neighbours(length, depth) else { break };
            cell.splits.push(meter.burst(&neighbours)? as f64);
        }
    }
    if has_run(length, round) {
        let run = meter.elapsed(&places.draw(length, run(length, depth)), depth)?;
        cell.runs.push(run as f64);
        if let Some(stream) = places.stream(length, stream(length, depth)) {
            cell.streams.push(meter.elapsed(&stream, depth)? as f64);
        }
    }
    cell.rounds += 1;
    Ok(())
}

impl Cell {
    /// Whether more measurements would change little.
    fn is_precise(&self) -> bool {
        let precise = |times: &[f64]| {
            let n = times.len() as f64;
            let mean = times.iter().sum::<f64>() / n;
            let squares: f64 = times.iter().map(|ns| (ns - mean).powi(2)).sum();
            (squares / (n * (n - 1.0))).sqrt() < mean * PRECISE
        };
        let splits = self.splits.is_empty() || precise(&self.splits);
        self.runs.len() >= ENOUGH && precise(&self.bursts) && precise(&self.runs) && splits
    }

    fn cost(&self, length: u32, depth: u32) -> RequestCost {
        let (burst, elapsed) = (usual_mean(&self.bursts), usual_mean(&self.runs));
        let requests = f64::from(run(length, depth));
        let whole = elapsed / requests;
        let interval = if depth == 1 {
            // The same thing, measured more often.
            burst.min(whole)
        } else {
            (elapsed - burst) / (requests - f64::from(depth))
        };
        let split = (!self.splits.is_empty()).then(|| usual_mean(&self.splits));
        // It ends as two neighbours do.
        let streamed = f64::from(stream(length, depth));
        let stream = split.filter(|_| !self.streams.is_empty()).map(|split| {
            let elapsed = usual_mean(&self.streams);
            let interval = (elapsed - split) / (streamed - f64::from(depth));
            interval.clamp(elapsed / streamed / 4.0, elapsed / streamed)
        });
        RequestCost {
            request_bytes: length.into(),
            in_flight: depth,
            burst_ns: burst.round().max(1.0) as u64,
            interval_ns: interval.clamp(whole / 4.0, whole).round().max(1.0) as u64,
            split_ns: split.map(|ns| ns.round().max(1.0) as u64),
            stream_ns: stream.map(|ns| ns.round().max(1.0) as u64),
        }
    }
}

/// Draws places.
struct Places<'a> {
    areas: &'a Areas,
    rng: &'a mut Rng,
    /// Bytes of a block.
    unit: u64,
    /// The longest request in bytes.
    longest: u64,
    /// On a device that seeks, where the next request begins; elsewhere they are at random places.
    next: Option<u64>,
}

impl Places<'_> {
    fn draw(&mut self, length: u32, count: u32) -> Vec<Read> {
        (0..count).map(|_| Read { at: self.place(length.into()), bytes: length }).collect()
    }

    /// Neighbours at a random place, from the first to the last; none where there is no space for them, or on a device that
    /// seeks, whose requests follow each other anyway.
    fn neighbours(&mut self, length: u32, count: u32) -> Option<Vec<Read>> {
        let whole = u64::from(length) * u64::from(count);
        if self.next.is_some() || !self.areas.filled.iter().any(|area| fits(area, whole)) {
            return None;
        }
        let start = self.place(whole);
        let units = whole / self.unit;
        let cut = |_| {
            let mut cuts = self.rng.choose_multiple(1..units, count as usize - 1);
            cuts.extend([0, units]);
            cuts.sort_unstable();
            cuts
        };
        let fits =
            |cuts: &Vec<u64>| cuts.windows(2).all(|c| (c[1] - c[0]) * self.unit <= self.longest);
        let even = || (0..=u64::from(count)).map(|n| n * units / u64::from(count)).collect();
        let cuts: Vec<u64> = (0..TRIES).map(cut).find(fits).unwrap_or_else(even);
        let piece = |ends: &[u64]| {
            let at = |cut: u64| start + cut * self.unit;
            Read { at: at(ends[0]), bytes: (at(ends[1]) - at(ends[0])) as u32 }
        };
        Some(cuts.windows(2).map(piece).collect())
    }

    /// So many requests from a random place on, each of which continues the one before; none as with neighbours.
    fn stream(&mut self, length: u32, count: u32) -> Option<Vec<Read>> {
        let whole = u64::from(length) * u64::from(count);
        let fits = self.areas.filled.iter().any(|area| fits(area, whole));
        if count == 0 || self.next.is_some() || !fits {
            return None;
        }
        let start = self.place(whole);
        let nth = |n| Read { at: start + u64::from(n) * u64::from(length), bytes: length };
        Some((0..count).map(nth).collect())
    }

    fn place(&mut self, length: u64) -> u64 {
        let large: Vec<_> = self.areas.filled.iter().filter(|area| fits(area, length)).collect();
        if let Some(at) = self.next {
            let area = large[0];
            let at = if at < area.start || at + length > area.end { area.start } else { at };
            self.next = Some(at + length + GAP);
            return at;
        }
        let area = large[self.rng.usize(0..large.len())];
        area.start + self.rng.u64(0..=(area.end - area.start - length) / self.unit) * self.unit
    }
}

/// The distance between requests on a device that seeks.
pub const GAP: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::area::Content;

    #[test]
    fn places_are_within_areas_and_begin_at_blocks() {
        let ranges = vec![8192..1 << 20, 5 << 20..7 << 20];
        let filled = ranges.clone();
        let areas = Areas { ranges: Vec::new(), filled, content: Content::Unknown };
        let within = |Read { at, bytes }: Read| {
            ranges.iter().any(|area| area.start <= at && at + u64::from(bytes) <= area.end)
        };
        for length in [4096, 65536, 1 << 20] {
            let mut rng = Rng::with_seed(1);
            let mut places =
                Places { areas: &areas, rng: &mut rng, unit: 4096, longest: 1 << 20, next: None };
            let drawn = places.draw(length, 50);
            assert!(drawn.iter().all(|read| within(*read) && read.at.is_multiple_of(4096)));
            let mut rng = Rng::with_seed(1);
            let mut places = Places {
                areas: &areas,
                rng: &mut rng,
                unit: 4096,
                longest: 1 << 20,
                next: Some(0),
            };
            let drawn = places.draw(length, 600);
            assert!(drawn.iter().all(|read| within(*read)));
            let gaps =
                drawn.windows(2).filter(|pair| pair[1].at == pair[0].at + u64::from(length) + GAP);
            assert!(length == 1 << 20 || gaps.count() > 500);
        }
    }

    #[test]
    fn neighbours_are_one_part_in_pieces_that_are_one_request_each() {
        let all = 0..8 << 20;
        let filled = vec![all];
        let areas = Areas { ranges: filled.clone(), filled, content: Content::Unknown };
        let mut rng = Rng::with_seed(1);
        let longest = 128 << 10;
        let mut places = Places { areas: &areas, rng: &mut rng, unit: 4096, longest, next: None };
        for (length, count) in [(4096, 32), (16 << 10, 2), (64 << 10, 8), (128 << 10, 32)] {
            for _ in 0..100 {
                let pieces = places.neighbours(length, count).unwrap();
                assert_eq!(pieces.len(), count as usize);
                let joined = |pair: &[Read]| pair[0].at + u64::from(pair[0].bytes) == pair[1].at;
                assert!(pieces.windows(2).all(joined), "{pieces:?}");
                let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
                assert_eq!(bytes, u64::from(length) * u64::from(count));
                let possible = |piece: &Read| (4096..=longest).contains(&u64::from(piece.bytes));
                assert!(pieces.iter().all(possible), "{pieces:?}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_measured() {
        let filled = vec![4096..1 << 20, 0..4096];
        let areas = Areas { ranges: Vec::new(), filled, content: Content::Unknown };
        let grid = Grid { lengths: vec![4096, 1 << 19, 1 << 20], depths: vec![1] };
        assert_eq!(grid.within(&areas).lengths, [4096, 1 << 19]);
    }
}
