//! The segment information table (SIT), in memory: which blocks of each section are valid, and which must not be written yet.
//!
//! A block is *held* if the last checkpoint, or what an fsync has written since, may refer to it: it was valid at the last
//! checkpoint, or was written after it. What is valid is held. A section is free if none of its blocks is held and no log has it
//! open. So nothing that a mount after a power cut may need is overwritten or discarded; the next checkpoint releases it
//! ([`Sections::settle`]).

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Blocks of files.
    Data,
    /// Nodes.
    Node,
}

/// How a section is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It may be opened.
    Free,
    /// A log writes to it.
    Open,
    /// It was written.
    Closed,
}

/// A section.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// How it is used.
    pub state: State,
    /// What is in it, unless it is free.
    pub kind: Kind,
    /// Its valid blocks.
    pub valid: u32,
    /// When a block of it was last written or became invalid, in nanoseconds of the machine's time.
    pub modified_ns: u64,
    /// Whether it has changed since the last checkpoint.
    changed: bool,
}

/// The entry of a section on the drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub section: u32,
    pub kind: Kind,
    pub modified_ns: u64,
    /// A bit for each block.
    pub valid: Vec<u64>,
}

/// Runs of blocks of sections: the section, the first block there, and how many.
pub(super) type Runs = Vec<(u32, u32, u32)>;

/// All sections.
#[derive(Clone, Debug)]
pub struct Sections {
    /// Blocks of each.
    blocks: u32,
    /// Words of each in the bitmaps.
    words: usize,
    sections: Vec<Section>,
    valid: Vec<u64>,
    held: Vec<u64>,
    free: BTreeSet<u32>,
    changed: Vec<u32>,
    /// Closed sections without a valid block: free after the next checkpoint.
    emptied: u32,
}

impl Sections {
    /// `count` free sections of `blocks` blocks.
    pub fn new(count: u32, blocks: u32) -> Self {
        let words = blocks.div_ceil(64) as usize;
        let section = Section {
            state: State::Free,
            kind: Kind::Data,
            valid: 0,
            modified_ns: 0,
            changed: false,
        };
        Self {
            blocks,
            words,
            sections: vec![section; count as usize],
            valid: vec![0; words * count as usize],
            held: vec![0; words * count as usize],
            free: (0..count).collect(),
            changed: Vec::new(),
            emptied: 0,
        }
    }

    /// A section.
    pub fn get(&self, section: u32) -> &Section {
        &self.sections[section as usize]
    }

