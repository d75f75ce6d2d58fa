//! The document of `fragmend scan`: a structure for one file, one for all files, and one for the whole
//! document.
//!
//! The subcommand writes [`ScanReport`] as a stream, file by file, because there may be millions of files;
//! the structure here describes the whole stream, and its schema is generated from it.

use fragmend_known::Known;
use fragmend_layout::{Measures, PathText, ScannedLayout, SkipReason, SpaceRun};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The document of `fragmend scan --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScanReport {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Always `scan`.
    pub command: String,
    /// Every file that was measured, in order of file system and inode number.
    pub files: Vec<ScanFile>,
    /// All files together.
    pub totals: ScanTotals,
    /// Fragments by length: powers of two.
    pub frag_size_distribution: Vec<Step>,
    /// Fragments by their distance from the one before in the same run: powers of two.
    pub frag_distance_distribution: Vec<Step>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
    /// The free space of each file system that files were measured on, with `--free` or `--layouts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<ScanSpace>,
    /// The paths of the command line that could not be scanned at all, and why.
    pub errors: Vec<String>,
}

/// One file's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScanFile {
    /// The path of the file, at or below one of the command line.
    #[serde(flatten)]
    pub path: PathText,
    /// Present where the path is longer than 16 KiB: `path` is its two ends then, and how many bytes are
    /// missing between them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_shortened: bool,
    /// Its figures.
    #[serde(flatten)]
    pub figures: ScanFigures,
    /// What it is to its program, where that is known; looked for where a file has more extents than necessary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// Where its data is, with `--layouts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<ScannedLayout>,
}

/// The figures of one file, and of all files together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScanFigures {
    /// Size of the file, or the sum of all sizes.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// Extents of data; physically adjacent ones count as one, up to the largest extent of the file system,
    /// which for compressed data is 128 KiB of a file.
    pub extents: u64,
    /// The fewest extents that could hold the same data.
    pub ideal_extents: u64,
    /// Degree of fragmentation: extents over the fewest possible.
    #[schemars(extend("x-unit" = "ratio"))]
    pub dof: f64,
    /// Device requests to read everything once, sequentially, at the device's readahead.
    pub requests_now: u64,
    /// The same if every run of data were contiguous.
    pub requests_best: u64,
    /// Median length of a fragment; in totals to six significant bits.
    #[schemars(extend("x-unit" = "bytes"))]
    pub median_frag_size_bytes: u64,
    /// Median distance on the device from a fragment to the next one of the same run; in totals to
    /// six significant bits.
    #[schemars(extend("x-unit" = "bytes"))]
    pub median_frag_distance_bytes: u64,
    /// Bytes of data that have an address on the device.
    #[schemars(extend("x-unit" = "bytes"))]
    pub data_bytes: u64,
    /// Bytes allocated and never written.
    #[schemars(extend("x-unit" = "bytes"))]
    pub unwritten_bytes: u64,
    /// Bytes shared with other files.
    #[schemars(extend("x-unit" = "bytes"))]
    pub shared_bytes: u64,
    /// Bytes stored encoded: compressed or encrypted.
    #[schemars(extend("x-unit" = "bytes"))]
    pub encoded_bytes: u64,
    /// Bytes stored in the inode.
    #[schemars(extend("x-unit" = "bytes"))]
    pub inline_bytes: u64,
}

impl ScanFigures {
    /// The figures of `bytes` of files with these measures.
    pub fn new(bytes: u64, m: &Measures) -> Self {
        Self {
            bytes,
            extents: m.extents,
            ideal_extents: m.ideal_extents,
            dof: m.dof(),
            requests_now: m.requests_now,
            requests_best: m.requests_best,
            median_frag_size_bytes: m.median_frag_size,
            median_frag_distance_bytes: m.median_frag_distance,
            data_bytes: m.data_bytes,
            unwritten_bytes: m.unwritten_bytes,
            shared_bytes: m.shared_bytes,
            encoded_bytes: m.encoded_bytes,
            inline_bytes: m.inline_bytes,
        }
    }
}

/// Below this share of the requests saved, mending everything is hardly noticed: 1 %.
pub const NEGLIGIBLE: f64 = 0.01;

/// All files together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScanTotals {
    /// Files measured, hard links once.
    pub files: u64,
    /// Files with more extents than necessary.
    pub fragmented_files: u64,
    /// Their figures.
    #[serde(flatten)]
    pub figures: ScanFigures,
    /// Further names of files that are counted once: hard links, overlapping paths.
    pub further_names: u64,
    /// Files and directories left out.
    pub skipped: u64,
}

impl ScanTotals {
    /// The share of the requests that one sequential read of everything would need less if all runs were contiguous.
    pub fn saved_share(&self) -> f64 {
        let ScanFigures { requests_now, requests_best, .. } = self.figures;
        requests_now.saturating_sub(requests_best) as f64 / requests_now.max(1) as f64
    }
}

/// A step of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Lowest value of the step; the step ends below twice that.
    #[schemars(extend("x-unit" = "bytes"))]
    pub from_bytes: u64,
    /// Number of fragments.
    pub count: u64,
}

/// A file or directory that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The path.
    #[serde(flatten)]
    pub path: PathText,
    /// As with files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_shortened: bool,
    /// Why.
    pub reason: String,
    /// The reason's code, from the set that receipts of `apply` use too.
    pub code: SkipReason,
}

/// The space of one file system: its figures, or why they are not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScanSpace {
    /// Where it is mounted.
    #[serde(flatten)]
    pub path: PathText,
    /// Its type, as the kernel names it.
    pub file_system: String,
    /// Its number, as `layout.device` of its files.
    pub device: u64,
    /// Further numbers of the same file system: subvolumes of a Btrfs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_devices: Vec<u64>,
    /// Why its space is not known. All that follows is missing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Option<SpaceFigures>,
    /// Free runs by their length: powers of two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_run_distribution: Vec<RunStep>,
    /// With `--layouts`: which addresses are free and which hold metadata, in the order of addresses, disjoint. Addresses
    /// are those of `layout.extents[].physical`. Missing where there are more than 4,194,304 runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<SpaceRun>>,
}

/// The figures of a file system's space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceFigures {
    /// One past the last address that the file system can allocate.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// What can be allocated at once.
    #[schemars(extend("x-unit" = "bytes"))]
    pub block_bytes: u64,
    /// Free space that has addresses, what the file system keeps for itself included.
    #[schemars(extend("x-unit" = "bytes"))]
    pub free_bytes: u64,
    /// Runs of free space.
    pub free_runs: u64,
    /// The longest of them.
    #[schemars(extend("x-unit" = "bytes"))]
    pub longest_free_run_bytes: u64,
    /// Free space in runs of at least 1 MiB.
    #[schemars(extend("x-unit" = "bytes"))]
    pub free_bytes_in_long_runs: u64,
    /// Metadata that is known as such; on Btrfs all block groups for metadata.
    #[schemars(extend("x-unit" = "bytes"))]
    pub metadata_bytes: u64,
    /// Bytes of devices that have no address yet, as they are in no block group (Btrfs).
    #[schemars(extend("x-unit" = "bytes"))]
    pub unallocated_bytes: u64,
}

/// A step of the distribution of free runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunStep {
    /// Lowest length of the step; the step ends below twice that.
    #[schemars(extend("x-unit" = "bytes"))]
    pub from_bytes: u64,
    /// Number of runs.
    pub runs: u64,
    /// Bytes in them.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
}
