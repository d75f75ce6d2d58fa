//! The page cache of a simulated machine: which blocks of each file are in memory, and which of them are dirty.

use crate::file_system::Token;
use crate::ranges::RangeSet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// A page cache. Files are known by their inode numbers; ranges are blocks.
#[derive(Clone, Debug)]
pub struct PageCache {
    files: BTreeMap<u64, Cached>,
    /// Those with dirty blocks.
    dirty_files: BTreeSet<u64>,
    /// What was added, the oldest first; some of it may be gone, or be here twice.
    order: VecDeque<(u64, Range<u64>)>,
    /// The most blocks in memory.
    limit: u64,
    blocks: u64,
    dirty: u64,
}

/// The blocks of a file that are in memory.
#[derive(Clone, Debug, Default)]
struct Cached {
    present: RangeSet,
    dirty: RangeSet,
    /// What the dirty ones hold, where that is kept.
    tokens: BTreeMap<u64, Token>,
}

impl PageCache {
    /// An empty cache of at most `limit` blocks.
    pub fn new(limit: u64) -> Self {
        let (files, dirty_files, order) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        Self { files, dirty_files, order, limit, blocks: 0, dirty: 0 }
    }

    /// Blocks in memory.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Dirty blocks in memory.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty
    }

    /// The parts of a range that are not in memory.
    pub fn missing(&self, inode: u64, range: Range<u64>) -> Vec<Range<u64>> {
        match self.files.get(&inode) {
            Some(cached) => cached.present.gaps(range),
            None if range.is_empty() => Vec::new(),
            None => vec![range],
        }
    }

    /// The dirty parts of a range.
    pub fn dirty(&self, inode: u64, range: Range<u64>) -> Vec<Range<u64>> {
        self.files.get(&inode).map_or_else(Vec::new, |cached| cached.dirty.within(range))
    }

    /// Files with dirty blocks, by inode number.
    pub fn dirty_files(&self) -> Vec<u64> {
        self.dirty_files.iter().copied().collect()
    }

    /// What a dirty block holds.
    pub fn token(&self, inode: u64, block: u64) -> Option<Token> {
        self.files.get(&inode)?.tokens.get(&block).copied()
    }

    /// A range was read.
    pub fn add(&mut self, inode: u64, range: Range<u64>) {
        self.insert(inode, range);
        self.evict();
    }

    /// A range was written to; `token` returns what a block holds now, where that is kept.
    pub fn write(
        &mut self,
        inode: u64,
        range: Range<u64>,
        mut token: impl FnMut(u64) -> Option<Token>,
    ) {
        self.insert(inode, range.clone());
        let cached = self.files.entry(inode).or_default();
        let before = cached.dirty.len();
        cached.dirty.insert(range.clone());
        self.dirty_files.insert(inode);
        self.dirty += cached.dirty.len() - before;
        cached.tokens.extend(range.filter_map(|block| Some((block, token(block)?))));
        self.evict();
    }

    /// A range is on the drive now.
    pub fn clean(&mut self, inode: u64, range: Range<u64>) {
        let Some(cached) = self.files.get_mut(&inode) else { return };
        for part in cached.dirty.remove(range) {
            self.dirty -= part.end - part.start;
            remove_tokens(&mut cached.tokens, part);
        }
        if cached.dirty.is_empty() {
            self.dirty_files.remove(&inode);
        }
    }

    /// A range of a file is gone, dirty or not.
    pub fn forget(&mut self, inode: u64, range: Range<u64>) {
        self.clean(inode, range.clone());
        let Some(cached) = self.files.get_mut(&inode) else { return };
        for part in cached.present.remove(range) {
            self.blocks -= part.end - part.start;
        }
        if cached.present.is_empty() {
            self.files.remove(&inode);
        }
    }

    /// Forgets all that is not dirty.
    pub fn drop_clean(&mut self) {
        for cached in self.files.values_mut() {
            self.blocks -= cached.present.len() - cached.dirty.len();
            cached.present = cached.dirty.clone();
        }
        self.files.retain(|_, cached| !cached.present.is_empty());
    }

    fn insert(&mut self, inode: u64, range: Range<u64>) {
        let present = &mut self.files.entry(inode).or_default().present;
        let before = present.len();
        present.insert(range.clone());
        self.blocks += present.len() - before;
        self.order.push_back((inode, range));
    }

    /// Forgets what was added first, except what is dirty, until no more than the limit is in memory.
    fn evict(&mut self) {
        for _ in 0..self.order.len() {
            if self.blocks <= self.limit {
                break;
            }
            let Some((inode, range)) = self.order.pop_front() else { break };
            let dirty = self.dirty(inode, range.clone());
            let clean = dirty.iter().cloned().collect::<RangeSet>().gaps(range);
            clean.into_iter().for_each(|part| self.forget(inode, part));
            self.order.extend(dirty.into_iter().map(|part| (inode, part)));
        }
    }
}

fn remove_tokens(tokens: &mut BTreeMap<u64, Token>, range: Range<u64>) {
    let gone: Vec<u64> = tokens.range(range).map(|(block, _)| *block).collect();
    gone.iter().for_each(|block| _ = tokens.remove(block));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_oldest_and_clean_goes_first() {
        let mut cache = PageCache::new(10);
        cache.write(1, 0..4, |block| Some(block + 100));
        cache.add(2, 0..6);
        assert_eq!((cache.blocks(), cache.dirty_blocks(), cache.token(1, 3)), (10, 4, Some(103)));
        cache.add(3, 0..3);
        assert_eq!(cache.missing(1, 0..5), [4..5], "what is dirty stays");
        assert_eq!((cache.missing(2, 0..6), cache.missing(3, 0..3)), (vec![0..6], vec![]));
        cache.clean(1, 0..2);
        assert_eq!((cache.dirty(1, 0..9), cache.token(1, 1)), (vec![2..4], None));
        cache.drop_clean();
        assert_eq!((cache.blocks(), cache.missing(1, 0..4)), (2, vec![0..2]));
        cache.forget(1, 0..9);
        assert_eq!((cache.blocks(), cache.dirty_blocks(), cache.dirty_files()), (0, 0, vec![]));
    }
}
