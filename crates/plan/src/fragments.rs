//! What requests cost on a layout, now and after ranges have moved: in requests, and in time.
//!
//! A read is as many requests as it touches fragments, with one exception. While the fragments of a read are issued, the
//! block layer holds the last request back (`blk_attempt_plug_merge`, block/blk-merge.c), and what continues that one on the
//! device becomes part of it: behind it, where a hole of the file lies between, or in front of it, where a file was written
//! from its end to its beginning. So the fragments of one read that touch on the device in this way are one request, though
//! the file is in as many extents.

use crate::costs::Clock;
use crate::file::Summary;
use crate::requests::Request;
use crate::tally::{Checkpoints, STEP, Step, Tally};
use fragmend_layout::{ByteRange, CostModel, Fragment, Layout, Split};
use std::ops::{Add, AddAssign, Range};
use std::sync::OnceLock;

/// A read of so many fragments is not looked at fragment by fragment.
const MANY: usize = 4 * STEP;

/// The addressed fragments of a file in file order; holes and unwritten space are left out.
#[derive(Clone, Debug)]
pub struct Fragments {
    fragments: Vec<ByteRange>,
    /// Nanoseconds of the seek from the end of the fragment before to each; empty on devices that do not seek.
    seeks: Vec<u64>,
    /// How each fragment touches the one before it on the device; empty where none does.
    joins: Vec<Join>,
    /// Whether each fragment has moved; empty where none has.
    moved: Vec<bool>,
    /// What they come to; computed once there is a read of many.
    checkpoints: OnceLock<Checkpoints>,
}

/// How a fragment touches the one before it on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Join {
    /// Not at all.
    #[default]
    Apart,
    /// It begins where that one ends; in the file there is a hole between.
    Behind,
    /// It ends where that one begins.
    InFront,
}

impl Join {
    fn of(before: &Fragment, next: &Fragment) -> Self {
        if next.physical == before.physical_end {
            Self::Behind
        } else if next.physical_end == before.physical {
            Self::InFront
        } else {
            Self::Apart
        }
    }
}

/// What one replay of requests costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Device requests.
    pub requests: u64,
    /// Nanoseconds of elapsed time.
    pub ns: u128,
}

impl Add for Bill {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { requests: self.requests.saturating_add(other.requests), ns: self.ns + other.ns }
    }
}

impl AddAssign for Bill {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Bill {
    fn sum<I: Iterator<Item = Self>>(bills: I) -> Self {
        bills.fold(Self::default(), Add::add)
    }
}

/// The nearest whole number, as [`f64::round`] has it, which is a call of its own on processors that have no instruction for it.
pub fn rounded(ns: f64) -> u64 {
    let whole = ns as u64;
    whole.saturating_add(u64::from(ns - whole as f64 >= 0.5))
}

impl Bill {
    /// Of a read that is done so often.
    pub fn of(split: Split, fetches: u64, clock: &mut Clock) -> Self {
        let ns = rounded(clock.read_ns(split));
        Self {
            requests: fetches.saturating_mul(split.requests),
            ns: u128::from(fetches) * u128::from(ns),
        }
    }

    /// Of one replay as the files are, by a plan's summary.
    pub fn before(summary: &Summary) -> Self {
        let ns = (summary.seconds_before * 1e9).round() as u128;
        Self { requests: summary.requests_before, ns }
    }

    /// Of ways between reads, which are no requests.
    pub fn way(ns: u128) -> Self {
        Self { requests: 0, ns }
    }

    /// Its time in seconds.
    pub fn seconds(self) -> f64 {
        self.ns as f64 / 1e9
    }
}

impl Fragments {
    /// The fragments of the present layout, on a device with these costs.
    pub fn of(layout: &Layout, model: &CostModel) -> Self {
        let fragments = layout.all_fragments().map(|fragment| fragment.range).collect();
        let pairs = || layout.all_fragments().zip(layout.all_fragments().skip(1));
        let joins = || pairs().map(|(before, next)| Join::of(&before, &next));
        let joins = if joins().any(|join| join != Join::Apart) {
            std::iter::once(Join::Apart).chain(joins()).collect()
        } else {
            Vec::new()
        };
        let seek = |(before, next): (Fragment, Fragment)| match Join::of(&before, &next) {
            Join::Apart => model.seek_ns(before.physical_end, next.physical),
            _ => 0,
        };
        let seeks = if model.seeks().is_empty() {
            Vec::new()
        } else {
            std::iter::once(0).chain(pairs().map(seek)).collect()
        };
        Self { fragments, seeks, joins, moved: Vec::new(), checkpoints: OnceLock::new() }
    }

    /// Number of fragments that `range` touches.
    pub fn count(&self, range: ByteRange) -> u64 {
        self.touched(self.first_behind(range.start), range).len() as u64
    }

