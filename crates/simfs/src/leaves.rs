//! Where the extents of a file are on the drive: in its inode as long as they are few, else in leaves of one block, each of which holds
//! those of a range of the file. A change writes the leaves that it concerns.

use crate::extent_map::{ExtentMap, Piece};
use std::collections::BTreeMap;
use std::ops::Range;

/// The leaves of a file, each by the first block of the file that it is for; none while the inode holds all extents.
#[derive(Clone, Debug, Default)]
pub struct Leaves(BTreeMap<u64, Leaf>);

/// A leaf.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leaf {
    /// Its place on the drive, once it has one.
    pub place: Option<u32>,
    /// Whether it differs from what is there.
    pub is_changed: bool,
    /// The place of the leaf behind it, as it says there, on file systems whose leaves are a chain.
    pub next: Option<u32>,
}

/// How many extents fit where.
#[derive(Clone, Copy, Debug)]
pub struct Fanout {
    /// In an inode.
    pub inode: usize,
    /// In a leaf.
    pub leaf: usize,
}

impl Fanout {
    /// The most bytes of an extent in a record: a block number below 2^35, a place, a count up to 2^21, a flag.
    const EXTENT: u64 = 5 + 5 + 3 + 1;
    /// The most bytes of a record besides: its header, the number of extents, the next leaf.
    const REST: u64 = 8 + 3 + 6;

    /// The fanout on blocks of so many bytes; an inode holds four extents, as ext4's does.
    pub fn new(block_bytes: u64) -> Self {
        let leaf = (block_bytes - Self::REST) / Self::EXTENT;
        Self { inode: 4, leaf: leaf as usize }
    }
}

impl Leaves {
    /// The leaves that were read from these places, each with its extents.
    pub fn read(leaves: &[(u32, Vec<Piece>)]) -> Self {
        let mut all = BTreeMap::new();
        for (n, (place, pieces)) in leaves.iter().enumerate() {
            let first = pieces.first().map_or(0, |piece| piece.block);
            let next = leaves.get(n + 1).map(|(place, _)| *place);
            let leaf = Leaf { place: Some(*place), is_changed: false, next };
            all.insert(if n == 0 { 0 } else { first }, leaf);
        }
        Self(all)
    }

    /// The places of all leaves that have one.
    pub fn places(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.values().filter_map(|leaf| leaf.place)
    }

    /// The leaves, with the blocks of the file that each is for.
    pub fn each(&self) -> Vec<(Range<u64>, Leaf)> {
        let ends = self.0.keys().skip(1).copied().chain([u64::MAX]);
        self.0.iter().zip(ends).map(|((start, leaf), end)| (*start..end, *leaf)).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the inode holds all extents.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes what is known of a leaf.
    pub fn set(&mut self, first: u64, leaf: Leaf) {
        self.0.insert(first, leaf);
    }

    /// All leaves are in their places on the drive, each with the place of the one behind it.
    pub fn are_written(&mut self) {
        let nexts: Vec<Option<u32>> = self.0.values().skip(1).map(|leaf| leaf.place).collect();
        for (leaf, next) in self.0.values_mut().zip(nexts.into_iter().chain([None])) {
            (leaf.is_changed, leaf.next) = (false, next);
        }
    }

    /// The extents of a range of the file have changed, or may be joined to those beside it.
    pub fn touch(&mut self, range: Range<u64>) {
        let first = self.0.range(..range.start.max(1)).next_back().map_or(0, |(first, _)| *first);
        let touched = self.0.range_mut(first..=range.end);
        touched.for_each(|(_, leaf)| leaf.is_changed = true);
    }

    /// Makes the leaves fit the extents, which are `map`'s: splits those that have too many, removes those that have none. Returns the
    /// places that are not used any more.
    pub fn settle(&mut self, map: &ExtentMap, fanout: Fanout) -> Vec<u32> {
        if map.len() <= fanout.inode {
            return std::mem::take(&mut self.0)
                .into_values()
                .filter_map(|leaf| leaf.place)
                .collect();
        }
        if self.0.is_empty() {
            self.0.insert(0, Leaf { is_changed: true, ..Leaf::default() });
        }
        let mut left = Vec::new();
        for (range, leaf) in self.each().into_iter().filter(|(_, leaf)| leaf.is_changed) {
            let blocks: Vec<u64> = map.within(range.clone()).map(|piece| piece.block).collect();
            if blocks.is_empty() && range.start > 0 {
                self.0.remove(&range.start);
                left.extend(leaf.place);
            } else if blocks.len() > fanout.leaf {
                // Halves, so that each of them may grow.
                for first in blocks.chunks(fanout.leaf.div_ceil(2)).skip(1).map(|part| part[0]) {
                    self.0.insert(first, Leaf { is_changed: true, ..Leaf::default() });
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(blocks: impl Iterator<Item = u64>) -> ExtentMap {
        let mut map = ExtentMap::new(100);
        blocks.for_each(|block| {
            map.insert(Piece { block, place: block as u32 * 2, count: 1, unwritten: false });
        });
        map
    }

    #[test]
    fn leaves_hold_all_extents_and_go_when_there_are_few() {
        let fanout = Fanout { inode: 4, leaf: 10 };
        let mut leaves = Leaves::default();
        assert_eq!((leaves.settle(&map(0..4), fanout), leaves.is_empty()), (vec![], true));
        let many = map(0..35);
        assert!(leaves.settle(&many, fanout).is_empty());
        let counts: Vec<usize> =
            leaves.each().into_iter().map(|(range, _)| many.within(range).count()).collect();
        assert_eq!((counts.iter().sum::<usize>(), counts.iter().max()), (35, Some(&5)));
        for (n, (range, leaf)) in leaves.each().into_iter().enumerate() {
            leaves.set(range.start, Leaf { place: Some(n as u32), is_changed: false, ..leaf });
        }
        let fewer = map((0..5).chain(20..35));
        leaves.touch(5..20);
        let mut left = leaves.settle(&fewer, fanout);
        left.sort_unstable();
        assert_eq!((left, leaves.len()), (vec![1, 2, 3], 4));
        let changed: Vec<u64> =
            leaves.each().into_iter().filter(|(_, l)| l.is_changed).map(|(r, _)| r.start).collect();
        assert_eq!(changed, [0, 20], "the first one may be joined to what follows it");
        assert_eq!(leaves.settle(&map(0..2), fanout).len(), 4);
    }
}
