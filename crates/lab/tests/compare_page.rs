//! `docs/compare.md` is what `fragmend lab compare` makes with its defaults.

use fragmend_lab::compare::loads::{Load, Parts};
use fragmend_lab::compare::page::{head, page};
use fragmend_lab::compare::remedies::Remedy;
use fragmend_lab::compare::{Choice, DRIVES, compare};
use fragmend_lab::presets;
use std::path::{Path, PathBuf};

const SEED: u64 = 42;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compare.md")
}

/// What does not depend on measurements is current, and every load is there on every drive.
#[test]
fn the_page_explains_its_columns_and_names_all_remedies() {
    let text = std::fs::read_to_string(file()).unwrap();
    assert!(text.starts_with(&head(SEED, 1)), "docs/compare.md begins otherwise");
    for load in Load::ALL {
        for drive in DRIVES {
            let title = format!("\n## {} on {drive}\n", load.name());
            assert_eq!(text.matches(&title).count(), 1, "{title}");
        }
    }
}

/// After a change that is meant to change figures, with `GOLDEN=write` before the command.
#[test]
#[ignore = "a minute: cargo test --release -p fragmend-lab --test compare_page -- --ignored"]
fn the_page_is_what_is_measured() {
    let drives = DRIVES.map(|name| (name.to_owned(), presets::named(name).unwrap()));
    let found = page(&compare(
        &Choice {
            loads: Load::ALL.to_vec(),
            drives: drives.to_vec(),
            remedies: Remedy::ALL.to_vec(),
            seed: SEED,
            parts: Parts::new(1),
            jobs: None,
        },
        &|_| {},
    ));
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(file(), &found).unwrap();
    }
    let written = std::fs::read_to_string(file()).unwrap();
    for (found, written) in found.lines().zip(written.lines()) {
        assert_eq!(found, written);
    }
    assert_eq!(found.lines().count(), written.lines().count());
}
