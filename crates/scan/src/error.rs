//! What can go wrong: for a whole given path ([`ScanError`]), or for one file or directory in it
//! ([`Cause`]), which is then counted and the scan goes on.

use fragmend_layout::{Skip, SkipReason};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A given path that cannot be scanned at all.
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
    /// It is, or is in, a directory of a rewrite's records.
    #[error("cannot scan {}: a rewrite's records are left alone; if it was interrupted, run: fragmend recover", path.display())]
    Records {
        /// As given.
        path: PathBuf,
    },
    /// The bulk source was asked for and cannot be used.
    #[error("{}: inode tables cannot be read in bulk: {why}; use --source auto", path.display())]
    NoBulk {
        /// Mount point of the file system.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The names fill the address space of the compact tree.
    #[error("more than 4 GiB of file names: scan fewer paths at a time")]
    TooManyNames,
    /// The receiver of the results failed (a closed pipe, a full disk).
    #[error("cannot hand on the results: {0}")]
    Sink(#[from] io::Error),
}

/// Why one file or directory was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    reason: SkipReason,
    /// The kernel's error number, where the reason is [failed](SkipReason::Failed); else 0.
    errno: i32,
}

impl Cause {
    /// The reason.
    pub fn reason(self) -> SkipReason {
        self.reason
    }
}

impl From<SkipReason> for Cause {
    fn from(reason: SkipReason) -> Self {
        Self { reason, errno: 0 }
    }
}

impl From<&io::Error> for Cause {
    fn from(error: &io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        let reason = match Errno::from_raw_os_error(code) {
            // A name that became a symlink, or is not a directory any more, does not lead to what was found.
            Errno::NOENT | Errno::STALE | Errno::LOOP | Errno::NOTDIR => SkipReason::Vanished,
            Errno::ACCESS | Errno::PERM => SkipReason::PermissionDenied,
            Errno::OPNOTSUPP | Errno::NOTTY => SkipReason::NoLayout,
            _ => return Self { reason: SkipReason::Failed, errno: code },
        };
        reason.into()
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self::from(&io::Error::from(errno))
    }
}

impl From<Cause> for Skip {
    fn from(cause: Cause) -> Self {
        Self::new(cause.reason, cause.to_string())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            SkipReason::Vanished => f.write_str("vanished during the scan"),
            SkipReason::NoLayout => f.write_str("the file system has no FIEMAP"),
            SkipReason::OtherFileSystem => f.write_str("on another file system"),
            SkipReason::SeenBefore => f.write_str("reached under another name before"),
            SkipReason::Failed => io::Error::from_raw_os_error(self.errno).fmt(f),
            other => other.fmt(f),
        }
    }
}
