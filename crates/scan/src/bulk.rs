//! The sources that need not open files, and which of them serves a file system.

use crate::{FileSystem, ext4, xfs};
use fragmend_layout::{FsKind, Layout};

/// One file system's layouts in bulk.
pub(crate) enum Bulk {
    /// From its inode tables.
    Ext4(ext4::Bulk),
    /// From its reverse mapping.
    Xfs(xfs::Map),
}

impl Bulk {
    /// Opens the source for a file system.
    ///
    /// # Errors
    /// Why there is none, in words for people.
    pub fn open(fs: &FileSystem) -> Result<Self, String> {
        match fs.kind {
            FsKind::Ext4 => ext4::Bulk::open(fs).map(Self::Ext4),
            FsKind::Xfs => xfs::Map::read(fs).map(Self::Xfs),
            _ => Err(format!("it is {}, not ext4 or XFS", fs.type_name)),
        }
    }

    /// The same, but only where that is faster for `files` files than FIEMAP.
    pub fn if_it_pays(fs: &FileSystem, files: usize) -> Option<Self> {
        let pays = match fs.kind {
            FsKind::Ext4 => true,
            FsKind::Xfs => xfs::Map::pays(fs, files),
            _ => false,
        };
        pays.then(|| Self::open(fs).ok()).flatten()
    }

    /// Reads the layouts of `inodes`; `visit` gets each position once, in any order, with `None` where FIEMAP
    /// must be used.
    pub fn layouts(
        &self,
        inodes: impl Iterator<Item = u64>,
        mut visit: impl FnMut(usize, Option<Layout>),
    ) {
        match self {
            Self::Ext4(tables) => tables.layouts(&mut tables.worker(), inodes, visit),
            Self::Xfs(map) => inodes.enumerate().for_each(|(i, n)| visit(i, map.layout(n))),
        }
    }
}
