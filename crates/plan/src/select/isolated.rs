//! Reads that overlap no other read: what moving parts of each saves, by the cost model itself and not by weights of breaks.
//!
//! Where requests that are issued together overlap, the first fragments may cost nothing and the rest much, or the other
//! way round; then it pays to make a read cross *fewer* breaks, not none. For a read by itself that is solved exactly:
//! for every number of breaks the fewest bytes that have to move to be rid of them, found by a dynamic program over
//! its fragments, and of these choices the ones that some price per byte prefers (their upper hull).
//!
//! On devices that seek, time is in the distances, of which those after a move are not known: there reads by themselves
//! are weighed as all others are.

use super::Analysed;
use super::price::Price;
use crate::costs::Clock;
use crate::requests::Request;
use fragmend_layout::{ByteRange, Split};
use std::ops::Range;

/// Reads in more fragments are weighed as if they overlapped others: the work grows with the square.
const MOST_FRAGMENTS: usize = 128;

/// The reads of a file that overlap no other.
#[derive(Debug, Default)]
pub struct Isolated {
    /// For each read, its choices.
    reads: Vec<Range<u32>>,
    choices: Vec<Choice>,
    ranges: Vec<ByteRange>,
}

/// What could move of a read. A read's choices are in ascending order of bytes, and each saves less per further byte
/// than the one before.
#[derive(Debug)]
struct Choice {
    bytes: u64,
    saved_ns: u64,
    ranges: Range<u32>,
}

impl Isolated {
    /// Adds a read that is split so, if it can be solved; otherwise it returns false.
    pub fn add(&mut self, file: &Analysed, r: &Request, split: Split, clock: &mut Clock) -> bool {
        let fragments = file.fragments.touched_by(r.range);
        let whole = r.range.len() <= file.limits.max_request;
        // Fragments that touch on the device are one request: it is not the breaks that count.
        let apart = split.requests == fragments.len() as u64;
        if !whole || !apart || split.seek_ns > 0 || fragments.len() > MOST_FRAGMENTS {
            return false;
        }
        let parts = parts(file, fragments, r.range);
        let table = Table::of(&parts);
        let now = clock.read_ns(split);
        let mut best: Vec<(u64, u64, usize)> = Vec::new();
        for removed in 1..fragments.len() {
            let Some(bytes) = table.fewest_bytes(removed) else { break };
            let requests = split.requests - removed as u64;
            let then = Split { requests, torn: bytes < split.bytes, ..split };
            let less = (now - clock.read_ns(then)).max(0.0) * r.fetches as f64;
            onto_hull(&mut best, (bytes, less as u64, removed));
        }
        let start = self.choices.len() as u32;
        for (bytes, saved_ns, removed) in best {
            let first = self.ranges.len() as u32;
            self.ranges.extend(table.ranges(&parts, removed));
            let ranges = first..self.ranges.len() as u32;
            self.choices.push(Choice { bytes, saved_ns, ranges });
        }
        if self.choices.len() as u32 > start {
            self.reads.push(start..self.choices.len() as u32);
        }
        true
    }

    /// The ranges that are worth this price, each with its part of the nanoseconds that its read saves.
    pub fn best(&self, price: Price) -> impl Iterator<Item = (ByteRange, i128)> + '_ {
        self.reads.iter().flat_map(move |read| {
            let choices = &self.choices[read.start as usize..read.end as usize];
            let worth = |choice: &Choice, before: (u64, u64)| {
                price.is_worth(choice.bytes - before.0, u128::from(choice.saved_ns - before.1))
            };
            let mut before = (0, 0);
            let worth = choices.iter().take_while(|choice| {
                let is = worth(choice, before);
                before = (choice.bytes, choice.saved_ns);
                is
            });
            let chosen = worth.last();
            chosen.into_iter().flat_map(|choice| {
                let ranges = &self.ranges[choice.ranges.start as usize..choice.ranges.end as usize];
                let saved = i128::from(choice.saved_ns) / ranges.len().max(1) as i128;
                ranges.iter().map(move |range| (*range, saved))
            })
        })
    }
}

/// Adds a choice of more bytes than the last, and removes those that no price prefers any more.
fn onto_hull(hull: &mut Vec<(u64, u64, usize)>, new: (u64, u64, usize)) {
    if new.1 <= hull.last().map_or(0, |last| last.1) {
        return;
    }
    let steeper = |a: (u64, u64), b: (u64, u64), c: (u64, u64)| {
        // Whether a to b saves more per byte than b to c.
        let (ab, bc) = ((b.0 - a.0, b.1 - a.1), (c.0 - b.0, c.1 - b.1));
        u128::from(ab.1) * u128::from(bc.0) > u128::from(bc.1) * u128::from(ab.0)
    };
    while let Some(last) = hull.last() {
        let before = hull.len().checked_sub(2).map_or((0, 0), |i| (hull[i].0, hull[i].1));
        if steeper(before, (last.0, last.1), (new.0, new.1)) {
            break;
        }
        hull.pop();
    }
    hull.push(new);
}

