//! The ways of a disk's head from a read of one file to the next, which is of another file.
//!
//! They are as long as those within files ([`crate::ways`]), and moves change them too: what moves is far from what stays, and
//! near to all else that moves, as ranges are staged together in the order of their files.

use crate::choose::by_file;
use crate::fragments::Bill;
use crate::outlook::Outlook;
use crate::select::{Analysed, Candidate};
use crate::ways::{Moved, Stop, Visit};
use fragmend_layout::ByteRange;
use rayon::slice::ParallelSliceMut;
use std::mem::take;

/// A way: from the end of a read of one file to the start of one of another. Indices are those of the files.
#[derive(Clone, Copy, Debug)]
struct Way {
    from: (usize, Stop),
    to: (usize, Stop),
    /// Nanoseconds that it lasts as the files are.
    now_ns: u64,
}

/// The ways of one replay between files.
#[derive(Debug, Default)]
pub struct Between {
    ways: Vec<Way>,
}

impl Between {
    /// Those between files, whose visits it takes; `device` is the number of the device of each.
    pub fn of(files: &mut [Analysed], device: impl Fn(usize) -> u64) -> Self {
        let mut visits: Vec<(u64, usize, Visit<Stop>)> = Vec::new();
        for (n, file) in files.iter_mut().enumerate() {
            visits
                .extend(take(&mut file.ways.visits).into_iter().map(|visit| (device(n), n, visit)));
        }
        visits.par_sort_unstable_by_key(|(device, _, visit)| (*device, visit.first));
        let way = |pair: &[(u64, usize, Visit<Stop>)]| {
            let ((device, from, before), (same, to, next)) = (pair[0], pair[1]);
            let joins = device == same && before.last.checked_add(1) == Some(next.first);
            let now_ns = || files[to].costs.model.seek_ns(before.end.place, next.start.place);
            joins.then(|| Way { from: (from, before.end), to: (to, next.start), now_ns: now_ns() })
        };
        Self { ways: visits.windows(2).filter_map(way).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Nanoseconds of all ways as the files are.
    pub fn now_ns(&self) -> u128 {
        self.ways.iter().map(|way| u128::from(way.now_ns)).sum()
    }

    /// Nanoseconds of all ways once the `moves` of each file (sorted, disjoint) are contiguous.
    pub fn after_ns(&self, files: &[Analysed], moves: &[Vec<ByteRange>]) -> u128 {
        if self.is_empty() {
            return 0;
        }
        let mut before = 0u64;
        let moved: Vec<(u64, Moved)> = moves
            .iter()
            .map(|moves| {
                let start = before;
                before = moves.iter().fold(before, |sum, range| sum.saturating_add(range.len()));
                (start, Moved::of(moves))
            })
            .collect();
        // Where a byte will be among all that moves.
        let place = |(file, stop): (usize, Stop)| {
            let (start, moved) = &moved[file];
            moved.place(stop.byte).map(|(_, place)| start.saturating_add(place))
        };
        let then = |way: &Way| {
            let costs = &files[way.to.0].costs;
            match (place(way.from), place(way.to)) {
                (None, None) => way.now_ns,
                (Some(from), Some(to)) => costs.model.seek_ns(from + 1, to),
                _ => costs.far_ns,
            }
        };
        self.ways.iter().map(|way| u128::from(then(way))).sum()
    }

    /// The most nanoseconds, by file, that the ways to and from it may last less if it moves.
    pub fn most_ns(&self, files: &[Analysed]) -> Vec<u128> {
        let mut most = vec![0; files.len()];
        for way in &self.ways {
            let ns = u128::from(way.now_ns.max(files[way.to.0].costs.far_ns));
            most[way.from.0] += ns;
            most[way.to.0] += ns;
        }
        most
    }

    /// Nanoseconds that they last less once what was chosen is contiguous; below zero if they last longer.
    pub fn saved_ns(&self, files: &[Analysed], chosen: &[Candidate]) -> i128 {
        if self.is_empty() || chosen.is_empty() {
            return 0;
        }
        let after = self.after_ns(files, &by_file(files.len(), chosen));
        self.now_ns() as i128 - after as i128
    }

    /// For the verdict, as those within files.
    pub fn outlook(&self, files: &[Analysed]) -> Outlook {
        if self.is_empty() {
            return Outlook::default();
        }
        let runs: Vec<Vec<ByteRange>> = files.iter().map(|file| file.runs.clone()).collect();
        Outlook::of_ways(Bill::way(self.now_ns()), self.after_ns(files, &runs))
    }
}
