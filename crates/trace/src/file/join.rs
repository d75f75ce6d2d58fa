//! Joins what was decoded of the row groups of a trace, file by file.

use super::bounds::Budget;
use super::order::{Ranks, Reached};
use super::text;
use super::turns::{Rows, Turns};
use crate::{Access, FileAccesses};
use fragmend_layout::{FileId, Recorded};
use parquet::data_type::ByteArray;
use std::collections::HashMap;
use std::path::PathBuf;

/// The accesses of one row group, files in order of first appearance.
pub(super) struct Group {
    pub files: Vec<(FileId, Option<ByteArray>, Rows)>,
    /// How many accesses of it have reached each device.
    pub ranks: Ranks,
    pub skipped: u64,
}

/// Joins the row groups in file order, and frees each group's memory once it is merged.
pub(super) fn in_order(groups: Vec<Group>) -> Vec<FileAccesses> {
    let mut index_of: HashMap<FileId, usize> = HashMap::new();
    let mut sizes: Vec<usize> = Vec::new();
    let mut files: Vec<FileAccesses> = Vec::new();
    for (id, path, rows) in groups.iter().flat_map(|group| &group.files) {
        let index = *index_of.entry(*id).or_insert_with(|| {
            sizes.push(0);
            files.push(FileAccesses::of(*id));
            files.len() - 1
        });
        sizes[index] += rows.accesses.len();
        if let (None, Some(path)) = (&files[index].path, path) {
            files[index].path = Some(unescaped(path));
        }
    }
    for (id, _, rows) in groups.into_iter().flat_map(|group| group.files) {
        let (size, file) = (sizes[index_of[&id]], &mut files[index_of[&id]]);
        append(&mut file.accesses, rows.accesses, size);
        append(&mut file.ranks, rows.ranks, size);
        append(&mut file.recorded, rows.recorded, size);
    }
    files
}

/// Appends a part to what will be so many in the end, in memory for no more than these.
fn append<T>(all: &mut Vec<T>, mut part: Vec<T>, size: usize) {
    if all.is_empty() && part.len() == size {
        *all = part;
    } else if !part.is_empty() {
        all.reserve_exact(size - all.len());
        all.append(&mut part);
    }
}

/// Files whose equal accesses are counted once, in no particular order: what a plan needs where nothing has to be
/// imitated. It is as large as there are different accesses, however many there were. What reaches the device may stay in
/// its order, up to a limit.
pub(super) struct Folded {
    index_of: HashMap<FileId, usize>,
    files: Vec<FileAccesses>,
    /// Of how many turns equal accesses are kept apart.
    kept_apart: usize,
    /// How many accesses of each file are folded; those behind are not yet.
    folded: Vec<usize>,
    /// What stays in its order; nothing once it was too much.
    reached: Option<Reached>,
    /// How many more accesses may.
    left: u64,
    /// These accesses, of each file, with their ranks.
    ordered: Vec<Rows>,
}

/// So many accesses may wait to be folded, beside as many as there are.
const WAITING: usize = 1 << 16;

impl Folded {
    /// No files yet, of which at most `up_to` of the accesses that have `reached` the device stay in their order; with the
    /// turns of those that were recorded in turns.
    pub fn new(reached: Option<Reached>, up_to: u64, turns: Option<Turns>) -> Self {
        Self {
            index_of: HashMap::new(),
            files: Vec::new(),
            kept_apart: turns.map_or(0, Turns::kept_apart),
            folded: Vec::new(),
            reached,
            left: up_to,
            ordered: Vec::new(),
        }
    }

    /// Adds a row group, and gives back to `budget` what it needs less now.
    pub fn add(&mut self, group: Group, budget: &Budget) {
        for (id, path, mut rows) in group.files {
            let index = *self.index_of.entry(id).or_insert_with(|| {
                self.folded.push(0);
                self.ordered.push(Rows::default());
                self.files.push(FileAccesses::of(id));
                self.files.len() - 1
            });
            let forgotten = self.keep_order(index, &mut rows);
            budget.give_back(0, forgotten * size_of::<u32>());
            let file = &mut self.files[index];
            if let (None, Some(path)) = (&file.path, path) {
                file.path = Some(unescaped(&path));
            }
            file.accesses.append(&mut rows.accesses);
            file.recorded.append(&mut rows.recorded);
            if file.accesses.len() > 2 * self.folded[index] + WAITING {
                self.fold(index, budget);
            }
        }
    }

    /// Takes what stays in its order out of `rows`; beyond the limit, nothing does. Returns how many ranks are forgotten.
    fn keep_order(&mut self, index: usize, rows: &mut Rows) -> usize {
        let ranks = std::mem::take(&mut rows.ranks);
        let mut forgotten = ranks.len();
        let Some(reached) = self.reached else { return forgotten };
        let many = rows.accesses.iter().filter(|a| reached.has(a)).count() as u64;
        let Some(left) = self.left.checked_sub(many) else {
            self.reached = None;
            for (file, ordered) in self.files.iter_mut().zip(&mut self.ordered) {
                let mut ordered = std::mem::take(ordered);
                file.accesses.append(&mut ordered.accesses);
                forgotten += ordered.ranks.len();
            }
            return forgotten;
        };
        self.left = left;
        let ordered = &mut self.ordered[index];
        let mut ranks = ranks.into_iter();
        rows.accesses.retain(|a| {
            let (stays, rank) = (reached.has(a), ranks.next());
            if stays {
                ordered.accesses.push(*a);
                ordered.ranks.extend(rank);
            }
            !stays
        });
        forgotten - many as usize
    }

    fn fold(&mut self, index: usize, budget: &Budget) {
        let FileAccesses { accesses, recorded, .. } = &mut self.files[index];
        let mut rows = Rows {
            accesses: std::mem::take(accesses),
            recorded: std::mem::take(recorded),
            ..Rows::default()
        };
        let before = [rows.accesses.len(), rows.recorded.len()];
        rows.fold(self.kept_apart);
        let less = [before[0] - rows.accesses.len(), before[1] - rows.recorded.len()];
        budget.give_back(less[0] * size_of::<Access>(), less[1] * size_of::<Recorded>());
        self.folded[index] = rows.accesses.len();
        (*accesses, *recorded) = (rows.accesses, rows.recorded);
    }

    /// The files, in the order in which they were first seen, and whether what reached the device is in its order.
    pub fn files(mut self, budget: &Budget) -> (Vec<FileAccesses>, bool) {
        let is_ordered = self.reached.is_some();
        for index in 0..self.files.len() {
            self.fold(index, budget);
            let mut ordered = std::mem::take(&mut self.ordered[index]);
            let FileAccesses { accesses, ranks, .. } = &mut self.files[index];
            if is_ordered {
                ranks.resize(accesses.len(), 0);
                ranks.append(&mut ordered.ranks);
            }
            accesses.append(&mut ordered.accesses);
            accesses.shrink_to_fit();
        }
        (self.files, is_ordered)
    }
}

/// The path that a row has.
pub(super) fn unescaped(path: &ByteArray) -> PathBuf {
    text::unescape_path(path.data())
}
