//! What is read of an F2FS's segments: an accepted geometry is within its device, a list has as many segments as were asked for. The
//! first byte of an input says what follows.

use fragmend_layout::{Extent, ExtentKind, SegmentTable, by_cost_benefit};
use fragmend_scan::f2fs::{Geometry, modified, open_logs, segments, valid_blocks};

/// Segments of the lists in the corpus.
const COUNT: usize = 12;

/// A super block, two checkpoints, or a list of segments.
pub fn f2fs(input: &[u8]) -> bool {
    let Some((kind, input)) = input.split_first() else { return false };
    let text = || std::str::from_utf8(input).unwrap_or_default();
    match kind % 5 {
        0 => Geometry::parse(input).is_ok_and(|geometry| geometry_fits(&geometry)),
        1 => {
            let packs = input.split_at(input.len() / 2);
            let open = open_logs([packs.0, packs.1]);
            assert!(open.len() <= 16);
            !open.is_empty()
        }
        2 => segments(text(), COUNT).is_ok_and(|segments| {
            assert_eq!(segments.len(), COUNT);
            let table = SegmentTable {
                start: 4096,
                block_bytes: 4096,
                segment_blocks: 512,
                section_segments: 5,
                segments,
                ..SegmentTable::default()
            };
            let sections = table.sections();
            assert_eq!(sections.len(), COUNT.div_ceil(5));
            assert!(sections.iter().all(|section| section.valid <= table.section_blocks()));
            let mut order = by_cost_benefit(&sections, table.section_blocks());
            order.sort_unstable();
            assert!(order.into_iter().eq(0..sections.len()));
            true
        }),
        4 => valid_blocks(text(), COUNT).is_ok_and(|segments| {
            assert_eq!(segments.len(), COUNT);
            true
        }),
        _ => modified(text(), COUNT).is_ok_and(|times| {
            assert!(times.is_none_or(|times| times.len() == COUNT));
            true
        }),
    }
}

/// Figures that can be reckoned with.
fn geometry_fits(geometry: &Geometry) -> bool {
    let Geometry { block_bytes, segment_blocks, section_segments, segments, start, .. } = *geometry;
    let segment = block_bytes * u64::from(segment_blocks);
    let end = start + segment * u64::from(segments);
    assert!(end <= u64::from(u32::MAX) * block_bytes && segments % section_segments == 0);
    assert!(geometry.checkpoints().iter().all(|at| at + segment <= start));
    let table = SegmentTable {
        start,
        block_bytes,
        segment_blocks,
        // No more are made than fit in memory.
        section_segments: section_segments.min(512),
        segments: vec![Default::default(); segments.min(512) as usize],
        ..SegmentTable::default()
    };
    for physical in [0, start, end, end - block_bytes, start + block_bytes / 2, u64::MAX] {
        let kind = ExtentKind::Data;
        let extent = Extent { logical: 0, physical, length: block_bytes, kind };
        if let Some((section, block, blocks)) = table.place(&extent) {
            assert!(section < table.sections().len() && blocks == 1);
            assert!(block < table.section_blocks());
        }
    }
    true
}
