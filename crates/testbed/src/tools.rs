//! The programs that tests run: fragmend as it was built, filefrag, sha256sum.

use crate::process::{Running, finish};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The `fragmend` binary: `$FRAGMEND`, or the one built beside the running program.
///
/// # Panics
/// When there is none, with how to get it.
pub fn fragmend() -> PathBuf {
    if let Some(path) = std::env::var_os("FRAGMEND") {
        return path.into();
    }
    let this = std::env::current_exe().expect("the running program's path");
    let found = this.ancestors().skip(1).take(2).map(|d| d.join("fragmend")).find(|p| p.is_file());
    found.unwrap_or_else(|| {
        panic!("no fragmend beside {}: build it first (make build)", this.display())
    })
}

/// Runs fragmend with these arguments and `--json`, and returns its document; its exit code may say
/// "could be better" (2).
///
/// # Panics
/// When it fails, with what it printed.
pub fn fragmend_json<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Value {
    json_of(Command::new(fragmend()).args(args))
}

fn json_of(fragmend: &mut Command) -> Value {
    let text = json_text(fragmend);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("fragmend's JSON ({e}): {text}"))
}

/// The same for verbs that print JSON Lines: the event named `event`, which must be there.
///
/// # Panics
/// When it fails or has no such event.
pub fn fragmend_event<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, event: &str) -> Value {
    event_of(Command::new(fragmend()).args(args), event)
}

fn event_of(fragmend: &mut Command, event: &str) -> Value {
    let text = json_text(fragmend);
    let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
    let found = text.lines().rev().filter_map(parse).find(|v| v["event"] == event);
    found.unwrap_or_else(|| panic!("fragmend printed no '{event}' event: {text}"))
}

/// What a call of fragmend printed, with `--json` as its last argument.
fn json_text(fragmend: &mut Command) -> String {
    finish(fragmend.arg("--json")).expect(&[0, 2])
}

/// The beginning of the line that `record` and `auto` print once all of their programs are attached.
pub const WATCHING: &str = "watching ";

/// A recording that runs beside its load.
pub struct Recording {
    running: Running,
}

impl Recording {
    /// Starts `fragmend record` on `paths` into `trace` and waits until it records.
    ///
    /// # Panics
    /// When it cannot start, with what it printed.
    pub fn start(trace: &Path, paths: &[&Path]) -> Self {
        Self::start_with(&[], trace, paths)
    }

    /// The same with further options.
    ///
    /// # Panics
    /// When it cannot start, with what it printed.
    pub fn start_with(options: &[&str], trace: &Path, paths: &[&Path]) -> Self {
        let mut command = Command::new(fragmend());
        // Everything, whatever that costs: what is measured must not depend on how busy the machine is.
        command.args(["record", "--overhead", "100"]).args(options).arg("-o").arg(trace);
        command.args(["--duration", "3600s"]).args(paths);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self { running: Running::start(&mut command).wait_until_it_says(WATCHING) }
    }

    /// Ends it as Ctrl-C does, which writes the trace file.
    ///
    /// # Panics
    /// When it failed.
    pub fn finish(self) {
        self.running.signal(rustix::process::Signal::INT);
        self.running.wait().expect(&[0, 2, 16]);
    }
}

/// Extents of a file as filefrag counts them.
pub fn extents(path: &Path) -> u64 {
    let text = finish(Command::new("filefrag").arg(path)).expect(&[0]);
    let count = text.rsplit(": ").next().and_then(|t| t.split_whitespace().next());
    count.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("filefrag's count in: {text}"))
}

/// SHA-256 of a file's content, in hex.
pub fn sha256(path: &Path) -> String {
    let text = finish(Command::new("sha256sum").arg(path)).expect(&[0]);
    text.split_whitespace().next().unwrap_or_default().trim_start_matches('\\').to_owned()
}

/// Whether everything is there that a run on loop devices needs.
///
/// # Errors
/// One line that says what to do.
pub fn require(programs: &[&str]) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("loop devices and mounts need root: run it through sudo".into());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(
            "no loop devices here (/dev/loop-control): use a machine or VM that has them, \
                    or a privileged container"
                .into(),
        );
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&&str| std::env::split_paths(&path).any(|d| d.join(program).is_file());
    match programs.iter().find(|p| !is_there(p)) {
        Some(missing) => Err(format!("{missing} is not installed: run scripts/prerequisites")),
        None => Ok(()),
    }
}

/// Deletes a file, and waits until its inode number is invalid: XFS frees a deleted file in the
/// background, and finds it by its number until then.
///
/// # Panics
/// When it is still found after half a minute.
pub fn delete_for_good(path: &Path) {
    let file = File::open(path).expect("a file to delete");
    let inode = file.metadata().expect("its number").ino();
    let generation = fragmend_sys::inode::generation(&file).unwrap_or(0);
    let beside = File::open(path.parent().expect("a directory")).expect("its directory");
    drop(file);
    std::fs::remove_file(path).expect("it can be deleted");
    let started = Instant::now();
    let flags = rustix::fs::OFlags::PATH.bits().cast_signed();
    while fragmend_sys::handle::open_by_inode(&beside, inode, generation, flags).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(30), "{} stays", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}
