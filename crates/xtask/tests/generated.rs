//! The check finds what is stale, missing or left over, and names it.

use std::path::Path;
use xtask::generate::{Files, check, write};

fn files() -> Files {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    xtask::generate::files(&root).unwrap()
}

#[test]
fn what_was_written_is_fresh_and_any_change_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let files = files();
    let problem = || check(dir.path(), &files).unwrap_err().to_string();
    assert!(problem().contains("man/fragmend.1"), "{}", problem());

    write(dir.path(), &files).unwrap();
    check(dir.path(), &files).unwrap();

    let page = dir.path().join("man/fragmend.1");
    std::fs::write(&page, "changed by hand").unwrap();
    assert!(problem().contains("stale: man/fragmend.1;"), "{}", problem());
    write(dir.path(), &files).unwrap();

    let left_over = dir.path().join("man/fragmend-gone.1");
    std::fs::write(&left_over, "of a verb that is gone").unwrap();
    assert!(problem().contains("stale: man/fragmend-gone.1;"), "{}", problem());
    write(dir.path(), &files).unwrap();
    assert!(!left_over.exists());

    std::fs::remove_file(dir.path().join("completions/_fragmend")).unwrap();
    assert!(problem().contains("stale: completions/_fragmend;"), "{}", problem());
}

#[test]
fn every_verb_has_a_page_and_every_page_says_its_exit_codes() {
    let files = files();
    for verb in ["scan", "record", "plan", "apply", "auto"] {
        let page = files.get(&std::path::PathBuf::from(format!("man/fragmend-{verb}.1")));
        let page = String::from_utf8_lossy(page.unwrap_or_else(|| panic!("no page for {verb}")));
        assert!(page.contains(&format!("fragmend\\-{verb}")), "{page}");
        assert!(page.contains("16  incomplete"), "{page}");
    }
}
