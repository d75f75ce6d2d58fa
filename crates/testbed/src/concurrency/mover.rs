//! The mover: `fragmend plan` and `fragmend apply` at full speed, over and over, whole files and
//! single windows in turn.

use crate::process::finish;
use crate::tools::fragmend;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Moves what is fragmented below a directory.
pub struct Mover {
    plan: PathBuf,
    options: &'static [&'static str],
    rounds: u64,
}

/// What was done with one range.
#[derive(Clone, Debug)]
pub struct Range {
    /// Whether it lies in fewer pieces now.
    pub moved: bool,
    /// The longest time for which one step locked the file, as its receipt says.
    pub longest_step: Duration,
    /// Why not.
    pub reason: String,
    /// Why not, in words.
    pub detail: String,
}

impl Mover {
    /// With its plans in `scratch` and further options for `apply`.
    pub fn new(scratch: &Path, options: &'static [&'static str]) -> Self {
        Self { plan: scratch.join("plan.json"), options, rounds: 0 }
    }

    /// Plans for `dir` and applies, once; gives every range that was planned.
    ///
    /// # Panics
    /// When fragmend fails, with what it said.
    pub fn round(&mut self, dir: &Path) -> Vec<Range> {
        self.rounds += 1;
        let policy = if self.rounds.is_multiple_of(3) { "bypass" } else { "whole-file" };
        let _ = std::fs::remove_file(&self.plan);
        let mut plan = Command::new(fragmend());
        plan.args(["plan", "--quiet", "--policy", policy, "-o"]).args([&self.plan, dir]);
        finish(&mut plan).expect(&[0, 2]);
        let mut apply = Command::new(fragmend());
        apply.args(["apply", "--quiet", "--json", "--rate", "max"]).args(self.options);
        // Something that could be better is left every time: others are at work there.
        let ended = finish(apply.arg(&self.plan));
        let ranges: Vec<Range> = ended.stdout.lines().filter_map(range).collect();
        let failed = ranges.iter().find(|r| r.reason == "failed" || r.reason == "needs_recovery");
        assert!(failed.is_none(), "a range could not be moved: {failed:?}");
        ended.expect(&[0, 2]);
        ranges
    }
}

/// A line of `apply --json`, if it tells of a range.
fn range(line: &str) -> Option<Range> {
    let event: Value = serde_json::from_str(line).ok().filter(|e: &Value| e["event"] == "range")?;
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    // What takes the blocks in between is nobody's.
    if text("path").ends_with(".dummy") {
        return None;
    }
    let moved = event["outcome"] == "moved";
    let longest_step = Duration::from_secs_f64(event["longest_step_seconds"].as_f64()?);
    Some(Range { moved, longest_step, reason: text("reason"), detail: text("detail") })
}
