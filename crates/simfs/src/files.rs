//! The files of a mounted file system, in memory: inodes by their numbers, and names.

use crate::error::Error;
use crate::extent_map::{ExtentMap, Piece};
use crate::leaves::Leaves;
use crate::ranges::RangeSet;
use fragmend_flash::command::Units;
use fragmend_layout::FileId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name.
    pub path: PathBuf,
    /// What tells it from others that had its inode number.
    pub generation: u32,
    /// Its size in bytes, as programs see it.
    pub size: u64,
    /// Its size as its inode on the drive has it after the next commit: data behind it has no place yet.
    pub stored_size: u64,
    /// Where its blocks are.
    pub map: ExtentMap,
    /// Where its extents are.
    pub leaves: Leaves,
    /// Blocks that have got a place and are not written: they must be before a commit.
    pub unwritten_out: RangeSet,
    /// Blocks of the drive that are reserved for it, the first one for this block of the file.
    pub reserved: Option<(u64, Units)>,
}

/// The files of a file system.
#[derive(Clone, Debug, Default)]
pub struct Files {
    inodes: BTreeMap<u64, File>,
    names: BTreeMap<PathBuf, u64>,
    /// Numbers below `next` that are free.
    unused: BTreeSet<u64>,
    next: u64,
}

impl File {
    /// An empty file.
    pub fn new(path: &Path, generation: u32, longest: u32) -> Self {
        Self {
            path: path.to_owned(),
            generation,
            size: 0,
            stored_size: 0,
            map: ExtentMap::new(longest),
            leaves: Leaves::default(),
            unwritten_out: RangeSet::default(),
            reserved: None,
        }
    }

    /// Fills in the extents that were read from a drive of so many blocks: those in the inode, and those in leaves at these places.
    ///
    /// # Errors
    /// One of them is not on the drive, or they overlap.
    pub fn read_extents(
        &mut self,
        pieces: &[Piece],
        leaves: &[(u32, Vec<Piece>)],
        blocks: u32,
    ) -> Result<(), String> {
        for piece in pieces.iter().chain(leaves.iter().flat_map(|leaf| &leaf.1)) {
            let end = piece.place.checked_add(piece.count).filter(|end| *end <= blocks);
            if end.is_none() || piece.count == 0 || !self.map.insert(*piece).is_empty() {
                let path = self.path.display();
                return Err(format!("{path}: {piece:?} is not on the drive, or twice in the file"));
            }
        }
        self.leaves = Leaves::read(leaves);
        Ok(())
    }
}

impl Files {
    /// Adds a file that was read, under its number.
    pub fn add(&mut self, inode: u64, file: File) {
        self.unused.extend(self.next..inode);
        self.unused.remove(&inode);
        self.next = self.next.max(inode + 1);
        self.names.insert(file.path.clone(), inode);
        self.inodes.insert(inode, file);
    }

    /// The number that the next file gets.
    pub fn next_number(&self) -> u64 {
        self.unused.first().copied().unwrap_or(self.next)
    }

    /// The file of this number.
    pub fn get(&self, inode: u64) -> Option<&File> {
        self.inodes.get(&inode)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, inode: u64) -> Option<&mut File> {
        self.inodes.get_mut(&inode)
    }

    /// The file of this identity.
    ///
    /// # Errors
    /// It is gone.
    pub fn of(&self, id: FileId) -> Result<&File, Error> {
        match self.inodes.get(&id.inode) {
            Some(file) if file.generation == id.generation => Ok(file),
            Some(_) => Err(Error::Reused),
            None => Err(Error::Gone),
        }
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// It is gone.
    pub fn of_mut(&mut self, id: FileId) -> Result<&mut File, Error> {
        self.of(id)?;
        self.inodes.get_mut(&id.inode).ok_or(Error::Gone)
    }

    /// The number of the file at a path.
    ///
    /// # Errors
    /// There is none.
    pub fn at(&self, path: &Path) -> Result<u64, Error> {
        self.names.get(path).copied().ok_or_else(|| Error::NotFound(path.to_owned()))
    }

    /// All files, by their numbers.
    pub fn each(&self) -> impl Iterator<Item = (u64, &File)> {
        self.inodes.iter().map(|(inode, file)| (*inode, file))
    }

    /// Whether there are files with numbers in this range.
    pub fn any_within(&self, numbers: Range<u64>) -> bool {
        self.inodes.range(numbers).next().is_some()
    }

    /// Removes a file and returns it.
    pub fn remove(&mut self, inode: u64) -> Option<File> {
        let file = self.inodes.remove(&inode)?;
        self.unused.insert(inode);
        if self.names.get(&file.path) == Some(&inode) {
            self.names.remove(&file.path);
        }
        Some(file)
    }

    /// Gives a file another name, which no file has.
    pub fn rename(&mut self, inode: u64, to: &Path) {
        let Some(file) = self.inodes.get_mut(&inode) else { return };
        self.names.remove(&file.path);
        file.path = to.to_owned();
        self.names.insert(to.to_owned(), inode);
    }

    /// Each name leads to a file of that name.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        for (inode, file) in &self.inodes {
            if self.names.get(&file.path) != Some(inode) {
                return Err(format!("{}: its name leads to another file", file.path.display()));
            }
        }
        if self.names.len() != self.inodes.len() {
            return Err("a name leads to no file".into());
        }
        Ok(())
    }
}
