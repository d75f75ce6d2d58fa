//! The whole suite: every test binary of the workspace, and the examples of the documentation. At the end it lists
//! the slowest, and repeats what those printed that failed.
//!
//! What touches the disks of this machine runs one after the other: some tests drop the page cache of the whole
//! machine, and many measure waits. Two kinds of integration tests run beside those, each one after the other, with
//! less right to the processor ([`Room`]): tests whose disks are in guests or are served from memory, and tests that
//! touch no file system at all.
//!
//! Each test on the disks of this machine has a process of its own ([`parts`]).
//!
//! Each binary runs as `cargo test` would run it, in its package's directory, with a limit on its time
//! (`scripts/bounded`) and as root (`scripts/as-root`).

mod parts;

use anyhow::{Context, Result, ensure};
use parts::{Part, Parts};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::Deserialize;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

/// Seconds after which a process counts as hung on the disks of this machine: none needs half as long.
const LIMIT: u32 = 900;
/// The same for those that have less right to the processor.
const LIMIT_BESIDE: u32 = 1800;
/// Those that wait for flushes of the machine's own disk for minutes: their disks are in the directory that
/// `DISKS_IN_MEMORY` names, if any. Not those with rewrites, which are refused there, as a power cut would lose
/// their records.
const IN_MEMORY: [&str; 1] = ["loop_apply_safety"];
/// Those that serve their own disks from memory and measure no waits.
const SERVED: [&str; 2] = ["loop_crash", "loop_matrix"];
/// Those on disks of this machine that measure no waits and do not mind if others empty the page cache.
const UNHURRIED: [&str; 6] = [
    "loop_auto_measures",
    "loop_filters",
    "loop_hostile_calls",
    "loop_loads",
    "loop_uring",
    "loop_walkthrough",
];
/// Those that for a while change for the whole machine whether files are rewritten: how long programs wait for a
/// lease, an overlay of which it is not known where it writes. None of [`SERVED`] runs beside them.
const GLOBAL: [&str; 2] = ["loop_rewrite_alone", "loop_rewrite_overlay"];
/// Those whose tests exclude each other by a lock in their process.
const TOGETHER: [&str; 3] = ["loop_rewrite_alone", "loop_rewrite_overlay", "loop_alone"];
/// Locked for writing by one of [`GLOBAL`], for reading by one of [`SERVED`].
static MACHINE: RwLock<()> = RwLock::new(());
/// How many of the slowest are listed at the end.
const SLOWEST: usize = 12;
/// How many of the last lines of a failed binary are repeated at the end.
const REPEATED: usize = 60;
/// How much of what a failed test says of itself is repeated last: lines, and characters of each.
const SAID: (usize, usize) = (8, 2000);

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
    fn is_in(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }
}

/// Where a binary runs. Those of one room run one after the other, the rooms beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The disks of this machine.
    Machine,
    /// Guests with a kernel of their own, disks that are served from memory, and the unhurried. The machine's tests come
    /// first, but do not starve them, as their programs have time limits too.
    Elsewhere,
    /// No file system: only the processor time that all others leave.
    Nowhere,
}

impl Room {
    /// The room of a binary with tests of these names: a unit test may touch whatever it likes, an integration
    /// test says by its name what it needs.
    fn of<'a>(is_integration: bool, tests: impl Iterator<Item = &'a str>) -> Self {
        if !is_integration {
            return Self::Machine;
        }
        let mut room = Self::Nowhere;
        for test in tests {
            let name = test.rsplit("::").next().unwrap_or(test);
            if name.starts_with("loop_") {
                return Self::Machine;
            } else if name.starts_with("uml_") {
                room = Self::Elsewhere;
            }
        }
        room
    }

    /// After how many seconds a process counts as hung.
    fn limit(self) -> u32 {
        if self == Self::Machine { LIMIT } else { LIMIT_BESIDE }
    }

    /// The program through which its binaries run.
    fn through(self) -> &'static [&'static str] {
        match self {
            Self::Machine => &[],
            Self::Elsewhere => &["nice", "-n", "10"],
            Self::Nowhere => &["chrt", "--idle", "0"],
        }
    }
}

/// How a binary ended.
struct Ended {
    name: String,
    failed: bool,
    took: Duration,
    /// Processor time of it and of all that it started and waited for, if known.
    used: Option<Duration>,
    /// What it printed, if that was kept.
    printed: String,
}

