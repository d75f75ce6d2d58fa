//! Where the ranges of a file may end, what a break costs there, and the cheapest set of ranges at a price: the dynamic
//! program of [`gain`](super::gain).

use super::Analysed;
use super::isolated::Isolated;
use super::price::{Price, UNIT};
use crate::outlook::{self, Outlook, Weighed};
use fragmend_layout::ByteRange;
use rayon::slice::ParallelSliceMut;

/// The points of one file where a range may end, with the time that a break there costs.
#[derive(Debug)]
pub struct Crossings {
    points: Vec<Point>,
    /// What a break at each point costs that is the end of a moved range; empty if it costs what any break costs there.
    torn: Vec<u64>,
    /// The reads that overlap no other.
    pub isolated: Isolated,
    outlook: Outlook,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    offset: u64,
    /// Nanoseconds that the requests which cross it wait for a break there.
    weight: u64,
    /// Whether the data continues elsewhere on the device here.
    is_break: bool,
}

/// Where requests, and short ways between them, begin and end, and what each weighs.
#[derive(Default)]
struct Sweep {
    starts: Vec<(u64, u64)>,
    ends: Vec<(u64, u64)>,
}

impl Sweep {
    fn add(&mut self, range: ByteRange, weight: u64) {
        self.starts.push((range.start, weight));
        self.ends.push((range.end, weight));
    }

    /// The points, each with the weight of all requests that cross it.
    fn points(mut self, breaks: &[u64]) -> Vec<Point> {
        // Requests come in ascending order, and ways behind them.
        if !self.starts.is_sorted() {
            self.starts.par_sort_unstable();
        }
        self.ends.par_sort_unstable();
        let Self { starts, ends } = self;
        let (mut begin, mut end, mut brk) = (0, 0, 0);
        let mut points = Vec::with_capacity(ends.len() + breaks.len());
        let mut crossing = 0u128;
        loop {
            let next = [
                starts.get(begin).map(|s| s.0),
                ends.get(end).map(|e| e.0),
                breaks.get(brk).copied(),
            ];
            let Some(offset) = next.into_iter().flatten().min() else { return points };
            while let Some((_, weight)) = ends.get(end).filter(|e| e.0 == offset) {
                crossing -= u128::from(*weight);
                end += 1;
            }
            // Requests that begin here do not cross this point.
            let weight = u64::try_from(crossing).unwrap_or(u64::MAX);
            while let Some((_, weight)) = starts.get(begin).filter(|s| s.0 == offset) {
                crossing += u128::from(*weight);
                begin += 1;
            }
            let is_break = breaks.get(brk) == Some(&offset);
            brk += usize::from(is_break);
            points.push(Point { offset, weight, is_break });
        }
    }
}

impl Crossings {
    /// Collects them from a file's requests and breaks, in one sweep. Requests that weigh nothing end nowhere. Where
    /// requests that overlap no other are solved by themselves (`apart`), they end nowhere either.
    pub fn of(file: &Analysed, apart: bool) -> Self {
        let mut isolated = Isolated::default();
        let (mut weights, mut torn) = (Sweep::default(), Sweep::default());
        let far = file.costs.far_ns > 0;
        let mut clock = file.costs.clock();
        let mut take = |w: Weighed, overlaps: bool| {
            let alone = apart && !overlaps;
            let solved =
                alone && (w.crossed == 0 || isolated.add(file, w.request, w.split, &mut clock));
            if !solved {
                weights.add(w.request.range, w.weight);
                if far {
                    torn.add(w.request.range, w.torn);
                }
            }
        };
        // The last request, and whether one before it ends behind its start.
        let mut last: Option<(Weighed, bool)> = None;
        let mut reach = 0;
        let outlook = outlook::weigh(file, &file.requests, |w| {
            if w.weight == 0 && w.torn == 0 {
                return;
            }
            let ByteRange { start, end } = w.request.range;
            let overlaps = start < reach;
            if let Some((before, overlapped)) = last.replace((w, overlaps)) {
                take(before, overlapped || overlaps);
            }
            reach = reach.max(end);
        });
        if let Some((w, overlaps)) = last {
            take(w, overlaps);
        }
        for way in file.ways.near(&file.breaks, file.block, &file.costs) {
            weights.add(way.range, way.weight);
            torn.add(way.range, way.torn);
        }
        let torn = if far {
            torn.points(&file.breaks).into_iter().map(|p| p.weight).collect()
        } else {
            Vec::new()
        };
        Self { points: weights.points(&file.breaks), torn, isolated, outlook }
    }

