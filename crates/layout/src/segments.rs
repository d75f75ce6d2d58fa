//! Segments of a log-structured file system: how full each is, how old, and how fragmented files are in it.
//!
//! Arithmetic alone. What a mounted F2FS reports is read by `scan`; `plan` chooses victims by it, and so may a simulated
//! cleaner. Blocks are file-system blocks, counted from the first one of the segments' area.

use crate::{Extent, FsKind};
use std::collections::BTreeSet;

/// One segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Whether it holds data of files or directories, and not nodes.
    pub holds_data: bool,
    /// Whether a log is being written in it.
    pub is_open: bool,
    /// Valid blocks in it.
    pub valid: u32,
    /// When its blocks were modified on average, in seconds of a clock of the file system's own; `None` where that is not
    /// reported.
    pub modified: Option<u64>,
}

/// The segments of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentTable {
    /// Byte of the device at which the first segment begins.
    pub start: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of a segment, at least one.
    pub segment_blocks: u32,
    /// Segments that become free together, at least one.
    pub section_segments: u32,
    /// All of them, in the order of the device.
    pub segments: Vec<Segment>,
    /// Free segments that data can be moved to, before the file system would have to fill holes of used ones.
    pub spare: u64,
    /// Why no age is known, if none is.
    pub no_age: Option<String>,
}

/// Sections: what a cleaner chooses as its victim. On most file systems, each is one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Valid blocks in it.
    pub valid: u32,
    /// Whether it holds valid data alone, and no log is being written in it.
    pub is_closed: bool,
    /// When it was modified, on average over its segments that have valid blocks.
    pub modified: Option<u64>,
}

impl SegmentTable {
    /// Blocks of a section.
    pub fn section_blocks(&self) -> u32 {
        self.segment_blocks * self.section_segments
    }

    /// The sections, in the order of the device.
    pub fn sections(&self) -> Vec<Section> {
        self.segments.chunks(self.section_segments as usize).map(Section::of).collect()
    }

    /// The section and the block within it at which an extent begins, and the extent's blocks; `None` for what is not in whole
    /// blocks of the segments' area.
    pub fn place(&self, extent: &Extent) -> Option<(usize, u32, u64)> {
        let at = extent.physical.checked_sub(self.start)?;
        let whole = at.is_multiple_of(self.block_bytes);
        let (block, blocks) = (at / self.block_bytes, extent.length.div_ceil(self.block_bytes));
        let all = self.segments.len() as u64 * u64::from(self.segment_blocks);
        let section = u64::from(self.section_blocks());
        let is_inside = whole && block.checked_add(blocks)? <= all;
        is_inside.then_some(((block / section) as usize, (block % section) as u32, blocks))
    }
}

impl Section {
    fn of(segments: &[Segment]) -> Self {
        let used = || segments.iter().filter(|s| s.valid > 0);
        let sum = used().map(|s| s.modified.map(u128::from)).sum::<Option<u128>>();
        let count = used().count() as u128;
        Self {
            valid: segments.iter().map(|s| s.valid).sum(),
            is_closed: segments.iter().all(|s| !s.is_open) && used().all(|s| s.holds_data),
            modified: sum.filter(|_| count > 0).map(|sum| (sum / count) as u64),
        }
    }
}

/// The degree of fragmentation of a segment (Park et al., APSys'16, algorithm 1): how often the file of a block has a block
/// before it in the segment that is not the one directly before. Each block is the number of its file's inode, or `None` if it
/// is invalid, or its file is not known.
///
/// The paper's listing has its two branches swapped against its text; this is the text.
pub fn segment_degree(blocks: impl IntoIterator<Item = Option<u64>>) -> u64 {
    let (mut inodes, mut before, mut degree) = (BTreeSet::new(), None, 0);
    for block in blocks {
        if let Some(inode) = block.filter(|_| block != before) {
            degree += u64::from(!inodes.insert(inode));
        }
        before = block;
    }
    degree
}

/// How much sections are worth cleaning by age and valid blocks, the most first: `get_cb_cost()` of F2FS
/// (fs/f2fs/gc.c), after the cost-benefit policy of LFS. Where no age is known, all are of one age, and the one with the fewest valid
/// blocks goes first. Returns indices.
pub fn by_cost_benefit(sections: &[Section], section_blocks: u32) -> Vec<usize> {
    let times = || sections.iter().filter(|s| s.valid > 0).filter_map(|s| s.modified);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let span = u128::from(last - first);
    let benefit = |section: &Section| {
        let used = u128::from(section.valid) * 100 / u128::from(section_blocks.max(1));
        let newer = section.modified.map_or(0, |at| u128::from(at.clamp(first, last) - first));
        let age = 100 - (newer * 100).checked_div(span).unwrap_or(0);
        100 * 100u128.saturating_sub(used) * age / (100 + used)
    };
    let mut order: Vec<usize> = (0..sections.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(benefit(&sections[*i])), sections[*i].valid, *i));
    order
}

