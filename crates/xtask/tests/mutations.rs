//! The list of mutations fits the tree: otherwise it would rot between two runs of `make mutate`.

use std::path::Path;
use xtask::mutate::list;

#[test]
fn every_mutation_is_found_once_in_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(list(&root).unwrap().len() > 10);
}
