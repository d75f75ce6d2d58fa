//! What a walk found, compact: 16 bytes and its name per file, no path per file.
//!
//! Names are one behind the other in one arena, each ended by a zero byte (no name contains one); a directory
//! knows its parent, a file its directory, and a path is put together only on request. That keeps a million
//! files within some tens of megabytes. A user may make directories so deep that a path has megabytes: none
//! that is longer than [`LONGEST_PATH`] is ever put together.

use crate::{Cause, FileSystem, ScanError};
use fragmend_layout::{LONGEST_PATH, PATH_MAX, shortened};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub(crate) const NONE: u32 = u32::MAX;

/// One file: a name of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number as the directory has it.
    pub inode: u64,
    pub(crate) dir: u32,
    pub(crate) name: u32,
}

/// A file or directory that was left out, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    pub(crate) dir: u32,
    /// [`NONE`] when the directory itself is meant.
    pub(crate) name: u32,
    /// Why.
    pub cause: Cause,
}

impl SkippedEntry {
    /// A file that was left out.
    pub fn file(entry: &Entry, cause: Cause) -> Self {
        Self { dir: entry.dir, name: entry.name, cause }
    }

    pub(crate) fn dir(dir: u32, cause: Cause) -> Self {
        Self { dir, name: NONE, cause }
    }
}

#[derive(Debug)]
pub(crate) struct Dir {
    pub parent: u32,
    /// The last component; for a given path, the path as given.
    pub name: u32,
    pub fs: u16,
    /// The directory above it that has no parent, or itself. Set as it is added.
    pub top: u32,
    /// Bytes of its path. Set as it is added.
    pub length: u32,
}

impl Dir {
    pub fn new(parent: u32, name: u32, fs: u16) -> Self {
        Self { parent, name, fs, top: NONE, length: 0 }
    }
}

/// Files in order of file system and inode, each once.
#[derive(Debug, Default)]
pub struct Tree {
    pub(crate) names: Vec<u8>,
    pub(crate) dirs: Vec<Dir>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) file_systems: Vec<FileSystem>,
    pub(crate) skips: Vec<SkippedEntry>,
    pub(crate) failed: Vec<ScanError>,
    pub(crate) further_names: u64,
    /// Files whose number in their directory is not that of the file their path leads to.
    pub(crate) covered: BTreeSet<(u64, u64)>,
}

impl Tree {
    /// The files, sorted by file system and inode number.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Directories and files that the walk had to leave out.
    pub fn skips(&self) -> &[SkippedEntry] {
        &self.skips
    }

    /// Given paths that could not be scanned at all.
    pub fn failed(&self) -> &[ScanError] {
        &self.failed
    }

    /// Moves the same out of the tree, to be returned as errors.
    pub fn take_failed(&mut self) -> Vec<ScanError> {
        std::mem::take(&mut self.failed)
    }

    /// Names of files that are counted under another name already: further hard links, and
    /// files reached by two of the given paths.
    pub fn further_names(&self) -> u64 {
        self.further_names
    }

    /// The file systems that were walked.
    pub fn file_systems(&self) -> &[FileSystem] {
        &self.file_systems
    }

    /// The file system that a file is on.
    pub fn file_system(&self, entry: &Entry) -> &FileSystem {
        &self.file_systems[self.fs_index(entry)]
    }

    /// A file's path, below the path that was given; a shortened one where it is [too long](LONGEST_PATH).
    pub fn path(&self, entry: &Entry) -> PathBuf {
        self.join(entry.dir, entry.name)
    }

    /// Whether [`path`](Self::path) is a file's whole path.
    pub fn has_whole_path(&self, entry: &Entry) -> bool {
        self.length(entry.dir, entry.name) <= LONGEST_PATH
    }

    /// Whether the kernel opens a file's path: it is shorter than [`PATH_MAX`].
    pub fn can_be_opened_by_path(&self, entry: &Entry) -> bool {
        self.length(entry.dir, entry.name) < PATH_MAX
    }

    /// The path of something that was left out, as [`path`](Self::path).
    pub fn skipped_path(&self, skip: &SkippedEntry) -> PathBuf {
        self.join(skip.dir, skip.name)
    }

    /// Whether [`skipped_path`](Self::skipped_path) is the whole path.
    pub fn skipped_has_whole_path(&self, skip: &SkippedEntry) -> bool {
        self.length(skip.dir, skip.name) <= LONGEST_PATH
    }

    /// The file system of something that was left out.
    pub fn skipped_on(&self, skip: &SkippedEntry) -> &FileSystem {
        &self.file_systems[usize::from(self.dirs[skip.dir as usize].fs)]
    }

    /// Whether the walk found a file with this number on this file system. Valid only after
    /// [`settle`](Self::settle).
    pub(crate) fn has(&self, fs: usize, inode: u64) -> bool {
        let key = |e: &Entry| (self.fs_index(e), e.inode);
        self.entries.binary_search_by_key(&(fs, inode), key).is_ok()
    }

