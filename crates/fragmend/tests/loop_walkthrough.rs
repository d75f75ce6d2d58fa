//! `docs/walkthrough.md`, executed: its blocks of commands run in one shell, and print what the page shows, but for the
//! figures.

use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::process::finish;
use fragmend_testbed::scratch;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/walkthrough.md");
/// Printed between two blocks.
const MARK: &str = "=== the next block";

/// A block of commands, and the lines that the page shows of what it prints.
struct Block {
    commands: String,
    shown: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    while let Some(fence) = lines.next() {
        let Some(kind) = fence.strip_prefix("```") else { continue };
        let content = lines.by_ref().take_while(|line| *line != "```");
        match kind {
            "sh" => {
                let commands = content.fold(String::new(), |text, line| text + line + "\n");
                blocks.push(Block { commands, shown: Vec::new() });
            }
            "text" => {
                let block = blocks.last_mut().expect("output follows commands");
                block.shown.extend(content.map(str::to_owned));
            }
            other => panic!("a block of {other:?}"),
        }
    }
    blocks
}

/// A line without its figures, units and spaces between words: these may differ.
fn without_figures(line: &str) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "us", "ms", "s"];
    let unit = |word: &str| {
        let bare = word.trim_end_matches([',', ';', ':']);
        units.contains(&bare)
    };
    let mut plain: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let figure = word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit());
        let after_figure = plain.last().is_some_and(|last| last.ends_with('N'));
        match (figure, after_figure) {
            // Digits may be grouped by spaces.
            (true, true) => {}
            (true, false) => plain.push("N".into()),
            (false, true) if unit(word) => {}
            _ => plain.push(word.to_owned()),
        }
    }
    plain.join(" ")
}

#[test]
fn loop_the_page_does_what_it_says() {
    let blocks = blocks(PAGE);
    assert!(blocks.len() > 8 && blocks.iter().filter(|b| !b.shown.is_empty()).count() > 8);
    let dir = scratch::directory("walkthrough");
    let _ticket = cleanup::register(Undo::Tree(dir.path().to_owned()));
    let _mounted = cleanup::register(Undo::Mount(dir.path().join("here/mnt")));
    // The page's own directory is in this one, and what a block that fails leaves behind is removed.
    let mut script = String::from(
        "mktemp() { mkdir \"$HERE\" && echo \"$HERE\"; }\n\
         trap 'set +e; umount mnt 2>/dev/null; echo quit >\"${drive:-.}/control\"; wait' EXIT\n",
    );
    for block in &blocks {
        writeln!(script, "{}echo '{MARK}'", block.commands).unwrap();
    }
    // The end of the page has ended it.
    script.push_str("trap - EXIT\n");
    let binary = Path::new(env!("CARGO_BIN_EXE_fragmend")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(binary.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut bash = Command::new("bash");
    bash.args(["-eu", "-c", &script]).env("HERE", dir.path().join("here"));
    let finished = finish(bash.env("PATH", path.unwrap()).current_dir(dir.path()));
    let printed: Vec<&str> = finished.stdout.split(MARK).collect();
    assert!(
        finished.status.success(),
        "after block {}: {}\n{}",
        printed.len(),
        finished.stdout,
        finished.stderr
    );
    assert_eq!(printed.len(), blocks.len() + 1, "{}", finished.stdout);
    for (block, printed) in blocks.iter().zip(&printed) {
        let mut lines = printed.lines().map(without_figures);
        for shown in &block.shown {
            let wanted = without_figures(shown);
            assert!(lines.any(|line| line == wanted), "no {wanted:?} in its place: {printed}");
        }
    }
    claims(&printed.concat());
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
