//! The metadata of a trace: how, when and how completely it was recorded.
//!
//! It is stored as one JSON value under [`KEY`] in the Parquet footer's key-value metadata, and described for
//! other readers in `docs/trace-format.md`. Nothing in it identifies the machine.

use crate::sampling::{Overhead, Sampling};
use fragmend_layout::ObservedLoad;
pub use fragmend_layout::schema::TRACE_FILE as SCHEMA_VERSION;
use serde::{Deserialize, Serialize};

/// Key of the metadata in the Parquet footer; a Parquet file without it is not a trace.
pub const KEY: &str = "fragmend.trace";

/// The level at which accesses were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Reads, writes and faults as programs request them.
    Syscall,
    /// What the page cache read from the device, and direct I/O.
    Miss,
    /// Both, side by side; direct I/O once.
    #[default]
    Both,
}

impl Level {
    /// The name in the metadata, in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
            Self::Miss => "miss",
            Self::Both => "both",
        }
    }

    /// Whether what programs ask for through the page cache is recorded.
    pub fn has_requests(self) -> bool {
        self != Self::Miss
    }

    /// Whether what missed the page cache is recorded.
    pub fn has_misses(self) -> bool {
        self != Self::Syscall
    }
}

/// Whether what missed the page cache is in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misses {
    /// It is; what is not was read from the page cache.
    Recorded,
    /// It is not: what reached the device has to be derived from what programs asked for.
    NotRecorded,
    /// The trace is older than this field: its level decides.
    #[default]
    ByLevel,
}

/// Readahead of one traced file system's device at the time of recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMeta {
    /// Device number as in the column `device`.
    pub device: u64,
    /// Where it was mounted; for display only.
    pub mount: String,
    /// Readahead window in bytes; `None` where the file system has no block device of its own.
    pub readahead_bytes: Option<u64>,
    /// Device numbers of the disks below it, as in [`Meta::loads`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<u64>,
}

/// Size and checksum of a trace's data: the bytes from the start of the file to the footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSum {
    /// Number of bytes.
    pub bytes: u64,
    /// CRC-32C (Castagnoli) of these bytes.
    pub crc32c: u32,
}

/// How a trace was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Wall clock at the start, nanoseconds since 1970 UTC; `time_ns` counts from here.
    pub started_unix_ns: u64,
    /// Length of the recording in nanoseconds.
    pub duration_ns: u64,
    /// The level of the recording: what this kernel could record of what was asked for.
    pub level: Level,
    /// Whether what missed the page cache was recorded. See [`Meta::has_misses`].
    #[serde(default)]
    pub misses: Misses,
    /// Whether the kernel folded accesses into counts.
    pub folded: bool,
    /// Accesses that are not in the trace: the buffer or the table of ranges was full, the kernel skipped a
    /// run of the recorder (which counts as one access), or a request could not be read.
    pub lost: u64,
    /// Accesses seen but not stored, because their offset is impossible or cannot be known: a file position
    /// that was moved meanwhile, an append that failed after submission.
    #[serde(default)]
    pub dropped: u64,
    /// Accesses to files of which it is not known whether they are below one of `paths`: they have too many
    /// parent directories, the kernel has not cached which ones, or another thread closed them during the call.
    #[serde(default)]
    pub unplaced: u64,
    /// Accesses of a folded trace for which the table had no space, and which were counted with their whole
    /// aligned 128 KiB.
    #[serde(default)]
    pub coarsened: u64,
    /// System calls of 32-bit programs, whose arguments are not decoded.
    pub unseen_compat: u64,
    /// Splices of io_uring out of files that were unknown, or no longer open, when the splice completed.
    #[serde(default)]
    pub unseen_splices: u64,
    /// Requests of io_uring to read, write or splice for which the program wanted no completion, on
    /// watched files or on registered ones; and completions that found their ring full, of rings
    /// that were used for watched file systems. The kernel does not report either when they end.
    #[serde(default)]
    pub unseen_uring: u64,
    /// Files in the trace whose path was not found; they are known by their identity alone.
    #[serde(default)]
    pub files_without_path: u64,
    /// Of these, files whose path was not looked up, because look-ups may use only a share of the
    /// recorder's time.
    #[serde(default)]
    pub files_not_looked_up: u64,
    /// Sources of events that the running kernel lacks, each named as a person would.
    #[serde(default)]
    pub unseen_sources: Vec<String>,
    /// The paths that were watched, escaped as in the column `path`.
    pub paths: Vec<String>,
    /// Their file systems.
    pub devices: Vec<DeviceMeta>,
    /// How the recording was thinned out; `None` if everything was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// What the recording cost; `None` if that was not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// What the disks below the file systems answered; empty if the kernel does not show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<ObservedLoad>,
    /// Requests of disks that are not in `loads`, because the table of requests in flight was full.
    #[serde(default)]
    pub loads_lost: u64,
    /// The size and checksum against which the reader verifies the data. The writer fills it in; `None`
    /// before the trace is written, and in older traces, which are read unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataSum>,
}

impl Meta {
    /// The metadata of a complete, empty recording that starts at the given wall-clock time.
    pub fn new(level: Level, started_unix_ns: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            started_unix_ns,
            duration_ns: 0,
            level,
            misses: if level.has_misses() { Misses::Recorded } else { Misses::NotRecorded },
            folded: false,
            lost: 0,
            dropped: 0,
            unplaced: 0,
            coarsened: 0,
            unseen_compat: 0,
            unseen_splices: 0,
            unseen_uring: 0,
            files_without_path: 0,
            files_not_looked_up: 0,
            unseen_sources: Vec::new(),
            paths: Vec::new(),
            devices: Vec::new(),
            sampling: None,
            overhead: None,
            loads: Vec::new(),
            loads_lost: 0,
            data: None,
        }
    }

    /// Whether what missed the page cache was recorded.
    pub fn has_misses(&self) -> bool {
        match self.misses {
            Misses::Recorded => true,
            Misses::NotRecorded => false,
            Misses::ByLevel => self.level.has_misses(),
        }
    }
}
