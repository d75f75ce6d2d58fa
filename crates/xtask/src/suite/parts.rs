//! The tests of one binary in several processes, as many at a time as there are processors.
//!
//! Each test that has a disk of this machine runs in a process of its own. In one process, a test that starts a
//! program duplicates the open files of all others, until the program has been read from the disk: beside it a file
//! that a test has closed is still open, and is not moved where only files are that nobody has open.

use anyhow::Result;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The name of a test with a disk of this machine begins with this.
const DISK: &str = "loop_";

/// Tests of a binary that run in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of them.
    All,
    /// Those without disks.
    Others,
    /// One.
    Test(String),
}

impl Part {
    /// The parts of a binary with these tests.
    pub fn of(tests: &[String]) -> Vec<Self> {
        // As `--skip` compares.
        let has_disk = |test: &&String| test.contains(DISK);
        let mut parts: Vec<Self> = tests.iter().filter(has_disk).cloned().map(Self::Test).collect();
        if parts.is_empty() {
            return vec![Self::All];
        }
        if parts.len() < tests.len() {
            parts.push(Self::Others);
        }
        parts
    }

    /// What its process is told.
    pub fn arguments(&self) -> Vec<String> {
        match self {
            Self::All => Vec::new(),
            Self::Others => vec!["--skip".into(), DISK.into()],
            Self::Test(name) => vec!["--exact".into(), name.clone()],
        }
    }
}

/// What the parts that have ended amount to.
#[derive(Debug, Default)]
pub(super) struct Parts {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// The names of the tests that failed.
    failures: Vec<String>,
    /// Whether a process failed.
    is_failed: bool,
    used: Option<Duration>,
}

/// Runs a part, calls the function with each line that it prints, and returns whether it failed, and its processor time.
pub(super) type Run<'a> =
    dyn Fn(&Part, &mut dyn FnMut(&str)) -> Result<(bool, Option<Duration>)> + Sync + 'a;

impl Parts {
    /// Runs parts, and prints what each has printed once it has ended, and then a result like that of one process.
    /// Returns whether any failed, and the processor time of all, if known.
    ///
    /// # Errors
    /// A part cannot be run.
    pub fn run(
        parts: Vec<Part>,
        run: &Run<'_>,
        print: &(dyn Fn(&str) + Sync),
    ) -> Result<(bool, Option<Duration>)> {
        let started = Instant::now();
        let left = Mutex::new(VecDeque::from(parts));
        let all = Mutex::new(Self { used: Some(Duration::ZERO), ..Self::default() });
        let work = || -> Result<()> {
            loop {
                let Some(part) = left.lock().expect("no panic").pop_front() else { return Ok(()) };
                let mut lines = Vec::new();
                let (failed, used) = run(&part, &mut |line| lines.push(line.to_owned()))?;
                // Locked while it is printed, so that lines of one test are not between those of another.
                all.lock().expect("no panic").add(&part, failed, used, &lines, print);
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        let all = all.into_inner().expect("no panic");
        all.result(started.elapsed()).iter().for_each(|line| print(line));
        Ok((all.is_failed, all.used))
    }

    /// Adds a part that has ended.
    fn add(
        &mut self,
        part: &Part,
        failed: bool,
        used: Option<Duration>,
        lines: &[String],
        print: &dyn Fn(&str),
    ) {
        let mut was_told = false;
        for line in lines {
            if let Some(counts) = line.strip_prefix("test result: ") {
                let count = |what| count_of(counts, what);
                self.passed += count(" passed");
                self.failed += count(" failed");
                self.ignored += count(" ignored");
                was_told = true;
            } else if !(line.is_empty() || line == "running 1 test" || line == "successes:") {
                print(line);
            }
            let name = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"));
            self.failures.extend(name.map(str::to_owned));
        }
        if failed && !was_told {
            // It was ended, or ended itself.
            let name = match part {
                Part::Test(name) => name,
                _ => "(a process)",
            };
            print(&format!("test {name} ... FAILED, with its process"));
            self.failed += 1;
            self.failures.push(name.to_owned());
        }
        self.is_failed |= failed;
        self.used = self.used.zip(used).map(|(all, one)| all + one);
    }

    /// The result of all, in the form of the test harness.
    fn result(&self, took: Duration) -> Vec<String> {
        let mut lines = vec![String::new()];
        if !self.failures.is_empty() {
            lines.push("failures:".into());
            lines.extend(self.failures.iter().map(|name| format!("    {name}")));
            lines.push(String::new());
        }
        let verdict = if self.is_failed { "FAILED" } else { "ok" };
        lines.push(format!(
            "test result: {verdict}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
            self.passed,
            self.failed,
            self.ignored,
            took.as_secs_f64()
        ));
        lines.push(String::new());
        lines
    }
}

/// The number before a word in a result of the test harness.
fn count_of(counts: &str, what: &str) -> u64 {
    let before = counts.split(';').find_map(|one| one.strip_suffix(what));
    before.and_then(|one| one.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn each_test_with_a_disk_has_a_process_and_the_others_share_one() {
        let test = |name: &str| Part::Test(name.into());
        assert_eq!(Part::of(&names(&["a", "b"])), [Part::All]);
        assert_eq!(Part::of(&names(&["m::loop_a", "loop_b"])), [test("m::loop_a"), test("loop_b")]);
        assert_eq!(Part::of(&names(&["a", "loop_b", "c"])), [test("loop_b"), Part::Others]);
    }

    /// What processes print becomes one result, and one that was killed counts as a failed test.
    #[test]
    fn results_of_processes_are_added() {
        let run = |part: &Part, line: &mut dyn FnMut(&str)| {
            let lines: &[&str] = match part {
                Part::Others => &[
                    "running 3 tests",
                    "test a ... ok",
                    "test b ... FAILED",
                    "test c ... ignored",
                    "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out",
                ],
                Part::Test(name) if name == "loop_d" => &["running 1 test", "begun"],
                _ => &[
                    "running 1 test",
                    "test loop_e ... ok",
                    "",
                    "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 6 filtered out",
                ],
            };
            lines.iter().for_each(|one| line(one));
            let failed = !matches!(part, Part::Test(name) if name == "loop_e");
            Ok((failed, Some(Duration::from_secs(1))))
        };
        let printed = Mutex::new(Vec::new());
        let print = |line: &str| printed.lock().unwrap().push(line.to_owned());
        let parts = Part::of(&names(&["a", "b", "c", "loop_d", "loop_e"]));
        let result = Parts::run(parts, &run, &print).unwrap();
        assert_eq!(result, (true, Some(Duration::from_secs(3))));
        let printed = printed.into_inner().unwrap();
        assert!(!printed.iter().any(|line| line == "running 1 test"), "{printed:?}");
        assert!(
            printed.contains(&"test loop_d ... FAILED, with its process".into()),
            "{printed:?}"
        );
        let results: Vec<_> = printed.iter().filter(|l| l.starts_with("test result")).collect();
        let [result] = results[..] else { panic!("{printed:?}") };
        let expected = "FAILED. 2 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out;";
        assert!(result.contains(expected), "{result}");
        for name in ["    b", "    loop_d"] {
            assert!(printed.iter().any(|line| line == name), "{name}: {printed:?}");
        }
    }
}
