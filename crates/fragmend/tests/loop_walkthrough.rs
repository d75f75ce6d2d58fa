//! `docs/walkthrough.md`, executed: its blocks of commands run in one shell, and print what the page shows, but for the
//! figures.

#[path = "support/page.rs"]
mod page;

use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::scratch;
use page::{blocks, run, without_figures};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/walkthrough.md");

#[test]
fn loop_the_page_does_what_it_says() {
    let blocks = blocks(PAGE);
    assert!(blocks.len() > 8 && blocks.iter().filter(|b| !b.shown.is_empty()).count() > 8);
    let dir = scratch::directory("walkthrough");
    let _ticket = cleanup::register(Undo::Tree(dir.path().to_owned()));
    let _mounted = cleanup::register(Undo::Mount(dir.path().join("here/mnt")));
    // The page's own directory is in this one, and what a block that fails leaves behind is removed.
    let before = "mktemp() { mkdir \"$HERE\" && echo \"$HERE\"; }\n\
        trap 'set +e; umount mnt 2>/dev/null; echo quit >\"${drive:-.}/control\"; wait' EXIT\n";
    // The end of the page has ended it.
    let after = "trap - EXIT\n";
    let mut bash = Command::new("bash");
    bash.env("HERE", dir.path().join("here"));
    claims(&run(&blocks, bash, (before, after), dir.path(), true).concat());
}

/// What the page claims with its figures.
fn claims(printed: &str) {
    let line = |with: &str| {
        let found = printed.lines().find(|line| line.contains(with));
        found.unwrap_or_else(|| panic!("no {with:?} in {printed}"))
    };
    let figures = |line: &str| -> Vec<f64> {
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    // us, instead of us, times as quick: the page says 3.
    let quick = line("times as quick");
    assert!(figures(quick).last().is_some_and(|times| *times >= 2.0), "{quick}");
    // Before, after and saved: predicted within 15 % of measured.
    let [predicted, measured] = [" predicted ", " measured "].map(|name| figures(line(name)));
    assert_eq!((predicted.len(), measured.len()), (3, 3), "{predicted:?} {measured:?}");
    assert!(measured[2] > 0.5 * measured[0], "{measured:?}");
    assert!((predicted[2] - measured[2]).abs() < 0.15 * measured[2], "{predicted:?} {measured:?}");
}

#[test]
fn figures_may_differ_and_words_may_not() {
    for (one, other) in [
        ("worth it: 151.8 ms less waiting (67 %)", "worth it: 1.2 s less waiting (5 %)"),
        (" predicted  208.1 ms  74.2 ms", " predicted 9 us 8 us"),
        ("read 1.4 GiB in 29 328 requests", "read 9 B in 1 requests"),
    ] {
        assert_eq!(without_figures(one), without_figures(other));
    }
    let (worth, not) = ("worth it: 3 ms less", "not worth it: 3 ms less");
    assert_ne!(without_figures(worth), without_figures(not));
}
