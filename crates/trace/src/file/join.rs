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
        let index = index_of[&id];
        let Rows { mut accesses, mut recorded } = rows;
        files[index].recorded.append(&mut recorded);
        let all = &mut files[index].accesses;
        if all.is_empty() && accesses.len() == sizes[index] {
            *all = accesses;
        } else {
            all.reserve_exact(sizes[index] - all.len());
            all.append(&mut accesses);
        }
    }
    files
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
    /// These accesses, of each file.
    ordered: Vec<Vec<Access>>,
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
                self.ordered.push(Vec::new());
                self.files.push(FileAccesses::of(id));
                self.files.len() - 1
            });
            self.keep_order(index, &mut rows.accesses);
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

    /// Takes what stays in its order out of `accesses`; beyond the limit, nothing does.
    fn keep_order(&mut self, index: usize, accesses: &mut Vec<Access>) {
        let Some(reached) = self.reached else { return };
        let many = accesses.iter().filter(|a| reached.has(a)).count() as u64;
        let Some(left) = self.left.checked_sub(many) else {
            self.reached = None;
            for (file, ordered) in self.files.iter_mut().zip(&mut self.ordered) {
                file.accesses.append(ordered);
            }
            return;
        };
        self.left = left;
        let ordered = &mut self.ordered[index];
        accesses.retain(|a| {
            let stays = reached.has(a);
            ordered.extend(stays.then_some(*a));
            !stays
        });
    }

    fn fold(&mut self, index: usize, budget: &Budget) {
        let FileAccesses { accesses, recorded, .. } = &mut self.files[index];
        let mut rows =
            Rows { accesses: std::mem::take(accesses), recorded: std::mem::take(recorded) };
        let bytes = |rows: &Rows| {
            let (accesses, recorded) = (rows.accesses.len(), rows.recorded.len());
            accesses * size_of::<Access>() + recorded * size_of::<Recorded>()
        };
        let before = bytes(&rows);
        rows.fold(self.kept_apart);
        budget.give_back(before - bytes(&rows));
        self.folded[index] = rows.accesses.len();
        Rows { accesses: *accesses, recorded: *recorded } = rows;
    }

    /// The files, in the order in which they were first seen, and whether what reached the device is in its order.
    pub fn files(mut self, budget: &Budget) -> (Vec<FileAccesses>, bool) {
        for index in 0..self.files.len() {
            self.fold(index, budget);
            let accesses = &mut self.files[index].accesses;
            accesses.append(&mut self.ordered[index]);
            accesses.shrink_to_fit();
        }
        let ordered = self.reached.is_some();
        if !ordered {
            forget_order(&mut self.files);
        }
        (self.files, ordered)
    }
}

/// No access has a rank any more.
pub(super) fn forget_order(files: &mut [FileAccesses]) {
    files.iter_mut().flat_map(|file| &mut file.accesses).for_each(|access| access.rank = 0);
}

fn unescaped(path: &ByteArray) -> PathBuf {
    text::unescape_path(path.data())
}