    /// All of them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Section)> {
        (0..).zip(&self.sections)
    }

    /// How many are free.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// How many the next checkpoint will free.
    pub fn emptied(&self) -> u32 {
        self.emptied
    }

    fn bit(&self, section: u32, offset: u32) -> (usize, u64) {
        (section as usize * self.words + (offset / 64) as usize, 1 << (offset % 64))
    }

    /// Whether a block is valid.
    pub fn is_valid(&self, section: u32, offset: u32) -> bool {
        let (word, bit) = self.bit(section, offset);
        self.valid[word] & bit != 0
    }

    /// Whether a block is held.
    pub fn is_held(&self, section: u32, offset: u32) -> bool {
        let (word, bit) = self.bit(section, offset);
        self.held[word] & bit != 0
    }

    /// The valid blocks of a section, as offsets.
    pub fn valid_in(&self, section: u32) -> impl Iterator<Item = u32> + '_ {
        let first = section as usize * self.words;
        (0..).zip(&self.valid[first..first + self.words]).flat_map(|(at, word)| bits(at, *word))
    }

    fn change(&mut self, section: u32) -> &mut Section {
        let found = &mut self.sections[section as usize];
        if !found.changed {
            found.changed = true;
            self.changed.push(section);
        }
        found
    }

    /// A block was allocated: it is valid, and held.
    pub fn add(&mut self, section: u32, offset: u32, now_ns: u64) {
        let (word, bit) = self.bit(section, offset);
        let is_new = self.valid[word] & bit == 0;
        self.valid[word] |= bit;
        self.held[word] |= bit;
        let found = self.change(section);
        found.modified_ns = now_ns;
        let was_emptied = found.state == State::Closed && found.valid == 0;
        found.valid += u32::from(is_new);
        self.emptied -= u32::from(was_emptied);
    }

    /// A block is invalid now; it stays held.
    pub fn remove(&mut self, section: u32, offset: u32, now_ns: u64) {
        let (word, bit) = self.bit(section, offset);
        if self.valid[word] & bit == 0 {
            return;
        }
        self.valid[word] &= !bit;
        let found = self.change(section);
        found.modified_ns = now_ns;
        found.valid -= 1;
        let is_emptied = found.state == State::Closed && found.valid == 0;
        self.emptied += u32::from(is_emptied);
    }

    /// Opens `count` adjacent free sections, of which the first is the next one behind `after` that has such neighbours. All but
    /// the first stay free. Returns it; `None` if there are none.
    pub fn open(&mut self, after: u32, count: u32, kind: Kind) -> Option<u32> {
        let behind = self.free.range(after.saturating_add(1)..).chain(self.free.range(..=after));
        let first = behind.copied().find(|first| self.are_free(*first, count))?;
        self.free.remove(&first);
        let found = self.change(first);
        (found.state, found.kind) = (State::Open, kind);
        Some(first)
    }

    /// Whether these adjacent sections are free.
    pub fn are_free(&self, first: u32, count: u32) -> bool {
        (first..first + count).all(|section| self.free.contains(&section))
    }

    /// A log leaves a section.
    pub fn close(&mut self, section: u32) {
        let found = self.change(section);
        found.state = State::Closed;
        let is_emptied = found.valid == 0;
        self.emptied += u32::from(is_emptied);
    }

    /// A section that a mount finds in use is not free; a log has it open, or not.
    pub fn occupy(&mut self, section: u32, state: State, kind: Kind) {
        self.free.remove(&section);
        let found = self.change(section);
        let was_emptied = found.state == State::Closed && found.valid == 0;
        let is_emptied = state == State::Closed && found.valid == 0;
        (found.state, found.kind) = (state, kind);
        self.emptied = self.emptied + u32::from(is_emptied) - u32::from(was_emptied);
    }

    /// The entries that a checkpoint writes: of what has changed since the last one, or all that are in use.
    pub(super) fn entries(&self, all: bool) -> Vec<Entry> {
        let mut numbers: Vec<u32> = if all {
            self.iter().filter(|(_, s)| s.state != State::Free).map(|(n, _)| n).collect()
        } else {
            self.changed.clone()
        };
        numbers.sort_unstable();
        let entry = |section: u32| {
            let Section { kind, modified_ns, .. } = self.sections[section as usize];
            let first = section as usize * self.words;
            let valid = self.valid[first..first + self.words].to_vec();
            Entry { section, kind, modified_ns, valid }
        };
        numbers.into_iter().map(entry).collect()
    }

    /// Takes over an entry of the drive; returns false if it cannot be one.
    pub(super) fn load(&mut self, entry: &Entry) -> bool {
        let Entry { section, kind, modified_ns, valid } = entry;
        let beyond = |offset| offset >= self.blocks;
        let offsets = (0..).zip(valid).flat_map(|(at, word)| bits(at, *word));
        if *section as usize >= self.sections.len()
            || valid.len() != self.words
            || offsets.clone().any(beyond)
        {
            return false;
        }
        let first = *section as usize * self.words;
        self.valid[first..first + self.words].copy_from_slice(valid);
        self.held[first..first + self.words].copy_from_slice(valid);
        let found = &mut self.sections[*section as usize];
        (found.valid, found.kind, found.modified_ns) =
            (offsets.count() as u32, *kind, *modified_ns);
        found.state = if found.valid == 0 { State::Free } else { State::Closed };
        if found.valid == 0 {
            self.free.insert(*section);
        } else {
            self.free.remove(section);
        }
        true
    }

    /// A checkpoint is durable: nothing but what is valid is held any more. Returns the sections that are free now, and, if `runs` are
    /// asked for, those of the other blocks that were released.
    pub(super) fn settle(&mut self, runs: bool) -> (Vec<u32>, Runs) {
        let (mut freed, mut released) = (Vec::new(), Runs::new());
        for section in std::mem::take(&mut self.changed) {
            let found = &mut self.sections[section as usize];
            found.changed = false;
            let first = section as usize * self.words;
            let words = first..first + self.words;
            let is_freed = found.state == State::Closed && found.valid == 0;
            if is_freed {
                found.state = State::Free;
                self.emptied -= 1;
                self.free.insert(section);
                freed.push(section);
            } else if runs {
                let gone = self.held[words.clone()].iter().zip(&self.valid[words.clone()]);
                let offsets =
                    (0..).zip(gone).flat_map(|(at, (held, valid))| bits(at, held & !valid));
                add_runs(section, offsets, &mut released);
            }
            self.held[words.clone()].copy_from_slice(&self.valid[words]);
        }
        freed.sort_unstable();
        (freed, released)
    }

    /// Frees a section whose last valid block has gone, although the last checkpoint may refer to it; returns whether it did.
    pub(super) fn free_too_early(&mut self, section: u32) -> bool {
        let found = &mut self.sections[section as usize];
        let is_empty = found.state == State::Closed && found.valid == 0;
        if is_empty {
            found.state = State::Free;
            self.emptied -= 1;
            self.free.insert(section);
            let first = section as usize * self.words;
            self.held[first..first + self.words].fill(0);
        }
        is_empty
    }
}

