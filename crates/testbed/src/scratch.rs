//! Temporary directories of tests, named after the process that made them: `scripts/tidy` finds what
//! a killed process left behind.

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
