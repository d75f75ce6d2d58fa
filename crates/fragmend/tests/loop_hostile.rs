//! A hostile user beside root: nothing that such a user plants, renames, holds or makes huge is of
//! use to them, and no process of root waits for them (docs/safety/front.md).

#[path = "hostile/bounds.rs"]
mod bounds;
#[path = "hostile/identity.rs"]
mod identity;
#[path = "hostile/inputs.rs"]
mod inputs;
#[path = "hostile/outputs.rs"]
mod outputs;
#[path = "hostile/places.rs"]
mod places;
#[path = "hostile/races.rs"]
mod races;
mod support;
#[path = "hostile/trees.rs"]
mod trees;

use fragmend_testbed::process::{Finished, finish};
use rustix::fs::{CWD, FileType, Mode};
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
/// Seconds for which other users may delay fragmend at most.
const LONGEST_WAIT: &str = "10";
/// The exit codes of `timeout`.
const WAITED: [i32; 2] = [124, 137];

/// Runs fragmend, which must end in time.
fn fragmend<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    within("", args)
}

/// The same under limits of the shell (`ulimit`).
fn within<S: AsRef<OsStr>>(limits: &str, args: impl IntoIterator<Item = S>) -> Finished {
    let mut command = Command::new("timeout");
    let script = format!("{limits}\nexec \"$0\" \"$@\"");
    command.args(["-s", "KILL", LONGEST_WAIT, "bash", "-c", &script, FRAGMEND]);
    let ended = finish(command.args(args));
    let code = ended.status.code();
    assert!(code.is_some_and(|c| !WAITED.contains(&c)), "it waits: {}", ended.stderr);
    ended
}

/// Checks for a refusal in one line that contains `what`.
fn refused(ended: &Finished, what: &str) {
    let code = ended.status.code();
    assert!(matches!(code, Some(4 | 8)), "{code:?}: {} {}", ended.stdout, ended.stderr);
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(what), "not {what:?}: {}", ended.stderr);
}

/// What may be planted in the place of a file, and its name in a refusal.
const PLANTED: [(&str, &str); 5] = [
    ("link", "a symbolic link"),
    ("dangling", "a symbolic link"),
    ("pipe", "a pipe"),
    ("directory", "a directory"),
    ("device", "a device"),
];

/// Plants one of them at `path`; a link leads to `victim`.
fn plant(kind: &str, path: &Path, victim: &Path) {
    let node = |kind, device| {
        rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).unwrap();
    };
    match kind {
        "link" => symlink(victim, path).unwrap(),
        "dangling" => symlink(victim.with_extension("none"), path).unwrap(),
        "pipe" => node(FileType::Fifo, 0),
        "device" => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        _ => std::fs::create_dir(path).unwrap(),
    }
}

/// A directory, and a file in it that only root may write.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "secret").unwrap();
    (dir, victim)
}

fn unharmed(victim: &Path) {
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "secret");
    assert!(!victim.with_extension("none").exists());
}
