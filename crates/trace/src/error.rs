//! The errors of trace files and recordings; each message says what to do.

use std::io;
use std::path::PathBuf;

/// Why a trace could not be read, written or recorded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened, read or written.
    #[error("{}: {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The trace cannot be written there.
    #[error("cannot write the trace to {}: {reason}", path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The trace goes to a pipe or a socket that is not read.
    #[error("{}: the trace is incomplete", path.display())]
    Unread {
        /// The output.
        path: PathBuf,
        /// For how long nothing was read.
        source: io::Error,
    },
    /// Some other kind of file.
    #[error("{} is not a trace made by `fragmend record`{}", path.display(), detail(reason))]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What shows that; may be empty.
        reason: String,
    },
    /// A damaged trace.
    #[error("{} is damaged or cut short ({reason}): record it again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A trace that another version wrote.
    #[error(
        "{} has trace format {found}, this fragmend reads format {known}: use the version that \
         recorded it", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this one reads.
        known: u32,
    },
    /// The output exists and is not a trace.
    #[error("{} exists and is not a trace; choose another name or remove it (`fragmend record --force` replaces it)", path.display())]
    WouldOverwrite {
        /// The output.
        path: PathBuf,
    },
    /// Parquet encoding failed for a reason other than I/O.
    #[error("{}: cannot encode the trace ({reason})", path.display())]
    Encode {
        /// The output.
        path: PathBuf,
        /// The encoder's error.
        reason: String,
    },
    /// A filter or option that cannot be applied.
    #[error("{0}")]
    Request(String),
    /// The kernel lacks what recording needs, or refuses it.
    #[error("{0}")]
    Kernel(String),
}

fn detail(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

impl TraceError {
    pub(crate) fn io(path: &std::path::Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }

    /// The trace cannot be written to `path`.
    pub fn output(path: &std::path::Path, error: io::Error) -> Self {
        let mut reason = error.to_string();
        if error.kind() == io::ErrorKind::InvalidInput && !reason.contains(';') {
            reason += "; name a regular file, or - for standard output";
        }
        Self::Output { path: path.to_owned(), reason }
    }
}
