//! Block groups of a Btrfs, and what is free in them: its chunk tree and its free-space tree (linux/btrfs_tree.h).
//! Both need `CAP_SYS_ADMIN`, and show the trees as they were when the file system was synced last.

use super::search::{Wanted, search};
use super::{u64_at, u64s_at};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

const CHUNK_TREE: u64 = 3;
const FREE_SPACE_TREE: u64 = 10;
const DEV_ITEMS: u64 = 1;
const CHUNKS: u64 = 256;
const FREE_SPACE_EXTENT: u32 = 199;
const FREE_SPACE_BITMAP: u32 = 200;
const DEV_ITEM: u32 = 216;
const CHUNK_ITEM: u32 = 228;

/// Bytes that are never allocated from where a copy of the super block is: a stripe (`exclude_super_stripes()`,
/// fs/btrfs/block-group.c).
pub const SUPER_STRIPE: u64 = 64 << 10;

/// The most copies that a profile keeps (RAID1C4).
pub const MOST_COPIES: u64 = 4;

/// A block group: addresses that are stored on the devices in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockGroup {
    /// Its addresses, bytes of the file system's logical address space.
    pub addresses: Range<u64>,
    /// Whether data of files may be in it, and not metadata alone.
    pub holds_data: bool,
    /// How many bytes the devices are written at most for each byte in it: its copies, or its data and parity.
    pub copies: u64,
    /// The addresses in it behind which copies of the super block are; none are found where data is striped over
    /// devices.
    pub super_blocks: Vec<u64>,
}

/// How a Btrfs has divided its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockGroups {
    /// All block groups in the order of their addresses.
    pub groups: Vec<BlockGroup>,
    /// Bytes of all devices that are in no block group, and so have no address.
    pub unallocated: u64,
}

/// The block groups of the file system of `file`.
///
/// # Errors
/// `EPERM` without the capability, `ENOTTY` on another file system.
pub fn block_groups(file: impl AsFd) -> io::Result<BlockGroups> {
    let mut found = BlockGroups::default();
    let wanted = Wanted {
        tree: CHUNK_TREE,
        kinds: DEV_ITEM..=CHUNK_ITEM,
        objects: DEV_ITEMS..CHUNKS + 1,
        offsets: 0..u64::MAX,
    };
    search(file, &wanted, |item| match (item.object, item.kind) {
        (DEV_ITEMS, DEV_ITEM) => {
            // `struct btrfs_dev_item`: total_bytes, bytes_used.
            let Some([total, used]) = u64s_at(item.data, 8) else { return };
            found.unallocated = found.unallocated.saturating_add(total.saturating_sub(used));
        }
        (CHUNKS, CHUNK_ITEM) => found.groups.extend(block_group(item.offset, item.data)),
        _ => {}
    })?;
    Ok(found)
}

/// The block group that begins at `start`, of its `struct btrfs_chunk`; `None` if that makes no sense.
fn block_group(start: u64, chunk: &[u8]) -> Option<BlockGroup> {
    const DATA: u64 = 1;
    /// RAID0, RAID10, RAID5 and RAID6.
    const STRIPED: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8;
    const STRIPES_AT: usize = 48;
    const STRIPE: usize = 32;
    /// `btrfs_sb_offset()`, fs/btrfs/disk-io.h.
    const SUPER_BLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
    let [length, _, _, kind] = u64s_at(chunk, 0)?;
    let end = start.checked_add(length)?;
    let stripes = chunk.get(STRIPES_AT..)?.chunks_exact(STRIPE).map(|stripe| u64_at(stripe, 8));
    let stripes = stripes.filter(|_| kind & STRIPED == 0);
    let copies = stripes.flat_map(|on_device| {
        let within = move |at: u64| at.checked_sub(on_device).filter(|offset| *offset < length);
        SUPER_BLOCKS.into_iter().filter_map(within)
    });
    let mut super_blocks: Vec<u64> = copies.map(|offset| start + offset).collect();
    super_blocks.sort_unstable();
    super_blocks.dedup();
    let (holds_data, copies) = (kind & DATA != 0, copies_of(kind));
    Some(BlockGroup { addresses: start..end, holds_data, copies, super_blocks })
}

