//! The directory that holds the records: private to its owner, and used by one process at a time.
//!
//! A copy is written under a name that ends in `.part`, and becomes a record (`.record`) by a rename once it is
//! durable and was read back (`draft`). So a `.part` belongs to a range that has not been touched, whatever is
//! in it; and a `.record` was whole once. A record whose file is not certain gets a name that ends in `.kept`:
//! nothing here looks at it again, and nothing removes it.
//!
//! No other user can put a record there, or change one: the directory is ours and closed to others, is not a
//! symbolic link, and is in a directory in which others cannot rename it (`parent`); a record is a regular file
//! of ours with one name. An unfinished copy is removed only if it is such a file too, has the name of one
//! (`names`), and begins as one.

use super::draft::Draft;
use super::names::{self, Listing};
use super::parent::Parent;
use super::record::{BadRecord, LONGEST_RANGE, MAGIC, Record};
use crate::bytes::read_at;
use fragmend_layout::{Skip, SkipReason};
pub use fragmend_scan::journal::{DIRECTORY, ELSEWHERE};
use fragmend_sys::held::is_ours;
use fragmend_sys::{handle, root};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Others could have put records there.
    #[error(
        "{0} is not a directory of ours alone, closed to group and others; see what it is and remove it, or keep records elsewhere (apply --journal DIR)"
    )]
    NotPrivate(PathBuf),
    /// It is another user's.
    #[error(
        "{path} is not a directory of ours alone: it is another user's (uid {uid}); let them recover, or see what it is and remove it, or keep records elsewhere (apply --journal DIR)"
    )]
    Others {
        /// Which journal.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// What is there cannot be seen.
    #[error("{0}: another file system is mounted there; unmount it first")]
    Covered(PathBuf),
    /// The directory that it is in may not be searched.
    #[error("{0}: this user may not look there")]
    Closed(PathBuf),
    /// Others could remove it, and put another in its place.
    #[error(
        "{0}: others may rename what is there, so it is no place for records; keep them elsewhere (apply --journal DIR). If records are there, make that directory yours alone (chown, chmod go-w), look whether they are yours, then recover"
    )]
    OpenToOthers(PathBuf),
    /// It has more names than are looked at.
    #[error(
        "{path}: {}{more} more names were not looked at; a rewrite leaves one: remove what is of no use, then recover again",
        if *.cut { "at least " } else { "" }
    )]
    TooMany {
        /// Which journal.
        path: PathBuf,
        /// How many.
        more: u64,
        /// Whether not all of them were counted.
        cut: bool,
    },
    /// It is not where its name says.
    #[error("{0}: not a journal of the file system that it is on; nothing was done")]
    Misplaced(PathBuf),
    /// Its records may belong to any of several mounted file systems.
    #[error(
        "{journal}: {mounts} are mounted and look the same; nothing was done; unmount all but the one that was rewritten, or name that one as well: fragmend recover --journal DIR PATH"
    )]
    Ambiguous {
        /// Which journal.
        journal: PathBuf,
        /// Where the file systems are mounted.
        mounts: String,
    },
    /// Another process has it locked.
    #[error("{0}: another fragmend is at work there; wait for it to end")]
    AtWork(PathBuf),
    /// The system's error.
    #[error("{path}: {source}")]
    Io {
        /// Which directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl JournalError {
    /// Whether the reason is that there is no journal of this user's there, as far as they may look.
    pub fn is_not_ours(&self) -> bool {
        matches!(self, Self::Others { .. } | Self::Covered(_) | Self::Closed(_))
    }
}

