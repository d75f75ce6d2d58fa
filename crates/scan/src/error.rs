//! What can go wrong: for a whole given path ([`ScanError`]), or for one file or directory in it
//! ([`Reason`]), which is then counted and the scan goes on.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A path that was asked for and cannot be scanned at all.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It does not exist or may not be read.
    #[error("cannot scan {}: {source}", path.display())]
    Path {
        /// As given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a device, a socket or a pipe.
    #[error("cannot scan {}: it is neither a file nor a directory", path.display())]
    NotAFile {
        /// As given.
        path: PathBuf,
    },
    /// The bulk source was demanded and cannot be used.
    #[error("{}: inode tables cannot be read in bulk: {why}; use --source auto", path.display())]
    NoBulk {
        /// Mount point of the file system.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Names fill the address space of the compact tree.
    #[error("more than 4 GiB of file names: scan fewer paths at a time")]
    TooManyNames,
    /// The receiver of the results failed (a closed pipe, a full disk).
    #[error("cannot hand on the results: {0}")]
    Sink(#[from] io::Error),
}

/// Why one file or directory was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It was gone when its turn came.
    Vanished,
    /// It may not be read by this user.
    Denied,
    /// It cannot say where its bytes lie: no FIEMAP.
    NoLayout,
    /// It lies on another file system than the path that was given.
    OtherFileSystem,
    /// The kernel's error number.
    Error(i32),
}

impl From<&io::Error> for Reason {
    fn from(error: &io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        match Errno::from_raw_os_error(code) {
            // A name that became a symlink or stopped being a directory is no longer the file
            // that was found.
            Errno::NOENT | Errno::STALE | Errno::LOOP | Errno::NOTDIR => Self::Vanished,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::OPNOTSUPP | Errno::NOTTY => Self::NoLayout,
            _ => Self::Error(code),
        }
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Self {
        Self::from(&io::Error::from(errno))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vanished => f.write_str("vanished during the scan"),
            Self::Denied => f.write_str("permission denied"),
            Self::NoLayout => f.write_str("the file system has no FIEMAP"),
            Self::OtherFileSystem => f.write_str("on another file system"),
            Self::Error(code) => write!(f, "{}", io::Error::from_raw_os_error(*code)),
        }
    }
}
