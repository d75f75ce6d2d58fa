//! A mounted file system of the running kernel as a [`Volume`]: finds files, reads their attributes, opens
//! them. How their data moves is decided by the [`Engine`].

use super::errno::skip_of;
use super::files;
use super::lock::{self, Lock, Unlocked};
use super::rewrite::{journal, limits};
use super::{Engine, Moves, may_move};
use crate::point::{Point, reached};
use fragmend_apply::drive::{self, File};
use fragmend_layout::{
    ByteRange, DeviceProfile, Extent, FileId, FsKind, Layout, Movable, Pace, Settled, Skip,
    SkipReason, Target, Terms, Underway, Volume,
};
use fragmend_scan::fiemap;
use fragmend_sys::again::{self, Lost};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::lease::is_leased;
use fragmend_sys::mounts::Mount;
use fragmend_sys::priority::Prompt;
use fragmend_sys::root::Root;
use fragmend_sys::{cache, f2fs, handle, signals, writeback};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest wait for the dirty pages of a step, before staging waits for all of them.
const WRITE_BACK: Duration = Duration::from_secs(10);

/// A mounted file system and what moves data on it. All files on it are opened below its root, which is opened
/// once: the path to it may lead elsewhere at any instant.
pub struct Mounted {
    root: Rc<Root>,
    kind: FsKind,
    /// Device number, as the mount table has it.
    dev: u64,
    block: u64,
    total: u64,
    engine: Box<dyn Engine>,
    /// Kept until the last of its files is closed.
    lock: Option<Lock>,
}

impl Mounted {
    /// The file system at this mount, whose directory is `root`.
    ///
    /// # Errors
    /// An error of `fstatvfs(2)`.
    pub(super) fn new(mount: &Mount, root: Root, engine: Box<dyn Engine>) -> io::Result<Self> {
        let stat = rustix::fs::fstatvfs(&root)?;
        Ok(Self {
            kind: FsKind::from_name(&mount.fs_type),
            // Files of Btrfs have other numbers.
            dev: root.mount().dev,
            block: stat.f_bsize,
            total: stat.f_blocks * stat.f_frsize,
            root: Rc::new(root),
            engine,
            lock: None,
        })
    }

    /// Keeps other processes from moving data on it until it is dropped. `ours` are the file systems that this
    /// process has locked, by number: the subvolumes of a Btrfs are one.
    ///
    /// # Errors
    /// [`Unlocked`].
    pub(super) fn lock(&mut self, ours: &mut HashSet<u64>) -> Result<(), Unlocked> {
        self.lock = Some(lock::take(self.root.as_fd(), self.root.point(), self.dev, ours)?);
        Ok(())
    }

    /// The file, open for reading, once it is known to be the one that is meant, and `allowed` allows it.
    fn reader(
        &self,
        file: FileId,
        hint: &Path,
        allowed: impl Fn(&OwnedFd) -> Result<(), Skip>,
    ) -> Result<(OwnedFd, Stat), Skip> {
        let found = self.find(file, hint)?;
        let opened = again::open(&found, file.generation, |found, _| {
            let reader = open(found, OFlags::RDONLY, self.dev)?;
            allowed(&reader).map(|()| reader)
        });
        opened.map_err(|lost| match lost {
            Lost::NotRegular => Skip::new(SkipReason::NotRegular, ""),
            Lost::Reused => Skip::new(SkipReason::IdentityChanged, "the inode was reused"),
            Lost::Unread(e) => skip_of(e),
            Lost::Closed(skip) => skip,
        })
    }

    /// A descriptor that only names the file, found by its path or else, as it may have been renamed, by its
    /// inode number.
    fn find(&self, file: FileId, hint: &Path) -> Result<OwnedFd, Skip> {
        let FileId { device, inode, generation } = file;
        let identity = handle::Identity { device, inode, generation };
        let elsewhere = |e: &io::Error| {
            let code = e.raw_os_error().map(Errno::from_raw_os_error);
            matches!(code, Some(Errno::LOOP | Errno::XDEV))
        };
        self.root.find(hint, identity).map_err(|missing| match missing.at_path {
            None => Skip::new(SkipReason::IdentityChanged, "another file is at this path"),
            Some(e) if elsewhere(&e) => Skip::new(
                SkipReason::IdentityChanged,
                "its path leads through a link, or to another mount",
            ),
            Some(e) if e.kind() == io::ErrorKind::NotADirectory => {
                Skip::new(SkipReason::Vanished, "")
            }
            Some(e) => skip_of(e),
        })
    }
}

