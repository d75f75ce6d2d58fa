//! What a walk found, compact: 16 bytes and its name per file, no path per file.
//!
//! Names are one behind the other in one arena, each ended by a zero byte (no name contains one); a directory
//! knows its parent, a file its directory, and a path is put together only on request. That keeps a million
//! files within some tens of megabytes.

use crate::{Cause, FileSystem, ScanError};
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

    /// A file's path, below the path that was given.
    pub fn path(&self, entry: &Entry) -> PathBuf {
        self.join(entry.dir, entry.name)
    }

    /// The path of something that was left out.
    pub fn skipped_path(&self, skip: &SkippedEntry) -> PathBuf {
        self.join(skip.dir, skip.name)
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
        self.dirs.push(dir);
        (self.dirs.len() - 1) as u32
    }

    /// Name offsets from the given path down to `dir`.
    fn components(&self, dir: u32) -> Vec<u32> {
        let mut up = Vec::new();
        let mut at = dir;
        while at != NONE {
            let d = &self.dirs[at as usize];
            up.push(d.name);
            at = d.parent;
        }
        up.reverse();
        up
    }

    fn join(&self, dir: u32, name: u32) -> PathBuf {
        let mut path: Vec<u8> = Vec::new();
        let parts = self.components(dir).into_iter().chain((name != NONE).then_some(name));
        for part in parts {
            if !path.is_empty() && path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(self.name(part).to_bytes());
        }
        OsString::from_vec(path).into()
    }

    /// Sorts for reading and keeps one name per inode, the first in the order of paths.
    pub(crate) fn settle(&mut self) {
        use rayon::slice::ParallelSliceMut;
        let mut entries = std::mem::take(&mut self.entries);
        if self.file_systems.len() > 1 {
            entries.par_sort_unstable_by_key(|e| (self.fs_index(e), e.inode, e.dir, e.name));
        } else {
            entries.par_sort_unstable_by_key(|e| (e.inode, e.dir, e.name));
        }
        let before = entries.len();
        entries.dedup_by(|b, a| {
            let same = a.inode == b.inode
                && self.fs_index(a) == self.fs_index(b)
                // Elsewhere (overlays) the number in a directory need not be the file's own: `measure` tells
                // such files apart once they are open.
                && self.file_system(a).inode_numbers_hold();
            if same && self.path(b) < self.path(a) {
                *a = *b;
            }
            same
        });
        self.further_names = (before - entries.len()) as u64;
        self.entries = entries;
    }
}

/// A path's bytes as a name for the arena.
pub(crate) fn as_name(path: &OsStr) -> Vec<u8> {
    let mut bytes = path.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
