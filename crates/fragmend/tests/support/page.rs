//! Pages of the documentation with commands: their blocks, run in one shell, and what the pages show of what they print.
//!
//! A block of commands is fenced as `sh` (`toml` is for files, which do nothing), and may be followed by one fenced as `text`: lines that it prints, in this
//! order, perhaps beside others.

use fragmend_testbed::process::finish;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Printed between two blocks.
const MARK: &str = "=== the next block";

/// A block of commands, and the lines that the page shows of what it prints.
pub struct Block {
    pub commands: String,
    pub shown: Vec<String>,
}

/// The blocks of a page.
///
/// # Panics
/// When a block is fenced as something else, or output comes first.
pub fn blocks(page: &str) -> Vec<Block> {
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
            "toml" => drop(content.count()),
            other => panic!("a block of {other:?}"),
        }
    }
    blocks
}

/// A line without its figures, units and spaces between words: these may differ.
pub fn without_figures(line: &str) -> String {
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

/// Runs the blocks in one shell in `dir`, between `before` and `after`, with the tested program in its path; `shell`
/// is bash, perhaps started by another program. What a block shows is printed in this order, if that is `ordered`. Returns
/// what each block printed.
///
/// # Panics
/// When a command fails, or does not print what the page shows.
pub fn run(
    blocks: &[Block],
    mut shell: Command,
    (before, after): (&str, &str),
    dir: &Path,
    ordered: bool,
) -> Vec<String> {
    let mut script = before.to_owned();
    for block in blocks {
        writeln!(script, "echo '{MARK}'\n{}", block.commands).unwrap();
    }
    script += after;
    let binary = Path::new(env!("CARGO_BIN_EXE_fragmend")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(binary.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    shell.args(["-eu", "-o", "pipefail", "-c", &script]).env("PATH", path.unwrap());
    let finished = finish(shell.current_dir(dir));
    let printed: Vec<&str> = finished.stdout.split(MARK).skip(1).collect();
    let (stdout, stderr) = (&finished.stdout, &finished.stderr);
    assert!(finished.status.success(), "in block {}: {stdout}\n{stderr}", printed.len());
    assert_eq!(printed.len(), blocks.len(), "{stdout}");
    for (block, printed) in blocks.iter().zip(&printed) {
        let mut lines = printed.lines().map(without_figures);
        for shown in &block.shown {
            let wanted = without_figures(shown);
            if !ordered {
                lines = printed.lines().map(without_figures);
            }
            assert!(lines.any(|line| line == wanted), "no {wanted:?} in its place: {printed}");
        }
    }
    printed.into_iter().map(str::to_owned).collect()
}