    /// How a request for `range` is split into device requests, each of at most `max_request` bytes.
    pub fn split(&self, range: ByteRange, max_request: u64) -> Split {
        self.split_from(self.first_behind(range.start), range, max_request)
    }

    /// Shows how each request is split. `requests` must be sorted, so that one pass over the fragments serves them all.
    pub fn each_split<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a Request>,
        max_request: u64,
        mut show: impl FnMut(&'a Request, Split),
    ) {
        let mut first = None;
        for r in requests {
            let first = first.get_or_insert_with(|| self.first_behind(r.range.start));
            while self.fragments.get(*first).is_some_and(|p| p.end <= r.range.start) {
                *first += 1;
            }
            let split = self.split_from(*first, r.range, max_request);
            show(r, Split { streamed: r.streamed, ..split });
        }
    }

    /// What one replay of `requests`, which must be sorted, costs.
    pub fn replay<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a Request>,
        max_request: u64,
        clock: &mut Clock,
    ) -> Bill {
        let mut bill = Bill::default();
        let fetched = requests.into_iter().filter(|r| r.fetches > 0);
        self.each_split(fetched, max_request, |r, split| bill += Bill::of(split, r.fetches, clock));
        bill
    }

    /// The fragments that `range` touches, as a whole.
    pub fn touched_by(&self, range: ByteRange) -> &[ByteRange] {
        self.touched(self.first_behind(range.start), range)
    }

    /// Index of the first fragment that ends behind `start`.
    fn first_behind(&self, start: u64) -> usize {
        self.fragments.partition_point(|p| p.end <= start)
    }

    /// The fragments from `first` on that begin before `range` ends, none if it is empty. Most requests touch a few, so
    /// those are tried before a binary search.
    fn touched(&self, first: usize, range: ByteRange) -> &[ByteRange] {
        const FEW: usize = 8;
        if range.is_empty() {
            return &[];
        }
        let rest = &self.fragments[first..];
        let near = rest.iter().take(FEW).take_while(|p| p.start < range.end).count();
        let end = if near < FEW { near } else { rest.partition_point(|p| p.start < range.end) };
        &rest[..end]
    }

    fn split_from(&self, first: usize, range: ByteRange, max_request: u64) -> Split {
        let touched = self.touched(first, range);
        if touched.len() >= MANY || !self.joins.is_empty() {
            return self.tallied(first..first + touched.len(), range, max_request);
        }
        let lengths = || touched.iter().map(|p| p.intersect(range).len());
        let requests = if range.len() <= max_request {
            touched.len() as u64
        } else {
            lengths().map(|bytes| bytes.div_ceil(max_request)).sum()
        };
        let seek_ns = match self.seeks.get(first + 1..first + touched.len()) {
            Some(seeks) => seeks.iter().sum(),
            None => 0,
        };
        let moved = self.moved.get(first..first + touched.len()).unwrap_or_default();
        let torn = moved.windows(2).any(|pair| pair[0] != pair[1]);
        Split { bytes: lengths().sum(), requests, seek_ns, torn, streamed: false }
    }

    /// The same of fragments that may touch on the device, and of any number of them.
    fn tallied(&self, touched: Range<usize>, range: ByteRange, limit: u64) -> Split {
        let mut tally = Tally::default();
        let walk = |tally: &mut Tally, some: Range<usize>| {
            some.for_each(|at| tally.add(self.step(at, touched.start, range), limit));
        };
        // The first two may be joined otherwise than in another read, and the last one.
        let (from, to) = ((touched.start + 2).div_ceil(STEP), touched.end.saturating_sub(1) / STEP);
        if touched.len() >= MANY {
            walk(&mut tally, touched.start..from * STEP);
            if !self.checkpoints(limit).pass(&mut tally, from, to, limit) {
                walk(&mut tally, from * STEP..to * STEP);
            }
            walk(&mut tally, to * STEP..touched.end);
        } else {
            walk(&mut tally, touched.clone());
        }
        Split {
            bytes: tally.bytes,
            requests: tally.requests(limit),
            seek_ns: tally.seek_ns,
            torn: tally.tears > 0,
            streamed: false,
        }
    }

    fn checkpoints(&self, limit: u64) -> &Checkpoints {
        let everything = ByteRange { start: 0, end: u64::MAX };
        let steps = (0..self.fragments.len()).map(|at| self.step(at, 0, everything));
        self.checkpoints.get_or_init(|| Checkpoints::of(steps, limit))
    }

