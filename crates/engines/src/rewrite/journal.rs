//! The directory that holds the records: private to its owner, and used by one process at a time.
//!
//! A copy is written under a name that ends in `.part`, and becomes a record (`.record`) by a rename once it is
//! durable and was read back (`draft`). So a `.part` belongs to a range that has not been touched, whatever is
//! in it; and a `.record` was whole once. A record whose file is not certain gets a name that ends in `.kept`:
//! nothing here looks at it again, and nothing removes it.
//!
//! No other user can put a record there, or change one: the directory is ours and closed to others, is not a
//! symbolic link, and is in a directory from which others cannot remove it; a record is a regular file of ours
//! with one name.

use super::draft::Draft;
use super::record::{BadRecord, LONGEST_RANGE, Record};
use crate::bytes::read_at;
use fragmend_sys::mounts;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Its name at the top of a mounted file system.
pub const DIRECTORY: &str = ".fragmend-rewrite";

/// How its name begins anywhere else; the file system's UUID follows.
pub const ELSEWHERE: &str = "fragmend-rewrite-";

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Others could have put records there.
    #[error(
        "{0} is not a directory of ours alone, closed to group and others; see what it is and remove it, or keep records elsewhere (apply --journal DIR)"
    )]
    NotPrivate(PathBuf),
    /// Others could remove it, and put another in its place.
    #[error("{0}: others may rename what is there; keep records elsewhere (--journal DIR)")]
    OpenToOthers(PathBuf),
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

/// A journal, locked. When it is dropped, its directory is removed if it is empty.
#[derive(Debug)]
pub struct Journal {
    pub(super) dir: OwnedFd,
    path: PathBuf,
}

impl Journal {
    /// Opens and locks a journal; `None` where there is none.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(path: &Path) -> Result<Option<Self>, JournalError> {
        let io = |e: Errno| JournalError::Io { path: path.to_owned(), source: e.into() };
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(path, how, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(JournalError::NotPrivate(path.to_owned()));
            }
            Err(e) => return Err(io(e)),
        };
        let stat = rustix::fs::fstat(&dir).map_err(io)?;
        if !is_ours(&stat) || stat.st_mode & 0o077 != 0 {
            return Err(JournalError::NotPrivate(path.to_owned()));
        }
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(JournalError::AtWork(path.to_owned())),
            Err(e) => return Err(io(e)),
        }
        Ok(Some(Self { dir, path: path.to_owned() }))
    }

    /// Opens and locks a journal, and makes it first where there is none.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn create(path: &Path) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(io(e.into())),
        }
        let made = Self::open(path)?.ok_or_else(|| io(io::ErrorKind::NotFound.into()))?;
        made.make_fit()?;
        Ok(made)
    }

    /// Whether it is on the same file system as a directory.
    pub(crate) fn is_beside(&self, dir: &OwnedFd) -> bool {
        let dev = |of: &OwnedFd| rustix::fs::fstat(of).map(|stat| stat.st_dev);
        dev(&self.dir).is_ok_and(|own| dev(dir) == Ok(own))
    }

    /// Makes sure that the records that are put into it stay there.
    ///
    /// # Errors
    /// When others could remove it, or it cannot be made durable itself.
    pub fn make_fit(&self) -> Result<(), JournalError> {
        let io = |source| JournalError::Io { path: self.path.clone(), source };
        let above = self.path.parent().unwrap_or(Path::new("/"));
        held_by_nobody_else(above)?;
        let above_dir = directory(above).map_err(io)?;
        // Whatever the umask of the process is.
        rustix::fs::fchmod(&self.dir, Mode::RWXU).map_err(|e| io(e.into()))?;
        // A record is only as durable as the directory that holds it, and the process that made the directory
        // may have died before this call.
        rustix::fs::fsync(&above_dir).map_err(|e| io(e.into()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it that end in `ending`, sorted.
    ///
    /// # Errors
    /// When it cannot be read.
    fn names(&self, ending: &str) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.dir)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name.as_bytes().ends_with(ending.as_bytes()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
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

    /// The names of the records.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn records(&self) -> io::Result<Vec<OsString>> {
        self.names(".record")
    }

    /// The names of copies that never became records.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn drafts(&self) -> io::Result<Vec<OsString>> {
        self.names(".part")
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
        let named = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let named = rustix::fs::openat(&self.dir, name, named, Mode::empty())?;
        // Checked before it is opened: opening a pipe would wait, and opening a device may have an effect.
        let (stat, home) = (rustix::fs::fstat(&named)?, rustix::fs::fstat(&self.dir)?);
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let alone = is_ours(&stat) && stat.st_mode & 0o022 == 0 && stat.st_nlink == 1;
        let length = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if !regular || !alone || stat.st_dev != home.st_dev || length > Self::LONGEST_RECORD {
            return Ok((named, Err(BadRecord::NotOurs)));
        }
        let how = if look { OFlags::RDONLY } else { OFlags::RDWR };
        let file = fragmend_sys::handle::reopen(&named, how | OFlags::NONBLOCK)?;
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
            kept.push(format!("{number}.kept"));
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
        rustix::fs::fchmod(&file, mode)?; // whatever the process's umask says
        Ok(Draft::new(Rc::clone(self), record, file, part, sealed))
    }
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Opens a directory. If another user put a pipe in its place, this does not wait for it.
///
/// # Errors
/// Those of `open(2)`.
pub(crate) fn directory(path: &Path) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, how, Mode::empty())?)
}

/// Whether no other user can remove or rename a directory, or what is ours in it; the same for each directory
/// above it, up to the top of its mount.
///
/// # Errors
/// [`JournalError::OpenToOthers`].
pub(crate) fn held_by_nobody_else(dir: &Path) -> Result<(), JournalError> {
    let io = |source| JournalError::Io { path: dir.to_owned(), source };
    let (dir, top) = (dir.canonicalize().map_err(io)?, mounts::of_path(dir).map_err(io)?.point);
    for above in dir.ancestors() {
        let stat = rustix::fs::lstat(above).map_err(|e| io(e.into()))?;
        if !holds_what_is_ours(&stat) {
            return Err(JournalError::OpenToOthers(above.to_owned()));
        }
        if above == top {
            break;
        }
    }
    Ok(())
}

/// Whether no other user can rename what is ours in a directory.
fn holds_what_is_ours(stat: &Stat) -> bool {
    const STICKY: u32 = 0o1000;
    (is_ours(stat) || stat.st_uid == 0) && (stat.st_mode & 0o022 == 0 || stat.st_mode & STICKY != 0)
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = rustix::fs::rmdir(&self.path);
    }
}
