//! Btrfs's own interfaces (linux/btrfs.h, linux/btrfs_tree.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const BTRFS_IOC_TREE_SEARCH: libc::c_ulong = 0xD000_9411;
const ROOT_TREE: u64 = 1;
const ROOT_ITEM: u32 = 132;
const FS_TREE: u64 = 5;
const LAST_FREE_OBJECTID: u64 = u64::MAX - 255;

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

/// The numbers of all subvolumes and snapshots, the top level (5) included. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENOTTY` on another file system.
pub fn subvolumes(file: impl AsFd) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut next = FS_TREE;
    loop {
        let mut search = Search {
            tree: ROOT_TREE,
            objectid: [next, LAST_FREE_OBJECTID],
            offset: [0, u64::MAX],
            transid: [0, u64::MAX],
            kind: [ROOT_ITEM, ROOT_ITEM],
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
        let mut rest = &search.found[..];
        for _ in 0..search.items {
            let Some((header, after)) = rest.split_at_checked(32) else { break };
            let number =
                |at: usize| u64::from_ne_bytes(header[at..at + 8].try_into().expect("eight bytes"));
            let (objectid, kind_and_length) = (number(8), &header[24..]);
            let word = |at: usize| {
                u32::from_ne_bytes(kind_and_length[at..at + 4].try_into().expect("four bytes"))
            };
            next = next.max(objectid + 1);
            if word(0) == ROOT_ITEM && (objectid == FS_TREE || objectid >= 256) {
                found.push(objectid);
            }
            rest = after.get(word(4) as usize..).unwrap_or_default();
        }
        if search.items == 0 || next >= LAST_FREE_OBJECTID {
            found.dedup();
            return Ok(found);
        }
    }
}