    pub(crate) fn fs_index(&self, entry: &Entry) -> usize {
        usize::from(self.dirs[entry.dir as usize].fs)
    }

    pub(crate) fn name(&self, at: u32) -> &CStr {
        CStr::from_bytes_until_nul(&self.names[at as usize..]).unwrap_or_default()
    }

    /// Adds a name, zero byte included.
    pub(crate) fn add_names(&mut self, names: &[u8]) -> Result<u32, ScanError> {
        let base = self.names.len();
        if base + names.len() >= NONE as usize {
            return Err(ScanError::TooManyNames);
        }
        self.names.extend_from_slice(names);
        Ok(base as u32)
    }

    pub(crate) fn add_dir(&mut self, dir: Dir) -> u32 {
        let at = self.dirs.len() as u32;
        let name = self.name(dir.name).count_bytes();
        let (top, length) = match self.dirs.get(dir.parent as usize) {
            Some(parent) => (parent.top, parent.length as usize + 1 + name),
            None => (at, name),
        };
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.dirs.push(Dir { top, length, ..dir });
        at
    }

    /// Bytes of a path.
    fn length(&self, dir: u32, name: u32) -> usize {
        let name = if name == NONE { 0 } else { 1 + self.name(name).count_bytes() };
        self.dirs[dir as usize].length as usize + name
    }

    fn join(&self, dir: u32, name: u32) -> PathBuf {
        let length = self.length(dir, name);
        let end = self.end(dir, name);
        if length > LONGEST_PATH {
            let start = self.name(self.dirs[self.dirs[dir as usize].top as usize].name);
            return shortened(start.to_bytes(), &end, length);
        }
        OsString::from_vec(end).into()
    }

    /// A path from its end up to its beginning, or until it is too long.
    fn end(&self, dir: u32, name: u32) -> Vec<u8> {
        let (mut at, mut length) = (dir, 0);
        let mut up = Vec::new();
        let mut next = (name != NONE).then_some(name);
        while length <= LONGEST_PATH {
            let name = match next.take() {
                Some(file) => file,
                None if at == NONE => break,
                None => {
                    let d = &self.dirs[at as usize];
                    at = d.parent;
                    d.name
                }
            };
            let name = self.name(name).to_bytes();
            length += name.len() + 1;
            up.push(name);
        }
        let mut path: Vec<u8> = Vec::with_capacity(length);
        for part in up.into_iter().rev() {
            if !path.is_empty() && path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        path
    }

    /// Sorts for reading and keeps one name per inode: the first in the first of its directories, in the order
    /// of paths.
    pub(crate) fn settle(&mut self) {
        use rayon::slice::ParallelSliceMut;
        let mut entries = std::mem::take(&mut self.entries);
        if self.file_systems.len() > 1 {
            entries.par_sort_unstable_by_key(|e| (self.fs_index(e), e.inode, e.dir, e.name));
        } else {
            entries.par_sort_unstable_by_key(|e| (e.inode, e.dir, e.name));
        }
        let before = entries.len();
        let mut ranks = None;
        entries.dedup_by(|b, a| {
            let same = a.inode == b.inode
                && self.fs_index(a) == self.fs_index(b)
                // Elsewhere (overlays) the number in a directory need not be the file's own: `measure` tells
                // such files apart once they are open.
                && self.file_system(a).inode_numbers_hold();
            if same && self.is_before(b, a, &mut ranks) {
                *a = *b;
            }
            same
        });
        self.further_names = (before - entries.len()) as u64;
        self.entries = entries;
    }

    /// Whether one name of a file comes before another. A file may have tens of thousands, at any depth: the
    /// directories are put in order once, and no path is compared.
    fn is_before(&self, this: &Entry, other: &Entry, ranks: &mut Option<Vec<u32>>) -> bool {
        if this.dir == other.dir {
            return self.name(this.name) < self.name(other.name);
        }
        let ranks = ranks.get_or_insert_with(|| self.ranks());
        ranks[this.dir as usize] < ranks[other.dir as usize]
    }

    /// The place of each directory in the order of their paths.
    fn ranks(&self) -> Vec<u32> {
        let dir = |at: u32| &self.dirs[at as usize];
        let mut order: Vec<u32> = (0..self.dirs.len() as u32).collect();
        // Below each parent the last one first: that is how they come off the stack.
        order.sort_unstable_by_key(|at| {
            (dir(*at).parent, Reverse(self.name(dir(*at).name)), Reverse(*at))
        });
        let children = |parent: u32| {
            let from = order.partition_point(|at| dir(*at).parent < parent);
            let below = order[from..].iter().take_while(move |at| dir(**at).parent == parent);
            below.copied()
        };
        let mut ranks = vec![0; order.len()];
        let mut stack: Vec<u32> = children(NONE).collect();
        for rank in 0.. {
            let Some(next) = stack.pop() else { break };
            ranks[next as usize] = rank;
            stack.extend(children(next));
        }
        ranks
    }
}

/// A path's bytes as a name for the arena.
pub(crate) fn as_name(path: &OsStr) -> Vec<u8> {
    let mut bytes = path.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
