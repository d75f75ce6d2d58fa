//! What the requests that touch each of some ranges come to.
//!
//! A trace may have any number of long requests, each of which touches any number of ranges. So a request is priced once, and
//! counts for all ranges that it touches by two steps: up at the first of them, and down behind the last.

use super::{Analysed, touching};
use crate::fragments::{Bill, Fragments};
use fragmend_layout::ByteRange;
use std::ops::Range;

impl Analysed {
    /// For each of these ranges (sorted, disjoint, each within one run) what one replay of the requests that touch it
    /// costs now, and once all of them are contiguous; with the ways to it, those from it to what stays, and what is lost
    /// in it because it is slow.
    pub fn bills(&self, moves: &[ByteRange]) -> Vec<[Bill; 2]> {
        self.bills_beside(&[], moves)
    }

    /// The same where `moved`, which are some of `moves`, are contiguous before as well: what the others save by themselves.
    pub fn bills_beside(&self, moved: &[ByteRange], moves: &[ByteRange]) -> Vec<[Bill; 2]> {
        let before = match moved {
            [] => self.replays(&self.fragments, moves),
            _ => self.replays(&self.fragments_after(moved), moves),
        };
        let after = self.replays(&self.fragments_after(moves), moves);
        let ways = self.ways.of_each(moves, &self.costs);
        let both = before.into_iter().zip(after).zip(ways).zip(moves);
        both.map(|(((before, after), [now, then]), range)| {
            let [lost, left] = self.slow.bills(*range);
            [before + Bill::way(now) + lost, after + Bill::way(then) + left]
        })
        .collect()
    }

    /// How often the requests that touch each of these ranges (sorted, disjoint) were asked for, all together.
    pub fn seen(&self, moves: &[ByteRange]) -> Vec<u64> {
        let mut seen = Sums::new(moves.len());
        for request in touching(&self.requests, moves) {
            seen.add(touched_by(moves, request.range), u128::from(request.seen));
        }
        seen.each().map(saturated).collect()
    }

    /// What one replay of the requests that touch each of `moves` costs if the file is in these fragments.
    fn replays(&self, fragments: &Fragments, moves: &[ByteRange]) -> Vec<Bill> {
        let mut clock = self.costs.clock();
        let (mut requests, mut ns) = (Sums::new(moves.len()), Sums::new(moves.len()));
        let fetched = touching(&self.requests, moves).filter(|r| r.fetches > 0);
        fragments.each_split(fetched, self.limits.max_request, |r, split| {
            let bill = Bill::of(split, r.fetches, &mut clock);
            let touched = touched_by(moves, r.range);
            requests.add(touched.clone(), bill.requests.into());
            ns.add(touched, bill.ns);
        });
        let bill = |(requests, ns)| Bill { requests: saturated(requests), ns };
        requests.each().zip(ns.each()).map(bill).collect()
    }
}

/// The indices of the ranges (sorted, disjoint) that a request touches.
pub fn touched_by(moves: &[ByteRange], request: ByteRange) -> Range<usize> {
    let first = moves.partition_point(|range| range.end <= request.start);
    first..moves.partition_point(|range| range.start < request.end).max(first)
}

