//! Where new data of a file goes (fs/ext4/mballoc.c): to what is reserved for the file; of a small file, to a run that all of them
//! share, also where it grows; of a large one, behind the extent before it if all that is wanted is free there, else to the group where the
//! last large one was allocated, and those after it. If all files count as small, the run is the processor's (`ext4_mb_group_or_file`).

use super::OfInPlace;
use crate::files::File;
use crate::machine::Program;
use crate::space::Space;
use fragmend_flash::command::Units;
use std::ops::Range;

/// Files of at most so many bytes are small (`s_mb_stream_request`, 16 blocks of 4 KiB).
const SMALL_BYTES: u64 = 64 << 10;
/// Blocks of a run that small files share (`s_mb_group_prealloc`).
const SHARED_BLOCKS: u32 = 512;
/// A file that ends at most at the first number of KiB is allocated windows of the second one (`ext4_mb_normalize_request`): the whole of
/// it if it is no longer than a MiB, else the window, of those that begin at multiples of its size, that holds what is allocated.
const WINDOW_KIB: [(u64, u64); 10] = [
    (16, 16),
    (32, 32),
    (64, 64),
    (128, 128),
    (256, 256),
    (512, 512),
    (1024, 1024),
    (4096, 2048),
    (8192, 4096),
    (u64::MAX, 8192),
];

/// Allocates blocks for a file, for its blocks `blocks` or the first of them, for a program.
pub(super) fn place(
    kind: &mut OfInPlace,
    space: &mut Space,
    file: &mut File,
    blocks: Range<u64>,
    program: Program,
) -> Option<Units> {
    let (block, count) = (blocks.start, (blocks.end - blocks.start) as u32);
    if let Some(units) = from_reserved(space, file, block, count) {
        return Some(units);
    }
    let bytes = kind.places.block_bytes();
    let end = (block + u64::from(count)) * bytes;
    if kind.locality && (kind.all_small || end.max(file.size) <= SMALL_BYTES) {
        return small(kind, space, count, kind.all_small.then_some(program));
    }
    let reserves = kind.reservation && end >= file.size;
    let wanted =
        if reserves { with_reserved(block, count, end.max(file.size), bytes) } else { count };
    let before = file.map.before(block).filter(|piece| piece.blocks().end == block);
    let goal = before.map(|piece| piece.units().end());
    let found = space.allocate_from(goal, kind.stream, wanted)?;
    kind.stream = found.start;
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

/// Blocks to allocate where `count` are wanted, so that a file that ends at `end` may grow: to the end of the window.
fn with_reserved(block: u64, count: u32, end: u64, block_bytes: u64) -> u32 {
    let window = WINDOW_KIB.iter().find(|(most, _)| end.div_ceil(1024) <= *most);
    let window = (window.map_or(8192, |row| row.1) << 10) / block_bytes;
    let window_end = (block / window.max(1) + 1) * window;
    u64::from(count).max(window_end - block) as u32
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

/// Blocks of the run that small files share, or that is a program's.
fn small(
    kind: &mut OfInPlace,
    space: &mut Space,
    count: u32,
    program: Option<Program>,
) -> Option<Units> {
    let run = match kind.small.remove(&program) {
        Some(run) => run,
        None => {
            let run = space.allocate(kind.stream, SHARED_BLOCKS, false)?;
            space.hold(run);
            run
        }
    };
    let used = Units::new(run.start, count.min(run.count));
    let rest = Units::new(used.end(), run.count - used.count);
    if rest.count > 0 {
        kind.small.insert(program, rest);
    }
    space.hand_over(used);
    Some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of `ext4_mb_normalize_request` with blocks of 4 KiB.
    #[test]
    fn a_file_is_allocated_the_rest_of_its_window() {
        let of = |block, count, end_kib: u64| with_reserved(block, count, end_kib << 10, 4096);
        assert_eq!(of(0, 1, 4), 4, "16 KiB for the first 4");
        assert_eq!(of(3, 1, 16), 1);
        assert_eq!(of(4, 1, 20), 4, "the second half of 32 KiB");
        assert_eq!(of(224, 1, 900), 32, "the rest of a MiB");
        assert_eq!(of(600, 1, 2404), 1024 - 600, "2 MiB that begin at 2 MiB");
        assert_eq!(of(1500, 1, 6004), 2048 - 1500, "4 MiB that begin at 4 MiB");
        assert_eq!(of(3000, 1, 12004), 4096 - 3000, "8 MiB that begin at 8 MiB");
        assert_eq!(of(0, 5000, 20000), 5000, "never less than what is wanted");
    }
}
