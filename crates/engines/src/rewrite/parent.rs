//! The directory that a journal is in, held open: from its name on, no path is walked.
//!
//! A user who may rename entries of that directory can give the journal's name to a private directory of another
//! else's, or put an older journal in the place of this one. So neither `apply` nor `recover` uses a journal
//! there.

use super::journal::JournalError;
use fragmend_sys::held;
use rustix::fs::{Mode, OFlags};
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
        match held::open_to_others_on_mount(&self.dir, &self.path).map_err(io)? {
            Some(path) => Err(JournalError::OpenToOthers(path)),
            None => Ok(()),
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
