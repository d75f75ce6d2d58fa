//! The address space of a file system: which parts of it are free, which hold its own metadata.
//!
//! Addresses are those of [`Extent::physical`](crate::Extent::physical): bytes of the device, on Btrfs of its logical
//! address space. What is in no run holds data of files, or something of which the file system does not report what
//! it is; on Btrfs it may also be an address behind which there is no device any more.

use crate::{ByteRange, Log2Histogram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The space of one file system at one instant. Others may have allocated or freed some of it since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// Number of the file system (`st_dev`): addresses of different ones are not comparable.
    pub device: u64,
    /// One past the last address that the file system can allocate.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// What can be allocated at once, in bytes.
    #[schemars(extend("x-unit" = "bytes"))]
    pub block_bytes: u64,
    /// Runs in the order of their addresses, disjoint; adjacent ones differ in their kind.
    pub runs: Vec<SpaceRun>,
}

/// A contiguous run of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceRun {
    /// Its addresses.
    #[serde(flatten)]
    pub range: ByteRange,
    /// What it is used for.
    pub kind: SpaceKind,
}

/// What a run of addresses is used for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SpaceKind {
    /// Nothing: it can be allocated.
    Free,
    /// Metadata of the file system: superblocks, inodes, bitmaps, trees, its journal.
    Metadata,
}

/// How free space is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// All of it, in bytes.
    pub bytes: u64,
    /// Number of free runs.
    pub runs: u64,
    /// Length of the longest free run, in bytes.
    pub longest_bytes: u64,
    /// Number of free runs by length.
    pub lengths: Log2Histogram,
    /// Bytes in free runs by the length of the run.
    pub bytes_by_length: Log2Histogram,
}

impl FreeSpace {
    /// Adds a run of this length.
    pub fn add(&mut self, length: u64) {
        self.bytes += length;
        self.runs += 1;
        self.longest_bytes = self.longest_bytes.max(length);
        self.lengths.record(length);
        self.bytes_by_length.record_many(length, length);
    }

    /// Bytes in runs of at least this length, which is a power of two.
    pub fn bytes_in_runs_from(&self, length: u64) -> u64 {
        let long = self.bytes_by_length.steps().filter(|(from, _)| *from >= length);
        long.map(|(_, bytes)| bytes).sum()
    }
}

impl Space {
    /// Its free runs.
    pub fn free_runs(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.runs.iter().filter(|run| run.kind == SpaceKind::Free).map(|run| run.range)
    }

    /// How its free space is divided.
    pub fn free(&self) -> FreeSpace {
        let mut free = FreeSpace::default();
        self.free_runs().for_each(|run| free.add(run.len()));
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_runs_are_counted_by_length_and_metadata_is_not_free() {
        let run = |start, end, kind| SpaceRun { range: ByteRange { start, end }, kind };
        let runs = vec![
            run(0, 4096, SpaceKind::Metadata),
            run(4096, 12288, SpaceKind::Free),
            run(65536, 69632, SpaceKind::Free),
        ];
        let space = Space { device: 1, bytes: 1 << 20, block_bytes: 4096, runs };
        let free = space.free();
        assert_eq!((free.bytes, free.runs, free.longest_bytes), (12288, 2, 8192));
        assert_eq!(free.lengths.steps().collect::<Vec<_>>(), [(4096, 1), (8192, 1)]);
        assert_eq!(free.bytes_by_length.steps().collect::<Vec<_>>(), [(4096, 4096), (8192, 8192)]);
        assert_eq!([4096, 8192, 16384].map(|from| free.bytes_in_runs_from(from)), [12288, 8192, 0]);
    }
}