/// The bits of the word with this number, as numbers of all bits.
fn bits(at: u32, word: u64) -> impl Iterator<Item = u32> + Clone {
    let next = |word: &u64| (word & (word - 1) != 0).then_some(word & word.wrapping_sub(1));
    std::iter::successors((word != 0).then_some(word), next)
        .map(move |word| at * 64 + word.trailing_zeros())
}

fn add_runs(section: u32, offsets: impl Iterator<Item = u32>, runs: &mut Runs) {
    for offset in offsets {
        match runs
            .last_mut()
            .filter(|(of, first, count)| *of == section && first + *count == offset)
        {
            Some((_, _, count)) => *count += 1,
            None => runs.push((section, offset, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_free_after_the_next_checkpoint() {
        let mut sections = Sections::new(3, 70);
        assert_eq!(sections.open(0, 1, Kind::Data), Some(1));
        (0..70).for_each(|offset| sections.add(1, offset, 5));
        sections.close(1);
        assert_eq!(sections.settle(true), (vec![], vec![]));
        [0, 63, 64, 65].into_iter().for_each(|offset| sections.remove(1, offset, 6));
        assert!(sections.is_held(1, 64) && !sections.is_valid(1, 64));
        assert_eq!(sections.settle(true), (vec![], vec![(1, 0, 1), (1, 63, 3)]));
        let rest: Vec<u32> = sections.valid_in(1).collect();
        assert_eq!((rest.len(), rest[0], rest[62]), (66, 1, 66));
        rest.iter().for_each(|offset| sections.remove(1, *offset, 7));
        assert_eq!((sections.free(), sections.emptied(), sections.are_free(1, 1)), (2, 1, false));
        assert_eq!(sections.settle(true), (vec![1], vec![]));
        assert_eq!((sections.free(), sections.emptied()), (3, 0));
    }

    #[test]
    fn entries_bring_the_table_back() {
        let mut sections = Sections::new(4, 70);
        let opened = sections.open(3, 2, Kind::Node);
        assert_eq!(opened, Some(0));
        [1, 2, 69].into_iter().for_each(|offset| sections.add(0, offset, 9));
        let mut loaded = Sections::new(4, 70);
        assert!(sections.entries(true).iter().all(|entry| loaded.load(entry)));
        assert_eq!(loaded.valid_in(0).collect::<Vec<_>>(), [1, 2, 69]);
        assert_eq!(
            (loaded.get(0).valid, loaded.get(0).state, loaded.free()),
            (3, State::Closed, 3)
        );
        let beyond = Entry { section: 0, kind: Kind::Data, modified_ns: 0, valid: vec![0, 1 << 6] };
        assert!(!loaded.load(&beyond), "a section has 70 blocks");
    }
}