/// Checks that a file that is open for reading is no record of a rewrite, by its name and how it begins: while
/// another file lacks bytes, a record has the only copy of them, and `recover` refuses one that was changed.
///
/// # Errors
/// That it is one, and what to do.
pub(crate) fn is_no_record(file: &OwnedFd, hint: &Path) -> Result<(), Skip> {
    let path = handle::path_of(file).unwrap_or_else(|| hint.to_owned());
    let mut head = MAGIC.map(|_| 0);
    if path.file_name().is_some_and(names::may_be_records)
        && read_at(file, &mut head, 0).is_ok_and(|n| head[..n] == MAGIC)
    {
        let why = "a record of a rewrite; if that was interrupted, run: fragmend recover";
        return Err(Skip::new(SkipReason::Unsupported, why));
    }
    Ok(())
}

/// A journal, locked. When it is dropped, its directory is removed if it is empty.
#[derive(Debug)]
pub struct Journal {
    pub(super) dir: OwnedFd,
    parent: Rc<Parent>,
    path: PathBuf,
}

impl Journal {
    /// Opens and locks the journal of this name; `None` where there is none.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(parent: &Rc<Parent>, name: &OsStr) -> Result<Option<Self>, JournalError> {
        let path = parent.path.join(name);
        let io = |e: Errno| JournalError::Io { path: path.clone(), source: e.into() };
        let named = match root::name_in(&parent.dir, name) {
            Ok(named) => named,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::XDEV) => return Err(JournalError::Covered(path)),
            Err(Errno::ACCESS) => return Err(JournalError::Closed(parent.path.clone())),
            Err(e) => return Err(io(e)),
        };
        let stat = rustix::fs::fstat(&named).map_err(io)?;
        if !is_ours(&stat) {
            return Err(JournalError::Others { path, uid: stat.st_uid });
        }
        let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !directory || stat.st_mode & 0o077 != 0 {
            return Err(JournalError::NotPrivate(path));
        }
        parent.held_by_nobody_else()?;
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&named, c".", how, Mode::empty()).map_err(io)?;
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(JournalError::AtWork(path)),
            Err(e) => return Err(io(e)),
        }
        Ok(Some(Self { dir, parent: Rc::clone(parent), path }))
    }

    /// Opens and locks a journal, and makes it first where there is none.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn create(parent: &Rc<Parent>, name: &OsStr) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: parent.path.join(name), source };
        match rustix::fs::mkdirat(&parent.dir, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(io(e.into())),
        }
        let made = Self::open(parent, name)?.ok_or_else(|| io(io::ErrorKind::NotFound.into()))?;
        made.make_fit()?;
        Ok(made)
    }

    /// Whether it is on the same file system as a directory.
    pub(crate) fn is_beside(&self, dir: &OwnedFd) -> bool {
        let dev = |dir: &OwnedFd| rustix::fs::fstat(dir).map(|stat| stat.st_dev);
        dev(&self.dir).is_ok_and(|own| dev(dir) == Ok(own))
    }

    /// Makes sure that the records that are put into it stay there.
    ///
    /// # Errors
    /// When others could remove it, or it cannot be made durable itself.
    pub fn make_fit(&self) -> Result<(), JournalError> {
        let io = |e: Errno| JournalError::Io { path: self.path.clone(), source: e.into() };
        self.parent.held_by_nobody_else()?;
        // Whatever the umask of the process is.
        rustix::fs::fchmod(&self.dir, Mode::RWXU).map_err(io)?;
        // A record is only as durable as the directory that holds it, and the process that made the directory
        // may have died before this call.
        rustix::fs::fsync(&self.parent.dir).map_err(io)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of records and of copies that never became records.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn listing(&self) -> io::Result<Listing> {
        Listing::of(&self.dir)
    }

    /// Whether this is a copy that a rewrite began: an empty file, or one that begins as a record or, as long as
    /// it has no header, in zeroes.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn is_draft(&self, name: &OsStr) -> io::Result<bool> {
        if !names::is_drafts(name) {
            return Ok(false);
        }
        let (named, stat, alone) = self.look(name)?;
        if !alone || stat.st_size == 0 {
            return Ok(alone);
        }
        let file = handle::reopen(&named, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let mut head = [0; 4096];
        let length = read_at(&file, &mut head, 0)?;
        let head = &head[..length];
        Ok(head.starts_with(&MAGIC) || head.iter().all(|byte| *byte == 0))
    }

    /// Names a file, and returns whether it is a regular one of ours that no other user can have changed.
    fn look(&self, name: &OsStr) -> io::Result<(OwnedFd, Stat, bool)> {
        let named = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let named = rustix::fs::openat(&self.dir, name, named, Mode::empty())?;
        // Checked before it is opened: opening a pipe would wait, and opening a device may have an effect.
        let (stat, home) = (rustix::fs::fstat(&named)?, rustix::fs::fstat(&self.dir)?);
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let alone = is_ours(&stat) && stat.st_mode & 0o022 == 0 && stat.st_nlink == 1;
        Ok((named, stat, regular && alone && stat.st_dev == home.st_dev))
    }

    /// Removes copies that never became records, and makes that durable with one sync for all: a user
    /// who could write to the disk may have put any number of them there.
    ///
    /// # Errors
    /// When one cannot be removed, or the removal is not known to be durable.
    pub fn remove_drafts(&self, drafts: &[OsString]) -> io::Result<()> {
        if drafts.is_empty() {
            return Ok(());
        }
        for name in drafts {
            rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?;
        }
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Opens a record, to `look` at it only or also to write notes into it, and parses it. A file with holes is
    /// refused: so a record occupies the space that its size claims.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn load(
        &self,
        name: &OsStr,
        look: bool,
    ) -> io::Result<(OwnedFd, Result<Record, BadRecord>)> {
        let (named, stat, alone) = self.look(name)?;
        let length = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if !alone || length > Self::LONGEST_RECORD {
            return Ok((named, Err(BadRecord::NotOurs)));
        }
        let how = if look { OFlags::RDONLY } else { OFlags::RDWR };
        let file = handle::reopen(&named, how | OFlags::NONBLOCK)?;
        if length > 0 && rustix::fs::seek(&file, SeekFrom::Hole(0))? < length {
            return Ok((named, Err(BadRecord::NotOurs)));
        }
        let mut bytes = vec![0; Record::LONGEST as usize];
        let length = read_at(&file, &mut bytes, 0)?;
        Ok((file, Record::decode(&bytes[..length])))
    }

    /// The longest possible record, in bytes.
    const LONGEST_RECORD: u64 = Record::LONGEST + 2 * 4096 + LONGEST_RANGE;

    /// Renames a record durably to a name that nothing here looks at again, and returns the new path.
    ///
    /// # Errors
    /// When it cannot be renamed, or the rename is not known to be durable.
    pub fn set_aside(&self, name: &OsStr) -> io::Result<PathBuf> {
        for n in 0..1000 {
            let number = if n == 0 { String::new() } else { format!(".{n}") };
            let mut kept = name.to_owned();
            kept.push(format!("{number}{}", names::KEPT));
            let how = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&self.dir, name, &self.dir, &kept, how) {
                Ok(()) => {
                    rustix::fs::fsync(&self.dir)?;
                    return Ok(self.path.join(kept));
                }
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Removes a name, and makes that durable.
    ///
    /// # Errors
    /// When it cannot be removed, or the removal is not known to be durable.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Begins a copy of `record`'s range.
    ///
    /// # Errors
    /// When it cannot be made; `EEXIST` when the range has a record already.
    pub fn begin(self: &Rc<Self>, record: Record) -> io::Result<Draft> {
        let name = |ending| format!("{}-{}.{ending}", record.inode, record.range.start).into();
        let (part, sealed): (OsString, OsString) = (name("part"), name("record"));
        if rustix::fs::statat(&self.dir, &sealed, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.dir, &part, how, mode)?;
        rustix::fs::fchmod(&file, mode)?; // whatever the process's umask is
        Ok(Draft::new(Rc::clone(self), record, file, part, sealed))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let name = self.path.file_name().unwrap_or_default();
        let _ = rustix::fs::unlinkat(&self.parent.dir, name, AtFlags::REMOVEDIR);
    }
}
