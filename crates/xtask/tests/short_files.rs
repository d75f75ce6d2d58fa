//! No source file is longer than a reader takes in at once (CONTRIBUTING.md). Clippy checks functions.

use std::fs;
use std::path::{Path, PathBuf};

/// The longest that a file may be.
const LINES: usize = 499;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            // A fuzz target's own build directory.
            if path.file_name().is_some_and(|name| name != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|e| ["rs", "c", "h", "sh"].iter().any(|s| e == *s)) {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_has_500_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for dir in ["crates", "fuzz", "scripts"] {
        sources(&root.join(dir), &mut found);
    }
    assert!(found.len() > 500, "{} found", found.len());
    let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().count();
    let long: Vec<_> = found.into_iter().filter(|path| lines(path) > LINES).collect();
    assert!(long.is_empty(), "{long:?}");
}
