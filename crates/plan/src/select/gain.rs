//! The fewest bytes moved for the most requests saved.
//!
//! A request costs one device request plus one for every break that it crosses. Making a range contiguous
//! removes the breaks inside it, and leaves or makes one at each of its ends. With `w(p)` the number of
//! accesses that cross offset `p`, and a price `l` per byte moved, the best set of ranges of a run minimises
//!
//! ```text
//! sum of w(p) over the breaks that are left + l * bytes moved
//! ```
//!
//! Only breaks and the ends of requests need to be considered as ends of a range: between two of them `w` is
//! constant and a shorter range is cheaper. So a dynamic program over those points, with two states (stay,
//! move), is exact, in linear time. All arithmetic is in integers. `w` counts accesses *seen*, so that heat
//! decides where a budget goes.
//!
//! FragPicker's windows are one feasible solution of this problem; for the same price the optimum never costs
//! more. It is better where many windows overlap and become one (a hot file read in overlapping ranges), and
//! where a request's fragmented part is small compared with the rest.
//!
//! A budget is met by raising the price (the Lagrangian of the byte limit) until what is chosen fits; what is
//! left of the budget goes to the densest further ranges.

use super::{Analysed, Candidate};
use fragmend_layout::ByteRange;
use rayon::prelude::*;

/// The price of one byte, in accesses; its unit is 2^-32 of an access per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(u64);

const UNIT: u128 = 1 << 32;

impl Price {
    /// A price in requests per MiB; a negative one, or NaN, counts as zero, but the least price is above zero,
    /// so that bytes are never moved without a gain.
    pub fn per_mib(requests: f64) -> Self {
        Self(((requests * (UNIT >> 20) as f64) as u64).max(1))
    }
}

/// The ranges that are worth their price, within the budget if there is one.
pub fn choose(files: &[Analysed], price: Price, budget: Option<u64>) -> Vec<Candidate> {
    let profiles: Vec<&Crossings> = files.par_iter().map(Analysed::crossings).collect();
    let at = |price: Price| -> Vec<Candidate> {
        let ranges = |(i, crossings): (usize, &&Crossings)| {
            let chosen = crossings.best(&files[i].runs, price);
            chosen.into_iter().map(move |range| Candidate { file: i, range }).collect::<Vec<_>>()
        };
        profiles.par_iter().enumerate().flat_map_iter(ranges).collect()
    };
    let unlimited = at(price);
    let Some(budget) = budget.filter(|b| bytes(&unlimited) > *b) else { return unlimited };

    // Fewer bytes are chosen as the price rises: bisects its logarithm, then its value.
    let (mut low, mut high) = (price.0, u64::MAX >> 1);
    let mut chosen = Vec::new();
    for _ in 0..48 {
        if high - low <= low / 64 + 1 {
            break;
        }
        let middle =
            if high / 4 > low { low.isqrt() * high.isqrt() } else { low + (high - low) / 2 };
        let middle = middle.clamp(low + 1, high - 1);
        let tried = at(Price(middle));
        if bytes(&tried) <= budget {
            (high, chosen) = (middle, tried);
        } else {
            low = middle;
        }
    }
    fill(chosen, unlimited, &profiles, budget)
}

fn bytes(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|c| c.range.len()).sum()
}

/// Adds the densest ranges of `more` that fit into the budget and overlap no chosen one.
fn fill(
    mut chosen: Vec<Candidate>,
    more: Vec<Candidate>,
    profiles: &[&Crossings],
    budget: u64,
) -> Vec<Candidate> {
    let mut left = budget - bytes(&chosen);
    let mut by_density: Vec<_> = more
        .into_iter()
        .map(|c| (profiles[c.file].gain(c.range), c))
        .filter(|(gain, _)| *gain > 0)
        .collect();
    by_density.sort_by(|(ga, a), (gb, b)| {
        let (da, db) = (*ga as u128 * b.range.len() as u128, *gb as u128 * a.range.len() as u128);
        db.cmp(&da).then((a.file, a.range).cmp(&(b.file, b.range)))
    });
    let mut taken: std::collections::BTreeSet<(usize, ByteRange)> =
        chosen.iter().map(|c| (c.file, c.range)).collect();
    for (_, c) in by_density {
        let at = (c.file, c.range);
        let before = taken.range(..=at).next_back();
        let after = taken.range(at..).next();
        let clear = |n: Option<&(usize, ByteRange)>| {
            n.is_none_or(|(f, r)| *f != c.file || !r.overlaps(c.range))
        };
        if c.range.len() <= left && clear(before) && clear(after) {
            left -= c.range.len();
            taken.insert(at);
            chosen.push(c);
        }
    }
    chosen
}

/// The points of one file where a range may end, with the accesses that cross them.
#[derive(Debug)]
pub struct Crossings {
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    offset: u64,
    /// Accesses that cross it.
    weight: u64,
    /// Whether the data continues elsewhere on the device here.
    is_break: bool,
}

