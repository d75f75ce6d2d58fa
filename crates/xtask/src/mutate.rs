//! Mutation of the order: each barrier, lease, comparison and wait that a crash argument relies on is removed
//! in turn (`crates/engines/mutations.toml`), and a named test must fail. For what no test can detect, the
//! list has the reason.
//!
//! The mutants are built in a copy of the committed tree under the target directory, so that the working tree
//! is not touched, and the build is incremental from one to the next.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The list, below the root of the workspace.
pub const LIST: &str = "crates/engines/mutations.toml";

/// One thing that is removed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// What is removed, in a few words; no two are alike.
    pub name: String,
    /// The file, below the root.
    pub file: PathBuf,
    /// Text that is in the file once.
    pub find: String,
    /// What replaces it.
    pub replace: String,
    /// Arguments of `cargo test` that run the test, its name last.
    pub test: Option<String>,
    /// Whether the test must hang, rather than fail.
    #[serde(default)]
    pub hangs: bool,
    /// Why no test detects it.
    pub survives: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

/// Reads the list, and compares it with the tree: each text is there once, and each mutation names a test that
/// exists, or a reason.
///
/// # Errors
/// What does not fit, by its name.
pub fn list(root: &Path) -> Result<Vec<Mutation>> {
    let text = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let List { mutation: all } = toml::from_str(&text).context(LIST)?;
    for (at, one) in all.iter().enumerate() {
        let name = &one.name;
        ensure!(all[..at].iter().all(|o| o.name != *name), "{name}: twice in the list");
        ensure!(one.test.is_some() != one.survives.is_some(), "{name}: a test or a reason");
        ensure!(one.test.is_some() || !one.hangs, "{name}: without a test nothing hangs");
        let text = std::fs::read_to_string(root.join(&one.file)).with_context(|| name.clone())?;
        let times = text.matches(&one.find).count();
        ensure!(times == 1, "{name}: {times} times in {}", one.file.display());
        if let Some(missing) = one.test.as_deref().and_then(|test| missing_file(root, test)) {
            bail!("{name}: its test is not in {}", missing.display());
        }
    }
    Ok(all)
}

/// The file of an integration test (`-p fragmend-CRATE --test NAME`), if there is none such.
fn missing_file(root: &Path, test: &str) -> Option<PathBuf> {
    let after = |option| test.split_whitespace().skip_while(|word| *word != option).nth(1);
    let package = after("-p")?;
    let directory = package.strip_prefix("fragmend-").unwrap_or(package);
    let file = Path::new("crates").join(directory).join("tests").join(after("--test")?);
    let file = file.with_extension("rs");
    (!root.join(&file).exists()).then_some(file)
}

/// What no test detects, as the lines of a Markdown list.
pub fn survivors(all: &[Mutation]) -> String {
    let line = |one: &Mutation| {
        let why = one.survives.as_deref()?;
        Some(format!("- {}: {why}.\n", one.name))
    };
    all.iter().filter_map(line).collect()
}

/// Runs all mutations whose names contain `only`, and prints a table. Each test is first run without a
/// mutation: a test that fails anyway would detect any.
///
/// # Errors
/// A mutant that no test detected, a test that fails without one, or a tree that does not build.
pub fn run(root: &Path, only: &str) -> Result<()> {
    let chosen: Vec<Mutation> = list(root)?.into_iter().filter(|m| m.name.contains(only)).collect();
    ensure!(!chosen.is_empty(), "no mutation's name contains {only:?}");
    // Without root these tests fail, whatever is removed.
    ensure!(is_root()?, "the tests mount images, which needs root: sudo make mutate");
    let tree = root.join("target/mutants/tree");
    copy_committed(root, &tree)?;
    let tests: BTreeSet<&str> = chosen.iter().filter_map(|m| m.test.as_deref()).collect();
    for test in tests {
        let ending = ending_of(&tree, test)?;
        ensure!(ending == Ending::Passed, "{test}: {ending:?} with nothing taken out");
    }
    println!("| taken out | test | |\n|---|---|---|");
    let mut unseen = Vec::new();
    for one in &chosen {
        let Some(test) = &one.test else {
            println!("| {} | none | {} |", one.name, one.survives.as_deref().unwrap_or_default());
            continue;
        };
        let started = Instant::now();
        let path = tree.join(&one.file);
        let before = std::fs::read_to_string(&path)?;
        ensure!(before.contains(&one.find), "{}: not committed yet", one.name);
        std::fs::write(&path, before.replacen(&one.find, &one.replace, 1))?;
        let ending = ending_of(&tree, test).with_context(|| one.name.clone());
        std::fs::write(&path, before)?;
        let seconds = started.elapsed().as_secs();
        let told = match &ending {
            Ok(Ending::Passed) => "PASSES",
            Ok(Ending::Failed) => "fails",
            Ok(Ending::Hung) if one.hangs => "hangs, as it must",
            Ok(Ending::Hung) => "HANGS",
            Err(why) => {
                eprintln!("xtask: {why:#}");
                "DOES NOT RUN"
            }
        };
        println!("| {} | `{test}` | {told} ({seconds} s) |", one.name);
        let wanted = if one.hangs { Ending::Hung } else { Ending::Failed };
        if ending.ok() != Some(wanted) {
            unseen.push(one.name.as_str());
        }
    }
    ensure!(unseen.is_empty(), "no test noticed, or none ran: {}", unseen.join("; "));
    Ok(())
}