/// Builds all tests and runs them with these arguments.
///
/// # Errors
/// The tests do not build, or some fail: their names.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let mut listed: Vec<Listed> =
        build(root)?.into_iter().map(Listed::of).collect::<Result<_>>()?;
    // So that these two kinds rarely wait for each other.
    listed.sort_by_key(|one| (!one.binary.is_in(&GLOBAL), one.binary.is_in(&SERVED)));
    let of = |room: Room| listed.iter().filter(move |one| one.room == room);
    let (mut ended, beside) = std::thread::scope(|scope| -> Result<_> {
        let beside = [Room::Elsewhere, Room::Nowhere].map(|room| {
            let run = move |one| run_one(root, args, one);
            scope.spawn(move || of(room).map(run).collect::<Result<Vec<_>>>())
        });
        let ended: Vec<Ended> =
            of(Room::Machine).map(|one| run_one(root, args, one)).collect::<Result<_>>()?;
        let beside: Vec<_> =
            beside.into_iter().map(|room| room.join().expect("no panic")).collect::<Result<_>>()?;
        Ok((ended, beside))
    })?;
    for one in beside.into_iter().flatten() {
        print!("{}{}", one.printed, one.footing());
        ended.push(one);
    }
    ended.push(doc_tests(root)?);
    summary(&mut ended)
}

/// A binary, where it runs, and its tests.
struct Listed {
    binary: Binary,
    room: Room,
    tests: Vec<String>,
}