    /// The fragment `at` of a read of `range`, which is in those from `first` on.
    fn step(&self, at: usize, first: usize, range: ByteRange) -> Step {
        let fragment = self.fragments[at];
        let part = fragment.intersect(range);
        if at == first {
            return Step { bytes: part.len(), joins: false, seek_ns: 0, torn: false };
        }
        let joins = match self.joins.get(at).copied().unwrap_or_default() {
            Join::Apart => false,
            Join::Behind => true,
            // The read has all of the first, from its start, and all of this one, up to its end.
            Join::InFront => part == fragment && range.start <= self.fragments[at - 1].start,
        };
        let moved = |at: usize| self.moved.get(at).copied().unwrap_or_default();
        let seek_ns = self.seeks.get(at).copied().unwrap_or(0);
        Step { bytes: part.len(), joins, seek_ns, torn: moved(at) != moved(at - 1) }
    }

    /// The fragments once each of `moves` (sorted, disjoint, each within one run) is contiguous. A seek to or from a
    /// moved range lasts `far_ns`.
    pub fn after(&self, moves: &[ByteRange], far_ns: u64) -> Self {
        let mut out = Self {
            fragments: Vec::with_capacity(self.fragments.len()),
            seeks: Vec::with_capacity(self.seeks.len()),
            joins: Vec::with_capacity(self.joins.len()),
            moved: Vec::new(),
            checkpoints: OnceLock::new(),
        };
        let (seeks, joins) = (!self.seeks.is_empty(), !self.joins.is_empty());
        let any = !moves.is_empty();
        let mut moves = moves.iter().copied().peekable();
        // Whether the last fragment has moved.
        let mut moved = false;
        for (n, fragment) in self.fragments.iter().enumerate() {
            let mut rest = *fragment;
            while !rest.is_empty() {
                while moves.next_if(|m| m.end <= rest.start).is_some() {}
                let (end, moves_here) = match moves.peek() {
                    Some(m) if m.start <= rest.start => (m.end.min(rest.end), Some(*m)),
                    next => (next.map_or(rest.end, |m| m.start.min(rest.end)), None),
                };
                let joined = moves_here.is_some_and(|m| {
                    out.fragments
                        .last_mut()
                        .filter(|last| last.start == m.start && last.end == rest.start)
                        // A later part of a move that has already begun is joined to it.
                        .map(|last| last.end = end)
                        .is_some()
                });
                if !joined {
                    out.fragments.push(ByteRange { start: rest.start, end });
                    if any {
                        out.moved.push(moves_here.is_some());
                    }
                    let stays = moves_here.is_none() && !moved && rest.start == fragment.start;
                    if joins {
                        let join = self.joins[n];
                        // What ends in front of the one before it must be whole, and that one from its start.
                        let before = n.checked_sub(1).map(|n| self.fragments[n].start);
                        let last =
                            out.fragments.len().checked_sub(2).map(|n| out.fragments[n].start);
                        let whole = join != Join::InFront || end == fragment.end && last == before;
                        out.joins.push(if stays && whole { join } else { Join::Apart });
                    }
                    if seeks {
                        let seek = if stays { self.seeks[n] } else { far_ns };
                        out.seeks.push(if out.seeks.is_empty() { 0 } else { seek });
                    }
                }
                moved = moves_here.is_some();
                rest.start = end;
            }
        }
        out
    }
}

