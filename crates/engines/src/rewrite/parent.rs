//! The directory that a journal is in, held open: from its name on, no path is walked.
//!
//! A user who may rename entries of that directory can give the journal's name to a private directory of another
//! else's, or put an older journal in the place of this one. So neither `apply` nor `recover` uses a journal
//! there.

use super::journal::JournalError;
use fragmend_sys::root;
use rustix::fs::{Mode, OFlags, Stat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The directory that a journal is in, or is to be in.
#[derive(Debug)]
pub struct Parent {
    pub(super) dir: OwnedFd,
    pub(super) path: PathBuf,
}

impl Parent {
    /// The directory at this path, which is open or named (`O_PATH`) already.
    pub fn opened(dir: OwnedFd, path: &Path) -> Self {
        Self { dir, path: path.to_owned() }
    }

    /// The directory at a path without links.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn named(path: &Path) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        Ok(Self { dir: directory(path).map_err(io)?, path: path.to_owned() })
    }

    /// Whether no other user can remove or rename it, or what is ours in it; the same for each directory above
    /// it, up to the top of its mount.
    ///
    /// # Errors
    /// [`JournalError::OpenToOthers`].
    pub fn held_by_nobody_else(&self) -> Result<(), JournalError> {
        let io = |source| JournalError::Io { path: self.path.clone(), source };
        let (mut paths, mut at) = (self.path.ancestors(), None);
        loop {
            let (dir, path) = (at.as_ref().unwrap_or(&self.dir), paths.next());
            if !holds_what_is_ours(&rustix::fs::fstat(dir).map_err(|e| io(e.into()))?) {
                let path = path.unwrap_or(Path::new("/"));
                return Err(JournalError::OpenToOthers(path.to_owned()));
            }
            match root::above(dir).map_err(|e| io(e.into()))? {
                Some(above) => at = Some(above),
                None => return Ok(()),
            }
        }
    }
}

/// Opens a directory. If another user put a pipe in its place, this does not wait for it.
///
/// # Errors
/// Those of `open(2)`.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, how, Mode::empty())?)
}

/// Whether a file or directory is this user's.
pub(super) fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether no other user can rename what is ours in a directory.
fn holds_what_is_ours(stat: &Stat) -> bool {
    const STICKY: u32 = 0o1000;
    (is_ours(stat) || stat.st_uid == 0) && (stat.st_mode & 0o022 == 0 || stat.st_mode & STICKY != 0)
}
