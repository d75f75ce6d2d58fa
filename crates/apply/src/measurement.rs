//! Prediction and measurement side by side, as `auto` reports them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was predicted and what was measured, of the same reads, before and after the ranges were moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// How it was measured.
    pub method: Method,
    /// What was predicted for these reads before anything moved; of a service that was watched again, for all that was
    /// recorded, and for what the recording stands for besides. Afterwards: once the ranges are contiguous that were moved.
    pub predicted: Option<Times>,
    /// Ranges for which that is: those that were moved; all of the plan if none was.
    #[serde(default)]
    pub predicted_ranges: u64,
    /// Ranges of the plan.
    #[serde(default)]
    pub planned_ranges: u64,
    /// Whether what is predicted for before anything moved was fitted to these reads, which were timed for the plan: then it is no
    /// prediction of their present time.
    #[serde(default)]
    pub fitted: bool,
    /// What was measured, if it was.
    pub measured: Option<Times>,
    /// Why not.
    pub not_measured: Option<NotMeasured>,
    /// What was measured as saved, as a share of what was predicted. Absent where nothing was predicted to be saved, nothing
    /// was measured, or `no_verdict` says why.
    #[schemars(extend("x-unit" = "share"))]
    #[serde(default)]
    pub saved_of_predicted: Option<f64>,
    /// Why what was measured does not say how much of the prediction has come true.
    #[serde(default)]
    pub no_verdict: Option<NoVerdict>,
    /// Either reason in words; empty if there is none.
    #[serde(default)]
    pub detail: String,
    /// Whose clock measured.
    pub clock: Option<MeasuredBy>,
    /// How far the rounds of one layout are apart, as a share of their median: the larger of both layouts. `None` of
    /// a service that was watched again, which is one round.
    pub noise: Option<f64>,
    /// Times that the reads were replayed on each layout.
    pub rounds: u32,
    /// Reads of one round.
    pub reads: u64,
    /// Bytes that a round reads; of a service that was watched again, that the device read while it was recorded.
    pub read_bytes: u64,
    /// Reads of the device that were recorded, of which these are a sample.
    pub recorded_reads: u64,
    /// Reads in flight at a time.
    pub in_flight: f64,
    /// Bytes that the device read while the service was watched again; its time is scaled to the bytes that were read
    /// while it was recorded.
    #[serde(default)]
    pub read_bytes_again: Option<u64>,
}

/// Time of the device for the same reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// Before anything moved.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds_before: f64,
    /// Afterwards.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds_after: f64,
    /// What that saves.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds_saved: f64,
}

impl Times {
    /// Of these two.
    pub fn new(seconds_before: f64, seconds_after: f64) -> Self {
        Self { seconds_before, seconds_after, seconds_saved: seconds_before - seconds_after }
    }
}

/// How it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// A sample of the recorded reads was replayed past the page cache, before and after.
    Replayed,
    /// The service was watched again, for as long as it was recorded.
    WatchedAgain,
}

/// Whose clock measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredBy {
    /// That on the wall.
    Wall,
    /// The virtual time of a served drive of the lab.
    Served,
}

/// Why nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotMeasured {
    /// No range moved, so there is nothing to compare.
    NothingMoved,
    /// No recorded read can be repeated past the page cache.
    NothingToRead,
    /// The file system, or the kernel, refuses reads past the page cache.
    Refused,
    /// The rounds differ by more than what was to be measured.
    Unclear,
    /// The run was stopped.
    Interrupted,
    /// A read failed, or a file has changed meanwhile.
    Failed,
    /// The two layouts were measured by different clocks.
    ClocksDiffer,
    /// The service that was watched again read less than half of what it had read before, or more than twice as much as it would
    /// if it is as much quicker as predicted, or wrote another share: its time cannot be scaled.
    LoadDiffers,
    /// Of what the device read and wrote while the service was watched, too much was not the service's.
    OtherPrograms,
}

/// Why there are measured times, and no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoVerdict {
    /// The rounds of both layouts differ by more than what was measured as saved, and by more than a tenth of what was
    /// predicted.
    Noise,
    /// Other programs used the device while the reads were replayed.
    OtherPrograms,
}
