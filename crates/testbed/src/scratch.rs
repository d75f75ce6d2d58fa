//! Temporary directories of tests, named for the process that made them: `scripts/tidy` finds what a
//! process left behind that was killed and could not clean up.

use std::process;
use tempfile::TempDir;

/// A fresh directory `fragmend-KIND-PID-XXXXXX` below the system's temporary directory; removed when it
/// is dropped.
///
/// # Panics
/// When it cannot be made.
pub fn directory(kind: &str) -> TempDir {
    let prefix = format!("fragmend-{kind}-{}-", process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary directory")
}