#[cfg(test)]
mod many;

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(ranges: &[(u64, u64)]) -> Fragments {
        Fragments {
            fragments: ranges
                .iter()
                .map(|(start, end)| ByteRange { start: *start, end: *end })
                .collect(),
            seeks: Vec::new(),
            joins: Vec::new(),
            moved: Vec::new(),
            checkpoints: OnceLock::new(),
        }
    }

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn rounding_is_that_of_the_library() {
        let whole = [0.0, 1.0, 2.0, 1e6, 4_503_599_627_370_496.0, 9_007_199_254_740_993.0, 1.8e19];
        let parts = [-0.5, -0.1, 0.0, 0.1, 0.499_999_999_999_999_94, 0.5, 0.51, 0.999];
        let sums = whole.iter().flat_map(|whole| parts.map(|part| whole + part));
        let beyond = [-7.5, 2e19, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        for ns in sums.chain(parts).chain(beyond) {
            assert_eq!(rounded(ns), ns.round() as u64, "{ns}");
        }
    }

    #[test]
    fn a_move_joins_what_it_covers_and_tears_at_its_ends() {
        let p = fragments(&[(0, 4), (4, 8), (8, 20)]);
        let moved =
            |ranges, moved: &[bool]| Fragments { moved: moved.to_vec(), ..fragments(ranges) };
        let first = moved(&[(0, 8), (8, 20)], &[true, false]);
        assert_eq!(p.after(&[r(0, 8)], 9), first);
        let inside = moved(&[(0, 4), (4, 12), (12, 20)], &[false, true, false]);
        assert_eq!(p.after(&[r(4, 12)], 9), inside);
        assert_eq!(p.after(&[r(0, 8), r(8, 20)], 9), moved(&[(0, 8), (8, 20)], &[true, true]));
        assert_eq!(p.after(&[], 9), p);
        // What has moved is written together, and so is the rest.
        let torn = |range| inside.split(range, 1000).torn;
        assert_eq!([r(0, 4), r(5, 12), r(0, 5), r(11, 13)].map(torn), [false, false, true, true]);
        assert!(!p.split(r(0, 20), 1000).torn);
    }

    #[test]
    fn a_split_counts_fragments_and_the_request_limit() {
        let p = fragments(&[(0, 4), (4, 8), (100, 200)]);
        assert_eq!(p.count(r(2, 6)), 2);
        assert_eq!(p.count(r(8, 100)), 0);
        let split = |range, limit| {
            let split = p.split(range, limit);
            (split.bytes, split.requests)
        };
        assert_eq!(split(r(0, 200), 50), (108, 1 + 1 + 2));
        assert_eq!(split(r(2, 110), 1000), (2 + 4 + 10, 3));
        assert_eq!(split(r(8, 100), 50), (0, 0));
    }

    #[test]
    fn what_touches_on_the_device_is_one_request_of_a_read() {
        let (kind, block) = (fragmend_layout::ExtentKind::Data, 4096);
        let of = |places: &[(u64, u64)]| {
            let id = fragmend_layout::FileId { device: 1, inode: 2, generation: 3 };
            let mut layout = Layout::new(id, 1 << 20);
            for (logical, physical) in places {
                let [logical, physical] = [logical, physical].map(|n| n * block);
                layout.push(fragmend_layout::Extent { logical, physical, length: block, kind });
            }
            let flash = CostModel::guessed(fragmend_layout::DeviceKind::Flash);
            Fragments::of(&layout, &flash)
        };
        let requests = |p: &Fragments, start: u64, end: u64| {
            p.split(r(start * block, end * block), 1 << 20).requests
        };
        // Linux 6.18 has done so with files of such blocks, shared in this order on XFS: written backward, with a hole
        // behind each block, in pairs that have changed places, and each somewhere else.
        let backward = of(&[0, 1, 2, 3, 4, 5, 6, 7].map(|n| (n, 100 - n)));
        assert_eq!((requests(&backward, 0, 8), requests(&backward, 3, 6)), (1, 1));
        let holes = of(&[0, 1, 2, 3].map(|n| (2 * n, 100 + n)));
        assert_eq!((requests(&holes, 0, 8), requests(&holes, 1, 4)), (1, 1));
        let pairs = of(&[0, 1, 2, 3, 4, 5, 6, 7].map(|n| (n, 100 + (n ^ 1))));
        assert_eq!((requests(&pairs, 0, 8), requests(&pairs, 1, 8)), (4, 4));
        assert_eq!(requests(&of(&[0, 1, 2, 3].map(|n| (n, 100 + n * 5 % 64))), 0, 4), 4);
        // The longest request still cuts it, and a read that begins or ends within a block has a gap there.
        assert_eq!(backward.split(r(0, 8 * block), 3 * block).requests, 3);
        assert_eq!(backward.split(r(block / 2, 2 * block), 1 << 20).requests, 2);
        assert_eq!(backward.split(r(0, block + block / 2), 1 << 20).requests, 2);
        // What moves touches nothing any more.
        let after = backward.after(&[r(2 * block, 4 * block)], 0);
        assert_eq!(requests(&after, 0, 8), 3);
        let after = backward.after(&[r(0, block / 2)], 0);
        assert_eq!(requests(&after, 0, 2), 3);
    }

    #[test]
    fn seeks_are_between_the_fragments_that_a_request_touches() {
        let seeks = |ranges: &[(u64, u64)], seeks: &[u64]| Fragments {
            seeks: seeks.to_vec(),
            ..fragments(ranges)
        };
        let p = seeks(&[(0, 4), (4, 8), (8, 12), (12, 20)], &[0, 10, 20, 40]);
        let of = |p: &Fragments, range| p.split(range, 1000).seek_ns;
        assert_eq!(
            [r(0, 20), r(5, 20), r(5, 8), r(4, 9)].map(|range| of(&p, range)),
            [70, 60, 0, 20]
        );
        // What has moved is far away, in both directions; what has not is where it was.
        let after = p.after(&[r(4, 12)], 100);
        assert_eq!(after.seeks, [0, 100, 100]);
        assert_eq!(p.after(&[r(0, 2)], 100).seeks, [0, 100, 10, 20, 40]);
        assert_eq!(p.after(&[], 100), p);
    }
}
