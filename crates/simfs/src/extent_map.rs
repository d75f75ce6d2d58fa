//! Where the blocks of a file are on the drive.

use crate::ranges::gaps_between;
use fragmend_flash::command::Units;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Consecutive blocks of a file that are consecutive on the drive. Blocks are the drive's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// The first one's number in the file.
    pub block: u64,
    /// Its place on the drive.
    pub place: u32,
    /// How many.
    pub count: u32,
    /// Whether they are allocated and were never written: they read as zeroes.
    pub unwritten: bool,
}

impl Piece {
    /// The blocks of the file.
    pub fn blocks(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.count)
    }

    /// The blocks of the drive.
    pub fn units(&self) -> Units {
        Units::new(self.place, self.count)
    }

    /// The part of it that is in `range`; `None` if nothing is.
    pub fn within(&self, range: &Range<u64>) -> Option<Self> {
        let (start, end) = (self.block.max(range.start), self.blocks().end.min(range.end));
        (start < end).then(|| Self {
            block: start,
            place: self.place + (start - self.block) as u32,
            count: (end - start) as u32,
            unwritten: self.unwritten,
        })
    }

    /// Whether `next` continues it in the file and on the drive.
    fn continues_in(&self, next: &Self) -> bool {
        self.blocks().end == next.block
            && self.place.checked_add(self.count) == Some(next.place)
            && self.unwritten == next.unwritten
    }
}

/// Where the blocks of a file are: pieces without overlap. Holes are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentMap {
    pieces: BTreeMap<u64, Piece>,
    /// The longest piece, in blocks.
    longest: u32,
}

impl ExtentMap {
    /// No blocks. No piece will be longer than `longest` blocks.
    pub fn new(longest: u32) -> Self {
        Self { pieces: BTreeMap::new(), longest: longest.max(1) }
    }

    /// The pieces in the order of the file.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = Piece> + '_ {
        self.pieces.values().copied()
    }

    /// How many pieces there are.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Blocks in all pieces.
    pub fn blocks(&self) -> u64 {
        self.pieces().map(|piece| u64::from(piece.count)).sum()
    }

    /// The block after the last one; 0 if there are none.
    pub fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(_, last)| last.blocks().end)
    }

    /// The piece that holds this block of the file.
    pub fn at(&self, block: u64) -> Option<Piece> {
        let (_, piece) = self.pieces.range(..=block).next_back()?;
        (block < piece.blocks().end).then_some(*piece)
    }

    /// The last piece before this block of the file.
    pub fn before(&self, block: u64) -> Option<Piece> {
        self.pieces.range(..block).next_back().map(|(_, piece)| *piece)
    }

    /// The parts of the pieces that are in `range`, in the order of the file.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let first = self.at(range.start).map_or(range.start, |piece| piece.block);
        let pieces = self.pieces.range(first..range.end.max(first));
        pieces.filter_map(move |(_, piece)| piece.within(&range))
    }

    /// The parts of `range` that are in no piece.
    pub fn holes(&self, range: Range<u64>) -> Vec<Range<u64>> {
        gaps_between(range.clone(), self.within(range).map(|piece| piece.blocks()))
    }

    /// Removes what is in `range`; returns it.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Piece> {
        let removed: Vec<Piece> = self.within(range.clone()).collect();
        for part in &removed {
            let whole = self.at(part.block).expect("its piece");
            self.pieces.remove(&whole.block);
            let rests = [whole.block..part.block, part.blocks().end..whole.blocks().end];
            for rest in rests.iter().filter_map(|rest| whole.within(rest)) {
                self.pieces.insert(rest.block, rest);
            }
        }
        removed
    }

    /// Puts a piece in the place of what is there; returns that.
    pub fn insert(&mut self, piece: Piece) -> Vec<Piece> {
        let replaced = self.remove(piece.blocks());
        let mut rest = piece;
        // Joins it to the piece before it, as far as that may grow.
        if let Some(before) = self.before(rest.block).filter(|before| before.continues_in(&rest)) {
            let count = rest.count.min(self.longest.saturating_sub(before.count));
            if let Some(last) = self.pieces.get_mut(&before.block) {
                last.count += count;
            }
            rest = after(&rest, count);
        }
        while rest.count > 0 {
            let part = Piece { count: rest.count.min(self.longest), ..rest };
            self.pieces.insert(part.block, part);
            rest = after(&rest, part.count);
        }
        self.join_next(piece.blocks().end);
        replaced
    }

    /// Joins the piece that begins at this block to the one before it, if both are short enough.
    fn join_next(&mut self, block: u64) {
        let (Some(before), Some(next)) = (self.before(block), self.at(block)) else { return };
        let joined = before.count.saturating_add(next.count);
        if next.block == block && before.continues_in(&next) && joined <= self.longest {
            self.pieces.remove(&block);
            self.pieces.insert(before.block, Piece { count: joined, ..before });
        }
    }
}

