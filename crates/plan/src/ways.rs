//! The way of a disk's head from the end of one read to the beginning of the next.
//!
//! A read costs its requests and the seeks between them ([`crate::fragments`]). On a device that seeks, the way to its first
//! byte is as long as these, and a move changes it: what was read one after the other in one fragment is torn where a moved
//! range ends, and what was scattered over the disk is near to each other once it has moved. So where the order of the
//! accesses is known ([`SurveyedFile::ranks`](crate::SurveyedFile::ranks)), the ways are counted as well, as the file is and once ranges have moved; those from one
//! file to another are in [`crate::between`].
//!
//! Where ranges will be is not known when they are planned. They are staged together, so those of a file are taken to follow
//! each other; between them and what stays it is a seek of [`Costs::far_ns`]. On devices that do not seek there are no ways,
//! and nothing here changes a figure.

use crate::costs::Costs;
use fragmend_layout::{ByteRange, Fragment, Layout};
use rayon::slice::ParallelSliceMut;

/// Ways over at most so many bytes of a file, forward, weigh on where ranges end ([`Ways::near`]); those of longer ones say
/// nothing about the data between.
const NEAR: u64 = 64 << 10;

/// A way in a file, or equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    /// Offset at which the next read begins.
    to: u64,
    /// Offset at which the read before has ended.
    from: u64,
    /// How often.
    count: u64,
}

/// The head while accesses of one file are looked at in their order.
#[derive(Debug)]
pub struct Head<'a> {
    seeks: bool,
    /// Of each access, where they are known.
    ranks: &'a [u32],
    /// The rank of the last access; 0 where it has none.
    rank: u32,
    at: Option<u64>,
    ways: Vec<Way>,
    visits: Vec<Visit<u64>>,
}

/// Accesses of a file between which the head was nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit<P> {
    /// The rank of the first of them among those that have reached the device.
    pub first: u32,
    /// The rank of the last one.
    pub last: u32,
    /// Where the first begins.
    pub start: P,
    /// Where the last ends.
    pub end: P,
}

/// Where the head begins to read a file, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The offset of the first byte, or of the last one.
    pub byte: u64,
    /// Where the head is on the device: at that byte, or behind it.
    pub place: u64,
}

impl<'a> Head<'a> {
    /// The head of a device, where the accesses have these ranks (or none); one that does not seek has no ways.
    pub fn new(seeks: bool, ranks: &'a [u32]) -> Self {
        Self { seeks, ranks, rank: 0, at: None, ways: Vec::new(), visits: Vec::new() }
    }

    /// The access with this index, which may reach the device, comes next.
    pub fn begin(&mut self, index: usize) {
        let rank = self.ranks.get(index).copied().unwrap_or_default();
        let goes_on = self.rank > 0 && self.rank.checked_add(1) == Some(rank);
        if !goes_on {
            self.at = None;
        }
        self.rank = rank;
        if let (Some(_), Some(visit)) = (self.at, self.visits.last_mut()) {
            visit.last = rank;
        }
    }

    /// These bytes of the file are read or written there.
    pub fn pass(&mut self, range: ByteRange) {
        if !self.seeks {
            return;
        }
        let before = self.at.replace(range.end);
        self.ways.extend(before.map(|from| Way { to: range.start, from, count: 1 }));
        if self.rank == 0 {
            return;
        }
        match self.visits.last_mut() {
            Some(visit) if before.is_some() => visit.end = range.end,
            _ => {
                let (start, end) = (range.start, range.end);
                self.visits.push(Visit { first: self.rank, last: self.rank, start, end });
            }
        }
    }
}

/// The ways of one replay of a file's accesses.
#[derive(Debug, Default)]
pub struct Ways {
    /// By where they lead, equal ones once, each with the nanoseconds that it lasts as the file is.
    ways: Vec<(Way, u64)>,
    /// Where the head came from another file, and where it left this one.
    pub visits: Vec<Visit<Stop>>,
}

/// A way over a few bytes, for choosing where ranges end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// From before its first byte until behind its last.
    pub range: ByteRange,
    /// Nanoseconds, of all of its times, for each break that it crosses.
    pub weight: u64,
    /// The same where a moved range ends on the way.
    pub torn: u64,
}