/// Sums that stay at their largest value instead of wrapping: each is of terms that do.
fn saturated(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// The sums of what was added to each of some consecutive items.
struct Sums {
    /// Of each item the difference to the one before it, modulo 2^128, and one behind the last.
    steps: Vec<u128>,
}

impl Sums {
    fn new(items: usize) -> Self {
        Self { steps: vec![0; items + 1] }
    }

    fn add(&mut self, items: Range<usize>, more: u128) {
        let Range { start, end } = items;
        self.steps[start] = self.steps[start].wrapping_add(more);
        self.steps[end] = self.steps[end].wrapping_sub(more);
    }

    fn each(self) -> impl Iterator<Item = u128> {
        let items = self.steps.len() - 1;
        let sums = self.steps.into_iter().scan(0u128, |sum, step| {
            *sum = sum.wrapping_add(step);
            Some(*sum)
        });
        sums.take(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::requests::Request;
    use crate::select::price::Price;
    use fragmend_layout::{
        CostModel, DeviceKind, DeviceLimits, Extent, ExtentKind, FileId, Layout,
    };
    use proptest::prelude::*;
    use std::sync::Arc;

    const BLOCK: u64 = 4096;
    const BLOCKS: u64 = 40;

    fn costs(kind: DeviceKind, depth: f64, streams: Option<f64>) -> Arc<Costs> {
        let model = CostModel::guessed(kind);
        let far_ns = model.seek_either_ns(1 << 38);
        Arc::new(Costs {
            model,
            depth,
            depth_seen: true,
            one_thread: false,
            streams,
            far_ns,
            price: Price::LEAST,
            min_gain_s_per_gib: 0.0,
            undetermined: None,
            one_more: None,
        })
    }

    /// A file each of whose blocks is a hole, or so many blocks in front of or behind the block before it on the device.
    fn file(gaps: &[Option<i64>], requests: Vec<Request>, costs: Arc<Costs>) -> Analysed {
        let mut layout = Layout::new(FileId { device: 1, inode: 2, generation: 3 }, BLOCKS * BLOCK);
        let mut at = 1i64 << 20;
        for (n, gap) in gaps.iter().enumerate() {
            let Some(gap) = gap else { continue };
            at += gap;
            let (logical, physical) = (n as u64 * BLOCK, at as u64 * BLOCK);
            layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
        }
        let limits =
            DeviceLimits { largest_extent: 1 << 27, readahead: 1 << 17, max_request: 3 * BLOCK };
        let file = Analysed::of(Vec::new(), &layout, limits, BLOCK, false, costs);
        Analysed { requests, ..file }
    }

    /// The bills, and the sums of what was seen, range by range.
    fn one_by_one(file: &Analysed, moves: &[ByteRange]) -> (Vec<[Bill; 2]>, Vec<u64>) {
        let after = file.fragments_after(moves);
        let touching = |range: &ByteRange| {
            let range = *range;
            file.requests.iter().filter(move |r| r.range.overlaps(range))
        };
        let mut clock = file.costs.clock();
        let mut bill = |range: &ByteRange, fragments: &Fragments| {
            fragments.replay(touching(range), file.limits.max_request, &mut clock)
        };
        let bills = moves.iter().map(|range| [bill(range, &file.fragments), bill(range, &after)]);
        let seen = moves
            .iter()
            .map(|range| touching(range).map(|request| u64::from(request.seen)).sum::<u64>());
        (bills.collect(), seen.collect())
    }

    proptest! {
        #[test]
        fn bills_are_those_of_each_range_by_itself(
            gaps in prop::collection::vec(
                prop_oneof![
                    1 => Just(None),
                    5 => prop_oneof![Just(1i64), Just(-1), 2i64..3000, -3000i64..-1].prop_map(Some),
                ],
                BLOCKS as usize,
            ),
            raw in prop::collection::vec(
                (0..BLOCKS, 1..BLOCKS, 0u32..9, 0u64..9, any::<bool>(), 0u32..64),
                0..30,
            ),
            cuts in prop::collection::btree_set(0..BLOCKS, 0..20),
            (kind, depth) in (0usize..3, 1u32..9),
            streams in prop::option::of(2u32..5),
        ) {
            let mut requests: Vec<Request> = raw
                .into_iter()
                .map(|(start, len, seen, fetches, streamed, shift)| {
                    let range = ByteRange::at(start * BLOCK, len.min(BLOCKS - start) * BLOCK);
                    // Now and then more than sums have space for.
                    let shift = if shift > 50 { shift } else { 0 };
                    Request { range, seen, fetches: fetches << shift, streamed }
                })
                .collect();
            requests.sort();
            let kind = [DeviceKind::Flash, DeviceKind::Disk, DeviceKind::Card][kind];
            let costs = costs(kind, f64::from(depth), streams.map(f64::from));
            let file = file(&gaps, requests, costs);
            let cuts: Vec<u64> = cuts.into_iter().map(|block| block * BLOCK).collect();
            // Every third of the ranges between cuts stays.
            let between = cuts.windows(2).enumerate().filter(|(n, _)| n % 3 < 2);
            let between = between.map(|(_, cut)| ByteRange { start: cut[0], end: cut[1] });
            let within = |range: ByteRange| file.runs.iter().map(move |run| run.intersect(range));
            let moves: Vec<ByteRange> =
                between.flat_map(within).filter(|range| !range.is_empty()).collect();
            let (bills, seen) = one_by_one(&file, &moves);
            prop_assert_eq!(file.bills(&moves), bills);
            prop_assert_eq!(file.seen(&moves), seen);
        }
    }

    #[test]
    fn sums_are_of_what_touches_each_range() {
        let moves = [(0, 4), (4, 8), (10, 12)].map(|(start, end)| ByteRange { start, end });
        let touched = |start, end| touched_by(&moves, ByteRange { start, end });
        assert_eq!([touched(3, 5), touched(8, 10), touched(9, 99)], [0..2, 2..2, 2..3]);
        let mut sums = Sums::new(3);
        sums.add(0..2, u128::MAX);
        sums.add(1..3, 5);
        sums.add(2..2, 7);
        assert_eq!(sums.each().collect::<Vec<_>>(), [u128::MAX, 4, 5], "modulo 2^128");
        assert_eq!(saturated(u128::from(u64::MAX) + 1), u64::MAX);
    }
}
