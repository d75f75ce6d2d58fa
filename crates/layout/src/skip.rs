//! Why a file or a range is left alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a file or a range is left alone: one set for the walk, the survey, the plan and the move. The name in
/// JSON is part of the public contract.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It is in one extent already.
    AlreadyContiguous,
    /// No free space would hold it in fewer fragments.
    NoBetterPlace,
    /// Another file is at this path now, or the file was replaced.
    IdentityChanged,
    /// The file is gone.
    Vanished,
    /// The range is beyond the end of the file now.
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
    /// Its data is in the inode.
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
    /// The file system reports that it cannot be done for this file.
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
    /// The directory was reached under another name before: it was moved meanwhile, or its file system is
    /// damaged.
    SeenBefore,
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