/// What each byte is written as at most, by the profile of a block group (`btrfs_raid_array`, fs/btrfs/volumes.c): parity is written anew
/// with each part of its stripe.
fn copies_of(kind: u64) -> u64 {
    /// RAID1, DUP, RAID10 and RAID5.
    const TWO: u64 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;
    /// RAID6 and RAID1C3.
    const THREE: u64 = 1 << 8 | 1 << 9;
    /// RAID1C4.
    const FOUR: u64 = 1 << 10;
    match kind {
        kind if kind & FOUR != 0 => MOST_COPIES,
        kind if kind & THREE != 0 => 3,
        kind if kind & TWO != 0 => 2,
        _ => 1,
    }
}

/// How many bytes the devices are written at most for each byte of a file on the file system of `file`; of several profiles, while
/// data is converted, by the one that writes most.
///
/// # Errors
/// As [`block_groups`].
pub fn copies_of_data(file: impl AsFd) -> io::Result<u64> {
    let groups = block_groups(file)?.groups;
    Ok(groups.iter().filter(|group| group.holds_data).map(|group| group.copies).max().unwrap_or(1))
}

/// Free addresses, as an item of the free-space tree has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace<'a> {
    /// A free run.
    Run {
        /// Its first address.
        start: u64,
        /// Its bytes.
        length: u64,
    },
    /// A bit for each sector, from the lowest one of the first byte: set where the sector is free.
    Bitmap {
        /// The address of the first sector.
        start: u64,
        /// The bits.
        bits: &'a [u8],
    },
}

/// Calls `visit` with everything that is free in all block groups of the file system of `file`, those of metadata
/// included, in the order of addresses.
///
/// # Errors
/// `ENOENT` where there is no free-space tree, `EPERM` without the capability, `ENOTTY` on another file system.
pub fn free_space(file: impl AsFd, mut visit: impl FnMut(FreeSpace)) -> io::Result<()> {
    let wanted = Wanted {
        tree: FREE_SPACE_TREE,
        kinds: FREE_SPACE_EXTENT..=FREE_SPACE_BITMAP,
        objects: 0..u64::MAX,
        offsets: 0..u64::MAX,
    };
    search(file, &wanted, |item| {
        let (start, length) = (item.object, item.offset);
        visit(if item.kind == FREE_SPACE_EXTENT {
            FreeSpace::Run { start, length }
        } else {
            FreeSpace::Bitmap { start, bits: item.data }
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(length: u64, kind: u64, stripes: &[u64]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [length, 2, 64 << 10, kind].map(u64::to_ne_bytes).concat();
        bytes.resize(48, 0);
        for at in stripes {
            bytes.extend([1u64, *at, 0, 0].map(u64::to_ne_bytes).concat());
        }
        bytes
    }

    #[test]
    fn a_profile_says_how_often_each_byte_is_written() {
        // BTRFS_BLOCK_GROUP_RAID0, RAID1, DUP, RAID10, RAID5, RAID6, RAID1C3, RAID1C4 (linux/btrfs_tree.h).
        let profiles = [3, 4, 5, 6, 7, 8, 9, 10].map(|bit| copies_of(1 | 1 << bit));
        assert_eq!((copies_of(1), profiles), (1, [1, 2, 2, 2, 2, 3, 3, 4]));
    }

    #[test]
    fn a_block_group_knows_its_use_and_the_copies_of_the_super_block() {
        let mib = |n: u64| n << 20;
        // Metadata twice on one device (DUP), the second time across the copy at 64 MiB.
        let group = block_group(mib(500), &chunk(mib(32), 4 | 1 << 5, &[mib(20), mib(60)]));
        let expected = BlockGroup {
            addresses: mib(500)..mib(532),
            holds_data: false,
            copies: 2,
            super_blocks: vec![mib(504)],
        };
        assert_eq!(group, Some(expected));
        let data = block_group(mib(600), &chunk(mib(64), 1, &[mib(64)])).unwrap();
        assert_eq!((data.holds_data, data.super_blocks), (true, vec![mib(600)]));
        let striped = block_group(mib(600), &chunk(mib(64), 1 | 1 << 3, &[mib(64)])).unwrap();
        assert_eq!(striped.super_blocks, [0u64; 0]);
        assert_eq!(block_group(u64::MAX, &chunk(2, 1, &[0])), None);
        assert_eq!(block_group(0, &[0; 47]), None);
    }
}
