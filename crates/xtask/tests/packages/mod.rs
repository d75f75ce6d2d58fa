//! What the tests of packages share: where the binaries are, and how one for another architecture is run.

use std::path::PathBuf;
use std::process::Command;

/// Where packages are built.
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