/// A fragment's part of a read.
struct Part {
    range: ByteRange,
    /// Whether it may move.
    movable: bool,
    /// Whether it is contiguous with the part before it once both have moved.
    joins: bool,
}

fn parts(file: &Analysed, fragments: &[ByteRange], read: ByteRange) -> Vec<Part> {
    let mut parts: Vec<(Part, Option<usize>)> = Vec::with_capacity(fragments.len());
    let mut run = file.runs.partition_point(|run| run.end <= read.start);
    for fragment in fragments {
        let range = fragment.intersect(read);
        while file.runs.get(run).is_some_and(|run| run.end <= range.start) {
            run += 1;
        }
        let within = |run: &&ByteRange| run.start <= range.start && range.end <= run.end;
        let of = file.runs.get(run).filter(within).map(|_| run);
        let joins = parts.last().is_some_and(|(before, run)| {
            of.is_some() && *run == of && before.range.end == range.start
        });
        parts.push((Part { range, movable: of.is_some(), joins }, of));
    }
    parts.into_iter().map(|(part, _)| part).collect()
}

/// For every number of breaks, the fewest bytes that have to move so that a read crosses as many breaks less.
struct Table {
    parts: usize,
    /// By part, by breaks removed so far, by whether the part stays or moves: bytes moved so far.
    bytes: Vec<[u64; 2]>,
}

const NEVER: u64 = u64::MAX;

impl Table {
    fn of(parts: &[Part]) -> Self {
        let n = parts.len();
        let mut table = Self { parts: n, bytes: vec![[NEVER; 2]; n * n] };
        for (i, part) in parts.iter().enumerate() {
            for removed in 0..=i {
                let stay = if i == 0 { 0 } else { table.least(i - 1, removed) };
                let go = if part.movable { table.before(parts, i, removed).1 } else { NEVER };
                table.bytes[i * n + removed] = [stay, go.saturating_add(part.range.len())];
            }
        }
        table
    }

    fn at(&self, part: usize, removed: usize) -> [u64; 2] {
        if removed < self.parts { self.bytes[part * self.parts + removed] } else { [NEVER; 2] }
    }

    fn least(&self, part: usize, removed: usize) -> u64 {
        let [stay, go] = self.at(part, removed);
        stay.min(go)
    }

    /// Of part `i`, which moves: the state of the part before it (breaks removed by then, and whether it moves), and the
    /// bytes until then.
    fn before(&self, parts: &[Part], i: usize, removed: usize) -> ((usize, bool), u64) {
        if i == 0 {
            return ((0, false), if removed == 0 { 0 } else { NEVER });
        }
        let [stay, go] = self.at(i - 1, removed);
        let mut best = ((removed, false), stay);
        if parts[i].joins && removed > 0 {
            let joined = self.at(i - 1, removed - 1)[1];
            if joined < best.1 {
                best = ((removed - 1, true), joined);
            }
        }
        // Beside a range that moves by itself; one that it could join would have removed a break.
        if !parts[i].joins && go < best.1 {
            best = ((removed, true), go);
        }
        best
    }

    fn fewest_bytes(&self, removed: usize) -> Option<u64> {
        Some(self.least(self.parts - 1, removed)).filter(|bytes| *bytes != NEVER)
    }

    /// The ranges that move so that `removed` breaks are gone, in ascending order.
    fn ranges(&self, parts: &[Part], mut removed: usize) -> Vec<ByteRange> {
        let mut out: Vec<ByteRange> = Vec::new();
        let last = parts.len() - 1;
        let [stay, go] = self.at(last, removed);
        let mut moves = go < stay;
        for i in (0..parts.len()).rev() {
            if !moves {
                if i > 0 {
                    let [stay, go] = self.at(i - 1, removed);
                    moves = go < stay;
                }
                continue;
            }
            let range = parts[i].range;
            match out.last_mut() {
                Some(next) if next.start == range.end && parts[i + 1].joins => {
                    next.start = range.start;
                }
                _ => out.push(range),
            }
            ((removed, moves), _) = self.before(parts, i, removed);
        }
        out.reverse();
        out
    }
}
