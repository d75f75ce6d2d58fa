//! A directory for the files of programs, and what a file is.

use fragmend_known::Recogniser;
use fragmend_testbed::scratch;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A directory, and its path without links.
pub fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = scratch::directory("known");
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

/// What a file is, with its program.
pub fn what(recogniser: &mut Recogniser, path: &Path) -> Option<String> {
    Some(recogniser.known(&File::open(path).unwrap(), path)?.to_string())
}