impl Listed {
    /// One that cannot list its tests runs where it is seen to fail.
    fn of(binary: Binary) -> Result<Self> {
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

    /// The processes in which the tests run.
    fn parts(&self) -> Vec<Part> {
        if self.binary.is_in(&TOGETHER) { vec![Part::All] } else { Part::of(&self.tests) }
    }
}

/// Runs the examples in the documentation, which are no binaries.
fn doc_tests(root: &Path) -> Result<Ended> {
    let started = Instant::now();
    let mut cargo = Command::new("cargo");
    let status = cargo.args(["test", "--workspace", "--doc"]).current_dir(root).status();
    let failed = !status.context("cargo")?.success();
    Ok(Ended {
        name: "documentation".into(),
        failed,
        took: started.elapsed(),
        used: None,
        printed: String::new(),
    })
}

/// Builds the tests, and lists them in cargo's order.
fn build(root: &Path) -> Result<Vec<Binary>> {
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

/// Runs one. What it prints is shown as it comes where nothing else prints.
fn run_one(root: &Path, args: &[String], listed: &Listed) -> Result<Ended> {
    let (binary, room) = (&listed.binary, listed.room);
    let printed = Mutex::new(String::new());
    let print = |line: &str| {
        let mut printed = printed.lock().expect("no panic");
        if room == Room::Machine {
            println!("{line}");
        }
        printed.extend([line, "\n"]);
    };
    print(&format!("     Running {} ({})", binary.name, binary.program.display()));
    if let Some(disks) = disks(binary) {
        print(&format!("its disks are in {}", disks.display()));
    }
    let _shared = binary.is_in(&SERVED).then(|| MACHINE.read().expect("no panic"));
    let _alone = binary.is_in(&GLOBAL).then(|| MACHINE.write().expect("no panic"));
    let started = Instant::now();
    let run = |part: &Part, line: &mut dyn FnMut(&str)| {
        run_part(command(root, args, listed, part), line).with_context(|| binary.name.clone())
    };
    let parts = listed.parts();
    let (failed, used) = if let [Part::All] = parts[..] {
        run(&Part::All, &mut |line| print(line))?
    } else {
        Parts::run(parts, &run, &print)?
    };
    let printed = printed.into_inner().expect("no panic");
    let ended = Ended { name: binary.name.clone(), failed, took: started.elapsed(), used, printed };
    if room == Room::Machine {
        println!("{}", ended.footing());
    }
    Ok(ended)
}

/// Runs a command, and returns whether it failed, and its processor time. `line` is called with each line that it
/// prints.
fn run_part(
    mut command: Command,
    line: &mut dyn FnMut(&str),
) -> std::io::Result<(bool, Option<Duration>)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
    for one in output.split(b'\n') {
        line(&String::from_utf8_lossy(&one?));
    }
    let used = processor_time(child.id());
    Ok((!child.wait()?.success(), used))
}

/// Waits until this child has ended, and returns the processor time of it and of the children that it has waited
/// for (proc_pid_stat(5): `utime`, `stime`, `cutime` and `cstime`, which stay until it is waited for here).
fn processor_time(child: u32) -> Option<Duration> {
    let id = Pid::from_raw(child.try_into().ok()?)?;
    waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok()?;
    ticks(&std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?)
}

/// The processor time that a line of `/proc/PID/stat` says.
fn ticks(stat: &str) -> Option<Duration> {
    // The program's name, in brackets, can contain anything; `utime` is the twelfth field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = 0;
    for _ in 0..4 {
        ticks += fields.next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

impl Ended {
    fn footing(&self) -> String {
        format!("{} took {:.1} s{}\n", self.name, self.took.as_secs_f64(), self.of_which())
    }

    fn of_which(&self) -> String {
        self.used
            .map(|used| format!(", {:.1} s of the processor", used.as_secs_f64()))
            .unwrap_or_default()
    }
}

/// The command that runs tests of a binary in its room, as root, for a limited time.
fn command(root: &Path, args: &[String], listed: &Listed, part: &Part) -> Command {
    let binary = &listed.binary;
    let mut command = Command::new(root.join("scripts/as-root"));
    let limit = listed.room.limit().to_string();
    command.arg(root.join("scripts/bounded")).arg(limit).args(listed.room.through());
    command
        .arg(&binary.program)
        .args(part.arguments())
        .args(args)
        .current_dir(&binary.directory)
        .stdin(Stdio::null());
    if let Some(disks) = disks(binary) {
        command.env("FRAGMEND_DISKS", disks);
    }
    command
}

/// Where a binary's disks are, if not in the temporary directory.
fn disks(binary: &Binary) -> Option<OsString> {
    binary.is_in(&IN_MEMORY).then(|| std::env::var_os("DISKS_IN_MEMORY")).flatten()
}

/// Prints what lasted longest and the end of what failed; an error names that.
fn summary(ended: &mut [Ended]) -> Result<()> {
    ended.sort_by_key(|one| std::cmp::Reverse(one.took));
    println!("The slowest of {}:", ended.len());
    for one in ended.iter().take(SLOWEST) {
        println!("{:7.1} s  {}{}", one.took.as_secs_f64(), one.name, one.of_which());
    }
    let used: Duration = ended.iter().filter_map(|one| one.used).sum();
    println!("All of them: {:.0} s of the processor", used.as_secs_f64());
    let failed = || ended.iter().filter(|one| one.failed);
    for one in failed() {
        let lines: Vec<&str> = one.printed.lines().collect();
        println!("\nThe end of {}, which failed:", one.name);
        for line in &lines[lines.len().saturating_sub(REPEATED)..] {
            println!("{line}");
        }
    }
    // Last, so that a log of which only the end is kept has it.
    for one in failed() {
        println!("\nWhat failed in {}:", one.name);
        panics(&one.printed).for_each(|line| println!("{line}"));
    }
    let names: Vec<&str> = failed().map(|one| one.name.as_str()).collect();
    ensure!(names.is_empty(), "tests failed in: {}", names.join(", "));
    Ok(())
}

/// What tests said when they failed, without the calls that led there: of each the line with its place, and the first
/// lines of its message.
fn panics(printed: &str) -> impl Iterator<Item = String> {
    let mut left = 0;
    printed.lines().filter_map(move |line| {
        if line.contains("' panicked at ") || line.contains(") panicked at ") {
            left = SAID.0;
        } else if line.is_empty() || line == "stack backtrace:" || line.starts_with("note: ") {
            left = 0;
        }
        left = left.saturating_sub(1);
        (left > 0).then(|| line.chars().take(SAID.1).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_test_said_is_told_without_the_calls() {
        let long = "x".repeat(3000);
        let printed = format!(
            "test a ... ok\nthread 'b' (7) panicked at crates/b.rs:1:2:\nassertion failed\n left: {long}\n\
             stack backtrace:\n 0: c\nthread 'd' panicked at e.rs:3:4:\nlost\nnote: run with\ntest f"
        );
        let said: Vec<String> = panics(&printed).collect();
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(said[2].len(), SAID.1);
        assert_eq!(said[3..], ["thread 'd' panicked at e.rs:3:4:", "lost"]);
    }

    #[test]
    fn a_binary_runs_beside_others_only_if_all_its_tests_may() {
        let room = |is_integration, tests: &[&str]| Room::of(is_integration, tests.iter().copied());
        assert_eq!(room(true, &["plans", "a::reads"]), Room::Nowhere);
        assert_eq!(room(true, &["plans", "a::uml_moves"]), Room::Elsewhere);
        assert_eq!(room(true, &["a::loop_moves", "uml_moves"]), Room::Machine);
        assert_eq!(room(true, &["uml_moves", "loop_moves"]), Room::Machine);
        assert_eq!(room(false, &["plans"]), Room::Machine);
    }

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let hundredth =
            Duration::from_secs_f64(1.0 / rustix::param::clock_ticks_per_second() as f64);
        let line = "7 (a) b) Z 1 7 7 0 -1 4228 0 0 0 0 1 2 30 400 20 0 1 0 9 0 0";
        assert_eq!(ticks(line), Some(433 * hundredth));
        assert_eq!(ticks("7 (a) Z 1 7 7 0 -1 4228 0 0 0 0 1 2 30"), None);
    }

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