    /// What one replay of the file's requests comes to.
    pub fn outlook(&self) -> Outlook {
        self.outlook
    }

    /// The offset after the start of `within`, up to its end, at which a break costs least: the last such
    /// multiple of `block` at which some request begins or ends, or the data has a break.
    pub fn quietest(&self, within: ByteRange, block: u64) -> Option<u64> {
        let first = self.points.partition_point(|p| p.offset <= within.start);
        let inside = self.points[first..].iter().take_while(|p| p.offset <= within.end);
        let aligned = inside.filter(|p| p.offset.is_multiple_of(block));
        aligned.min_by_key(|p| (p.weight, std::cmp::Reverse(p.offset))).map(|p| p.offset)
    }

    /// The nanoseconds that making `range` contiguous saves in one replay, by the weights of its breaks.
    pub fn gain(&self, range: ByteRange) -> i128 {
        let first = self.points.partition_point(|p| p.offset < range.start);
        let inside = self.points[first..].iter().take_while(|p| p.offset <= range.end);
        let each = inside.zip(first..).map(|(p, i)| {
            let broken = if p.is_break { i128::from(p.weight) } else { 0 };
            if p.offset == range.start || p.offset == range.end {
                broken - i128::from(self.torn(i))
            } else {
                broken
            }
        });
        each.sum()
    }

    /// What a break at a point costs that is the end of a moved range.
    fn torn(&self, point: usize) -> u64 {
        self.torn.get(point).copied().unwrap_or(self.points[point].weight)
    }

    /// The cheapest set of ranges at this price: sorted, disjoint, each within one run.
    pub fn best(&self, runs: &[ByteRange], price: Price) -> Vec<ByteRange> {
        runs.iter().flat_map(|run| self.best_in(*run, price)).collect()
    }

    fn best_in(&self, run: ByteRange, price: Price) -> Vec<ByteRange> {
        let first = self.points.partition_point(|p| p.offset <= run.start);
        let end = self.points.partition_point(|p| p.offset < run.end);
        let points = &self.points[first..end.max(first)];
        if !points.iter().any(|p| p.is_break && p.weight > 0) {
            return Vec::new();
        }
        let torn = |i: usize| u128::from(self.torn(first + i)) * UNIT;
        // The cost so far if the segment that ends here stays or moves, and for each state of the segment
        // behind a point, whether the segment before it moved.
        let segment = |from: u64, to: u64| u128::from(to - from) * u128::from(price.0);
        let mut from = run.start;
        let (mut stay, mut go) = (0u128, segment(from, points[0].offset));
        let mut came_moving: Vec<[bool; 2]> = Vec::with_capacity(points.len());
        for (i, p) in points.iter().enumerate() {
            let crossing = u128::from(p.weight) * UNIT;
            let stay_stay = stay + if p.is_break { crossing } else { 0 };
            let torn = torn(i);
            let (move_stay, stay_move, move_move) = (go + torn, stay + torn, go);
            came_moving.push([move_stay < stay_stay, move_move <= stay_move]);
            from = p.offset;
            let to = points.get(i + 1).map_or(run.end, |n| n.offset);
            stay = stay_stay.min(move_stay);
            go = stay_move.min(move_move) + segment(from, to);
        }
        let mut moving = go < stay;
        let mut ranges: Vec<ByteRange> = Vec::new();
        let mut to = run.end;
        for (p, came) in points.iter().zip(&came_moving).rev() {
            let moved_before = came[usize::from(moving)];
            match (moved_before, moving) {
                (false, true) => ranges.push(ByteRange { start: p.offset, end: to }),
                (true, false) => to = p.offset,
                _ => {}
            }
            moving = moved_before;
        }
        if moving {
            ranges.push(ByteRange { start: run.start, end: to });
        }
        ranges.reverse();
        ranges
    }
}
