//! The whole suite: every test binary of the workspace, and the examples of the documentation. At the end it lists
//! the slowest, and repeats what those printed that failed.
//!
//! Tests on the disks of this machine run a few at a time, and those that measure it with no others of them. None
//! empties its page cache. Two kinds of integration tests run beside those, with less right to the processor ([`Room`]):
//! tests whose disks are in guests or are served from memory, and tests that touch no file system at all.
//!
//! Each test with a disk has a process of its own ([`parts`]).
//!
//! Each binary runs as `cargo test` would run it, in its package's directory, with a limit on its time
//! (`scripts/bounded`) and as root (`scripts/as-root`).

mod binary;
mod parts;
mod process;
mod queue;
mod room;

use anyhow::{Context, Result, ensure};
use binary::Listed;
pub use binary::{Binary, binaries};
use parts::{Part, Parts};
use room::{GLOBAL, Room, SERVED};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How many of the slowest are listed at the end.
const SLOWEST: usize = 12;
/// How many of the last lines of a failed binary are repeated at the end.
const REPEATED: usize = 60;
/// How much of what a failed test says of itself is repeated last: lines, and characters of each.
const SAID: (usize, usize) = (8, 2000);

/// Builds all tests and runs them with these arguments.
///
/// # Errors
/// The tests do not build, or some fail: their names.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let mut listed: Vec<Listed> =
        binary::build(root)?.into_iter().map(Listed::of).collect::<Result<_>>()?;
    // So that these two kinds rarely wait for each other.
    listed.sort_by_key(|one| (!one.binary.is_in(&GLOBAL), one.binary.is_in(&SERVED)));
    let run = |room| run_room(root, args, room, &listed);
    let run = &run;
    let mut ended = std::thread::scope(|scope| -> Result<Vec<Ended>> {
        let rooms = [Room::Machine, Room::Elsewhere, Room::Nowhere];
        let rooms = rooms.map(|room| scope.spawn(move || run(room)));
        let ended = rooms.into_iter().map(|room| room.join().expect("no panic"));
        Ok(ended.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })?;
    ended.push(doc_tests(root)?);
    summary(&mut ended)
}

/// Runs the binaries of a room, and prints what each has printed once it has ended.
fn run_room(root: &Path, args: &[String], room: Room, all: &[Listed]) -> Result<Vec<Ended>> {
    let running: Vec<Running> =
        all.iter().filter(|one| one.room == room).map(Running::new).collect();
    let parts =
        running.iter().flat_map(|one| one.listed.parts().into_iter().map(move |p| (one, p)));
    let parts: Vec<(&Running, Part)> = parts.collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let may_join = |running: &[&(&Running, Part)], (next, _): &(&Running, Part)| {
        let is_alone = |one: &Running| one.listed.runs_alone();
        let are_its_own = running.iter().all(|(one, _)| std::ptr::eq(*one, *next));
        let none_is_alone = !is_alone(next) && !running.iter().any(|(one, _)| is_alone(one));
        none_is_alone || are_its_own && running.len() < processors
    };
    let ended = Mutex::new(Vec::new());
    queue::in_order(&parts, room.workers(), &may_join, &|(binary, part)| {
        let _machine = room::Share::of(&binary.listed.binary);
        if let Some(one) = binary.run(root, args, part)? {
            // Locked while it is printed, so that what binaries of one room print is not mixed.
            let mut ended = ended.lock().expect("no panic");
            print!("{}{}", one.printed, one.footing());
            ended.push(one);
        }
        Ok(())
    })?;
    Ok(ended.into_inner().expect("no panic"))
}

/// A binary of which some parts may have run.
struct Running<'a> {
    listed: &'a Listed,
    so_far: Mutex<SoFar>,
}

struct SoFar {
    began: Option<Instant>,
    /// Parts that have not ended.
    left: usize,
    parts: Parts,
    printed: String,
}

impl<'a> Running<'a> {
    fn new(listed: &'a Listed) -> Self {
        let left = listed.parts().len();
        let parts = Parts::new();
        let so_far = SoFar { began: None, left, parts, printed: listed.heading() };
        Self { listed, so_far: Mutex::new(so_far) }
    }

    /// Runs a part. Once all have ended, returns how.
    fn run(&self, root: &Path, args: &[String], part: &Part) -> Result<Option<Ended>> {
        let name = &self.listed.binary.name;
        let so_far = || self.so_far.lock().expect("no panic");
        so_far().began.get_or_insert_with(Instant::now);
        let command = process::command(root, args, self.listed, part);
        let (lines, failed, used) = process::run(command).with_context(|| name.clone())?;
        let mut so_far = so_far();
        let SoFar { began, left, parts, printed } = &mut *so_far;
        for line in parts.add(part, failed, used, &lines) {
            printed.extend([&line, "\n"]);
        }
        *left -= 1;
        if *left > 0 {
            return Ok(None);
        }
        let took = began.map(|began| began.elapsed()).unwrap_or_default();
        parts.result(took).iter().for_each(|line| printed.extend([line, "\n"]));
        let (failed, used, printed) = (parts.is_failed(), parts.used(), std::mem::take(printed));
        Ok(Some(Ended { name: name.clone(), failed, took, used, printed }))
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
}
