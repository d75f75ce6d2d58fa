//! How many names a directory may have: on a device whose metadata is forged, a block may be there a million
//! times, and a directory may have several names, so that a few blocks are a tree without end.
//!
//! Only file systems that are planned for are held to it; others may count in another way.

use crate::FileSystem;
use fragmend_layout::FsKind;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Names of so many bytes are in no directory too many: it may be in its inode, and have no blocks.
const FEW: u64 = 64 << 10;
/// For each inode that a file system has room for, so many names: hard links, most of all those of backups.
const NAMES_FOR_EACH: u64 = 256;
/// Inodes that are always counted as there.
const FEWEST_INODES: u64 = 1024;

/// What one directory has returned, and may return.
pub(crate) struct Listing<'a> {
    dir: &'a OwnedFd,
    on: Capacity,
    bytes: u64,
    most: u64,
}

/// What limits the directories of a file system.
#[derive(Clone, Copy)]
pub(crate) struct Capacity {
    kind: FsKind,
    bytes: u64,
}

impl Capacity {
    pub fn of(fs: &FileSystem) -> Self {
        Self { kind: fs.kind, bytes: fs.total_bytes }
    }
}

impl<'a> Listing<'a> {
    /// Of an open directory.
    pub fn new(dir: &'a OwnedFd, stat: &Stat, on: Capacity) -> Self {
        Self { dir, on, bytes: 0, most: most(stat, on) }
    }

    /// Counts one more name.
    ///
    /// # Errors
    /// `UCLEAN` if the directory is not large enough for what it has returned.
    pub fn count(&mut self, name: &[u8]) -> Result<(), Errno> {
        // The smallest entry of all file systems; a name that is encrypted may be half as long on the device.
        self.bytes += 8 + name.len() as u64 / 2;
        if self.bytes <= self.most {
            return Ok(());
        }
        // It may have grown meanwhile.
        self.most = most(&rustix::fs::fstat(self.dir)?, self.on);
        if self.bytes <= self.most { Ok(()) } else { Err(Errno::UCLEAN) }
    }
}

/// Bytes of names that a directory may have.
fn most(stat: &Stat, on: Capacity) -> u64 {
    let own = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let most = match on.kind.counts_directories() {
        None => return u64::MAX,
        Some(false) => on.bytes,
        Some(true) => own.min(on.bytes),
    };
    most.max(FEW)
}

/// The names that all directories of a file system may have together.
pub(crate) fn most_names(fs: &FileSystem) -> u64 {
    if fs.kind == FsKind::Other || fs.inodes == 0 {
        return u64::MAX;
    }
    // A project quota may limit what the file system reports as its inodes; none is shorter than 256 bytes.
    let inodes = fs.inodes.max(FEWEST_INODES).saturating_mul(NAMES_FOR_EACH);
    inodes.max(fs.total_bytes / 256)
}
