//! What holds of all source files: none is longer than a reader takes in at once (CONTRIBUTING.md; clippy checks
//! functions), and no test disturbs those beside it by emptying the machine's page cache.

use std::fs;
use std::path::{Path, PathBuf};

/// The longest that a file may be.
const LINES: usize = 499;

/// What empties the page cache of the whole machine: the kernel's file, and what the testbed has for benches.
const EMPTIES: [&str; 5] = [
    concat!("sys/vm/", "drop_caches"),
    concat!("measure::", "drop_caches"),
    concat!("measure::{", "drop_caches"),
    concat!("measured_", "cold"),
    concat!("measured_map_", "warm"),
];

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

#[test]
fn no_test_empties_the_page_cache() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    found.retain(|path| path.components().any(|part| part.as_os_str() == "tests"));
    assert!(found.len() > 150, "{} found", found.len());
    let empties = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        EMPTIES.iter().any(|name| text.contains(name))
    };
    let wrong: Vec<_> = found.into_iter().filter(empties).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
