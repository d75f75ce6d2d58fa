//! The monitor of InDeF at the level of the file system (section III): which ranges of files the drive was asked for.
//!
//! What is served from the page cache is not seen, and what readahead adds is: the monitor sees what the drive sees. For each file there
//! is a list of ranges in the order of the file (section III-A), which are [accesses](Monitor::accesses) for the planner: its policy
//! `iodp` has the ordered tree of their priorities, and truncates it (`fragmend_plan::select::iodp`).

use fragmend_layout::{Access, FileAccesses, FileId, Op};
use std::collections::BTreeMap;
use std::ops::Range;

/// A range of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: u32,
    end: u32,
    reads: u32,
}

/// Bytes that a file needs besides its entries: its key, its list, and the node of the tree that they are in.
const FILE_BYTES: usize = 2 * (size_of::<u64>() + size_of::<Vec<Entry>>());

/// A monitor.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// The entries of each file, in its order, without overlap.
    files: BTreeMap<u64, Vec<Entry>>,
    entries: usize,
    /// The most bytes that it may use.
    limit: usize,
    dropped: u64,
}

impl Monitor {
    /// A monitor that has seen nothing, and uses at most `limit` bytes: where that is too little, it forgets the ranges that were read
    /// least.
    pub fn new(limit: usize) -> Self {
        Self { files: BTreeMap::new(), entries: 0, limit, dropped: 0 }
    }

    /// A read of blocks of a file has reached the drive. Ranges that overlap become one, which counts the reads of all (the paper's merge
    /// to the largest address range). Blocks beyond 2^32 are left out.
    pub fn read(&mut self, inode: u64, blocks: Range<u64>) {
        let narrow = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
        let mut new = Entry { start: narrow(blocks.start), end: narrow(blocks.end), reads: 1 };
        if new.start >= new.end {
            return;
        }
        let entries = self.files.entry(inode).or_default();
        let first = entries.partition_point(|entry| entry.end <= new.start);
        let behind = entries.partition_point(|entry| entry.start < new.end);
        for old in &entries[first..behind] {
            new.start = new.start.min(old.start);
            new.end = new.end.max(old.end);
            new.reads = new.reads.saturating_add(old.reads);
        }
        self.entries = self.entries + 1 - (behind - first);
        entries.splice(first..behind, [new]);
        if self.bytes() > self.limit {
            self.forget_coldest();
        }
    }

    /// Bytes of memory that it uses, by the sizes of its entries and lists.
    pub fn bytes(&self) -> usize {
        self.entries * size_of::<Entry>() + self.files.len() * FILE_BYTES
    }

    /// Ranges in its lists.
    pub fn ranges(&self) -> usize {
        self.entries
    }

    /// Ranges that it has forgotten for lack of memory.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A file is gone.
    pub fn forget(&mut self, inode: u64) {
        self.entries -= self.files.remove(&inode).map_or(0, |entries| entries.len());
    }

    /// Forgets what was read least, until half of the memory is free.
    fn forget_coldest(&mut self) {
        let mut least = 1;
        while self.bytes() > self.limit / 2 {
            let before = self.entries;
            self.files.values_mut().for_each(|entries| entries.retain(|entry| entry.reads > least));
            self.files.retain(|_, entries| !entries.is_empty());
            self.entries = self.files.values().map(Vec::len).sum();
            self.dropped += (before - self.entries) as u64;
            least = least.saturating_mul(2);
        }
    }

    /// The ranges of each file, by inode, with how often each was read.
    pub fn files(
        &self,
    ) -> impl Iterator<Item = (u64, impl Iterator<Item = (Range<u64>, u32)> + '_)> {
        self.files.iter().map(|(inode, entries)| {
            let range = |entry: &Entry| (u64::from(entry.start)..u64::from(entry.end), entry.reads);
            (*inode, entries.iter().map(range))
        })
    }

    /// What was seen as the planner takes it, of the files whose identity `identify` returns: reads that missed the page cache.
    pub fn accesses(
        &self,
        block_bytes: u64,
        identify: impl Fn(u64) -> Option<FileId>,
    ) -> Vec<FileAccesses> {
        let of_file = |(inode, entries): (&u64, &Vec<Entry>)| {
            let accesses = entries.iter().flat_map(|entry| accesses_of(entry, block_bytes));
            Some(FileAccesses {
                accesses: accesses.collect(),
                ..FileAccesses::of(identify(*inode)?)
            })
        };
        self.files.iter().filter_map(of_file).collect()
    }
}

/// A range as accesses, none of which is longer than one can be.
fn accesses_of(entry: &Entry, block_bytes: u64) -> impl Iterator<Item = Access> {
    let bytes = u64::from(entry.start) * block_bytes..u64::from(entry.end) * block_bytes;
    let longest = u64::from(u32::MAX) / block_bytes * block_bytes;
    let count = entry.reads;
    bytes.clone().step_by(longest as usize).map(move |offset| Access {
        offset,
        length: (bytes.end - offset).min(longest) as u32,
        count,
        thread: 0,
        op: Op::Miss,
        direct: false,
        windowed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(monitor: &Monitor) -> Vec<(u64, Range<u64>, u32)> {
        let of_file = |(inode, ranges): (u64, _)| {
            let ranges: Vec<(Range<u64>, u32)> = Iterator::collect(ranges);
            ranges.into_iter().map(move |(range, reads)| (inode, range, reads))
        };
        monitor.files().flat_map(of_file).collect()
    }

    #[test]
    fn ranges_are_in_order_and_overlaps_become_one() {
        let mut monitor = Monitor::new(1 << 20);
        [64..128, 0..64, 0..64, 200..210].into_iter().for_each(|range| monitor.read(7, range));
        monitor.read(3, 5..6);
        let expected = [(3, 5..6, 1), (7, 0..64, 2), (7, 64..128, 1), (7, 200..210, 1)];
        assert_eq!(seen(&monitor), expected);
        monitor.read(7, 100..205);
        assert_eq!(seen(&monitor)[1..], [(7, 0..64, 2), (7, 64..210, 3)]);
        let file = FileId { device: 1, inode: 7, generation: 0 };
        let accesses = monitor.accesses(4096, |inode| (inode == 7).then_some(file));
        assert_eq!((accesses.len(), accesses[0].file, accesses[0].accesses.len()), (1, file, 2));
        let access = accesses[0].accesses[1];
        assert_eq!((access.offset, access.length, access.count), (64 * 4096, 146 * 4096, 3));
        assert!(access.is_read_by_device());
        monitor.forget(7);
        assert_eq!(monitor.ranges(), 1);
    }

    #[test]
    fn memory_is_flat_and_what_is_read_most_stays() {
        let mut monitor = Monitor::new(10_000);
        (0..9).for_each(|_| monitor.read(1, 0..64));
        for n in 0..100_000 {
            monitor.read(2, 10 * n..10 * n + 5);
            assert!(monitor.bytes() <= 10_000);
        }
        assert_eq!(seen(&monitor)[0], (1, 0..64, 9));
        assert_eq!(monitor.dropped() + monitor.ranges() as u64, 100_001);
    }
}
