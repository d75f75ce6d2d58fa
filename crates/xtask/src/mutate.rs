//! Mutation of the order: each barrier, lease, comparison and wait that a crash argument stands on is
//! taken out in turn (`crates/apply/mutations.toml`), and a named test must fail. What no test can
//! see says so in the list, with the reason.
//!
//! The mutants are built in a copy of the committed tree under the target directory, so that nobody's
//! work is touched, and the build is incremental from one to the next.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The list, below the root of the workspace.
pub const LIST: &str = "crates/apply/mutations.toml";

/// One thing that is taken out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// What is taken out, in a few words; no two are alike.
    pub name: String,
    /// The file, below the root.
    pub file: PathBuf,
    /// Text that is in the file once.
    pub find: String,
    /// What takes its place.
    pub replace: String,
    /// Arguments of `cargo test` that run the test, its name last.
    pub test: Option<String>,
    /// Why no test sees it.
    pub survives: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

/// Reads the list, and holds it against the tree: each text is there once, and each mutation names a
/// test or a reason.
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
        let text = std::fs::read_to_string(root.join(&one.file)).with_context(|| name.clone())?;
        let times = text.matches(&one.find).count();
        ensure!(times == 1, "{name}: {times} times in {}", one.file.display());
    }
    Ok(all)
}

/// Runs all mutations whose names contain `only`, and prints a table.
///
/// # Errors
/// A mutant that no test noticed, or a tree that does not build.
pub fn run(root: &Path, only: &str) -> Result<()> {
    let chosen: Vec<Mutation> = list(root)?.into_iter().filter(|m| m.name.contains(only)).collect();
    let tree = root.join("target/mutants/tree");
    copy_committed(root, &tree)?;
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
        std::fs::write(&path, before.replacen(&one.find, &one.replace, 1))?;
        let seen = is_seen(&tree, test).with_context(|| one.name.clone());
        std::fs::write(&path, before)?;
        let (told, seconds) = (if seen? { "fails" } else { "PASSES" }, started.elapsed().as_secs());
        println!("| {} | `{test}` | {told} ({seconds} s) |", one.name);
        if told == "PASSES" {
            unseen.push(one.name.as_str());
        }
    }
    ensure!(unseen.is_empty(), "no test noticed: {}", unseen.join("; "));
    Ok(())
}

/// The tree as it is committed: what somebody is just editing is not mutated.
fn copy_committed(root: &Path, tree: &Path) -> Result<()> {
    std::fs::create_dir_all(tree)?;
    let mut archive = Command::new("git")
        .args(["archive", "HEAD"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()?;
    let out = archive.stdout.take().context("its output")?;
    // Times stay as they are where nothing changed, or everything would be built anew.
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

/// Whether the mutant builds and its test fails.
fn is_seen(tree: &Path, test: &str) -> Result<bool> {
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
    ensure!(
        !told.contains("running 0 tests") || told.contains("running 1 test"),
        "{test}: no such test"
    );
    Ok(!ran.status.success())
}
