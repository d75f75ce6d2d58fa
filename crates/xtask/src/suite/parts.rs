//! The tests of one binary in several processes, and what they amount to.
//!
//! Each test that has a disk of this machine runs in a process of its own. In one process, a test that starts a
//! program duplicates the open files of all others, until the program has been read from the disk: beside it a file
//! that a test has closed is still open, and is not moved where only files are that nobody has open. A test with a
//! guest has one too, so that no two binaries with guests run as many of them as both have tests.

use std::borrow::Cow;
use std::time::Duration;

/// The names of tests with a disk of this machine begin with this.
pub(super) const WITH_DISK: &str = "loop_";
/// The names of tests with a guest begin with this.
pub(super) const WITH_GUEST: &str = "uml_";
const OF_THEIR_OWN: [&str; 2] = [WITH_DISK, WITH_GUEST];

/// How a line of the test harness begins that says how many passed.
const RESULT: &str = "test result: ";

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
        let is_one = |test: &&String| OF_THEIR_OWN.iter().any(|name| test.contains(name));
        let mut parts: Vec<Self> = tests.iter().filter(is_one).cloned().map(Self::Test).collect();
        if parts.is_empty() {
            return vec![Self::All];
        }
        if parts.len() < tests.len() {
            parts.push(Self::Others);
        }
        parts
    }

    /// What its process is told.
    pub fn arguments(&self) -> Vec<&str> {
        match self {
            Self::All => Vec::new(),
            Self::Others => OF_THEIR_OWN.iter().flat_map(|name| ["--skip", name]).collect(),
            Self::Test(name) => vec!["--exact", name],
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

impl Parts {
    /// None so far.
    pub fn new() -> Self {
        Self { used: Some(Duration::ZERO), ..Self::default() }
    }

    /// Whether any failed.
    pub fn is_failed(&self) -> bool {
        self.is_failed
    }

    /// The processor time of all, if known.
    pub fn used(&self) -> Option<Duration> {
        self.used
    }

    /// Adds a part that has ended, with the lines that it printed; returns what of them is to be printed.
    pub fn add<'a>(
        &mut self,
        part: &Part,
        failed: bool,
        used: Option<Duration>,
        lines: &'a [String],
    ) -> Vec<Cow<'a, str>> {
        let mut print = Vec::new();
        // The last one: a test in a guest prints one of its own.
        let told = lines.iter().rposition(|line| line.starts_with(RESULT));
        let counts = told.map_or([0; 3], |n| {
            [" passed", " failed", " ignored"].map(|what| count_of(&lines[n][RESULT.len()..], what))
        });
        for (all, one) in
            [&mut self.passed, &mut self.failed, &mut self.ignored].into_iter().zip(counts)
        {
            *all += one;
        }
        for (n, line) in lines.iter().enumerate() {
            if Some(n) == told {
                continue;
            }
            if !(line.is_empty() || line == "running 1 test" || line == "successes:") {
                print.push(Cow::from(line));
            }
            let name = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"));
            self.failures.extend(name.map(str::to_owned));
        }
        // It was ended, or ended itself, or another test was run in its place.
        let is_lost = match part {
            Part::Test(_) => told.is_none() || counts.iter().sum::<u64>() != 1,
            Part::All | Part::Others => told.is_none(),
        };
        if is_lost || (failed && counts[1] == 0) {
            let name = match part {
                Part::Test(name) => name,
                _ => "(a process)",
            };
            print.push(format!("test {name} ... FAILED, with its process").into());
            self.failed += 1;
            self.failures.push(name.to_owned());
        }
        self.is_failed |= failed || is_lost;
        self.used = self.used.zip(used).map(|(all, one)| all + one);
        print
    }

    /// The result of all, in the form of the test harness.
    pub fn result(&self, took: Duration) -> Vec<String> {
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
        let mut parts = Parts::new();
        let mut printed = Vec::new();
        let mut add = |part: Part, failed: bool, lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
            let used = Some(Duration::from_secs(1));
            printed.extend(parts.add(&part, failed, used, &lines).into_iter().map(Cow::into_owned));
        };
        let others = [
            "running 3 tests",
            "test a ... ok",
            "test b ... FAILED",
            "test c ... ignored",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out",
        ];
        add(Part::Others, true, &others);
        add(Part::Test("loop_d".into()), true, &["running 1 test", "begun"]);
        let with_guest = [
            "running 1 test",
            "test uml_e ... ok",
            "",
            "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 6 filtered out",
        ];
        add(Part::Test("uml_e".into()), false, &with_guest);
        assert_eq!((parts.is_failed(), parts.used()), (true, Some(Duration::from_secs(3))));
        // One that ends itself, or runs nothing, has not passed, whatever it ends with.
        let nothing = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out";
        for lines in [vec!["running 1 test".into()], vec![nothing.into()]] {
            let mut parts = Parts::new();
            parts.add(&Part::Test("loop_f".into()), false, None, &lines);
            assert!(parts.is_failed() && parts.result(Duration::ZERO)[2] == "    loop_f");
        }
        let expected = [
            "running 3 tests",
            "test a ... ok",
            "test b ... FAILED",
            "test c ... ignored",
            "begun",
            "test loop_d ... FAILED, with its process",
            "test uml_e ... ok",
            with_guest[3],
        ];
        assert_eq!(printed, expected);
        let result = parts.result(Duration::from_millis(1500));
        assert_eq!(result[1..4], ["failures:", "    b", "    loop_d"]);
        let expected = "test result: FAILED. 2 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.50s";
        assert!(result.contains(&expected.to_owned()), "{result:?}");
    }
}
