//! What was done, as it is reported: events while the run goes on, a receipt per range, a summary.

use crate::measurement::Measurement;
use fragmend_layout::{PathText, SkipReason};
use fragmend_plan::PlannedRange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most files that a summary lists: a plan may have millions.
const MOST_LISTED: usize = 10_000;

/// One line of `apply --json`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// What is about to be done.
    Start(Start),
    /// One range, done or left alone. What could not be made durable is reported once more: the later one
    /// counts.
    Range(Receipt),
    /// The end, always the last line.
    Summary(Summary),
}

/// Receives the events of a run.
pub trait Listener {
    /// Takes an event, without waiting.
    fn tell(&mut self, event: Event);

    /// Waits until all events have been delivered, at most `within`, or for as long as that needs; a listener
    /// may give up when the run is stopped. Returns whether all were delivered, or given up.
    fn catch_up(&mut self, within: Option<Duration>) -> bool;
}

impl<F: FnMut(Event)> Listener for F {
    fn tell(&mut self, event: Event) {
        self(event);
    }

    fn catch_up(&mut self, _: Option<Duration>) -> bool {
        true
    }
}

/// What a plan asks for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// Version of these events.
    pub schema_version: u32,
    /// Bytes in all ranges of the plan.
    pub bytes_to_move: u64,
    /// Ranges in the plan.
    pub ranges: u64,
    /// Files in the plan.
    pub files: u64,
}

/// How a range ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was moved, and is in fewer fragments; or in as many, where it was to be written anew.
    Moved,
    /// It was left as it was, or put back; or it moved, and that could not be made durable, or its
    /// present layout cannot be read: both with their reason.
    Skipped,
    /// It was to be moved, but for `--dry-run`.
    WouldMove,
    /// Stopped in the middle; what has moved is safe, and applying the plan again goes on.
    Interrupted,
}

/// One range: as it was, as it is, and what that cost. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// Which file.
    #[serde(flatten)]
    pub path: PathText,
    /// First byte of the range.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The number of fragments before, from the layout that the kernel reported; absent where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents_before: Option<u64>,
    /// The number of fragments after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents_after: Option<u64>,
    /// Bytes exchanged.
    pub moved_bytes: u64,
    /// The interface that moved them, as its header or manual names it (`EXT4_IOC_MOVE_EXT`), or several
    /// with commas between, the first one first; absent if nothing moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primitive: Option<String>,
    /// Why it was not the one that this file system has for it, where another one stood in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Bytes of space that it occupies, or would occupy, for good: others keep what it shared with them.
    /// Or it is stored in more bytes now, compressed less than it was.
    #[serde(default)]
    pub space_cost_bytes: u64,
    /// How long it lasted, pauses included.
    pub seconds: f64,
    /// Longest time that one step locked the file, in seconds.
    pub longest_step_seconds: f64,
    /// Of a range that was moved: not all of it was, and `detail` says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_part: bool,
    /// Why it was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SkipReason>,
    /// The reason in words; of a range that was moved, why not all of it, or what else there is to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The ranges of one file that were left alone for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Which file.
    #[serde(flatten)]
    pub path: PathText,
    /// Why.
    pub reason: SkipReason,
    /// In words.
    pub detail: String,
    /// How many ranges.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Segments without a valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FreeSegments {
    /// Before anything moved.
    pub before: u64,
    /// At the end, with what other programs have written meanwhile.
    pub after: u64,
}

/// What was moved while other programs read from the same device, by how they are let go first (`--pace auto`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BesideReaders {
    /// While others read: by short requests, one or two in flight, without pauses.
    #[schemars(extend("x-unit" = "bytes"))]
    pub moved_gently_bytes: u64,
    /// While others read: by short steps with a pause after each: the engine has no other way, or the device is slow.
    #[schemars(extend("x-unit" = "bytes"))]
    pub moved_with_pauses_bytes: u64,
}

