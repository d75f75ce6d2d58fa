//! A mounted file system, real or simulated, as planning and moving see it: the one place where the two differ.

use crate::{DeviceProfile, FileId, Layout, Movable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

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

    /// Whether one file system has several device numbers, most of which no mount shows.
    pub fn has_subvolumes(self) -> bool {
        self == Self::Btrfs
    }
}

/// Why a file or a range is left alone: one set for the walk, the survey, the plan and the move. The name in
/// JSON is part of the public contract.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It lies in one piece already.
    AlreadyContiguous,
    /// No free space would hold it in fewer pieces.
    NoBetterPlace,
    /// Another file is at this path now, or the file was replaced.
    IdentityChanged,
    /// The file is gone.
    Vanished,
    /// The range lies beyond the end of the file now.
    SizeChanged,
    /// The range holds a hole or unwritten space now.
    LayoutChanged,
    /// Kept dirty through a mapping, or otherwise in use at every try.
    Busy,
    /// The file system is full.
    NoSpace,
    /// The owner's quota is used up.
    Quota,
    /// Moving it would take the free space below the floor.
    FreeSpaceFloor,
    /// An active swap file.
    SwapFile,
    /// A program that is running.
    Executing,
    /// Marked immutable (`chattr +i`).
    Immutable,
    /// Marked append-only (`chattr +a`).
    AppendOnly,
    /// Marked as not to be defragmented (XFS).
    NoDefrag,
    /// Pinned to its place (F2FS).
    Pinned,
    /// Encrypted by the file system.
    Encrypted,
    /// Protected by fs-verity.
    Verity,
    /// Its data goes through the journal (`chattr +j`).
    JournalledData,
    /// Its data lies in the inode.
    InlineData,
    /// Mapped by indirect blocks, not by extents.
    NoExtents,
    /// Direct access to persistent memory.
    Dax,
    /// Blocks shared with other files or snapshots.
    Shared,
    /// Stored compressed, or partly so.
    Encoded,
    /// Not a regular file.
    NotRegular,
    /// Another process holds a lease on it.
    Leased,
    /// The file system is mounted read-only.
    ReadOnly,
    /// We may not write to it.
    PermissionDenied,
    /// The file system says that it cannot be done for this file.
    Unsupported,
    /// A rewrite could not be finished: the bytes are safe in its record, and `fragmend recover`
    /// puts them back.
    NeedsRecovery,
    /// An I/O error.
    Failed,
    /// Its file system cannot say where its bytes are (no FIEMAP).
    NoLayout,
    /// It is on another file system than was asked for.
    OtherFileSystem,
    /// Its file system is not mounted.
    NotMounted,
    /// It was moved to a place that was not asked for.
    Elsewhere,
}

/// The name as in JSON, with spaces.
impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        struct Name<'a>(&'a SkipReason);
        impl std::fmt::Display for Name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.serialize(f)
            }
        }
        f.write_str(&Name(self).to_string().replace('_', " "))
    }
}

/// A reason, and the detail of it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Why.
    pub reason: SkipReason,
    /// In words; may be empty where the reason is enough.
    pub detail: String,
}

/// The detail, or the reason where there is no detail.
impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.detail.is_empty() { self.reason.fmt(f) } else { f.write_str(&self.detail) }
    }
}

impl Skip {
    /// A reason and its detail.
    pub fn new(reason: SkipReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// Something that holds files and can relocate their ranges.
///
/// A file is identified by its identity. The path that is passed with it is a hint: its last known path.
pub trait Volume {
    /// Its name in messages: its mount point.
    fn label(&self) -> String;
    /// Which file system it is, or imitates.
    fn kind(&self) -> FsKind;
    /// Bytes that may still be allocated.
    fn free_bytes(&self) -> Result<u64, Skip>;
    /// Size of the whole volume in bytes.
    fn total_bytes(&self) -> u64;
    /// Allocation block in bytes.
    fn block_bytes(&self) -> u64;
    /// What its device costs; `None` where that is not known.
    fn profile(&self) -> Option<DeviceProfile> {
        None
    }
    /// Shows every regular file once to `visit`, with a path that leads to it, or why it cannot be examined.
    ///
    /// # Errors
    /// The search ended before all files were shown.
    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip>;
    /// The present layout of all of a file, or why it cannot be read.
    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip>;
    /// Opens a file for relocation, or returns why it is left alone.
    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip>;
}
