//! The document of `fragmend record`.

use fragmend_layout::{ObservedLoad, ObservedRequests};
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
    /// `both`, `syscall` or `miss`: what was recorded, which on a kernel that does not show misses is `syscall` where
    /// `both` was asked for.
    pub level: String,
    /// Whether what missed the page cache is in the trace: `recorded` or `not recorded`.
    #[serde(default)]
    pub misses: String,
    /// The figures.
    pub totals: RecordTotals,
    /// Accesses by operation.
    pub operations: Vec<RecordOperation>,
    /// Sources of accesses that the running kernel does not report.
    pub unseen_sources: Vec<String>,
    /// What the disks below the file systems answered.
    #[serde(default)]
    pub loads: Vec<RecordLoad>,
    /// How the recording was thinned out and what it cost; `null` if it might cost anything.
    #[serde(default)]
    pub budget: Option<RecordBudget>,
}

/// What a recording might cost, what it cost, and what was left out for that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordBudget {
    /// The most that the recording was to cost, as a share of the machine's processor time.
    #[schemars(extend("x-unit" = "share"))]
    pub limit_share: f64,
    /// What it cost, as far as it can be measured.
    #[schemars(extend("x-unit" = "share"))]
    pub used_share: f64,
    /// The share of the time in which it was watched what programs ask for through the page cache; the counts in the
    /// trace stand for the rest, too.
    #[schemars(extend("x-unit" = "share"))]
    pub watched_share: f64,
    /// The share of the places in which misses and direct I/O were recorded, on average; the counts stand for the rest.
    #[schemars(extend("x-unit" = "share"))]
    pub places_share: f64,
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
    /// Bytes read into the page cache.
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
    /// Requests of disks that are not in the histogram of what they answered, for want of space.
    #[serde(default)]
    pub loads_lost: u64,
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

/// What one disk answered, whoever asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordLoad {
    /// Its name in the kernel.
    pub disk: String,
    /// Read requests that were completed.
    pub reads: u64,
    /// Bytes that they read.
    #[schemars(extend("x-unit" = "bytes"))]
    pub read_bytes: u64,
    /// Their mean time from issue to completion.
    #[schemars(extend("x-unit" = "seconds"))]
    pub read_seconds: f64,
    /// How many requests were in flight when one of them was issued, itself included, on average.
    pub read_in_flight: f64,
    /// Write requests that were completed.
    pub writes: u64,
    /// Bytes that they wrote.
    #[schemars(extend("x-unit" = "bytes"))]
    pub written_bytes: u64,
    /// Their mean time from issue to completion.
    #[schemars(extend("x-unit" = "seconds"))]
    pub write_seconds: f64,
    /// Bursts of reads: those that one thread issued one after the other without a completion between them.
    pub read_bursts: u64,
}

impl RecordLoad {
    /// The figures of a load.
    pub fn of(load: &ObservedLoad) -> Self {
        let sum = |write: bool, field: fn(&ObservedRequests) -> u64| -> u64 {
            load.requests
                .iter()
                .filter(|r| r.write == write)
                .map(field)
                .fold(0, u64::saturating_add)
        };
        let mean = |write, field| sum(write, field) as f64 / sum(write, |r| r.count).max(1) as f64;
        Self {
            disk: load.name.clone(),
            reads: sum(false, |r| r.count),
            read_bytes: sum(false, |r| r.bytes),
            read_seconds: mean(false, |r| r.total_ns) / 1e9,
            read_in_flight: mean(false, |r| r.in_flight),
            writes: sum(true, |r| r.count),
            written_bytes: sum(true, |r| r.bytes),
            write_seconds: mean(true, |r| r.total_ns) / 1e9,
            read_bursts: load.read_bursts,
        }
    }
}
