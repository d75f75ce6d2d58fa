//! Which file a record is of: the mounted file system that its journal serves, and the file on it.
//!
//! A journal at the top of a mount serves that mount and no other, whatever its records claim; one of the same
//! name in another directory, where that directory alone was mounted, serves its own file system. A journal
//! elsewhere serves the file system that it is named after, by its UUID, and only while no more than one
//! mounted file system has that UUID: copies of a disk, snapshots below the file system and XFS mounted with
//! `nouuid` all look the same. Nothing is guessed.

use super::journal::{DIRECTORY, ELSEWHERE, Journal, JournalError};
use super::parent::Parent;
use super::record::Record;
use fragmend_layout::FsKind;
use fragmend_sys::again::{self, Lost};
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle;
use fragmend_sys::mounts::Mount;
use fragmend_sys::root::Root;
use fragmend_sys::session::Disk;
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The file systems that a journal's records may be of.
#[derive(Clone, Copy, Debug)]
pub enum Serves<'a> {
    /// The one on which the journal is: at the top of this mount or in a directory of it.
    Itself(&'a Mount),
    /// The one of these whose UUID is in the journal's name.
    OneOf(&'a [Mount]),
}

impl Serves<'_> {
    /// Opens the directory that the journal at this path is in.
    ///
    /// # Errors
    /// When it cannot be opened, or when it is not on the mount.
    pub(super) fn parent_of(&self, journal: &Path) -> Result<Parent, JournalError> {
        let dir = journal.parent().unwrap_or(Path::new("/"));
        let Self::Itself(mount) = self else { return Parent::named(dir) };
        let io = |source| JournalError::Io { path: journal.to_owned(), source };
        let root = Root::of(mount).map_err(io)?;
        if dir == mount.point {
            return Ok(Parent::opened(root.into(), dir));
        }
        match root.below(dir, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(named) => Ok(Parent::opened(named, dir)),
            Err(Errno::NOSYS) => Parent::named(dir),
            Err(Errno::XDEV) => Err(JournalError::Covered(dir.to_owned())),
            Err(Errno::ACCESS) => Err(JournalError::Closed(dir.to_owned())),
            Err(e) => Err(io(e.into())),
        }
    }
}

/// The file system of a journal's records, opened.
#[derive(Debug)]
pub(super) struct Home {
    /// Where it is mounted.
    pub mount: Mount,
    /// The directory there: records name a file below it, and a user who could write to the disk may have put a
    /// symbolic link there.
    pub root: Root,
    /// Its allocation block, in bytes.
    pub block: u64,
    id: FsId,
    disk: Disk,
    /// Whether the journal is on it, at its top or in a directory that was mounted alone.
    at_top: bool,
}

impl Home {
    /// The file system that a journal serves; `None` where it is not mounted.
    ///
    /// # Errors
    /// [`JournalError::Misplaced`], [`JournalError::Ambiguous`].
    pub fn of(journal: &Journal, serves: Serves<'_>) -> Result<Option<Self>, JournalError> {
        match serves {
            Serves::Itself(mount) => {
                let misplaced = || JournalError::Misplaced(journal.path().to_owned());
                let home = Self::open(mount, true).ok_or_else(misplaced)?;
                let dev = |stat: rustix::io::Result<Stat>| stat.map(|stat| stat.st_dev);
                let top = dev(rustix::fs::fstat(&home.root));
                let dir = dev(rustix::fs::fstat(&journal.dir));
                let is_there = journal.path().ends_with(DIRECTORY) && top.is_ok() && top == dir;
                if is_there { Ok(Some(home)) } else { Err(misplaced()) }
            }
            Serves::OneOf(mounts) => {
                let name = journal.path().file_name().unwrap_or_default().to_string_lossy();
                let Some(id) = name.strip_prefix(ELSEWHERE) else {
                    return Err(JournalError::Misplaced(journal.path().to_owned()));
                };
                let mut homes: Vec<Self> = Vec::new();
                for home in mounts.iter().filter_map(|mount| Self::open(mount, false)) {
                    // Another mount of the same file system is not another file system.
                    let known = homes.iter().any(|h| h.mount.dev == home.mount.dev);
                    if home.id.uuid != [0; 16] && home.id.name() == id && !known {
                        homes.push(home);
                    }
                }
                if homes.len() > 1 {
                    let names: Vec<_> =
                        homes.iter().map(|home| home.mount.point.display().to_string()).collect();
                    let journal = journal.path().to_owned();
                    return Err(JournalError::Ambiguous { journal, mounts: names.join(" and ") });
                }
                Ok(homes.pop())
            }
        }
    }

