//! Counters and gauges in base units, of the process and of the last 24 hours. No file, no path, no program is in them.

use schemars::JsonSchema;
use serde::Serialize;

/// What the daemon is doing and has done. Counters begin with the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// Recordings that have ended.
    pub recordings: u64,
    /// Recordings, surveys and moves that failed.
    pub failures: u64,
    /// Accesses that were seen.
    pub accesses: u64,
    /// Accesses that were lost.
    pub accesses_lost: u64,
    /// Plans that were made.
    pub plans: u64,
    /// Batches that were moved.
    pub moves: u64,
    /// Ranges that are in fewer fragments since.
    pub ranges_moved: u64,
    /// Bytes that were written by moves.
    #[schemars(extend("x-unit" = "bytes"))]
    pub written_bytes: u64,
    /// Files that were found fragmented again after they were mended.
    pub recurrences: u64,
    /// Times that a changed policy was refused, and the one before was kept.
    pub policies_refused: u64,
    /// Gauge: batches that wait.
    pub queued_batches: u64,
    /// Gauge: bytes of their ranges.
    #[schemars(extend("x-unit" = "bytes"))]
    pub queued_bytes: u64,
    /// Gauge: seconds that the latest plan would save in one replay of its recording, moved or advised.
    #[schemars(extend("x-unit" = "seconds"))]
    pub planned_seconds_saved: f64,
    /// Gauge: bytes that may be written in any 24 hours; absent if that depends on a rating that is not known, or nothing
    /// may move.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Gauge: bytes of that which are left.
    #[schemars(extend("x-unit" = "bytes"))]
    pub budget_left_bytes: u64,
}
