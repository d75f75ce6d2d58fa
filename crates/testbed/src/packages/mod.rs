//! What is packaged, for tests: where the binaries are, how one for another architecture is run, what the scripts of
//! `packaging/` make of them, and a machine to install that on ([`machine`]). `packaging/smoke` builds the binaries.

pub mod machine;

use crate::process::finish;
use crate::scratch;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Where packages are built.
///
/// # Panics
/// When the running program is no test.
pub fn directory() -> PathBuf {
    let this = std::env::current_exe().expect("the running program's path");
    // target/debug/deps/this
    this.ancestors().nth(3).expect("a target directory").join("packages")
}

/// The static binary for an architecture.
///
/// # Panics
/// When there is none, with how to get it.
pub fn binary(arch: &str) -> PathBuf {
    let path = directory().join("smoke/fragmend").join(arch).join("bin/fragmend");
    assert!(path.is_file(), "no {}: run 'packaging/smoke' first", path.display());
    path
}

/// The binary for an architecture as a command: the other one's through qemu.
pub fn fragmend(arch: &str) -> Command {
    if arch == std::env::consts::ARCH {
        return Command::new(binary(arch));
    }
    let mut qemu = Command::new(format!("qemu-{arch}-static"));
    qemu.arg(binary(arch));
    qemu
}

/// A script of `packaging/`.
///
/// # Panics
/// When the running program is no test.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(repository("packaging").join(name));
    command.env("CARGO_TARGET_DIR", directory().parent().expect("it is in one"));
    command
}

/// Runs a script of `packaging/` on the binaries, and returns the directory with what it has made.
///
/// # Panics
/// When it fails, with what it printed.
pub fn made(args: &[&str]) -> TempDir {
    let out = scratch::directory("packages");
    let mut inside = script("inside");
    inside.arg("-o").arg(out.path()).arg("smoke").args(args);
    finish(&mut inside).expect(&[0]);
    out
}
