//! The file systems that fragmend knows by name: a value and a row each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// The flash-friendly file system.
    F2fs,
    /// Any other.
    Other,
}

/// What is known of a file system.
struct Row {
    kind: FsKind,
    /// Its type in `/proc/self/mountinfo`.
    name: &'static str,
    /// Its largest extent in bytes, given its block size.
    largest_extent: fn(u64) -> u64,
    /// Whether one file system has several device numbers, most of which no mount shows.
    has_subvolumes: bool,
    /// Whether a directory's `st_blocks` has the blocks that its names are in.
    counts_directories: bool,
    /// Whether its page cache holds large folios, since Linux 6.16.
    has_large_folios: bool,
}

/// The largest extent of a file system that keeps block addresses, and of one that is not known.
const UNBOUNDED: u64 = 1 << 40;

static ROWS: [Row; 4] = [
    // `EXT_INIT_MAX_LEN` (fs/ext4/ext4_extents.h).
    Row {
        kind: FsKind::Ext4,
        name: "ext4",
        largest_extent: |block| 32768 * block,
        has_subvolumes: false,
        counts_directories: true,
        has_large_folios: true,
    },
    // `XFS_MAX_BMBT_EXTLEN` (fs/xfs/libxfs/xfs_format.h).
    Row {
        kind: FsKind::Xfs,
        name: "xfs",
        largest_extent: |block| ((1 << 21) - 1) * block,
        has_subvolumes: false,
        counts_directories: true,
        has_large_folios: true,
    },
    // `BTRFS_MAX_EXTENT_SIZE` (fs/btrfs/fs.h), of plain data.
    Row {
        kind: FsKind::Btrfs,
        name: "btrfs",
        largest_extent: |_| 128 << 20,
        has_subvolumes: true,
        counts_directories: false,
        has_large_folios: false,
    },
    Row {
        kind: FsKind::F2fs,
        name: "f2fs",
        largest_extent: |_| UNBOUNDED,
        has_subvolumes: false,
        counts_directories: true,
        has_large_folios: false,
    },
];

impl FsKind {
    /// From the type name in `/proc/self/mountinfo`.
    pub fn from_name(name: &str) -> Self {
        ROWS.iter().find(|row| row.name == name).map_or(Self::Other, |row| row.kind)
    }

    /// Largest extent in bytes, given the file system's block size.
    pub fn largest_extent(self, block_bytes: u64) -> u64 {
        self.row().map_or(UNBOUNDED, |row| (row.largest_extent)(block_bytes))
    }

    /// Whether one file system has several device numbers, most of which no mount shows.
    pub fn has_subvolumes(self) -> bool {
        self.row().is_some_and(|row| row.has_subvolumes)
    }

    /// Whether a directory's `st_blocks` has the blocks that its names are in; `None` where that is not known.
    pub fn counts_directories(self) -> Option<bool> {
        self.row().map(|row| row.counts_directories)
    }

    /// Whether its page cache holds large folios, since Linux 6.16.
    pub fn has_large_folios(self) -> bool {
        self.row().is_some_and(|row| row.has_large_folios)
    }

    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.kind == self)
    }
}