impl Ways {
    /// The ways that `head` has gone in a file with this layout, on a device with these costs.
    pub fn of(head: Head<'_>, layout: &Layout, costs: &Costs) -> Self {
        let mut ways = head.ways;
        if ways.is_empty() && head.visits.is_empty() {
            return Self::default();
        }
        let fragments: Vec<Fragment> = layout.all_fragments().collect();
        // Holes are not read: a way begins and ends at data.
        let data_from = |at: u64| {
            let next = fragments.get(fragments.partition_point(|f| f.range.end <= at))?;
            Some(at.max(next.range.start))
        };
        let data_until = |at: u64| {
            let last = fragments.partition_point(|f| f.range.start < at).checked_sub(1)?;
            Some(at.min(fragments[last].range.end))
        };
        ways.retain_mut(|way| {
            let (Some(to), Some(from)) = (data_from(way.to), data_until(way.from)) else {
                return false;
            };
            (way.to, way.from) = (to, from);
            true
        });
        ways.par_sort_unstable();
        ways.dedup_by(|next, kept| {
            let same = (next.to, next.from) == (kept.to, kept.from);
            kept.count += if same { next.count } else { 0 };
            same
        });
        // Of what is compressed, the place of a byte within its extent is not known.
        let place = |at: u64| {
            let fragment = fragments[fragments.partition_point(|f| f.range.end <= at)];
            let stored = fragment.physical_end - fragment.physical;
            fragment.physical + (at - fragment.range.start).min(stored.saturating_sub(1))
        };
        let now = |way: Way| (way, costs.model.seek_ns(place(way.from - 1) + 1, place(way.to)));
        let stops = |visit: Visit<u64>| {
            let (first_byte, last_byte) = (data_from(visit.start)?, data_until(visit.end)? - 1);
            let start = Stop { byte: first_byte, place: place(first_byte) };
            let end = Stop { byte: last_byte, place: place(last_byte) + 1 };
            Some(Visit { first: visit.first, last: visit.last, start, end })
        };
        let visits = head.visits.into_iter().filter_map(stops).collect();
        Self { ways: ways.into_iter().map(now).collect(), visits }
    }

    /// How many accesses of the file have a rank, as far as their place is known, and the last rank.
    pub fn ranked(&self) -> (u64, u32) {
        let of = |visit: &Visit<Stop>| u64::from(visit.last - visit.first) + 1;
        (self.visits.iter().map(of).sum(), self.visits.last().map_or(0, |visit| visit.last))
    }

    /// Whether there are none within the file.
    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Nanoseconds of all ways as the file is.
    pub fn now_ns(&self) -> u128 {
        self.ways.iter().map(|(way, now)| u128::from(way.count) * u128::from(*now)).sum()
    }

    /// Nanoseconds of all ways once `moves` (sorted, disjoint) are contiguous.
    pub fn after_ns(&self, moves: &[ByteRange], costs: &Costs) -> u128 {
        let moved = Moved::of(moves);
        let then = |(way, now): &(Way, u64)| {
            u128::from(way.count) * u128::from(moved.way_ns(*way, *now, costs).0)
        };
        self.ways.iter().map(then).sum()
    }

    /// The nanoseconds as the file is, and once `moves` (sorted, disjoint) are contiguous, of the ways that lead to each of
    /// them, and of those that lead from it to what stays.
    pub fn of_each(&self, moves: &[ByteRange], costs: &Costs) -> Vec<[u128; 2]> {
        let mut each = vec![[0; 2]; moves.len()];
        let moved = Moved::of(moves);
        for (way, now) in &self.ways {
            let (then, range) = moved.way_ns(*way, *now, costs);
            if let Some(range) = range {
                each[range][0] += u128::from(way.count) * u128::from(*now);
                each[range][1] += u128::from(way.count) * u128::from(then);
            }
        }
        each
    }

    /// The ways over a few bytes, in ascending order of where they end; `breaks` are the file's, and `block` its allocation
    /// block in bytes.
    pub fn near<'a>(
        &'a self,
        breaks: &'a [u64],
        block: u64,
        costs: &'a Costs,
    ) -> impl Iterator<Item = Near> + 'a {
        let near = |way: &Way| way.from <= way.to && way.to - way.from <= NEAR;
        self.ways.iter().filter(move |(way, _)| near(way)).map(move |(way, now)| {
            let best = costs.model.seek_ns(way.from, way.to);
            let first = breaks.partition_point(|at| *at < way.from);
            let crossed = breaks[first..].iter().take_while(|at| **at <= way.to).count() as u64;
            let weight = now.saturating_sub(best) / crossed.max(1);
            let torn = costs.far_ns.saturating_sub(best);
            Near {
                range: ByteRange {
                    start: way.from.saturating_sub(block),
                    end: way.to.saturating_add(block),
                },
                weight: weight.saturating_mul(way.count),
                torn: torn.saturating_mul(way.count),
            }
        })
    }
}

