//! The mover: `fragmend plan` and `fragmend apply` at full speed, repeatedly, whole files and single windows
//! in turn.

use super::Engine;
use crate::file_system::MAY_BE_SHARED;
use crate::process::finish;
use crate::tools::fragmend;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Defragments the files below a directory.
pub struct Mover {
    plan: PathBuf,
    options: &'static [&'static str],
    moved_by: &'static [&'static str],
    /// Ranges moved by the first of those, and all that moved.
    counts: (u64, u64),
    rounds: u64,
}

/// The receipt of one range.
#[derive(Clone, Debug)]
pub struct Range {
    /// Whether it has moved, into fewer fragments.
    pub moved: bool,
    /// The interface that moved it, and the reason if that is a fallback.
    pub primitive: Option<(String, Option<String>)>,
    /// The longest time for which one step locked the file, from its receipt.
    pub longest_step: Duration,
    /// The reason why it has not moved.
    pub reason: String,
    /// The same in words.
    pub detail: String,
}

impl Mover {
    /// One for an engine, with its plans in `scratch`.
    pub fn new(scratch: &Path, engine: &Engine) -> Self {
        let (options, moved_by) = (engine.options, engine.moved_by());
        Self { plan: scratch.join("plan.json"), options, moved_by, counts: (0, 0), rounds: 0 }
    }

    /// Asserts that the engine's own interface has moved the data, or a fallback for which the receipt has a
    /// reason.
    ///
    /// # Panics
    /// Otherwise.
    pub fn expect_the_real_thing(&self) {
        let (real, all) = self.counts;
        println!("{real} of {all} ranges moved by {:?}", self.moved_by);
        assert!(real > 0, "nothing was moved by {:?}, {all} ranges by others", self.moved_by);
    }

    /// Moves files that no load uses: a fallback is not accepted.
    ///
    /// # Panics
    /// When there was one, or nothing moved.
    pub fn expect_still_files_to_move(&mut self, dir: &Path) {
        let ranges: Vec<Range> = (0..2).flat_map(|_| self.round(dir)).collect();
        let otherwise = ranges.iter().find(|r| r.primitive.as_ref().is_some_and(|p| p.1.is_some()));
        assert!(
            otherwise.is_none(),
            "no program uses it, and it was not {:?}: {otherwise:?}",
            self.moved_by
        );
        assert!(ranges.iter().any(|range| range.moved), "nothing moved: {ranges:?}");
    }

    fn count(&mut self, range: &Range) {
        let Some((by, fallback)) = &range.primitive else { return };
        let names: Vec<&str> = by.split(", ").collect();
        let real = self.moved_by.contains(&names[0]);
        let all = names.iter().all(|name| self.moved_by.contains(name));
        let good = fallback.as_ref().is_none_or(|why| MAY_BE_SHARED.contains(&why.as_str()));
        assert!(all || fallback.is_some(), "moved by something else, silently: {range:?}");
        assert!(good, "moved by something else, for no good reason: {range:?}");
        self.counts = (self.counts.0 + u64::from(real), self.counts.1 + 1);
    }

    /// Plans for `dir` and applies, once; returns every range that was planned.
    ///
    /// # Panics
    /// When fragmend fails, with what it printed.
    pub fn round(&mut self, dir: &Path) -> Vec<Range> {
        self.rounds += 1;
        let policy = if self.rounds.is_multiple_of(3) { "bypass" } else { "whole-file" };
        let _ = std::fs::remove_file(&self.plan);
        let mut plan = Command::new(fragmend());
        plan.args(["plan", "--quiet", "--policy", policy, "-o"]).args([&self.plan, dir]);
        finish(&mut plan).expect(&[0, 2]);
        let mut apply = Command::new(fragmend());
        apply.args(["apply", "--quiet", "--json", "--rate", "max"]).args(self.options);
        // Some ranges are left every time, because others use their files.
        let ended = finish(apply.arg(&self.plan));
        let ranges: Vec<Range> = ended.stdout.lines().filter_map(range).collect();
        let failed = ranges.iter().find(|r| r.reason == "failed" || r.reason == "needs_recovery");
        assert!(failed.is_none(), "a range could not be moved: {failed:?}");
        let told = ended.stdout.lines().last().unwrap_or_default().to_owned();
        assert!(matches!(ended.status.code(), Some(0 | 2)), "{}: {told}", ended.status);
        ranges.iter().for_each(|range| self.count(range));
        ranges
    }
}

/// Parses a line of `apply --json`, if it is the receipt of a range.
fn range(line: &str) -> Option<Range> {
    let event: Value = serde_json::from_str(line).ok().filter(|e: &Value| e["event"] == "range")?;
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    // The dummies, whose blocks separate the extents, belong to no load.
    if text("path").ends_with(".dummy") {
        return None;
    }
    let moved = event["outcome"] == "moved";
    let longest_step = Duration::from_secs_f64(event["longest_step_seconds"].as_f64()?);
    let primitive = event["primitive"].as_str().map(str::to_owned);
    let primitive = primitive.map(|by| (by, event["fallback"].as_str().map(str::to_owned)));
    Some(Range { moved, primitive, longest_step, reason: text("reason"), detail: text("detail") })
}
