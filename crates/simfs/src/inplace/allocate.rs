//! Where new data of a file goes (fs/ext4/mballoc.c): to what is reserved for the file; behind the extent before it; small files to a
//! run that they share; large ones where the last large one was allocated.

use super::OfInPlace;
use crate::files::File;
use crate::space::Space;
use fragmend_flash::command::Units;

/// Files of at most so many bytes are small (`s_mb_stream_request`, 16 blocks of 4 KiB).
const SMALL_BYTES: u64 = 64 << 10;
/// Blocks of a run that small files share (`s_mb_group_prealloc`).
const SHARED_BLOCKS: u32 = 512;
/// What is reserved for a file of up to the first number of KiB has the second one (`ext4_mb_normalize_request`).
const RESERVED_KIB: [(u64, u64); 8] = [
    (16, 16),
    (32, 32),
    (64, 64),
    (128, 128),
    (256, 256),
    (512, 512),
    (1024, 1024),
    (u64::MAX, 2048),
];

/// Allocates at most `count` blocks for a file, from its block `block` on.
pub(super) fn place(
    kind: &mut OfInPlace,
    space: &mut Space,
    file: &mut File,
    block: u64,
    count: u32,
) -> Option<Units> {
    if let Some(units) = from_reserved(space, file, block, count) {
        return Some(units);
    }
    let bytes = kind.places.block_bytes();
    let before = file.map.before(block);
    let continues = before.filter(|piece| piece.blocks().end == block);
    let goal = before.map(|piece| piece.units().end());
    let end = (block + u64::from(count)) * bytes;
    if kind.locality && goal.is_none() && end.max(file.size) <= SMALL_BYTES {
        return small(kind, space, count);
    }
    let reserves = kind.reservation && end >= file.size;
    let wanted = if reserves { reserved_blocks(end, bytes, count) } else { count };
    let found = space.allocate(goal.unwrap_or(kind.stream), wanted, continues.is_some())?;
    kind.stream = found.end();
    let (used, rest) = (count.min(found.count), found.count.saturating_sub(count));
    if rest > 0 {
        let rest = Units::new(found.start + used, rest);
        space.hold(rest);
        if let Some((_, old)) = file.reserved.replace((block + u64::from(used), rest)) {
            space.let_go(old);
        }
    }
    Some(Units::new(found.start, used))
}

/// Blocks to allocate for a file that ends there now, so that it may grow.
fn reserved_blocks(end: u64, block_bytes: u64, count: u32) -> u32 {
    let kib = RESERVED_KIB.iter().find(|(most, _)| end >> 10 <= *most).map_or(2048, |row| row.1);
    count.max(((kib << 10) / block_bytes) as u32)
}

/// What is reserved for this block of the file.
fn from_reserved(space: &mut Space, file: &mut File, block: u64, count: u32) -> Option<Units> {
    let (first, units) = file.reserved?;
    if first != block {
        return None;
    }
    let used = Units::new(units.start, count.min(units.count));
    let rest = Units::new(used.end(), units.count - used.count);
    file.reserved = (rest.count > 0).then_some((first + u64::from(used.count), rest));
    space.hand_over(used);
    Some(used)
}

/// Blocks of the run that small files share.
fn small(kind: &mut OfInPlace, space: &mut Space, count: u32) -> Option<Units> {
    let run = match kind.small.take() {
        Some(run) => run,
        None => {
            let run = space.allocate(kind.stream, SHARED_BLOCKS, false)?;
            space.hold(run);
            run
        }
    };
    let used = Units::new(run.start, count.min(run.count));
    let rest = Units::new(used.end(), run.count - used.count);
    kind.small = (rest.count > 0).then_some(rest);
    space.hand_over(used);
    Some(used)
}
