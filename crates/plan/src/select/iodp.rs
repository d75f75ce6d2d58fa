//! Accessed ranges by how much defragmenting them is worth: their priority (IODP) is how fragmented they are in the file system and on
//! the drive, times their reads ("InDeF", equations 1 and 2).
//!
//! Ranges are the windows of overlapping requests, as in [`super::fragpicker`], with the reads that reach the device. Those of a file are in
//! a tree, ordered by priority; the lowest of each file are truncated, whatever the budget (section III-C). What is in one fragment is in the
//! tree as well, and is not moved. The budget is for what is left of all files together, in the order of priority.
//!
//! The degree of physical fragmentation counts where it is known which dies hold what: the profile of the device says so
//! (`fragmend_layout::ParallelUnits`). Elsewhere the logical one decides alone.

use super::{Analysed, Candidate, fragmented_parts};
use fragmend_layout::{ByteRange, Layout, ParallelUnits, dopf, iodp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The per cent of the ranges of each file that are left out by default: up to about this many, the paper finds that throughput stays (section
/// IV, figure 13).
pub const TRUNCATED: f64 = 30.0;

/// What priorities were made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Priorities {
    /// Accessed ranges.
    pub ranges: u64,
    /// Those of them that are left out, because their priority is low.
    pub truncated: u64,
    /// Ranges of which the degree of physical fragmentation (DoPF) is known, and counts beside the logical one (DoLF).
    pub with_dopf: u64,
}

/// Where a file's fragments are, and on which units of its device.
#[derive(Clone, Debug)]
pub struct Places {
    units: ParallelUnits,
    /// In file order: the bytes of the file, and the byte of the device at which they begin.
    fragments: Vec<(ByteRange, u64)>,
}

impl Places {
    /// The places of a layout.
    pub fn of(layout: &Layout, units: ParallelUnits) -> Self {
        let fragments = layout.all_fragments().map(|f| (f.range, f.physical)).collect();
        Self { units, fragments }
    }

    /// The degree of physical fragmentation of a range, in blocks of so many bytes.
    fn dopf(&self, range: ByteRange, block: u64) -> f64 {
        let mut bytes = vec![0u64; self.units.units.max(1) as usize];
        let unit_bytes = self.units.unit_bytes.max(1);
        let first = self.fragments.partition_point(|(of, _)| of.end <= range.start);
        for (of, physical) in &self.fragments[first..] {
            let part = of.intersect(range);
            if part.is_empty() {
                break;
            }
            let mut at = physical.saturating_add(part.start - of.start);
            let end = at.saturating_add(part.len());
            while at < end {
                let next = (at / unit_bytes + 1).saturating_mul(unit_bytes).min(end);
                bytes[self.units.of(at) as usize] += next - at;
                at = next;
            }
        }
        let blocks: Vec<u64> = bytes.iter().map(|bytes| bytes.div_ceil(block)).collect();
        dopf(&blocks)
    }
}

/// The ranges to move, the highest priority first, and what priorities were made of. `percent` of the ranges of each file are truncated.
pub fn choose(files: &[Analysed], percent: f64) -> (Vec<Candidate>, Priorities) {
    // Priorities are not negative, and the bits of such numbers are in their order.
    let mut kept: BTreeMap<(u64, Reverse<(usize, usize)>), ByteRange> = BTreeMap::new();
    let mut figures = Priorities::default();
    for (i, file) in files.iter().enumerate() {
        let mut tree: BTreeMap<(u64, Reverse<usize>), ByteRange> = BTreeMap::new();
        for (k, window) in file.windows.iter().enumerate() {
            let requests = &file.requests[window.requests.clone()];
            let reads = requests.iter().map(|r| r.fetches).fold(0, u64::saturating_add);
            let dopf = file.places.as_ref().map(|places| places.dopf(window.range, file.block));
            let weight = file.places.as_ref().map_or(1.0, |places| places.units.weight_of_dolf());
            figures.with_dopf += u64::from(dopf.is_some());
            let dolf = file.fragments.count(window.range);
            let priority = iodp(dolf, weight, dopf.unwrap_or(0.0), reads);
            tree.insert((priority.to_bits(), Reverse(k)), window.range);
        }
        let truncated = (tree.len() as f64 * percent.clamp(0.0, 100.0) / 100.0).round() as usize;
        figures.ranges += tree.len() as u64;
        figures.truncated += truncated as u64;
        let left = tree.into_iter().skip(truncated);
        kept.extend(
            left.map(|((priority, Reverse(k)), range)| ((priority, Reverse((i, k))), range)),
        );
    }
    // What nothing reads from the device costs nothing.
    let worth = kept.iter().rev().filter(|((priority, _), _)| f64::from_bits(*priority) > 0.0);
    let ranges = worth.flat_map(|((_, Reverse((file, _))), range)| {
        fragmented_parts(&files[*file], *range).map(|range| Candidate { file: *file, range })
    });
    (ranges.collect(), figures)
}
