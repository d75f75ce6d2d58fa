//! What a mounted file system is, to those who plan and move.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The file systems that fragmend knows by name.
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

impl FsKind {
    /// From the type name in `/proc/self/mountinfo`.
    pub fn from_name(name: &str) -> Self {
        match name {
            "ext4" => Self::Ext4,
            "xfs" => Self::Xfs,
            "btrfs" => Self::Btrfs,
            "f2fs" => Self::F2fs,
            _ => Self::Other,
        }
    }

    /// Largest extent in bytes, given the file system's block size.
    ///
    /// ext4: 32768 blocks (`EXT_INIT_MAX_LEN`, fs/ext4/ext4_extents.h). XFS: 2^21 - 1 blocks.
    /// Btrfs: 128 MiB of plain data (`BTRFS_MAX_EXTENT_SIZE`). F2FS keeps block addresses, so
    /// its extents have no bound of their own.
    pub fn largest_extent(self, block_bytes: u64) -> u64 {
        match self {
            Self::Ext4 => 32768 * block_bytes,
            Self::Xfs => ((1 << 21) - 1) * block_bytes,
            Self::Btrfs => 128 << 20,
            Self::F2fs | Self::Other => 1 << 40,
        }
    }
}

/// A mounted file system's fixed measures. All figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Which file system.
    pub kind: FsKind,
    /// Allocation block.
    pub block_bytes: u64,
    /// Size of the whole file system.
    pub total_bytes: u64,
}