impl FsKind {
    /// Whether it writes data in segments that are cleaned as a whole.
    pub fn has_segments(self) -> bool {
        self == Self::F2fs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExtentKind;

    /// What the algorithm counts, by looking at all pairs.
    fn brute_force(blocks: &[Option<u64>]) -> u64 {
        let begins = |i: &usize| blocks[*i].is_some() && (*i == 0 || blocks[*i - 1] != blocks[*i]);
        let again = |i: &usize| (0..*i).any(|j| blocks[j] == blocks[*i]);
        (0..blocks.len()).filter(begins).filter(again).count() as u64
    }

    #[test]
    fn the_degree_counts_files_that_come_again() {
        let of = |text: &str| {
            let block = |c: char| c.is_alphabetic().then_some(c as u64);
            segment_degree(text.chars().map(block))
        };
        assert_eq!(of(""), 0);
        assert_eq!(of("...."), 0);
        assert_eq!(of("aaaabbbb"), 0);
        assert_eq!(of("abababab"), 6);
        // An invalid block clears the predecessor.
        assert_eq!(of("aa.aa"), 1);
        assert_eq!(of("a.b.a.b"), 2);
        assert_eq!(of("abc"), 0);
        assert_eq!(of("abca"), 1);
    }

    #[test]
    fn the_degree_is_what_all_pairs_say() {
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        let mut below = |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % n
        };
        for _ in 0..3000 {
            let (length, files) = (below(24), 1 + below(5));
            let blocks: Vec<Option<u64>> =
                (0..length).map(|_| below(files + 1).checked_sub(1)).collect();
            assert_eq!(segment_degree(blocks.iter().copied()), brute_force(&blocks), "{blocks:?}");
        }
    }

    #[test]
    fn old_and_empty_sections_go_first() {
        let section = |valid, modified| Section { valid, is_closed: true, modified };
        let some = [section(256, Some(10)), section(256, Some(90)), section(128, Some(10))];
        assert_eq!(by_cost_benefit(&some, 512), [2, 0, 1]);
        // A recent one waits, even if it is emptier; a full one has no benefit.
        let some = [section(64, Some(100)), section(512, Some(0)), section(400, Some(0))];
        assert_eq!(by_cost_benefit(&some, 512), [2, 0, 1]);
        let unknown = [section(300, None), section(64, None), section(512, None)];
        assert_eq!(by_cost_benefit(&unknown, 512), [1, 0, 2]);
        // The kernel's own arithmetic: (100 - 50) * (100 - 0) * 100 / (100 + 50).
        assert_eq!(by_cost_benefit(&[], 512), [0usize; 0]);
    }

    #[test]
    fn a_section_is_all_of_its_segments() {
        let segment =
            |valid, modified| Segment { holds_data: true, is_open: false, valid, modified };
        let node = Segment { holds_data: false, ..segment(3, Some(1)) };
        let empty = Segment { holds_data: false, ..segment(0, None) };
        let table = SegmentTable {
            start: 1 << 20,
            block_bytes: 4096,
            segment_blocks: 8,
            section_segments: 2,
            segments: vec![
                segment(1, Some(10)),
                segment(2, Some(21)),
                segment(3, Some(1)),
                node,
                empty,
                segment(4, Some(7)),
                Segment { is_open: true, ..segment(0, None) },
            ],
            spare: 0,
            no_age: None,
        };
        let section = |valid, is_closed, modified| Section { valid, is_closed, modified };
        let expected = [
            section(3, true, Some(15)),
            section(6, false, Some(1)),
            section(4, true, Some(7)),
            section(0, false, None),
        ];
        assert_eq!(table.sections(), expected);
        let at = |physical, length| {
            table.place(&Extent { logical: 0, physical, length, kind: ExtentKind::Data })
        };
        assert_eq!(at(1 << 20, 4096), Some((0, 0, 1)));
        assert_eq!(at((1 << 20) + 17 * 4096, 8192), Some((1, 1, 2)));
        assert_eq!(at((1 << 20) - 4096, 4096), None);
        assert_eq!(at((1 << 20) + 512, 4096), None);
        assert_eq!(at((1 << 20) + 55 * 4096, 4096), Some((3, 7, 1)));
        assert_eq!(at((1 << 20) + 55 * 4096, 8192), None);
        assert_eq!(at(!4095, u64::MAX), None);
    }
}
