//! Joins ranges of addresses to runs, and counts them.
//!
//! What must hold: runs come in the order of addresses, are disjoint and not empty, and adjacent ones differ in their kind,
//! whatever is added. Of a range that overlaps what was added before, only the part behind that counts.

use super::FoundSpace;
use crate::FileSystem;
use fragmend_layout::{ByteRange, FreeSpace, Space, SpaceKind, SpaceRun};

/// Space as it is found, range by range.
pub(crate) struct Collector {
    found: FoundSpace,
    most: usize,
    /// The run that may go on.
    last: Option<SpaceRun>,
    /// The end of what was added.
    end: u64,
}

impl Collector {
    /// Nothing yet, of this file system; its runs are kept if there are at most `most`.
    pub fn new(fs: &FileSystem, most: usize) -> Self {
        Self::of(fs.dev, fs.block_bytes, most)
    }

    pub(super) fn of(device: u64, block_bytes: u64, most: usize) -> Self {
        let space = Space { device, bytes: 0, block_bytes, runs: Vec::new() };
        let found = FoundSpace {
            space,
            free: FreeSpace::default(),
            metadata_bytes: 0,
            runs: 0,
            unallocated_bytes: 0,
        };
        Self { found, most, last: None, end: 0 }
    }

    /// Adds a range behind all that were added before.
    pub fn add(&mut self, kind: SpaceKind, range: ByteRange) {
        self.reaches(range.end);
        let range = ByteRange { start: range.start.max(self.end), ..range };
        if range.is_empty() {
            return;
        }
        self.end = range.end;
        match &mut self.last {
            Some(last) if last.kind == kind && last.range.end == range.start => {
                last.range.end = range.end;
            }
            _ => self.settle(Some(SpaceRun { range, kind })),
        }
    }

    /// The file system has addresses up to here.
    pub fn reaches(&mut self, end: u64) {
        self.found.space.bytes = self.found.space.bytes.max(end);
    }

    /// Bytes that have no address.
    pub fn unallocated(&mut self, bytes: u64) {
        self.found.unallocated_bytes = bytes;
    }

    /// Whether it is known where the file system ends.
    pub fn is_empty(&self) -> bool {
        self.found.space.bytes == 0
    }

    /// All that was added.
    pub fn finish(mut self) -> FoundSpace {
        self.settle(None);
        self.found
    }

    fn settle(&mut self, next: Option<SpaceRun>) {
        let Some(run) = std::mem::replace(&mut self.last, next) else { return };
        let found = &mut self.found;
        match run.kind {
            SpaceKind::Free => found.free.add(run.range.len()),
            SpaceKind::Metadata => found.metadata_bytes += run.range.len(),
        }
        found.runs += 1;
        if found.runs <= self.most as u64 {
            found.space.runs.push(run);
        } else {
            found.space.runs = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SpaceKind::{Free, Metadata};

    fn collected(most: usize, added: &[(SpaceKind, u64, u64)]) -> FoundSpace {
        let mut to = Collector::of(7, 4096, most);
        added.iter().for_each(|(kind, start, end)| {
            to.add(*kind, ByteRange { start: *start, end: *end });
        });
        to.finish()
    }

    fn runs(found: &FoundSpace) -> Vec<(SpaceKind, u64, u64)> {
        found.space.runs.iter().map(|run| (run.kind, run.range.start, run.range.end)).collect()
    }

    #[test]
    fn adjacent_ranges_of_a_kind_are_one_run() {
        let found =
            collected(9, &[(Metadata, 0, 10), (Free, 10, 20), (Free, 20, 30), (Free, 40, 50)]);
        assert_eq!(runs(&found), [(Metadata, 0, 10), (Free, 10, 30), (Free, 40, 50)]);
        assert_eq!((found.free.bytes, found.free.runs, found.free.longest_bytes), (30, 2, 20));
        assert_eq!((found.metadata_bytes, found.runs, found.space.bytes), (10, 3, 50));
        assert_eq!(found.space.free(), found.free);
        assert!(found.has_runs());
    }

    #[test]
    fn what_overlaps_counts_once() {
        let found = collected(
            9,
            &[(Free, 10, 30), (Free, 10, 30), (Metadata, 20, 40), (Free, 0, 5), (Free, 7, 7)],
        );
        assert_eq!(runs(&found), [(Free, 10, 30), (Metadata, 30, 40)]);
        let found = collected(9, &[(Free, 5, u64::MAX), (Metadata, 9, u64::MAX), (Free, 3, 1)]);
        assert_eq!(runs(&found), [(Free, 5, u64::MAX)]);
    }

    #[test]
    fn beyond_a_number_of_runs_none_is_kept_and_all_are_counted() {
        let added: Vec<_> = (0..100).map(|n| (Free, 10 * n, 10 * n + 5)).collect();
        let found = collected(100, &added);
        assert!(found.has_runs() && found.space.runs.len() == 100);
        for most in [0, 1, 99] {
            let fewer = collected(most, &added);
            assert!(!fewer.has_runs() && fewer.space.runs.is_empty(), "{most}");
            assert_eq!((fewer.runs, &fewer.free), (100, &found.free), "{most}");
        }
    }
}
