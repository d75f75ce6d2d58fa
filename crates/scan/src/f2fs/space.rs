//! Free space of a mounted F2FS, block by block.
//!
//! Before the segments are the super block, checkpoints and tables; segments of nodes hold metadata. What is free in a segment
//! that has valid blocks is written to only where free segments are few: a run of it may be longer than what the file system
//! would write there in one go. Segments that it keeps for itself are free here.

use super::{MOST_BITS, OpenDevice, Unread, valid_blocks};
use crate::FileSystem;
use crate::space::{Collector, bits};
use fragmend_layout::{ByteRange, SpaceKind};

/// Adds the space of an F2FS that was synced before.
pub(crate) fn space(fs: &FileSystem, to: &mut Collector) -> Result<(), Unread> {
    let device = OpenDevice::of(fs)?;
    let geometry = device.geometry()?;
    let count = geometry.segments as usize;
    if count > MOST_BITS {
        return Err(Unread::TooMany(geometry.segments));
    }
    let segments = device.listed("segment_bits", |list| valid_blocks(list, count))?;
    to.add(SpaceKind::Metadata, ByteRange { start: 0, end: geometry.start });
    let mut first = geometry.start;
    for segment in segments {
        let address = |block: u64| first + block * geometry.block_bytes;
        for (run, is_valid) in bits::runs(&segment.valid) {
            let range = ByteRange { start: address(run.start), end: address(run.end) };
            match (is_valid, segment.holds_data) {
                (false, _) => to.add(SpaceKind::Free, range),
                (true, false) => to.add(SpaceKind::Metadata, range),
                (true, true) => {}
            }
        }
        first = address(geometry.segment_blocks.into());
    }
    to.reaches(first);
    Ok(())
}
