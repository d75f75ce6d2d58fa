//! Joins what was decoded of the row groups of a trace, file by file.

use super::bounds::Budget;
use super::text;
use crate::{Access, FileAccesses};
use fragmend_layout::FileId;
use parquet::data_type::ByteArray;
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;

/// The accesses of one row group, files in order of first appearance.
pub(super) struct Group {
    pub files: Vec<(FileId, Option<ByteArray>, Vec<Access>)>,
    pub skipped: u64,
}

/// Joins the row groups in file order, and frees each group's memory once it is merged.
pub(super) fn in_order(groups: Vec<Group>) -> Vec<FileAccesses> {
    let mut index_of: HashMap<FileId, usize> = HashMap::new();
    let mut sizes: Vec<usize> = Vec::new();
    let mut files: Vec<FileAccesses> = Vec::new();
    for (id, path, accesses) in groups.iter().flat_map(|group| &group.files) {
        let index = *index_of.entry(*id).or_insert_with(|| {
            sizes.push(0);
            files.push(FileAccesses { file: *id, path: None, accesses: Vec::new() });
            files.len() - 1
        });
        sizes[index] += accesses.len();
        if let (None, Some(path)) = (&files[index].path, path) {
            files[index].path = Some(unescaped(path));
        }
    }
    for (id, _, mut accesses) in groups.into_iter().flat_map(|group| group.files) {
        let index = index_of[&id];
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
/// imitated. It is as large as there are different accesses, however many there were.
#[derive(Default)]
pub(super) struct Folded {
    index_of: HashMap<FileId, usize>,
    files: Vec<FileAccesses>,
    /// How many accesses of each file are folded; those behind are not yet.
    folded: Vec<usize>,
}

/// So many accesses may wait to be folded, beside as many as there are.
const WAITING: usize = 1 << 16;

impl Folded {
    /// Adds a row group, and gives back to `budget` what it needs less now.
    pub fn add(&mut self, group: Group, budget: &Budget) {
        for (id, path, mut accesses) in group.files {
            let index = *self.index_of.entry(id).or_insert_with(|| {
                self.folded.push(0);
                self.files.push(FileAccesses { file: id, path: None, accesses: Vec::new() });
                self.files.len() - 1
            });
            let file = &mut self.files[index];
            if let (None, Some(path)) = (&file.path, path) {
                file.path = Some(unescaped(&path));
            }
            file.accesses.append(&mut accesses);
            if file.accesses.len() > 2 * self.folded[index] + WAITING {
                self.fold(index, budget);
            }
        }
    }

    fn fold(&mut self, index: usize, budget: &Budget) {
        let accesses = &mut self.files[index].accesses;
        let before = accesses.len();
        fold(accesses);
        budget.give_back((before - accesses.len()) * size_of::<Access>());
        self.folded[index] = accesses.len();
    }

    /// The files, in the order in which they were first seen.
    pub fn files(mut self, budget: &Budget) -> Vec<FileAccesses> {
        for index in 0..self.files.len() {
            self.fold(index, budget);
            self.files[index].accesses.shrink_to_fit();
        }
        self.files
    }
}

/// Counts equal accesses of one file once, whichever thread did them.
pub(super) fn fold(accesses: &mut Vec<Access>) {
    let key = |a: &Access| (a.offset, a.length, a.op as u8, a.direct, a.windowed);
    accesses.par_sort_unstable_by_key(key);
    accesses.dedup_by(|next, kept| {
        let sum = kept.count.checked_add(next.count).filter(|_| key(next) == key(kept));
        kept.count = sum.unwrap_or(kept.count);
        sum.is_some()
    });
}

fn unescaped(path: &ByteArray) -> PathBuf {
    text::unescape_path(path.data())
}
