//! The free space of a mounted file system: which addresses are free, and which hold its metadata. Nothing is written but
//! what was dirty: the file system is synced first, as neither what is allocated late nor what was deleted since the last
//! commit is in what is read here.
//!
//! | module | file system | read from |
//! |---|---|---|
//! | `fsmap` | ext4, XFS | `FS_IOC_GETFSMAP` |
//! | `btrfs` | Btrfs | its chunk tree and free-space tree |
//! | [`crate::f2fs`] | F2FS | `/proc/fs/f2fs/DEVICE/segment_bits` |
//! | `collector` | all | joins what they report to runs, and counts |
//! | `bits` | Btrfs, F2FS | runs in a bitmap |
//!
//! Space is allocated and freed meanwhile: what is found is a picture that was taken over some time. What the kernel
//! reports is not trusted to be in order or disjoint, and memory is bounded: beyond a number of runs that the caller names,
//! none is kept, while everything is counted all the same.

pub(crate) mod bits;
mod btrfs;
mod collector;
mod fsmap;

pub(crate) use collector::Collector;

use crate::{FileSystem, f2fs};
use fragmend_layout::{FreeSpace, FsKind, Space};
use fragmend_sys::inode::is_unknown_request;
use rustix::io::Errno;
use std::io;

/// More runs than this are not kept: some 100 MiB of memory.
pub const MOST_RUNS: usize = 1 << 22;

/// The space of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSpace {
    /// With all of its runs, or with none if there are more than were asked for.
    pub space: Space,
    /// How its free space is divided, whether or not runs were kept.
    pub free: FreeSpace,
    /// Metadata that is known as such, in bytes.
    pub metadata_bytes: u64,
    /// Number of runs of any kind.
    pub runs: u64,
    /// Bytes that have no address yet (Btrfs): of its devices, not of files, of which there may be two copies.
    pub unallocated_bytes: u64,
}

impl FoundSpace {
    /// Whether the runs were kept.
    pub fn has_runs(&self) -> bool {
        self.space.runs.len() as u64 == self.runs
    }
}

/// Why the space of a file system is not known.
#[derive(Debug, thiserror::Error)]
pub enum NotKnown {
    /// The file system has no interface for it that is known here.
    #[error("{0} does not report its free space")]
    NotReported(String),
    /// Only a privileged user may ask.
    #[error("only root may read it")]
    NotPermitted,
    /// A Btrfs of the first kind of space cache, or of none.
    #[error("it has no free-space tree (mounting it once with space_cache=v2 makes one)")]
    NoFreeSpaceTree,
    /// What is read of an F2FS.
    #[error(transparent)]
    Segments(#[from] f2fs::Unread),
    /// Anything else.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads the space of a file system, and keeps its runs if there are at most `most`.
///
/// # Errors
/// Why it is not known.
pub fn space(fs: &FileSystem, most: usize) -> Result<FoundSpace, NotKnown> {
    let root = fs.root().map_err(|e| not_known(fs, e))?;
    // What cannot be synced, as after an error of the device, is read as it is.
    let _ = rustix::fs::syncfs(&root);
    let mut to = Collector::new(fs, most);
    match fs.kind {
        FsKind::Btrfs => btrfs::read(&root, fs, &mut to)?,
        FsKind::F2fs => f2fs::space(fs, &mut to)?,
        FsKind::Ext4 | FsKind::Xfs | FsKind::Other => fsmap::read(&root, fs, &mut to)?,
    }
    Ok(to.finish())
}

/// What an error of the kernel means where space is asked for.
fn not_known(fs: &FileSystem, error: io::Error) -> NotKnown {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => NotKnown::NotPermitted,
        _ if is_unknown_request(&error) => NotKnown::NotReported(fs.type_name.clone()),
        _ => error.into(),
    }
}