/// Copies the tree as it is committed: changes that are not committed are not mutated.
fn copy_committed(root: &Path, tree: &Path) -> Result<()> {
    std::fs::create_dir_all(tree)?;
    let mut archive = Command::new("git")
        .args(["archive", "HEAD"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()?;
    let out = archive.stdout.take().context("its output")?;
    // Modification times stay where nothing changed, or everything would be built anew.
    let unpacked = Command::new("tar")
        .args(["-x", "--skip-old-files"])
        .current_dir(tree)
        .stdin(out)
        .status()?;
    ensure!(archive.wait()?.success() && unpacked.success(), "the tree cannot be copied");
    let changed = Command::new("git").args(["ls-files"]).current_dir(root).output()?;
    for name in String::from_utf8(changed.stdout)?.lines() {
        let blob = Command::new("git")
            .args(["show", &format!("HEAD:{name}")])
            .current_dir(root)
            .output()?;
        let there = tree.join(name);
        if blob.status.success() && std::fs::read(&there).ok().as_deref() != Some(&blob.stdout[..])
        {
            std::fs::write(there, blob.stdout)?;
        }
    }
    Ok(())
}

fn is_root() -> Result<bool> {
    let id = Command::new("id").arg("-u").output().context("id")?;
    Ok(id.stdout.trim_ascii() == b"0")
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Passed,
    /// It reported that itself.
    Failed,
    /// It had not ended in time.
    Hung,
}

/// How `cargo test` ended, from its exit code and from what it printed.
///
/// # Errors
/// No test was run, or none reported how it ended.
fn ending(code: Option<i32>, told: &str) -> Result<Ending> {
    let results = |ending: &str| told.contains(&format!("test result: {ending}"));
    // `timeout` ends with 124, or 137 where it had to kill.
    if matches!(code, Some(124 | 137) | None) {
        return Ok(Ending::Hung);
    }
    ensure!(
        told.lines().any(|line| line.starts_with("running ") && !line.starts_with("running 0 ")),
        "no such test"
    );
    match code {
        Some(0) if results("ok.") => Ok(Ending::Passed),
        Some(_) if results("FAILED.") => Ok(Ending::Failed),
        _ => bail!("it ended with {code:?} and no result: {told}"),
    }
}

/// Builds the tree and runs a test in it.
fn ending_of(tree: &Path, test: &str) -> Result<Ending> {
    let cargo = |further: &[&str]| {
        Command::new("timeout")
            .args(["--kill-after=10", "900", "cargo", "test", "--quiet"])
            .args(test.split_whitespace().take_while(|a| *a != "--"))
            .args(further)
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", tree.join("../target"))
            .env("RUSTFLAGS", "--cap-lints=allow")
            .output()
    };
    let built = cargo(&["--no-run"])?;
    if !built.status.success() {
        bail!("it does not build: {}", String::from_utf8_lossy(&built.stderr));
    }
    let names: Vec<&str> = test.split_whitespace().skip_while(|a| *a != "--").collect();
    let ran = cargo(&names)?;
    let told = String::from_utf8_lossy(&ran.stdout);
    ending(ran.status.code(), &told).with_context(|| test.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_said_so_has_failed() {
        let ended_by = |code, told: &str| ending(Some(code), told).ok();
        let failed = "\nrunning 2 tests\n.F\ntest result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(ended_by(101, failed), Some(Ending::Failed));
        let passed = "\nrunning 1 test\n.\ntest result: ok. 1 passed; 0 failed\n";
        assert_eq!(ended_by(0, passed), Some(Ending::Passed));
        assert_eq!(ended_by(124, "\nrunning 1 test\n"), Some(Ending::Hung));
        assert_eq!(ended_by(137, "\nrunning 1 test\n"), Some(Ending::Hung));
        // A build that failed, a crash, a name that no test has.
        assert_eq!(ended_by(101, ""), None);
        assert_eq!(ended_by(101, "\nrunning 1 test\n"), None);
        assert_eq!(ended_by(0, "\nrunning 0 tests\n\ntest result: ok. 0 passed\n"), None);
    }
}
