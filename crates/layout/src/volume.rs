//! A mounted file system, real or simulated, to those who plan and move: the one place where
//! the two differ.

use crate::{ByteRange, Extent, FileId, Layout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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

/// Why a file or a range is left alone. The name in JSON is part of the public contract.
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
}

/// As in JSON, with spaces.
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

/// A reason with what the system said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Why.
    pub reason: SkipReason,
    /// In words; may be empty where the reason says it all.
    pub detail: String,
}

impl Skip {
    /// A reason and its detail.
    pub fn new(reason: SkipReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// Something that holds files and can relocate their ranges.
pub trait Volume {
    /// A directory on it: where it is mounted.
    fn root(&self) -> &Path;
    /// The same directory, open, where it is one of this machine's.
    fn directory(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Its device number as the mount table has it: the same for all subvolumes of a Btrfs.
    fn number(&self) -> Option<u64> {
        None
    }
    /// Bytes that may still be allocated.
    fn free_bytes(&self) -> Result<u64, Skip>;
    /// Size of the whole volume in bytes.
    fn total_bytes(&self) -> u64;
    /// Allocation block in bytes.
    fn block_bytes(&self) -> u64;
    /// Opens a file for relocation. `hint` is where it was; only the identity counts.
    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip>;
}

/// A file that can be relocated range by range.
///
/// Order of calls: `stage` some ranges, `relocate` parts of them in any order, `settle`. A crash
/// or a drop at any instant leaves every byte readable as it was.
pub trait Movable {
    /// Where the file is now, if it has a name that can be found.
    fn path(&self) -> Option<PathBuf>;
    /// Size now, in bytes.
    fn size(&self) -> Result<u64, Skip>;
    /// Where `range` lies now.
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip>;
    /// What moves at once.
    fn moves(&self) -> Moves;
    /// Bytes of new space that moving `ranges` together takes, or why they cannot be moved so.
    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip>;
    /// Whether data that is stored like this can be moved.
    ///
    /// # Errors
    /// Why not.
    fn takes(&self, parts: &[Extent]) -> Result<(), Skip>;
    /// Staging may take the file system's free space down to so many bytes, and not below.
    fn set_floor(&mut self, _bytes: u64) {}
    /// What others share may move, too. Until then it may not, whoever comes to share it meanwhile.
    fn set_unshare(&mut self, _allowed: bool) {}
    /// Whether some of `range` is not on the device yet; `None` where that cannot be told.
    fn is_dirty(&self, _range: ByteRange) -> Option<bool> {
        Some(false)
    }
    /// Where the next data begins, at `at` or behind it; `None` where nothing but a hole follows. Bytes.
    fn next_data(&self, at: u64) -> Option<u64> {
        Some(at)
    }
    /// Writes out what of `range` is not on the device yet, and waits for it. Nothing is promised.
    fn write_back(&self, _range: ByteRange) {}
    /// Finds new space for all of `ranges` at once, and says in how many pieces each would lie
    /// there. Nothing has moved yet; what was staged before is given back.
    fn stage(&mut self, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip>;
    /// Does what can be done for `part` of the staged range `index` without locking anybody out.
    fn prepare(&mut self, index: usize, part: ByteRange) -> Result<(), Skip>;
    /// These staged ranges are relocated next, each as a whole and in this order: see
    /// [`Moves::Groups`].
    fn announce(&mut self, indices: &[usize]);
    /// Exchanges `part` of the staged range `index` with its new space. Where [parts](Moves::Parts)
    /// move, it may do more than the part or less of it, and says how far it came; elsewhere it is
    /// called once, and may leave alone what lies well enough.
    fn relocate(&mut self, index: usize, part: ByteRange) -> Relocated;
    /// The same, but where it takes long it ends once `stop` is set, with what has moved by then, and
    /// without a reason: see [`Moves::Groups`].
    fn relocate_until(&mut self, index: usize, part: ByteRange, _stop: &AtomicBool) -> Relocated {
        self.relocate(index, part)
    }
    /// Called before a pause: whoever an engine keeps out for the sake
    /// of what it has relocated is let in, once that is durable.
    ///
    /// # Errors
    /// They are kept out, or what was relocated is not known to be durable.
    fn let_others_in(&mut self) -> Result<(), Skip>;
    /// The same where it may take any time until the next call: nobody is kept out from now on, whether they wait
    /// already or not.
    ///
    /// # Errors
    /// As those of [letting them in](Movable::let_others_in).
    fn keep_nobody_out(&mut self) -> Result<(), Skip>;
    /// Makes what was relocated durable and frees the space that it left, or that was not used.
    fn settle(&mut self) -> Result<(), Skip>;
    /// The longest time for which others were kept out of the file at once, since the last call; beside
    /// what [relocating](Movable::relocate) said of itself.
    fn kept_out(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// What of a file moves at once, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moves {
    /// Parts of a staged range, from its start on.
    Parts {
        /// Whether all of it is [prepared](Movable::prepare), part by part, just before the first is
        /// relocated.
        prepared: bool,
        /// Whether a part moves back when it is relocated once more.
        returns: bool,
        /// No part is shorter than so many bytes, but the last one.
        shortest: u64,
    },
    /// A staged range: it is [prepared](Movable::prepare) part by part just before one call
    /// relocates it.
    Ranges,
    /// Staged ranges that come to no more than so many bytes, or one that does: each is prepared,
    /// all are [announced](Movable::announce), and the first that is relocated takes the others
    /// along.
    Groups {
        /// Bytes of a group.
        bytes: u64,
    },
    /// The file: all ranges of a plan are staged and prepared at once, and the first one that is
    /// relocated takes the others along.
    File,
}

impl Moves {
    /// Whether each staged range is prepared just before it is relocated.
    pub fn prepared_apart(self) -> bool {
        matches!(self, Self::Ranges | Self::Parts { prepared: true, .. })
    }
}

/// How far one relocation came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// Bytes that did move: from the start of the part, where [parts](Moves::Parts) move.
    pub moved: u64,
    /// Nothing has moved yet, and nothing is wrong: it has done a step of what comes before, and is to be called
    /// again, unless all is to end.
    pub goes_on: bool,
    /// Bytes, behind those or before them, that it left alone because they lie well enough.
    pub passed: u64,
    /// What moved them, as its header or manual names it (`EXT4_IOC_MOVE_EXT`): set whenever
    /// something moved.
    pub by: Option<&'static str>,
    /// Why the file system's first choice was not what moved them, if it was not.
    pub fallback: Option<String>,
    /// What else its owner should know, where it moved all the same.
    pub note: Option<String>,
    /// Longest time for which the file was locked against its writers.
    pub held: Duration,
    /// Why it ended before the end of the part, if it did.
    pub skip: Option<Skip>,
}
