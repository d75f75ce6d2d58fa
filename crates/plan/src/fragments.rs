//! What requests cost on a layout, now and after ranges have moved.

use crate::requests::Request;
use fragmend_layout::{ByteRange, Layout};

/// The addressed fragments of a file in file order; holes and unwritten space are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragments {
    fragments: Vec<ByteRange>,
}

impl Fragments {
    /// The fragments of the present layout.
    pub fn of(layout: &Layout) -> Self {
        Self { fragments: layout.all_fragments().map(|fragment| fragment.range).collect() }
    }

    /// Number of fragments that `range` touches.
    pub fn count(&self, range: ByteRange) -> u64 {
        self.touched(self.first_behind(range.start), range).len() as u64
    }

    /// The number of device requests, each of at most `max_request` bytes, that one request for `range`
    /// becomes.
    pub fn cost(&self, range: ByteRange, max_request: u64) -> u64 {
        self.cost_from(self.first_behind(range.start), range, max_request)
    }

    /// Device requests of one replay of the trace from a cold cache. `requests` must be sorted, so that one
    /// pass over the fragments serves them all.
    pub fn replay_cost<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a Request>,
        max_request: u64,
    ) -> u64 {
        let mut first = None;
        let mut cost = |r: &'a Request| {
            let first = first.get_or_insert_with(|| self.first_behind(r.range.start));
            while self.fragments.get(*first).is_some_and(|p| p.end <= r.range.start) {
                *first += 1;
            }
            r.fetches * self.cost_from(*first, r.range, max_request)
        };
        requests.into_iter().filter(|r| r.fetches > 0).map(&mut cost).sum()
    }

    /// Index of the first fragment that ends behind `start`.
    fn first_behind(&self, start: u64) -> usize {
        self.fragments.partition_point(|p| p.end <= start)
    }

    /// The fragments from `first` on that begin before `range` ends. Most requests touch a few, so those are
    /// tried before a binary search.
    fn touched(&self, first: usize, range: ByteRange) -> &[ByteRange] {
        const FEW: usize = 8;
        let rest = &self.fragments[first..];
        let near = rest.iter().take(FEW).take_while(|p| p.start < range.end).count();
        let end = if near < FEW { near } else { rest.partition_point(|p| p.start < range.end) };
        &rest[..end]
    }

    fn cost_from(&self, first: usize, range: ByteRange, max_request: u64) -> u64 {
        let touched = self.touched(first, range);
        if range.len() <= max_request {
            return touched.len() as u64;
        }
        touched.iter().map(|p| p.intersect(range).len().div_ceil(max_request)).sum()
    }

    /// The fragments once each of `moves` (sorted, disjoint, each within one run) is contiguous.
    pub fn after(&self, moves: &[ByteRange]) -> Self {
        let mut out: Vec<ByteRange> = Vec::with_capacity(self.fragments.len());
        let mut moves = moves.iter().copied().peekable();
        for fragment in &self.fragments {
            let mut rest = *fragment;
            while !rest.is_empty() {
                while moves.next_if(|m| m.end <= rest.start).is_some() {}
                match moves.peek().copied() {
                    Some(m) if m.start <= rest.start => {
                        let end = m.end.min(rest.end);
                        match out.last_mut() {
                            // A later part of a move that has already begun is joined to it.
                            Some(last) if last.start == m.start && last.end == rest.start => {
                                last.end = end;
                            }
                            _ => out.push(ByteRange { start: rest.start, end }),
                        }
                        rest.start = end;
                    }
                    next => {
                        let end = next.map_or(rest.end, |m| m.start.min(rest.end));
                        out.push(ByteRange { start: rest.start, end });
                        rest.start = end;
                    }
                }
            }
        }
        Self { fragments: out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(ranges: &[(u64, u64)]) -> Fragments {
        Fragments {
            fragments: ranges
                .iter()
                .map(|(start, end)| ByteRange { start: *start, end: *end })
                .collect(),
        }
    }

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn a_move_joins_what_it_covers_and_tears_at_its_ends() {
        let p = fragments(&[(0, 4), (4, 8), (8, 20)]);
        assert_eq!(p.after(&[r(0, 8)]), fragments(&[(0, 8), (8, 20)]));
        assert_eq!(p.after(&[r(4, 12)]), fragments(&[(0, 4), (4, 12), (12, 20)]));
        assert_eq!(p.after(&[r(0, 8), r(8, 20)]), fragments(&[(0, 8), (8, 20)]));
        assert_eq!(p.after(&[]), p);
    }

    #[test]
    fn cost_counts_fragments_and_the_request_limit() {
        let p = fragments(&[(0, 4), (4, 8), (100, 200)]);
        assert_eq!(p.count(r(2, 6)), 2);
        assert_eq!(p.count(r(8, 100)), 0);
        assert_eq!(p.cost(r(0, 200), 50), 1 + 1 + 2);
    }
}
