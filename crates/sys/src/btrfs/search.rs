//! `BTRFS_IOC_TREE_SEARCH` (linux/btrfs.h): the items of one of Btrfs's trees, in its order. Needs `CAP_SYS_ADMIN`.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, AsRawFd};

const BTRFS_IOC_TREE_SEARCH: libc::c_ulong = 0xD000_9411;

/// `struct btrfs_ioctl_search_args`.
#[repr(C)]
struct Search {
    tree: u64,
    objectid: [u64; 2],
    offset: [u64; 2],
    transid: [u64; 2],
    kind: [u32; 2],
    items: u32,
    unused: u32,
    more_unused: [u64; 4],
    found: [u8; Self::ROOM],
}

impl Search {
    const ROOM: usize = 4096 - 104;
}

const _: () = assert!(size_of::<Search>() == 4096);

/// Which items of a tree to search for.
pub(super) struct Wanted {
    pub tree: u64,
    pub kinds: RangeInclusive<u32>,
    pub objects: Range<u64>,
    /// Their offsets, where `objects` is one.
    pub offsets: Range<u64>,
}

/// An item.
pub(super) struct Item<'a> {
    pub object: u64,
    pub kind: u32,
    pub offset: u64,
    pub data: &'a [u8],
}

/// Calls `visit` with every matching item, in the tree's order.
pub(super) fn search(
    file: impl AsFd,
    wanted: &Wanted,
    mut visit: impl FnMut(&Item),
) -> io::Result<()> {
    let Wanted { tree, kinds, objects, offsets } = wanted;
    let mut at = (objects.start, *kinds.start(), offsets.start);
    loop {
        let mut search = Search {
            tree: *tree,
            objectid: [at.0, objects.end - 1],
            offset: [at.2, offsets.end.saturating_sub(1)],
            transid: [0, u64::MAX],
            kind: [at.1, *kinds.end()],
            items: u32::MAX,
            unused: 0,
            more_unused: [0; 4],
            found: [0; Search::ROOM],
        };
        // SAFETY: BTRFS_IOC_TREE_SEARCH reads and writes exactly this 4096-byte structure.
        let rc = unsafe {
            libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_IOC_TREE_SEARCH, &raw mut search)
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        // Each item: `struct btrfs_ioctl_search_header` of 32 bytes, then its data.
        let asked = at;
        let mut rest = &search.found[..];
        for _ in 0..search.items {
            let Some((header, after)) = rest.split_at_checked(32) else { break };
            let length = super::u32_at(header, 28) as usize;
            let Some((data, behind)) = after.split_at_checked(length) else { break };
            let (object, offset) = (super::u64_at(header, 8), super::u64_at(header, 16));
            let item = Item { object, kind: super::u32_at(header, 24), offset, data };
            if kinds.contains(&item.kind) {
                visit(&item);
            }
            at = behind_item(&item, kinds);
            rest = behind;
        }
        if search.items == 0 || at.0 >= objects.end {
            return Ok(());
        }
        if at <= asked {
            return Err(crate::no_progress());
        }
    }
}

/// The key to continue at: items of other kinds come before or after those that are wanted.
fn behind_item(item: &Item, kinds: &RangeInclusive<u32>) -> (u64, u32, u64) {
    let (first, last) = (*kinds.start(), *kinds.end());
    match item.kind {
        before if before < first => (item.object, first, 0),
        kind if kind <= last && item.offset < u64::MAX => (item.object, kind, item.offset + 1),
        kind if kind < last => (item.object, kind + 1, 0),
        _ => (item.object.saturating_add(1), first, 0),
    }
}
