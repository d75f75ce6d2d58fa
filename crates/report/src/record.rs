//! The document of `fragmend record`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The document of `fragmend record --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordReport {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Always `record`.
    pub command: String,
    /// The trace file, as it was named on the command line.
    pub trace: String,
    /// `syscall` or `miss`.
    pub level: String,
    /// The figures.
    pub totals: RecordTotals,
    /// Accesses by operation.
    pub operations: Vec<RecordOperation>,
    /// Sources of accesses that the running kernel does not report.
    pub unseen_sources: Vec<String>,
}

/// The figures of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordTotals {
    /// Length of the recording.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds: f64,
    /// Accesses that passed the filters, lost ones included.
    pub accesses: u64,
    /// Rows in the trace: accesses, or distinct ranges of a folded recording.
    pub rows: u64,
    /// Different files; of more than 4,000,000, some may be counted more than once.
    pub files: u64,
    /// Bytes read through system calls and io_uring.
    #[schemars(extend("x-unit" = "bytes"))]
    pub read_bytes: u64,
    /// Bytes written through system calls and io_uring.
    #[schemars(extend("x-unit" = "bytes"))]
    pub written_bytes: u64,
    /// Bytes mapped by page faults.
    #[schemars(extend("x-unit" = "bytes"))]
    pub faulted_bytes: u64,
    /// Bytes read into the page cache (miss level).
    #[schemars(extend("x-unit" = "bytes"))]
    pub missed_bytes: u64,
    /// Accesses that are not in the trace: the buffer or the table of ranges was full, the kernel skipped a
    /// run of the recorder, or a request could not be read.
    pub lost: u64,
    /// Accesses seen but not stored, because their offset is impossible or cannot be known.
    pub dropped: u64,
    /// Accesses to files of which it is not known whether they are below the paths.
    pub unplaced: u64,
    /// Accesses of a folded recording that were counted in aligned ranges of 128 KiB.
    pub coarsened: u64,
    /// Calls of 32-bit programs, whose arguments are not decoded.
    pub unseen_compat: u64,
    /// Splices of io_uring whose file is unknown.
    pub unseen_splices: u64,
    /// Requests of io_uring whose completion the kernel does not report.
    #[serde(default)]
    pub unseen_uring: u64,
    /// Files in the trace whose path was not found.
    pub files_without_path: u64,
    /// Of these, files whose path was not looked up, for want of time.
    #[serde(default)]
    pub files_not_looked_up: u64,
    /// Size of the trace file.
    #[schemars(extend("x-unit" = "bytes"))]
    pub trace_bytes: u64,
}

/// The accesses of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordOperation {
    /// `read`, `write`, `fault` or `miss`.
    pub op: String,
    /// Number of accesses.
    pub accesses: u64,
    /// Bytes transferred.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
}
