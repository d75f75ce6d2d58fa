//! The IODP tree (InDeF, section III-A and III-B): the ranges of each file by how much moving them would bring.

use super::Monitor;
use fragmend_layout::{ByteRange, Layout, ParallelUnits, dopf, iodp};
use std::collections::BTreeMap;

/// A range with its degrees and its priority.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// The file.
    pub inode: u64,
    /// The bytes.
    pub range: ByteRange,
    /// How often it was read.
    pub reads: u32,
    /// Logical fragments in it.
    pub dolf: u64,
    /// How unevenly its blocks are on the chips (equation 1).
    pub dopf: f64,
    /// Its priority (equation 2).
    pub iodp: f64,
}

/// A tree of a file: by priority, and by where ranges begin among equals. A priority is never negative, so that its bits are in its
/// order.
type Tree = BTreeMap<(u64, u64), Weighed>;

/// The trees of all files.
#[derive(Clone, Debug, Default)]
pub struct Priorities(BTreeMap<u64, Tree>);

impl Priorities {
    /// Weighs what a monitor has seen. `layout` returns the present layout of a file, or none if it is gone; blocks are on the chips as
    /// `chips` says, stripe unit by stripe unit, as zones begin with whole stripes (section III-B).
    pub fn of(
        monitor: &Monitor,
        block_bytes: u64,
        chips: ParallelUnits,
        layout: impl Fn(u64) -> Option<Layout>,
    ) -> Self {
        let mut trees = BTreeMap::new();
        for (inode, ranges) in monitor.files() {
            let Some(layout) = layout(inode) else { continue };
            let tree: &mut Tree = trees.entry(inode).or_default();
            for (blocks, reads) in ranges {
                let range =
                    ByteRange { start: blocks.start * block_bytes, end: blocks.end * block_bytes };
                let dolf = layout.fragments(range);
                let dopf = dopf(&blocks_of_chips(&layout, range, block_bytes, chips));
                let iodp = iodp(dolf, chips.weight_of_dolf(), dopf, reads.into());
                let weighed = Weighed { inode, range, reads, dolf, dopf, iodp };
                tree.insert((iodp.to_bits(), range.start), weighed);
            }
        }
        Self(trees)
    }

    /// Removes so many thousandths of the ranges of each file, those of the lowest priority: moving them would bring little
    /// ("truncated entries").
    pub fn truncate(&mut self, per_mille: u64) {
        for tree in self.0.values_mut() {
            let gone = tree.len() as u64 * per_mille.min(1000) / 1000;
            (0..gone).for_each(|_| _ = tree.pop_first());
        }
    }

    /// What is left, the highest priority of each file first.
    pub fn ranges(&self) -> impl Iterator<Item = &Weighed> {
        self.0.values().flat_map(|tree| tree.values().rev())
    }
}

/// How many blocks of a range each chip has.
fn blocks_of_chips(
    layout: &Layout,
    range: ByteRange,
    block_bytes: u64,
    chips: ParallelUnits,
) -> Vec<u64> {
    let mut blocks = vec![0; chips.units.max(1) as usize];
    for extent in layout.within(range).filter(|extent| extent.kind.is_addressed()) {
        for place in (extent.physical..extent.physical_end()).step_by(block_bytes as usize) {
            blocks[chips.of(place) as usize] += 1;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{Extent, ExtentKind, FileId};

    const BLOCK: u64 = 4096;

    /// A file of blocks at these places.
    fn layout(places: &[u64]) -> Layout {
        let file = FileId { device: 1, inode: 1, generation: 0 };
        let mut layout = Layout::new(file, places.len() as u64 * BLOCK);
        for (block, place) in (0..).zip(places) {
            let (logical, physical) = (block * BLOCK, place * BLOCK);
            layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
        }
        layout
    }

    #[test]
    fn the_example_of_figure_9_and_the_filter() {
        // Eight blocks in six fragments; a block is on the chip of its number modulo four.
        let of_file = layout(&[1, 5, 6, 2, 3, 7, 11, 10]);
        let chips = ParallelUnits { units: 4, unit_bytes: BLOCK };
        let mut monitor = Monitor::new(1 << 20);
        monitor.read(1, 0..8);
        let weighed = Priorities::of(&monitor, BLOCK, chips, |_| Some(of_file.clone()));
        let first = weighed.ranges().next().expect("a range").clone();
        // None on chip 0, two on 1, three each on 2 and 3.
        assert_eq!((first.dolf, first.dopf), (6, 1.5));
        assert_eq!(first.iodp, chips.weight_of_dolf() * 6.0 + 1.5);

        let places: Vec<u64> = (0..80).map(|n| if n < 40 { 3 * n } else { 1000 + n }).collect();
        let half = layout(&places);
        let mut monitor = Monitor::new(1 << 20);
        (0..10).for_each(|n| monitor.read(1, 8 * n..8 * n + 8));
        let mut weighed = Priorities::of(&monitor, BLOCK, chips, |_| Some(half.clone()));
        weighed.truncate(500);
        let left: Vec<u64> = weighed.ranges().map(|weighed| weighed.range.start / BLOCK).collect();
        assert_eq!(left.len(), 5);
        assert!(left.iter().all(|block| *block < 40), "the fragmented half is left: {left:?}");
        assert!(Priorities::of(&monitor, BLOCK, chips, |_| None).ranges().next().is_none());
    }
}
