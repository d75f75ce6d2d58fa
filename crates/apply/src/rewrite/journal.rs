//! The directory that records lie in: private to its owner, and one process at a time.
//!
//! A copy is written under a name that ends in `.part`, and becomes a record (`.record`) by a
//! rename once it is durable and was read back. So a `.part` belongs to a range that nobody has
//! touched, whatever is in it; and a `.record` was whole once.

use super::record::{BadRecord, Record};
use crate::bytes::{read_at, write_at};
use fragmend_sys::cache;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Its name at the top of a mounted file system.
pub const DIRECTORY: &str = ".fragmend-rewrite";

/// How its name begins anywhere else; the file system's identity follows.
pub const ELSEWHERE: &str = "fragmend-rewrite-";

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Others could have put records there.
    #[error(
        "{0} is not a directory of ours alone: it must be ours, and closed to group and others"
    )]
    NotPrivate(PathBuf),
    /// Another process holds it.
    #[error("{0}: another fragmend is at work there; wait for it to end")]
    AtWork(PathBuf),
    /// What the system says.
    #[error("{path}: {source}")]
    Io {
        /// Which directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A journal, locked. Its directory goes when it is dropped empty.
#[derive(Debug)]
pub struct Journal {
    dir: OwnedFd,
    path: PathBuf,
}

impl Journal {
    /// Opens and locks it; `None` where there is none.
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
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if !ours || stat.st_mode & 0o077 != 0 {
            return Err(JournalError::NotPrivate(path.to_owned()));
        }
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(JournalError::AtWork(path.to_owned())),
            Err(e) => return Err(io(e)),
        }
        Ok(Some(Self { dir, path: path.to_owned() }))
    }

    /// The same, made first where there is none.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn create(path: &Path) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => {
                // A record is as durable as the directory that holds it.
                let above = path.parent().unwrap_or(Path::new("/"));
                std::fs::File::open(above).and_then(|dir| dir.sync_all()).map_err(io)?;
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(io(e.into())),
        }
        Self::open(path)?.ok_or_else(|| io(io::ErrorKind::NotFound.into()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it that end in this, in order.
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

    /// The records.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn records(&self) -> io::Result<Vec<OsString>> {
        self.names(".record")
    }

    /// Copies that never became records.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn drafts(&self) -> io::Result<Vec<OsString>> {
        self.names(".part")
    }

    /// Opens a record and reads what it says, if it can be read.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn load(&self, name: &OsStr) -> io::Result<(OwnedFd, Result<Record, BadRecord>)> {
        let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, how, Mode::empty())?;
        let mut bytes = vec![0; Record::LONGEST as usize];
        let length = read_at(&file, &mut bytes, 0)?;
        Ok((file, Record::decode(&bytes[..length])))
    }

    /// Removes a name for good.
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
        let file = rustix::fs::openat(&self.dir, &part, how, Mode::RUSR | Mode::WUSR)?;
        Ok(Draft { journal: Rc::clone(self), record, file, part, sealed, data: Vec::new() })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = rustix::fs::rmdir(&self.path);
    }
}

/// A copy in the making; removed when dropped unfinished.
#[derive(Debug)]
pub struct Draft {
    journal: Rc<Journal>,
    record: Record,
    file: OwnedFd,
    part: OsString,
    sealed: OsString,
    data: Vec<u8>,
}

impl Draft {
    /// The range that is to be copied.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Bytes of it that are still to come.
    pub fn rest(&self) -> u64 {
        self.record.data_len() - self.data.len() as u64
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_at(&self.file, bytes, self.record.data_start() + self.data.len() as u64)?;
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes the copy a record: durable, and read back.
    ///
    /// # Errors
    /// When it cannot be made so: then it is none.
    pub fn seal(mut self) -> io::Result<Sealed> {
        self.record.data_checksum = crc32c::crc32c(&self.data);
        write_at(&self.file, &self.record.encode(), 0)?;
        rustix::fs::fsync(&self.file)?;
        let (start, length) = (self.record.data_start(), self.record.data_len());
        cache::drop_clean(&self.file, 0..start + length)?;
        let mut head = vec![0; start as usize];
        read_at(&self.file, &mut head, 0)?;
        let data = read_data(&self.file, &self.record)?;
        if Record::decode(&head).as_ref() != Ok(&self.record) || data != Some(self.data.clone()) {
            return Err(io::Error::other("the copy is not as it was written"));
        }
        let journal = Rc::clone(&self.journal);
        rustix::fs::renameat(&journal.dir, &self.part, &journal.dir, &self.sealed)?;
        let (record, data) = (self.record.clone(), std::mem::take(&mut self.data));
        let sealed = Sealed { journal, record, name: self.sealed.clone(), data };
        if let Err(e) = rustix::fs::fsync(&sealed.journal.dir) {
            // Nobody has touched the file yet.
            let _ = sealed.remove();
            return Err(e.into());
        }
        Ok(sealed)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After sealing there is no such name.
        let _ = rustix::fs::unlinkat(&self.journal.dir, &self.part, AtFlags::empty());
    }
}

/// A record of this process; stays unless it is removed.
#[derive(Debug)]
pub struct Sealed {
    journal: Rc<Journal>,
    name: OsString,
    /// What it says.
    pub record: Record,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl Sealed {
    /// Removes it for good.
    ///
    /// # Errors
    /// As [`Journal::remove`].
    pub fn remove(self) -> io::Result<()> {
        self.journal.remove(&self.name)
    }
}

/// The bytes of a record's range; `None` when they are not those that were written.
///
/// # Errors
/// When the file cannot be read.
pub fn read_data(file: &OwnedFd, record: &Record) -> io::Result<Option<Vec<u8>>> {
    let length = rustix::fs::fstat(file)?.st_size as u64;
    // Before so much memory is asked for.
    if record.data_start().checked_add(record.data_len()).is_none_or(|end| end > length) {
        return Ok(None);
    }
    let mut data = vec![0; record.data_len() as usize];
    let read = read_at(file, &mut data, record.data_start())?;
    let whole = read == data.len() && crc32c::crc32c(&data) == record.data_checksum;
    Ok(whole.then_some(data))
}