impl Crossings {
    /// Collects them from a file's requests and breaks, in one sweep.
    pub fn of(file: &Analysed) -> Self {
        // At each offset: accesses that end, accesses that begin, and whether it is a break.
        let mut ends: Vec<(u64, u64)> =
            file.requests.iter().map(|r| (r.range.end, r.seen)).collect();
        ends.par_sort_unstable();
        let (mut begin, mut end, mut brk) = (0, 0, 0);
        let (starts, breaks) = (&file.requests, &file.breaks);
        let mut points = Vec::with_capacity(ends.len() + breaks.len());
        let mut crossing = 0u64;
        loop {
            let next = [
                starts.get(begin).map(|r| r.range.start),
                ends.get(end).map(|e| e.0),
                breaks.get(brk).copied(),
            ];
            let Some(offset) = next.into_iter().flatten().min() else { break };
            while let Some((_, seen)) = ends.get(end).filter(|e| e.0 == offset) {
                crossing -= seen;
                end += 1;
            }
            // Accesses that begin here do not cross this point.
            let weight = crossing;
            while let Some(r) = starts.get(begin).filter(|r| r.range.start == offset) {
                crossing += r.seen;
                begin += 1;
            }
            let is_break = breaks.get(brk) == Some(&offset);
            brk += usize::from(is_break);
            points.push(Point { offset, weight, is_break });
        }
        Self { points }
    }

    /// The offset after the start of `within`, up to its end, that the fewest accesses cross: the last such
    /// multiple of `block` at which some request begins or ends, or the data has a break.
    pub fn quietest(&self, within: ByteRange, block: u64) -> Option<u64> {
        let first = self.points.partition_point(|p| p.offset <= within.start);
        let inside = self.points[first..].iter().take_while(|p| p.offset <= within.end);
        let aligned = inside.filter(|p| p.offset.is_multiple_of(block));
        aligned.min_by_key(|p| (p.weight, std::cmp::Reverse(p.offset))).map(|p| p.offset)
    }

    /// The requests that making `range` contiguous saves, in one replay of the accesses that were seen.
    pub fn gain(&self, range: ByteRange) -> i64 {
        let first = self.points.partition_point(|p| p.offset < range.start);
        let inside = self.points[first..].iter().take_while(|p| p.offset <= range.end);
        inside
            .map(|p| match (p.offset == range.start || p.offset == range.end, p.is_break) {
                (false, true) => p.weight as i64,
                (true, false) => -(p.weight as i64),
                _ => 0,
            })
            .sum()
    }

    /// The cheapest set of ranges at this price: sorted, disjoint, each within one run.
    fn best(&self, runs: &[ByteRange], price: Price) -> Vec<ByteRange> {
        runs.iter().flat_map(|run| self.best_in(*run, price)).collect()
    }

