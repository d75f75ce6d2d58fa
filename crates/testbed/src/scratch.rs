//! Temporary directories of tests, named after the process that made them: `scripts/tidy` finds what
//! a killed process left behind.

use std::env;
use std::path::PathBuf;
use std::process;
use tempfile::TempDir;

/// A fresh directory `fragmend-KIND-PID-XXXXXX` below the system's temporary directory; removed when it
/// is dropped.
///
/// # Panics
/// When it cannot be made.
pub fn directory(kind: &str) -> TempDir {
    made_in(env::temp_dir(), kind)
}

/// One for the images of disks: in the directory `FRAGMEND_DISKS`, for the tests for which the suite sets
/// it (`crates/xtask/src/suite.rs`).
///
/// # Panics
/// When it cannot be made.
pub fn for_disks() -> TempDir {
    made_in(env::var_os("FRAGMEND_DISKS").map_or_else(env::temp_dir, PathBuf::from), "disk")
}

fn made_in(place: PathBuf, kind: &str) -> TempDir {
    let prefix = format!("fragmend-{kind}-{}-", process::id());
    let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(place);
    made.expect("a temporary directory")
}