impl Mounted {
    /// The directory at `path`, if it is on the same file system as a file.
    fn beside(&self, path: &Path, file: &Stat) -> Option<OwnedFd> {
        let names = OFlags::PATH | OFlags::DIRECTORY;
        let directory = self.root.below(path, names).ok()?;
        let here = rustix::fs::fstat(&directory).ok()?;
        (here.st_dev == file.st_dev).then_some(directory)
    }
}

impl Volume for Mounted {
    fn label(&self) -> String {
        self.root.point().display().to_string()
    }

    fn kind(&self) -> FsKind {
        self.kind
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        free_bytes(&self.root)
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn block_bytes(&self) -> u64 {
        self.block
    }

    fn profile(&self) -> Option<DeviceProfile> {
        fragmend_device::under(self.root.point(), self.dev).ok()
    }

    fn free_segments(&self) -> Option<u64> {
        let device = BlockDevice::from_dev(self.dev).ok().filter(|_| self.kind.has_segments())?;
        f2fs::segments(&device.name()).ok().map(|segments| segments.free)
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        files::below(self.root.point(), visit)
    }

    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip> {
        let _waits = signals::Waiting::begin();
        let (reader, _) = self.reader(file, hint, |_| Ok(()))?;
        fiemap::layout_of(&reader).map_err(skip_of)
    }

    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        // A program that is asked about opens here (fanotify), or a dead server, may never answer.
        let _waits = signals::Waiting::begin();
        let (reader, stat) = self.reader(file, hint, |reader| {
            may_move(self.kind, reader)?;
            journal::is_no_record(reader, hint)
        })?;
        let mut file = OpenFile {
            fd: reader,
            to_move: false,
            root: Rc::clone(&self.root),
            beside: hint.parent().filter(|_| stat.st_nlink > 0).and_then(|d| self.beside(d, &stat)),
            block: self.block,
            floor: 0,
            unshare: false,
            maps: RefCell::default(),
        };
        let mover = self.engine.mover(&mut file)?;
        let (engine, dev) = (&*self.engine, self.dev);
        Ok(Box::new(Open { file, mover, engine, dev }))
    }
}

/// Opens the very inode that was found. Breaks no lease that is visible, and never waits for a holder.
fn open(found: &OwnedFd, how: OFlags, dev: u64) -> Result<OwnedFd, Skip> {
    let inode = rustix::fs::fstat(found).map_err(|e| skip_of(e.into()))?.st_ino;
    if is_leased(dev, inode, how.contains(OFlags::RDWR)) {
        return Err(Skip::new(SkipReason::Leased, ""));
    }
    let how = how | OFlags::NONBLOCK;
    // Only the owner may ask for `O_NOATIME`; if the error is another one, the second try returns it.
    let opened =
        handle::reopen(found, how | OFlags::NOATIME).or_else(|_| handle::reopen(found, how));
    opened.map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::TXTBSY) => Skip::new(SkipReason::Executing, ""),
        Some(Errno::AGAIN) => Skip::new(SkipReason::Leased, ""),
        _ => skip_of(e),
    })
}

/// One file, open for reading until something of it is to move, and then as its engine wants it.
pub(super) struct OpenFile {
    /// The file.
    pub fd: OwnedFd,
    /// Whether something is to move; if not, the file is only read.
    pub to_move: bool,
    /// The directory at which its file system is mounted.
    pub root: Rc<Root>,
    /// Its directory, while it has a name (`O_PATH`).
    pub beside: Option<OwnedFd>,
    /// Allocation block in bytes.
    pub block: u64,
    /// Bytes of the file system that stay free.
    pub floor: u64,
    /// Whether data that other files share may move.
    pub unshare: bool,
    /// Space for the answers to `FIEMAP`.
    maps: RefCell<Fiemap>,
}

impl File for OpenFile {
    fn block_bytes(&self) -> u64 {
        self.block
    }

    fn layout(&self, range: ByteRange) -> Result<Layout, Skip> {
        fiemap::layout_within(&mut self.maps.borrow_mut(), &self.fd, range, false).map_err(skip_of)
    }
}