    fn best_in(&self, run: ByteRange, price: Price) -> Vec<ByteRange> {
        let first = self.points.partition_point(|p| p.offset <= run.start);
        let end = self.points.partition_point(|p| p.offset < run.end);
        let points = &self.points[first..end.max(first)];
        if !points.iter().any(|p| p.is_break && p.weight > 0) {
            return Vec::new();
        }
        // The cost so far if the segment that ends here stays or moves, and for each state of the segment
        // behind a point, whether the segment before it moved.
        let segment = |from: u64, to: u64| u128::from(to - from) * u128::from(price.0);
        let mut from = run.start;
        let (mut stay, mut go) = (0u128, segment(from, points[0].offset));
        let mut came_moving: Vec<[bool; 2]> = Vec::with_capacity(points.len());
        for (i, p) in points.iter().enumerate() {
            let crossing = u128::from(p.weight) * UNIT;
            let stay_stay = stay + if p.is_break { crossing } else { 0 };
            let (move_stay, stay_move, move_move) = (go + crossing, stay + crossing, go);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Request;
    use fragmend_layout::{DeviceLimits, Extent, ExtentKind, FileId, Layout};
    use proptest::prelude::*;

    const LIMITS: DeviceLimits =
        DeviceLimits { largest_extent: 1 << 27, readahead: 1 << 17, max_request: 1 << 40 };

    /// A file whose fragments have the given lengths, scattered.
    fn file(lengths: &[u64], requests: &[(u64, u64, u64)]) -> Analysed {
        let mut layout = Layout::new(FileId { device: 0, inode: 0, generation: 0 }, 0);
        let mut at = 0;
        for (i, length) in lengths.iter().enumerate() {
            let physical = 1_000_000 * (i as u64 + 1);
            layout.push(Extent { logical: at, physical, length: *length, kind: ExtentKind::Data });
            at += length;
        }
        let mut requests: Vec<_> = requests
            .iter()
            .map(|(start, end, seen)| Request {
                range: ByteRange { start: *start, end: *end },
                seen: *seen,
                fetches: *seen,
            })
            .collect();
        requests.sort();
        Analysed::of(requests, &layout, LIMITS, 1, false)
    }

    fn ranges(chosen: &[Candidate]) -> Vec<(u64, u64)> {
        chosen.iter().map(|c| (c.range.start, c.range.end)).collect()
    }

    #[test]
    fn long_ranges_are_cut_between_requests() {
        // Fragments of 4, requests of 10 and one across the boundary at 20.
        let f = file(&[4; 10], &[(0, 10, 1), (10, 20, 1), (15, 25, 3), (20, 30, 1), (30, 40, 1)]);
        let within = |start, end| ByteRange { start, end };
        assert_eq!(f.crossings().quietest(within(0, 40), 1), Some(40));
        assert_eq!(f.crossings().quietest(within(5, 19), 1), Some(10), "nothing crosses there");
        assert_eq!(f.crossings().quietest(within(10, 24), 1), Some(15), "one, not three or four");
        assert_eq!(f.crossings().quietest(within(10, 24), 4), Some(12));
        assert_eq!(f.crossings().quietest(within(4, 7), 1), None);
    }

    #[test]
    fn only_what_is_read_across_a_break_moves() {
        let f = file(&[4, 4, 4, 4, 4], &[(0, 8, 10), (12, 16, 10)]);
        assert_eq!(ranges(&choose(&[f], Price(1), None)), [(0, 8)]);
    }

    #[test]
    fn a_large_neighbour_is_not_dragged_along() {
        // One access crosses into a fragment of a million bytes: worth it if bytes cost nothing, but not at a
        // price; the hot one beside it is.
        let f = file(&[4, 4, 1_000_000], &[(0, 8, 1000), (4, 1_000_008, 1)]);
        let price = Price::per_mib(64.0);
        assert_eq!(ranges(&choose(&[f], price, None)), [(0, 8)]);
    }

    #[test]
    fn the_budget_goes_to_the_hottest() {
        let f = file(&[4; 6], &[(0, 8, 1), (8, 16, 100), (16, 24, 10)]);
        assert_eq!(ranges(&choose(&[f], Price(1), Some(8))), [(8, 16)]);
    }

    #[test]
    fn nothing_moves_for_nothing() {
        assert!(choose(&[file(&[4; 6], &[])], Price(1), None).is_empty());
        assert!(choose(&[file(&[24], &[(0, 24, 5)])], Price(1), None).is_empty());
    }

    /// The objective of a set of ranges, computed by its definition and not by the dynamic program.
    fn objective(f: &Analysed, moves: &[ByteRange], price: Price) -> u128 {
        let after = f.fragments.after(moves);
        let requests: u128 =
            f.requests.iter().map(|r| u128::from(r.seen * after.count(r.range))).sum();
        let bytes: u64 = moves.iter().map(|m| m.len()).sum();
        requests * UNIT + u128::from(bytes) * u128::from(price.0)
    }

    /// Requests, each with its start, length and count, as those of a file of `size` bytes.
    fn within(raw: &[(u64, u64, u64)], size: u64) -> Vec<(u64, u64, u64)> {
        raw.iter()
            .filter(|(start, ..)| *start < size)
            .map(|(start, len, seen)| (*start, (start + len).min(size), *seen))
            .collect()
    }

    /// All sets of disjoint ranges with ends on the given points.
    fn every_choice(points: &[u64]) -> Vec<Vec<ByteRange>> {
        let segments = points.len() - 1;
        (0..1u32 << segments)
            .map(|mask| {
                let mut moves: Vec<ByteRange> = Vec::new();
                for i in (0..segments).filter(|i| mask >> i & 1 == 1) {
                    match moves.last_mut() {
                        Some(last) if last.end == points[i] => last.end = points[i + 1],
                        _ => moves.push(ByteRange { start: points[i], end: points[i + 1] }),
                    }
                }
                moves
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_choice_is_optimal(
            lengths in prop::collection::vec(1u64..6, 1..5),
            raw in prop::collection::vec((0u64..20, 1u64..12, 1u64..9), 0..5),
            price in 1u64..(8 << 32),
        ) {
            let size: u64 = lengths.iter().sum();
            let f = file(&lengths, &within(&raw, size));
            let price = Price(price);
            let ours: Vec<_> =
                choose(std::slice::from_ref(&f), price, None).iter().map(|c| c.range).collect();
            // Every block boundary is a possible end, not only the program's own points.
            let points: Vec<u64> = (0..=size).collect();
            prop_assume!(points.len() <= 14);
            let best = every_choice(&points)
                .iter()
                .map(|moves| objective(&f, moves, price))
                .min()
                .unwrap();
            prop_assert_eq!(objective(&f, &ours, price), best);
        }

        #[test]
        fn a_budget_is_kept(
            lengths in prop::collection::vec(1u64..50, 1..30),
            raw in prop::collection::vec((0u64..600, 1u64..60, 1u64..9), 0..40),
            budget in 0u64..400,
        ) {
            let f = file(&lengths, &within(&raw, lengths.iter().sum()));
            let chosen = choose(&[f], Price(1), Some(budget));
            prop_assert!(bytes(&chosen) <= budget);
            let mut sorted = ranges(&chosen);
            sorted.sort_unstable();
            prop_assert!(sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}