/// What follows the first `count` blocks of a piece.
fn after(piece: &Piece, count: u32) -> Piece {
    Piece {
        block: piece.block + u64::from(count),
        place: piece.place + count,
        count: piece.count - count,
        unwritten: piece.unwritten,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(block: u64, place: u32, count: u32) -> Piece {
        Piece { block, place, count, unwritten: false }
    }

    #[test]
    fn pieces_are_joined_and_no_longer_than_the_longest() {
        let mut map = ExtentMap::new(8);
        map.insert(piece(0, 100, 4));
        map.insert(piece(8, 108, 4));
        map.insert(piece(4, 104, 4));
        assert_eq!(map.pieces().collect::<Vec<_>>(), [piece(0, 100, 8), piece(8, 108, 4)]);
        let unwritten = Piece { unwritten: true, ..piece(12, 112, 4) };
        map.insert(unwritten);
        assert_eq!(map.len(), 3, "what was never written is apart");
        assert_eq!(map.insert(piece(2, 50, 4)), [piece(2, 102, 4)]);
        assert_eq!(
            map.remove(3..13),
            [piece(3, 51, 3), piece(6, 106, 2), piece(8, 108, 4)]
                .into_iter()
                .chain([Piece { count: 1, ..unwritten }])
                .collect::<Vec<_>>()
        );
        assert_eq!(map.holes(0..20), [3..13, 16..20]);
    }

    proptest! {
        #[test]
        fn it_is_the_map_of_single_blocks(
            steps in prop::collection::vec((0u64..40, 1u32..12, 0u32..200, any::<bool>(), 0u8..4), 1..40),
            longest in 1u32..10,
        ) {
            let mut map = ExtentMap::new(longest);
            let mut blocks: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
            for (block, count, place, unwritten, kind) in steps {
                let range = block..block + u64::from(count);
                let out: Vec<Piece> = if kind == 0 {
                    map.remove(range.clone())
                } else {
                    map.insert(Piece { block, place, count, unwritten })
                };
                let was: Vec<_> = blocks.range(range.clone()).map(|(b, at)| (*b, *at)).collect();
                let single = |p: &Piece| p.blocks().zip(p.place..).map(|(b, at)| (b, (at, p.unwritten))).collect::<Vec<_>>();
                prop_assert_eq!(out.iter().flat_map(single).collect::<Vec<_>>(), was);
                range.clone().for_each(|b| _ = blocks.remove(&b));
                if kind != 0 {
                    blocks.extend(range.zip((place..).map(|at| (at, unwritten))));
                }
                let all: Vec<_> = blocks.iter().map(|(b, at)| (*b, *at)).collect();
                prop_assert_eq!(map.pieces().flat_map(|p| single(&p)).collect::<Vec<_>>(), all);
                prop_assert!(map.pieces().all(|p| p.count <= longest));
            }
        }
    }
}
