//! Layouts of all files of an XFS from its reverse mapping: every block's owner in a few long reads, and inodes
//! by their numbers, no file opened.
//!
//! It is faster where most files of the file system are wanted, and needs root and an XFS made with `rmapbt=1`.
//! Files that are shared in part, or are on a realtime device, are left to FIEMAP. Delayed allocation has no
//! blocks yet, so the file system is synced first. The two sources agree extent by extent
//! (`tests/loop_agree_xfs.rs`).

use crate::FileSystem;
use fragmend_layout::{Extent, ExtentKind, FileId, Layout};
use fragmend_sys::fsmap::{self, Record, flags};
use fragmend_sys::root::Root;
use fragmend_sys::{bulkstat, xfs};
use rustix::fs::FileType;
use std::io;

/// Where the data of all files was at one instant.
pub struct Map {
    dev: u64,
    /// In the order of their numbers.
    inodes: Vec<Inode>,
    /// In the order of owner and offset.
    extents: Vec<Mapped>,
}

struct Inode {
    number: u64,
    size: u64,
    generation: u32,
    /// Only the kernel can return its layout.
    odd: bool,
}

/// An extent, as small as possible in memory: there may be millions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mapped {
    owner: u64,
    offset: u64,
    physical: u64,
    /// Length in bytes; lowest bit: unwritten.
    length: u64,
}

impl Map {
    /// Whether reading all of an XFS is faster for this many of its files.
    pub fn pays(fs: &FileSystem, files: usize) -> bool {
        let used =
            |dir: Root| rustix::fs::fstatvfs(dir).ok().map(|s| s.f_files.saturating_sub(s.f_ffree));
        fs.root().ok().and_then(used).is_some_and(|used| files as u64 >= used / 2)
    }

    /// Reads the map of a file system.
    ///
    /// # Errors
    /// Why it cannot be read, in words for people.
    pub fn read(fs: &FileSystem) -> Result<Self, String> {
        let root = fs.root().map_err(|e| format!("its mount point cannot be opened ({e})"))?;
        match xfs::features(&root) {
            Ok(features) if features.rmap => {}
            Ok(_) => return Err("it was made without rmapbt, so that blocks have no owners".into()),
            Err(e) => return Err(format!("it cannot say what it can do ({e})")),
        }
        let refused = |what: &str, e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied => format!("{what} needs root"),
            _ => format!("{what} failed ({e})"),
        };
        let _ = rustix::fs::syncfs(&root);
        let mut map = Self { dev: fs.dev, inodes: Vec::new(), extents: Vec::new() };
        map.read_extents(&root).map_err(|e| refused("reading the owners of blocks", e))?;
        map.read_inodes(&root).map_err(|e| refused("reading inodes by number", e))?;
        Ok(map)
    }

    fn read_extents(&mut self, root: &Root) -> io::Result<()> {
        /// Blocks of an inode that are not its data.
        const NO_DATA: u32 = flags::SPECIAL_OWNER | flags::ATTRIBUTES | flags::EXTENT_MAP;
        let mut shared = Vec::new();
        fsmap::each(root, |record: &Record| {
            if record.flags & NO_DATA != 0 {
                return;
            }
            if record.flags & flags::SHARED != 0 {
                shared.push(record.owner);
            }
            self.extents.push(Mapped {
                owner: record.owner,
                offset: record.offset,
                physical: record.physical,
                length: record.length | u64::from(record.flags & flags::UNWRITTEN != 0),
            });
        })?;
        self.extents.sort_unstable();
        shared.sort_unstable();
        shared.dedup();
        // `read_inodes` marks them as odd.
        self.inodes = shared
            .into_iter()
            .map(|number| Inode { number, size: 0, generation: 0, odd: true })
            .collect();
        Ok(())
    }

    fn read_inodes(&mut self, root: &Root) -> io::Result<()> {
        let shared = std::mem::take(&mut self.inodes);
        bulkstat::each(root, 0, |inode| {
            if FileType::from_raw_mode(u32::from(inode.mode)) == FileType::RegularFile {
                let is_shared = shared.binary_search_by_key(&inode.number, |i| i.number).is_ok();
                self.inodes.push(Inode {
                    number: inode.number,
                    size: inode.size,
                    generation: inode.generation,
                    odd: is_shared || inode.is_realtime(),
                });
            }
            true
        })
    }

    /// The layout of a file; `None` where FIEMAP must be used.
    pub fn layout(&self, number: u64) -> Option<Layout> {
        let at = self.inodes.binary_search_by_key(&number, |inode| inode.number).ok()?;
        let inode = &self.inodes[at];
        if inode.odd {
            return None;
        }
        let id = FileId { device: self.dev, inode: number, generation: inode.generation };
        let mut layout = Layout::new(id, inode.size);
        let first = self.extents.partition_point(|e| e.owner < number);
        for mapped in self.extents[first..].iter().take_while(|e| e.owner == number) {
            let kind =
                if mapped.length & 1 == 1 { ExtentKind::Unwritten } else { ExtentKind::Data };
            let (logical, physical) = (mapped.offset, mapped.physical);
            let length = (mapped.length & !1).min(u64::MAX - logical);
            layout.push(Extent { logical, physical, length, kind });
        }
        Some(layout)
    }
}
