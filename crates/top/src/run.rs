//! A plan that is offered, and its run. A run that is paused has ended at its next safe point: nothing is half moved, no file is
//! open, and nothing is held. To go on, the same plan is carried out again: what has moved is left alone then.

use fragmend_apply::{Event, Outcome, Summary};
use fragmend_layout::{ByteRange, Layout, SkipReason};
use fragmend_plan::Plan;
use std::collections::HashMap;
use std::time::Duration;

/// A plan, with what is needed to show it.
#[derive(Debug)]
pub struct Offer {
    /// The plan.
    pub plan: Plan,
    /// How long what it was made from was recorded.
    pub recorded: Duration,
    /// The layouts of its files by their paths, as the plan has them.
    pub layouts: HashMap<String, Layout>,
}

impl Offer {
    /// The places of all data that it would move.
    pub fn places(&self) -> impl Iterator<Item = ByteRange> + '_ {
        let of_file = |file: &fragmend_plan::PlannedFile| {
            let layout = self.layouts.get(&file.path.path)?;
            let ranges: Vec<ByteRange> = file.ranges.iter().map(|r| r.range()).collect();
            Some(ranges.into_iter().flat_map(|range| crate::map::places(layout, range)))
        };
        self.plan.files.iter().filter_map(of_file).flatten()
    }

    /// The places where a range of a file was when the plan was made.
    pub fn places_of(&self, path: &str, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let layout = self.layouts.get(path);
        layout.into_iter().flat_map(move |layout| crate::map::places(layout, range))
    }
}

/// Whether a plan is being carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// None is.
    #[default]
    Idle,
    /// One is.
    Running,
    /// It is to pause, and has not ended yet.
    Pausing,
    /// It has ended, and can go on.
    Paused,
    /// It is to stop, and has not ended yet.
    Stopping,
}

impl Phase {
    /// Whether data may be moving.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Pausing | Self::Stopping)
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "moving",
            Self::Pausing => "pausing at the next safe point",
            Self::Paused => "paused",
            Self::Stopping => "stopping at the next safe point",
        }
    }
}

/// How far a run has come. Sizes are bytes.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// In all ranges of the plan.
    pub total: u64,
    /// In ranges that are done, or left alone.
    pub done: u64,
    /// In ranges that have moved, pauses included.
    pub moved: u64,
    /// In ranges that were done when the run began, or went on.
    before: u64,
    /// When it began, or went on.
    since: Duration,
    /// When the last range was done.
    now: Duration,
}

impl Progress {
    /// Begins, or goes on, at this time.
    pub fn begin(&mut self, now: Duration, total: u64) {
        (self.total, self.done, self.before) = (total, 0, 0);
        (self.since, self.now) = (now, now);
    }

    /// Takes how a range has ended, at this time.
    pub fn note(&mut self, event: &Event, now: Duration) {
        let Event::Range(receipt) = event else { return };
        self.done = self.done.saturating_add(receipt.length).min(self.total);
        self.now = now;
        if receipt.outcome == Outcome::Moved {
            self.moved += receipt.length;
        } else if receipt.reason == Some(SkipReason::AlreadyContiguous) {
            self.before += receipt.length;
        }
    }

    /// Bytes a second since it began, or went on; `None` before the first range is done.
    pub fn pace(&self) -> Option<f64> {
        let seconds = self.now.saturating_sub(self.since).as_secs_f64();
        let done = self.done.saturating_sub(self.before);
        (done > 0 && seconds > 0.0).then(|| done as f64 / seconds)
    }

    /// The time that it needs from now on at that pace.
    pub fn left(&self) -> Option<f64> {
        Some((self.total - self.done) as f64 / self.pace()?)
    }
}

/// What a run has come to, in a sentence.
pub fn sentence(summary: &Summary) -> String {
    use fragmend_report::{Unit, human};
    let bytes = human(summary.moved_bytes as f64, Unit::Bytes);
    let stopped = if summary.interrupted { "stopped before the end: " } else { "" };
    let (moved, left) = (summary.ranges_moved, summary.ranges_skipped);
    let (before, after) = (summary.extents_before, summary.extents_after);
    let mut text =
        format!("{stopped}moved {bytes} in {moved} ranges, {before} fragments to {after}");
    if left > 0 {
        let first = summary.skipped.iter().max_by_key(|skipped| skipped.ranges);
        let why = first.map_or(String::new(), |first| match &*first.detail {
            "" => format!(" ({})", first.reason),
            detail => format!(" ({}: {detail})", first.reason),
        });
        text.push_str(&format!("; {left} left alone{why}"));
    }
    if summary.failed() {
        text.push_str("; something failed: see fragmend apply");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_apply::Receipt;
    use fragmend_plan::PlannedRange;

    pub fn receipt(offset: u64, length: u64, outcome: Outcome) -> Receipt {
        let range = PlannedRange {
            offset,
            length,
            extents: 8,
            seen: 1,
            requests_before: 8,
            requests_after: 1,
            seconds_saved: 0.1,
            space_cost_bytes: 0,
            slow_at: None,
            reason: String::new(),
        };
        Receipt::blank(std::path::Path::new("/mnt/f").into(), &range, outcome, Some(8))
    }

    #[test]
    fn pace_is_of_what_was_done_since_it_went_on() {
        let mut progress = Progress::default();
        let second = Duration::from_secs;
        progress.begin(second(10), 1000);
        assert_eq!((progress.pace(), progress.left()), (None, None));
        progress.note(&Event::Range(receipt(0, 200, Outcome::Moved)), second(12));
        assert_eq!((progress.pace(), progress.left()), (Some(100.0), Some(8.0)));
        // Paused for long; then what has moved is found contiguous.
        progress.begin(second(100), 1000);
        let mut again = receipt(0, 200, Outcome::Skipped);
        again.reason = Some(SkipReason::AlreadyContiguous);
        progress.note(&Event::Range(again), second(100));
        assert_eq!((progress.done, progress.moved, progress.pace()), (200, 200, None));
        progress.note(&Event::Range(receipt(200, 400, Outcome::Moved)), second(102));
        assert_eq!((progress.pace(), progress.left()), (Some(200.0), Some(2.0)));
        // A receipt too many does not make it more than all.
        progress.note(&Event::Range(receipt(200, 4000, Outcome::Moved)), second(103));
        assert_eq!(progress.left(), Some(0.0));
    }
}