impl OpenFile {
    /// Size now, in bytes.
    pub fn size(&self) -> Result<u64, Skip> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|e| skip_of(e.into()))?;
        Ok(stat.st_size.try_into().unwrap_or(0))
    }

    /// Checks that none of the part, whose layout is `layout` now, is shared, or that it may be unshared: a
    /// snapshot may have been taken since the first look.
    pub fn may_unshare(&self, layout: &Layout, part: ByteRange) -> Result<(), Skip> {
        match layout.shared_bytes(part) {
            bytes if bytes > 0 && !self.unshare => {
                let why = format!("{bytes} bytes are shared since it was looked at");
                Err(Skip::new(SkipReason::Shared, why))
            }
            _ => Ok(()),
        }
    }

    /// Checks that all of it may be written out while others are kept out of it. Passes on kernels before 6.5,
    /// which do not count dirty pages.
    ///
    /// # Errors
    /// Busy where others have left so much dirty data that writing it would last long.
    pub fn has_settled(&self) -> Result<(), Skip> {
        const MUCH: u64 = 1 << 20;
        let dirty = cache::dirty_pages(&self.fd, 0..i64::MAX as u64).unwrap_or(0);
        if dirty * rustix::param::page_size() as u64 > MUCH {
            Err(Skip::new(SkipReason::Busy, "others have just written much to it"))
        } else {
            Ok(())
        }
    }

    /// Bytes that may still be allocated on its file system, in its directory: that may belong to a project with
    /// a limit, which `statfs` shows.
    pub fn free_bytes(&self) -> Result<u64, Skip> {
        let of_all = free_bytes(&self.root)?;
        self.beside.as_ref().map_or(Ok(of_all), |dir| Ok(of_all.min(free_bytes(dir)?)))
    }
}

fn free_bytes(at: impl AsFd) -> Result<u64, Skip> {
    let stat = rustix::fs::fstatvfs(at).map_err(|e| skip_of(e.into()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// A file with what moves it.
struct Open<'a> {
    file: OpenFile,
    mover: Moves,
    engine: &'a dyn Engine,
    /// Device number, as the mount table has it.
    dev: u64,
}

impl Open<'_> {
    /// Opens it as moving requires. A dry run never comes here.
    fn open_to_move(&mut self) -> Result<(), Skip> {
        if self.file.to_move {
            return Ok(());
        }
        if self.engine.writes() {
            self.file.fd = open(&self.file.fd, OFlags::RDWR, self.dev)?;
        }
        self.file.to_move = true;
        self.mover = self.engine.mover(&mut self.file)?;
        Ok(())
    }
}

impl Underway for Open<'_> {
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        self.file.layout(range)
    }

    fn let_others_in(&mut self) -> Result<(), Skip> {
        self.mover.let_others_in(&self.file)
    }

    fn release(&mut self) -> Result<(), Skip> {
        self.mover.release(&self.file)
    }
}

impl Movable for Open<'_> {
    fn path(&self) -> Option<PathBuf> {
        self.file.root.path_of(&self.file.fd)
    }

    fn size(&self) -> Result<u64, Skip> {
        self.file.size()
    }

    fn all_or_nothing(&self) -> bool {
        self.mover.all_or_nothing()
    }

    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip> {
        self.mover.need(&self.file, ranges)
    }

    fn may_reach(&self, bytes: u64) -> Result<(), Skip> {
        limits::allow_size(bytes).map_err(|e| Skip::new(SkipReason::Failed, e.to_string()))
    }

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        self.mover.accepts(parts)
    }

    fn writes_anew(&self) -> Result<(), Skip> {
        self.mover.writes_anew()
    }

    fn is_dirty(&self, range: ByteRange) -> Option<bool> {
        cache::dirty_pages(&self.file.fd, range.start..range.end).ok().map(|pages| pages > 0)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        cache::next_data(&self.file.fd, at)
    }

    fn write_back(&self, range: ByteRange, stop: &AtomicBool) {
        let go_on = || !stop.load(Ordering::Relaxed);
        // An error is for the program that wrote, or for the next one that opens the file.
        let _ = writeback::write_once(&self.file.fd, range.start..range.end, WRITE_BACK, go_on);
    }

    fn relocate(
        &mut self,
        targets: &[Target],
        terms: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip> {
        (self.file.floor, self.file.unshare) = (terms.floor, terms.unshare);
        self.open_to_move()?;
        drive::relocate(&mut *self.mover, &self.file, targets, pace, |is_awaited| {
            reached(Point::Driven);
            is_awaited.then(Prompt::begin)
        })
    }
}