    /// `None` where another mount hides it, or it is not there any more.
    fn open(mount: &Mount, at_top: bool) -> Option<Self> {
        let root = Root::of(mount).ok()?;
        let (id, block) = (FsId::of(&root).ok()?, rustix::fs::fstatvfs(&root).ok()?.f_bsize);
        Some(Self { mount: mount.clone(), block, id, disk: Disk::of(mount.dev), at_top, root })
    }

    /// Whether a record is of this file system, as far as the record itself shows.
    pub fn is_of(&self, record: &Record) -> bool {
        record.fs.is(&self.id).unwrap_or(self.at_top)
    }

    /// Whether this is certainly the disk of the record, and not one that looks the same.
    pub fn is_certain(&self, record: &Record) -> bool {
        self.at_top || self.disk.is(&record.disk)
    }

    /// The record's path on this mount; the mount point where the record has none.
    pub fn recorded_path(&self, record: &Record) -> PathBuf {
        self.mount.point.join(record.path_below())
    }

    /// Finds the record's file, named but not opened: a regular file, and the one that the record means.
    pub fn find(&self, record: &Record) -> Result<RecordsFile, String> {
        let by_handle = (!record.handle.bytes.is_empty()).then(|| record.handle.open(&self.root));
        let named = match by_handle {
            Some(Ok(named)) => named,
            Some(Err(e)) if e.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
                return Ok(RecordsFile::Another);
            }
            // The file system has no handles, or this process may not use them: the path must do.
            _ => {
                let dev = rustix::fs::fstat(&self.root).map_err(|e| e.to_string())?.st_dev;
                let Record { inode, generation, .. } = *record;
                let identity = handle::Identity { device: dev, inode, generation };
                let path = self.recorded_path(record);
                self.root
                    .find(&path, identity)
                    .map_err(|_| "its file is not where it was; recover as root")?
            }
        };
        let opened = again::open(&named, record.generation, |named, stat| {
            if stat.st_ino != record.inode || !self.has(stat.st_dev) {
                return Err(Ok(RecordsFile::Another));
            }
            if stat.st_nlink == 0 {
                let what = "it is deleted, and another program has it open; its record stays until that program has ended";
                return Err(Err(what.into()));
            }
            handle::reopen(named, OFlags::RDONLY | OFlags::NONBLOCK)
                .map_err(|e| Err(format!("cannot be opened: {e}")))
        });
        match opened {
            Ok(_) => Ok(RecordsFile::File(named)),
            Err(Lost::NotRegular | Lost::Reused) => Ok(RecordsFile::Another),
            Err(Lost::Closed(found)) => found,
            Err(Lost::Unread(e)) => Err(e.to_string()),
        }
    }

    /// The present path of a file that was found, if it is known for certain: the kernel may know a file by its
    /// handle and not by a name, and the file at the recorded path may be another one.
    pub fn path_of(&self, named: &OwnedFd, record: &Record) -> Option<PathBuf> {
        let there = || {
            let path = self.recorded_path(record);
            let there = self.root.below(&path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
            let (is, found) = (rustix::fs::fstat(named).ok()?, rustix::fs::fstat(&there).ok()?);
            // Both are open, so that neither inode number can be reused.
            let same = (is.st_dev, is.st_ino) == (found.st_dev, found.st_ino);
            handle::path_of(there).filter(|_| same)
        };
        handle::path_of(named).or_else(there)
    }

    fn has(&self, dev: u64) -> bool {
        dev == self.mount.dev || FsKind::from_name(&self.mount.fs_type).has_subvolumes()
    }
}

/// What has become of a record's file.
#[derive(Debug)]
pub(super) enum RecordsFile {
    /// It is there.
    File(OwnedFd),
    /// Its inode number is unused or another file's: most likely it was deleted, or this is another file
    /// system, or an older state of it.
    Another,
}
