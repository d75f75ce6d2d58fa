//! The test binaries that cargo builds, and their tests.

use super::parts::Part;
use super::process;
use super::room::{Room, SERVED, TOGETHER, UNHURRIED, is_alone};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A line of `cargo test --no-run --message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The name of its target: the test's file, or the crate.
    pub name: String,
    /// Where it is.
    pub program: PathBuf,
    /// Where it runs: its package's directory.
    pub directory: PathBuf,
    /// It is an integration test, in a file of its own.
    pub is_integration: bool,
}

impl Binary {
    pub(super) fn is_in(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }
}

/// A binary, where it runs, and its tests.
pub(super) struct Listed {
    pub binary: Binary,
    pub room: Room,
    tests: Vec<String>,
}

impl Listed {
    /// One that cannot list its tests runs where it is seen to fail.
    pub fn of(binary: Binary) -> Result<Self> {
        let list = Command::new(&binary.program).args(["--list", "--format", "terse"]).output();
        let list = list.with_context(|| binary.program.display().to_string())?;
        let tests = String::from_utf8_lossy(&list.stdout);
        let tests = tests.lines().filter_map(|line| line.strip_suffix(": test"));
        let tests: Vec<String> = tests.map(str::to_owned).collect();
        let room = if binary.is_in(&SERVED) || binary.is_in(&UNHURRIED) {
            Room::Elsewhere
        } else {
            let is_integration = binary.is_integration && list.status.success();
            Room::of(is_integration, tests.iter().map(String::as_str))
        };
        Ok(Self { binary, room, tests })
    }

    /// What is printed before all that it prints.
    pub fn heading(&self) -> String {
        let Binary { name, program, .. } = &self.binary;
        let disks = process::disks(&self.binary);
        let disks = disks.map(|at| format!("its disks are in {}\n", at.display()));
        format!("     Running {name} ({})\n{}", program.display(), disks.unwrap_or_default())
    }

    /// Whether it runs with none other of its room.
    pub fn runs_alone(&self) -> bool {
        is_alone(&self.binary)
    }

    /// The processes in which the tests run.
    pub fn parts(&self) -> Vec<Part> {
        if self.binary.is_in(&TOGETHER) { vec![Part::All] } else { Part::of(&self.tests) }
    }
}

/// Builds the tests, and lists them in cargo's order.
pub(super) fn build(root: &Path) -> Result<Vec<Binary>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = cargo.current_dir(root).stderr(Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    binaries(&String::from_utf8_lossy(&output.stdout))
}

/// The test binaries that cargo names in its messages, one JSON document a line.
///
/// # Errors
/// A line that is no message.
pub fn binaries(messages: &str) -> Result<Vec<Binary>> {
    let mut all = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let is_test = message.reason == "compiler-artifact"
            && message.profile.as_ref().is_some_and(|profile| profile.test);
        if let (true, Some(target), Some(manifest), Some(program)) =
            (is_test, message.target, message.manifest_path, message.executable)
        {
            let directory = manifest.parent().unwrap_or(Path::new("/")).to_owned();
            let is_integration = target.kind.iter().any(|kind| kind == "test");
            all.push(Binary { name: target.name, program, directory, is_integration });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_are_run_each_in_its_package() {
        let artifact = |test: bool, program: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{{"name":"a","kind":["test"]}},"profile":{{"test":{test}}},"executable":{program}}}"#
            )
        };
        let messages = [
            artifact(false, r#""/t/a""#),
            artifact(true, "null"),
            artifact(true, r#""/t/a-1""#),
            r#"{"reason":"build-finished","success":true}"#.into(),
        ];
        let expected = Binary {
            name: "a".into(),
            program: "/t/a-1".into(),
            directory: "/w/crates/a".into(),
            is_integration: true,
        };
        assert_eq!(binaries(&messages.join("\n")).unwrap(), [expected]);
        assert!(binaries("no JSON").is_err());
    }
}