/// Where ranges will be beside each other.
pub struct Moved<'a> {
    moves: &'a [ByteRange],
    /// Bytes of those before each.
    before: Vec<u64>,
}

impl<'a> Moved<'a> {
    /// Of these ranges of a file (sorted, disjoint).
    pub fn of(moves: &'a [ByteRange]) -> Self {
        let mut sum = 0u64;
        let before = moves.iter().map(|range| {
            let before = sum;
            sum = sum.saturating_add(range.len());
            before
        });
        Self { before: before.collect(), moves }
    }

    /// The range that has this byte, and the byte's place among all that moves.
    pub fn place(&self, at: u64) -> Option<(usize, u64)> {
        let index = self.moves.partition_point(|range| range.end <= at);
        let range = self.moves.get(index).filter(|range| range.start <= at)?;
        Some((index, self.before[index] + (at - range.start)))
    }

    /// Nanoseconds of a way that lasts `now` as the file is; and the range that it leads to, or from if it leads to none.
    fn way_ns(&self, way: Way, now: u64, costs: &Costs) -> (u64, Option<usize>) {
        match (self.place(way.from - 1), self.place(way.to)) {
            (None, None) => (now, None),
            (Some((_, from)), Some((range, to))) => {
                (costs.model.seek_ns(from + 1, to), Some(range))
            }
            (Some((range, _)), None) | (None, Some((range, _))) => (costs.far_ns, Some(range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Device;
    use crate::input::Settings;
    use fragmend_layout::{CostModel, CostSource, DeviceProfile, RequestCost, SeekCost};
    use fragmend_layout::{Extent, ExtentKind, FileId};

    const BLOCK: u64 = 4096;

    /// A disk on which a seek lasts a nanosecond for each block, forward and backward, up to 2^16 blocks.
    fn costs() -> Costs {
        let read = RequestCost {
            request_bytes: BLOCK,
            in_flight: 1,
            burst_ns: 1,
            interval_ns: 1,
            split_ns: None,
            stream_ns: None,
        };
        let seek =
            |blocks: u64| SeekCost { distance_bytes: blocks * BLOCK, ns: blocks, back_ns: None };
        let seeks = [0, 1 << 16].map(seek).to_vec();
        let cost = CostModel::new(CostSource::Probed, vec![read], seeks).unwrap();
        let profile = DeviceProfile { cost, ..DeviceProfile::unknown() };
        let device = Device { profile, total_bytes: 30_000 * BLOCK, ..Device::example() };
        let costs = Costs::of(&device, None, &Settings::default());
        assert_eq!(costs.far_ns, 10_000);
        costs
    }

    /// A file whose blocks are at these blocks of the device.
    fn layout(places: &[u64]) -> Layout {
        let id = FileId { device: 7, inode: 12, generation: 1 };
        let mut layout = Layout::new(id, places.len() as u64 * BLOCK);
        for (n, place) in places.iter().enumerate() {
            let (logical, physical) = (n as u64 * BLOCK, place * BLOCK);
            layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
        }
        layout
    }

    /// Blocks as a range.
    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange { start: start * BLOCK, end: end * BLOCK }
    }

    /// The ways of reads of these blocks, one after the other.
    fn ways(layout: &Layout, reads: &[(u64, u64)]) -> Ways {
        let mut head = Head::new(true, &[]);
        reads.iter().for_each(|(start, end)| head.pass(r(*start, *end)));
        Ways::of(head, layout, &costs())
    }

    #[test]
    fn a_sequential_read_goes_nowhere_but_where_the_file_is_broken() {
        let file = layout(&[100, 101, 102, 103, 300, 301, 302, 303]);
        let ways = ways(&file, &[(0, 2), (2, 4), (4, 6), (6, 8)]);
        assert_eq!((ways.now_ns(), ways.after_ns(&[r(0, 8)], &costs())), (196, 0));
        // Torn at the end of a range that ends between two reads, and at the break no more.
        assert_eq!(ways.after_ns(&[r(2, 6)], &costs()), 20_000);
        assert_eq!(ways.after_ns(&[r(0, 4), r(4, 8)], &costs()), 0, "they are staged together");
        assert_eq!(ways.after_ns(&[r(0, 4)], &costs()), 10_000);
        // Within a read is no way.
        assert_eq!(ways.after_ns(&[r(0, 1)], &costs()), 196);
    }

    #[test]
    fn a_stride_is_shorter_once_only_what_it_reads_is_together() {
        // Every third block is read, and each is ten behind the one before.
        let file = layout(&[0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
        let ways = ways(&file, &[(0, 1), (3, 4), (6, 7), (9, 10)]);
        assert_eq!(ways.now_ns(), 3 * 29);
        assert_eq!(ways.after_ns(&[r(0, 10)], &costs()), 3 * 2);
        assert_eq!(ways.after_ns(&[r(0, 1), r(3, 4), r(6, 7), r(9, 10)], &costs()), 0);
        assert_eq!(ways.after_ns(&[r(3, 4), r(6, 7)], &costs()), 20_000);
    }

    #[test]
    fn each_way_is_of_one_range() {
        let file = layout(&[0, 10, 20, 30, 40, 50]);
        let ways = ways(&file, &[(0, 1), (1, 2), (4, 5), (2, 3), (5, 6), (0, 1)]);
        let moves = [r(1, 2), r(4, 6)];
        let each = ways.of_each(&moves, &costs());
        // 0 to 1; and 1 to 4, 4 to 2, 2 to 5, 5 to 0.
        assert_eq!(each, [[9, 10_000], [29 + 21 + 29 + 51, 10_000 * 3]]);
        let saved: i128 = each.iter().map(|[now, then]| *now as i128 - *then as i128).sum();
        let all = ways.now_ns() as i128 - ways.after_ns(&moves, &costs()) as i128;
        assert_eq!(saved, all);
    }

    #[test]
    fn the_head_is_lost_where_an_access_follows_none() {
        let file = layout(&[0, 10, 20]);
        let gone = |ranks: [u32; 3], seeks| {
            let mut head = Head::new(seeks, &ranks);
            for (block, index) in (0..3).zip(0..) {
                head.begin(index);
                head.pass(r(block, block + 1));
            }
            Ways::of(head, &file, &costs()).now_ns()
        };
        assert_eq!(gone([3, 4, 5], true), 18);
        assert_eq!(gone([3, 5, 6], true), 9, "another came between the first two");
        assert_eq!((gone([0, 0, 0], true), gone([3, 4, 5], false)), (0, 0));
    }

    #[test]
    fn holes_are_passed_over() {
        let id = FileId { device: 7, inode: 12, generation: 1 };
        let mut file = Layout::new(id, 9 * BLOCK);
        for (logical, physical) in [(2, 100), (6, 200)] {
            let [logical, physical] = [logical, physical].map(|n| n * BLOCK);
            file.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
        }
        // From the end of the first block to the second one, over holes that both reads have.
        let over = ways(&file, &[(0, 4), (4, 9), (7, 9), (0, 1)]);
        assert_eq!(over.ways.len(), 2);
        assert_eq!(over.ways[0].0, Way { to: 2 * BLOCK, from: 7 * BLOCK, count: 1 });
        assert_eq!(over.ways[1], (Way { to: 6 * BLOCK, from: 3 * BLOCK, count: 1 }, 99));
    }

    #[test]
    fn short_ways_weigh_on_breaks_and_on_ends_of_ranges() {
        let file = layout(&[0, 1, 50, 51, 52]);
        let ways = ways(&file, &[(0, 2), (2, 3), (4, 5), (0, 1)]);
        let breaks: Vec<u64> = file.breaks().collect();
        let costs = costs();
        let near: Vec<Near> = ways.near(&breaks, BLOCK, &costs).collect();
        let continued = Near { range: r(1, 3), weight: 48, torn: 10_000 };
        let over_a_gap = Near { range: r(2, 5), weight: 0, torn: 9_999 };
        assert_eq!(near, [continued, over_a_gap]);
    }
}
