//! Counters and gauges in base units, of the process and of the last 24 hours. No file, no path, no program is in them.

use schemars::JsonSchema;
use serde::Serialize;

/// What the daemon is doing and has done. What has the kind `counter` begins with the process and only grows; the rest are gauges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// Recordings that have ended.
    #[schemars(extend("x-kind" = "counter"))]
    pub recordings: u64,
    /// Recordings, surveys and moves that failed.
    #[schemars(extend("x-kind" = "counter"))]
    pub failures: u64,
    /// Accesses that were seen.
    #[schemars(extend("x-kind" = "counter"))]
    pub accesses: u64,
    /// Accesses that were lost.
    #[schemars(extend("x-kind" = "counter"))]
    pub accesses_lost: u64,
    /// Plans that were made.
    #[schemars(extend("x-kind" = "counter"))]
    pub plans: u64,
    /// Batches that were moved.
    #[schemars(extend("x-kind" = "counter"))]
    pub moves: u64,
    /// Ranges that are in fewer fragments since.
    #[schemars(extend("x-kind" = "counter"))]
    pub ranges_moved: u64,
    /// Bytes that were written by moves; metadata counts as the most that it can be.
    #[schemars(extend("x-unit" = "bytes", "x-kind" = "counter"))]
    pub written_bytes: u64,
    /// Files that were found fragmented again after they were mended.
    #[schemars(extend("x-kind" = "counter"))]
    pub recurrences: u64,
    /// Times that a changed policy was refused, and the one before was kept.
    #[schemars(extend("x-kind" = "counter"))]
    pub policies_refused: u64,
    /// Batches that wait.
    pub queued_batches: u64,
    /// Bytes of their ranges.
    #[schemars(extend("x-unit" = "bytes"))]
    pub queued_bytes: u64,
    /// Seconds that the latest plan would save in one replay of its recording, moved or advised.
    #[schemars(extend("x-unit" = "seconds"))]
    pub planned_saved_seconds: f64,
    /// Bytes that may be written in any 24 hours; absent if that depends on a rating that is not known, or nothing
    /// may move.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Bytes of that which are left.
    #[schemars(extend("x-unit" = "bytes"))]
    pub budget_left_bytes: u64,
}
