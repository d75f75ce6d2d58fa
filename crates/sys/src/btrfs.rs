//! Btrfs's own interfaces (linux/btrfs.h, linux/btrfs_tree.h).
//!
//! | module | its job |
//! |---|---|
//! | `search` | the items of a tree |
//! | [`space`] | block groups, and what is free in them |

mod search;
pub mod space;

use search::{Wanted, search};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};

const BTRFS_IOC_DEFRAG_RANGE: libc::c_ulong = 0x4030_9410;
const BTRFS_IOC_WAIT_SYNC: libc::c_ulong = 0x4008_9416;
const BTRFS_IOC_START_SYNC: libc::c_ulong = 0x8008_9418;
const ROOT_TREE: u64 = 1;
/// The kind of file system that `fstatfs(2)` reports (`BTRFS_SUPER_MAGIC`, linux/magic.h).
pub const MAGIC: u64 = 0x9123_683E;
/// In a search: the tree of the subvolume that the file is in.
const ITS_OWN_TREE: u64 = 0;
const ROOT_ITEM: u32 = 132;
const EXTENT_DATA: u32 = 108;
const FS_TREE: u64 = 5;
const LAST_FREE_OBJECTID: u64 = u64::MAX - 255;

/// Whether a file or directory is on a Btrfs.
///
/// # Errors
/// Those of `fstatfs(2)`.
pub fn holds(file: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(file)?.f_type as u64 == MAGIC)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// So many numbers from `at` on, if there are as many.
fn u64s_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u64; N]> {
    let words = bytes.get(at..at + 8 * N)?;
    Some(std::array::from_fn(|n| u64_at(words, 8 * n)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The numbers of all subvolumes and snapshots, the top level (5) included. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENOTTY` on another file system.
pub fn subvolumes(file: impl AsFd) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    let objects = FS_TREE..LAST_FREE_OBJECTID;
    let kinds = ROOT_ITEM..=ROOT_ITEM;
    let wanted = Wanted { tree: ROOT_TREE, kinds, objects, offsets: 0..u64::MAX };
    search(file, &wanted, |item| {
        if item.object == FS_TREE || item.object >= 256 {
            found.push(item.object);
        }
    })?;
    found.dedup();
    Ok(found)
}

/// How an extent's bytes are compressed (`enum btrfs_compression_type`, fs/btrfs/fs.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// zlib.
    Zlib,
    /// LZO.
    Lzo,
    /// Zstandard.
    Zstd,
    /// An unknown one, by its number.
    Other(u8),
}

impl Compression {
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::Zlib,
            2 => Self::Lzo,
            3 => Self::Zstd,
            other => Self::Other(other),
        })
    }

    fn number(self) -> u8 {
        match self {
            Self::Zlib => 1,
            Self::Lzo => 2,
            Self::Zstd => 3,
            Self::Other(number) => number,
        }
    }

    /// As in mount options and properties.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
            Self::Other(_) => "unknown",
        }
    }
}

/// A range of a file and the compressed extent that holds it (`struct btrfs_file_extent_item`). All
/// figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes of the file.
    pub length: u64,
    /// Where the extent begins, in the file system's virtual addresses.
    pub physical: u64,
    /// Bytes of the extent on the device.
    pub stored: u64,
    /// How it is compressed.
    pub compression: Compression,
}

/// The compressed extents of a file that overlap `range`; inline data is left out. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENOTTY` on another file system.
pub fn compressed(file: impl AsFd, inode: u64, range: Range<u64>) -> io::Result<Vec<Compressed>> {
    /// Length of an item that is neither inline nor of a later kind.
    const REGULAR: usize = 53;
    /// No compressed extent holds more (`BTRFS_MAX_UNCOMPRESSED`, fs/btrfs/fs.h).
    const LONGEST: u64 = 128 << 10;
    let mut found = Vec::new();
    let wanted = Wanted {
        tree: ITS_OWN_TREE,
        kinds: EXTENT_DATA..=EXTENT_DATA,
        objects: inode..inode.saturating_add(1),
        offsets: range.start.saturating_sub(LONGEST)..range.end,
    };
    search(file, &wanted, |item| {
        let (logical, data) = (item.offset, item.data);
        if data.len() != REGULAR || data[20] == 0 {
            return;
        }
        let (length, compression) = (u64_at(data, 45), Compression::of(data[16]));
        let reaches = logical.saturating_add(length) > range.start;
        if let (true, Some(compression)) = (reaches, compression) {
            let (physical, stored) = (u64_at(data, 21), u64_at(data, 29));
            found.push(Compressed { logical, length, physical, stored, compression });
        }
    })?;
    Ok(found)
}

/// `struct btrfs_ioctl_defrag_range_args`.
#[repr(C)]
struct DefragRange {
    start: u64,
    len: u64,
    flags: u64,
    extent_thresh: u32,
    /// In the lowest byte; the level in the next.
    compress: u32,
    unused: [u32; 4],
}

const _: () = assert!(size_of::<DefragRange>() == 48);

/// Makes the kernel rewrite `range` of a file with this compression, at this level if one is given
/// (Linux 6.15), and starts its writeback (`BTRFS_IOC_DEFRAG_RANGE`). The data goes through the page
/// cache, in clusters of 256 KiB, under the inode's lock. Shared extents are unshared.
///
/// # Errors
/// `EPERM` without write access, `EROFS`, `ETXTBSY` for a swap file, `ENOSPC`, `EOPNOTSUPP` where
/// the kernel cannot take a level.
pub fn compress_anew(
    file: impl AsFd,
    range: Range<u64>,
    compression: Compression,
    level: Option<i8>,
) -> io::Result<()> {
    const COMPRESS: u64 = 1;
    const START_IO: u64 = 2;
    const COMPRESS_LEVEL: u64 = 4;
    let with_level = if level.is_some() { COMPRESS_LEVEL } else { 0 };
    let arg = DefragRange {
        start: range.start,
        len: range.end.saturating_sub(range.start),
        flags: COMPRESS | START_IO | with_level,
        // No extent is too long to be written anew.
        extent_thresh: u32::MAX,
        compress: u32::from_le_bytes([
            compression.number(),
            level.unwrap_or_default().to_le_bytes()[0],
            0,
            0,
        ]),
        unused: [0; 4],
    };
    // SAFETY: BTRFS_IOC_DEFRAG_RANGE reads exactly this 48-byte structure.
    let rc =
        unsafe { libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_IOC_DEFRAG_RANGE, &raw const arg) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Commits the current transaction, with all changes to the trees so far, and waits until it is durable
/// (`BTRFS_IOC_START_SYNC`, `BTRFS_IOC_WAIT_SYNC`). Unlike `fsync(2)`, it locks no file. Delayed
/// allocation is no part of it.
///
/// # Errors
/// `EROFS` on a file system that has gone read-only, `EIO`, `ENOTTY` on another file system.
pub fn commit(file: impl AsFd) -> io::Result<()> {
    commit_and_wait(file.as_fd().as_raw_fd())?;
    // Before Linux 6.6 the wait ends without an error where the transaction was aborted
    // (`btrfs_wait_for_commit`, fs/btrfs/transaction.c); that makes the file system read-only.
    crate::mounts::is_for_writing(&rustix::fs::fstatvfs(file)?)
}

fn commit_and_wait(file: RawFd) -> io::Result<()> {
    let mut transaction = 0u64;
    // SAFETY: BTRFS_IOC_START_SYNC writes one u64.
    let rc = unsafe { libc::ioctl(file, BTRFS_IOC_START_SYNC, &raw mut transaction) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    loop {
        // SAFETY: BTRFS_IOC_WAIT_SYNC reads one u64.
        let rc = unsafe { libc::ioctl(file, BTRFS_IOC_WAIT_SYNC, &raw const transaction) };
        match io::Error::last_os_error() {
            _ if rc >= 0 => return Ok(()),
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}
