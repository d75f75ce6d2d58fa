//! The list of mutations fits the tree: otherwise only the next `make mutate` would find what does not.

use std::path::{Path, PathBuf};
use xtask::mutate::{list, survivors};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_mutation_is_found_once_in_its_file() {
    assert!(list(&root()).unwrap().len() > 10);
}

/// What no test detects is documented beside what is promised.
#[test]
fn what_no_test_sees_is_in_the_documentation() {
    let survivors = survivors(&list(&root()).unwrap());
    let text = std::fs::read_to_string(root().join("docs/safety.md")).unwrap();
    assert!(text.contains(&survivors), "docs/safety.md must have these lines:\n{survivors}");
}