impl std::ops::AddAssign for BesideReaders {
    fn add_assign(&mut self, other: Self) {
        self.moved_gently_bytes += other.moved_gently_bytes;
        self.moved_with_pauses_bytes += other.moved_with_pauses_bytes;
    }
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Version of these events.
    pub schema_version: u32,
    /// Bytes exchanged, undone moves included.
    #[schemars(extend("x-unit" = "bytes"))]
    pub moved_bytes: u64,
    /// The same, by the interface that moved them.
    #[serde(default)]
    pub moved_by_primitive: BTreeMap<String, u64>,
    /// Ranges that another interface moved than the one that their file system has for it.
    #[serde(default)]
    pub ranges_by_fallback: u64,
    /// Bytes that the kernel charged to this process as written (`/proc/self/io`).
    #[schemars(extend("x-unit" = "bytes"))]
    pub written_bytes: u64,
    /// Bytes that the kernel charged to this process as read.
    #[schemars(extend("x-unit" = "bytes"))]
    pub read_bytes: u64,
    /// Space occupied for good, because others keep what was shared with them; what it would be, if
    /// nothing was to be moved.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(default)]
    pub space_cost_bytes: u64,
    /// Ranges that are in fewer fragments now.
    pub ranges_moved: u64,
    /// Ranges left alone.
    pub ranges_skipped: u64,
    /// Ranges that were not reached.
    pub ranges_left: u64,
    /// The number of fragments of the moved ranges before.
    pub extents_before: u64,
    /// The number of fragments of the moved ranges after.
    pub extents_after: u64,
    /// Free segments of the log-structured file systems, where they report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_segments: Option<Box<FreeSegments>>,
    /// How long all of it lasted.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds: f64,
    /// Time spent waiting, to keep the pace or to let others go first.
    #[schemars(extend("x-unit" = "seconds"))]
    pub paused_seconds: f64,
    /// What was moved while others read, and how.
    #[serde(flatten)]
    pub beside_readers: BesideReaders,
    /// Longest time that one step locked a file against its writers.
    #[schemars(extend("x-unit" = "seconds"))]
    pub longest_step_seconds: f64,
    /// Whether it was stopped before the end.
    pub interrupted: bool,
    /// Whether nothing was to be moved (`--dry-run`).
    pub dry_run: bool,
    /// Ranges left alone, by reason.
    pub skipped_by_reason: BTreeMap<SkipReason, u64>,
    /// What was left alone, by file and reason: the first 10,000; each range has a receipt besides.
    pub skipped: Vec<Skipped>,
    /// Prediction and measurement side by side; of `auto` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
}

impl Receipt {
    /// For a range with nothing done yet.
    pub fn blank(
        path: PathText,
        range: &PlannedRange,
        outcome: Outcome,
        fragments: Option<u64>,
    ) -> Self {
        Self {
            path,
            offset: range.offset,
            length: range.length,
            outcome,
            extents_before: fragments,
            extents_after: None,
            moved_bytes: 0,
            primitive: None,
            fallback: None,
            space_cost_bytes: 0,
            seconds: 0.0,
            longest_step_seconds: 0.0,
            in_part: false,
            reason: None,
            detail: None,
        }
    }
}

impl Summary {
    /// Counts how a range ended.
    pub(crate) fn end(&mut self, receipt: &Receipt) {
        match receipt.outcome {
            Outcome::Moved => {
                self.ranges_moved += 1;
                self.extents_before += receipt.extents_before.unwrap_or(0);
                self.extents_after += receipt.extents_after.unwrap_or(0);
                self.space_cost_bytes += receipt.space_cost_bytes;
            }
            Outcome::Interrupted => self.ranges_left += 1,
            Outcome::Skipped | Outcome::WouldMove => self.skip(receipt),
        }
    }

    fn skip(&mut self, receipt: &Receipt) {
        let Some(reason) = receipt.reason else { return };
        self.ranges_skipped += 1;
        self.leave(&receipt.path, reason, receipt.detail.as_deref(), 1, receipt.length);
    }

    /// Adds ranges of a file that were left alone for a reason. The files must come one after the other.
    pub(crate) fn leave(
        &mut self,
        path: &PathText,
        reason: SkipReason,
        detail: Option<&str>,
        ranges: u64,
        bytes: u64,
    ) {
        *self.skipped_by_reason.entry(reason).or_default() += ranges;
        let of_file = self.skipped.iter_mut().rev().take_while(|s| s.path == *path);
        if let Some(known) = of_file.into_iter().find(|s| s.reason == reason) {
            known.ranges += ranges;
            known.bytes += bytes;
        } else if self.skipped.len() < MOST_LISTED {
            let (path, detail) = (path.clone(), detail.unwrap_or_default().to_owned());
            self.skipped.push(Skipped { path, reason, detail, ranges, bytes });
        }
    }

    /// Whether anything failed that should have worked: I/O errors, not circumstances.
    pub fn failed(&self) -> bool {
        let failures = [SkipReason::Failed, SkipReason::NeedsRecovery];
        failures.iter().any(|reason| self.skipped_by_reason.contains_key(reason))
    }

    /// Whether something that could be better was left as it is.
    pub fn improvable(&self) -> bool {
        self.extents_after > self.ranges_moved
            || self.skipped_by_reason.keys().any(|r| *r != SkipReason::AlreadyContiguous)
    }
}
