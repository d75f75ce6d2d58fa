//! Counts files that are not kept: each is a number of 62 bits here, in which two of ten million files agree with a
//! probability of one in 100,000, and what was known of its path.

use fragmend_layout::FileId;
use std::hash::{BuildHasher, RandomState};

/// Files of which this is known; beyond that, those that are seen again are counted again.
const MOST_COUNTED: usize = 4_000_000;

/// Numbers of files; of more than 4,000,000, some may be counted more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Different files.
    pub files: u64,
    /// Of these, files whose path is not known.
    pub without_path: u64,
    /// Of those, files that were not looked up, for want of time.
    pub not_looked_up: u64,
}

/// What is known of a file's path, the best first.
#[derive(Clone, Copy)]
pub enum PathState {
    Known = 0,
    NotFound = 1,
    NotLookedUp = 2,
}

/// The bits of a mark that are a [`PathState`].
const STATE: u64 = 3;

impl Counts {
    fn add(&mut self, mark: u64) {
        self.files += 1;
        self.without_path += u64::from(mark & STATE != PathState::Known as u64);
        self.not_looked_up += u64::from(mark & STATE == PathState::NotLookedUp as u64);
    }
}

/// Files that were forgotten.
#[derive(Default)]
pub struct Forgotten {
    /// A mark for each, in order.
    marks: Vec<u64>,
    /// Those whose marks were forgotten as well.
    beyond: Counts,
    hasher: RandomState,
}

impl Forgotten {
    /// Adds files; one that is there already is known by the better of both states.
    pub fn add(&mut self, files: impl Iterator<Item = (FileId, PathState)>) {
        let marks = self.sorted(files);
        if self.marks.len() + marks.len() > MOST_COUNTED {
            self.beyond = self.counts(std::iter::empty());
            self.marks.clear();
        }
        let mut all = Vec::with_capacity(self.marks.len() + marks.len());
        merge(&self.marks, &marks, |mark| all.push(mark));
        self.marks = all;
    }

    /// The numbers of all files, these included.
    pub fn counts(&self, files: impl Iterator<Item = (FileId, PathState)>) -> Counts {
        let mut counts = self.beyond;
        merge(&self.marks, &self.sorted(files), |mark| counts.add(mark));
        counts
    }

    fn sorted(&self, files: impl Iterator<Item = (FileId, PathState)>) -> Vec<u64> {
        let mark = |(file, state)| self.hasher.hash_one::<FileId>(file) & !STATE | state as u64;
        let mut marks: Vec<u64> = files.map(mark).collect();
        marks.sort_unstable();
        marks
    }
}

/// Calls `each` with the marks of both, in order, and with the smaller of two of one file.
fn merge(a: &[u64], b: &[u64], mut each: impl FnMut(u64)) {
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    let mut last = None;
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if y < x => b.next(),
            (None, _) => b.next(),
            _ => a.next(),
        };
        let Some(mark) = next else { return };
        if last.replace(mark >> 2) != Some(mark >> 2) {
            each(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(
        inodes: std::ops::Range<u64>,
        state: PathState,
    ) -> impl Iterator<Item = (FileId, PathState)> {
        inodes.map(move |inode| (FileId { device: 1, inode, generation: 0 }, state))
    }

    #[test]
    fn each_file_counts_once_and_by_the_best_that_was_known() {
        let mut forgotten = Forgotten::default();
        forgotten.add(files(0..100, PathState::NotLookedUp));
        forgotten.add(files(50..150, PathState::NotFound));
        forgotten.add(files(0..10, PathState::Known));
        let all = Counts { files: 150, without_path: 140, not_looked_up: 40 };
        assert_eq!(forgotten.counts(std::iter::empty()), all);
        let all = Counts { files: 160, without_path: 130, not_looked_up: 30 };
        assert_eq!(
            forgotten
                .counts(files(10..20, PathState::Known).chain(files(150..160, PathState::Known))),
            all
        );
    }

    #[test]
    fn the_marks_are_bounded() {
        const BATCH: u64 = 500_000;
        let mut forgotten = Forgotten::default();
        for n in 0..20 {
            forgotten.add(files(n * BATCH..(n + 1) * BATCH, PathState::Known));
            assert!(forgotten.marks.len() <= MOST_COUNTED);
        }
        assert_eq!(forgotten.counts(std::iter::empty()).files, 20 * BATCH);
    }
}
