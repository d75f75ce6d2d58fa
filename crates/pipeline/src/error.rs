//! Why a stage fails; what concerns single files or ranges is in its result instead.

use fragmend_apply::run::ApplyError;
use fragmend_engines::{Refused, Unready};
use fragmend_scan::ScanError;
use fragmend_scan::f2fs::Unread;
use fragmend_trace::TraceError;
use std::io;
use std::path::{Path, PathBuf};

/// Each message says what to do, where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path that does not exist, or cannot be examined.
    #[error("{}", path.display())]
    Path {
        /// As given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The temporary file for a trace that is not kept cannot be made.
    #[error("a temporary file")]
    Temporary(#[source] io::Error),
    /// The trace cannot be recorded or read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A path cannot be walked. The message contains its cause.
    #[error("{0}")]
    Scan(ScanError),
    /// Every file is on a file system where nothing can be moved.
    #[error("{path}: {why}")]
    Unsupported {
        /// The first such file.
        path: String,
        /// Why nothing can be moved there.
        why: String,
    },
    /// The policy is for file systems that write data in segments.
    #[error("{}: {file_system} has no segments to clean; the policy segments is for F2FS", path.display())]
    NoSegments {
        /// As given.
        path: PathBuf,
        /// The type of its file system.
        file_system: String,
    },
    /// The segments of a file system cannot be read.
    #[error("{}: its segments are not known: {source}", path.display())]
    Segments {
        /// As given.
        path: PathBuf,
        /// Why.
        source: Unread,
    },
    /// A file system cannot be mended.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A file system of the plan cannot be opened for moving; nothing was touched.
    #[error(transparent)]
    Unready(#[from] Unready),
    /// The plan is not for these file systems; nothing was touched.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Error {
    /// For a path.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Path { path: path.to_owned(), source }
    }
}

impl From<ScanError> for Error {
    fn from(error: ScanError) -> Self {
        Self::Scan(error)
    }
}
