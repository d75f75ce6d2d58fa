//! What may be on the drive after a power cut: for each file the names, the sizes and the content of each block that it has had since
//! they were last made durable; for each name the files.

use crate::file_system::{FileSystem, Token};
use fragmend_layout::{ByteRange, FileId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files, as they are and as they may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    files: BTreeMap<FileId, File>,
    names: BTreeMap<PathBuf, Values<Option<FileId>>>,
    /// The file that is being made, of which nothing is known yet.
    creating: Option<PathBuf>,
    block: u64,
}

/// A value, with those that it may have after a cut: it is one of them.
#[derive(Clone, Debug)]
struct Values<T>(T, BTreeSet<T>);

/// A file.
#[derive(Clone, Debug)]
struct File {
    name: Values<Option<PathBuf>>,
    /// Bytes; all between the least and the most that it may have are possible.
    size: Values<u64>,
    blocks: Vec<Values<Token>>,
}

impl<T: Clone + Ord> Values<T> {
    fn new(value: T) -> Self {
        Self(value.clone(), BTreeSet::from([value]))
    }

    fn set(&mut self, value: T) {
        self.1.insert(value.clone());
        self.0 = value;
    }

    fn settle(&mut self) {
        self.1 = BTreeSet::from([self.0.clone()]);
    }
}

impl File {
    fn has_size(&self, size: u64) -> bool {
        let (first, last) = (self.size.1.first(), self.size.1.last());
        first.is_some_and(|least| *least <= size) && last.is_some_and(|most| size <= *most)
    }

    fn block(&mut self, block: u64) -> &mut Values<Token> {
        let blocks = self.blocks.len().max(block as usize + 1);
        self.blocks.resize(blocks, Values::new(0));
        &mut self.blocks[block as usize]
    }

    fn settle(&mut self) {
        self.size.settle();
        self.blocks.iter_mut().for_each(Values::settle);
    }
}

impl Model {
    /// No files, on a file system with blocks of so many bytes.
    pub fn new(block: u64) -> Self {
        Self { block, ..Self::default() }
    }

    /// The files that have a name, by it.
    pub fn present(&self) -> Vec<(PathBuf, FileId)> {
        let names = self.names.iter();
        names.filter_map(|(path, file)| Some((path.clone(), file.0?))).collect()
    }

    /// The file at a path.
    pub fn at(&self, path: &Path) -> Option<FileId> {
        self.names.get(path)?.0
    }

    /// Bytes of a file.
    pub fn size(&self, file: FileId) -> u64 {
        self.files[&file].size.0
    }

    /// A file is about to be made.
    pub fn creates(&mut self, path: &Path) {
        self.creating = Some(path.to_owned());
    }

    /// It was made.
    pub fn created(&mut self, path: &Path, file: FileId) {
        self.creating = None;
        let mut name = Values::new(None);
        name.set(Some(path.to_owned()));
        let new = File { name, size: Values::new(0), blocks: Vec::new() };
        assert!(self.files.insert(file, new).is_none(), "{file:?} was another file");
        self.name(path).set(Some(file));
    }

    fn name(&mut self, path: &Path) -> &mut Values<Option<FileId>> {
        self.names.entry(path.to_owned()).or_insert(Values::new(None))
    }

    fn file(&mut self, file: FileId) -> &mut File {
        self.files.get_mut(&file).expect("a file")
    }

    /// A range is being written, whose blocks get the tokens from `first` on.
    pub fn writes(&mut self, file: FileId, range: ByteRange, first: Token) {
        let blocks = range.start / self.block..range.end.div_ceil(self.block);
        let file = self.file(file);
        blocks.zip(first..).for_each(|(block, token)| file.block(block).set(token));
        let size = file.size.0.max(range.end);
        file.size.set(size);
    }

    /// A range is being punched.
    pub fn punches(&mut self, file: FileId, range: ByteRange) {
        let blocks = range.start / self.block..range.end / self.block;
        let file = self.file(file);
        let end = blocks.end.min(file.blocks.len() as u64);
        (blocks.start..end).for_each(|block| file.block(block).set(0));
    }

    /// A file gets this size.
    pub fn truncates(&mut self, file: FileId, bytes: u64) {
        let first = bytes.div_ceil(self.block) as usize;
        let file = self.file(file);
        file.size.set(bytes);
        file.blocks.iter_mut().skip(first).for_each(|block| block.set(0));
    }

    /// A file at `from` gets the name `to`, which another one loses, or none.
    pub fn renames(&mut self, from: &Path, to: Option<&Path>) {
        let Some(file) = self.at(from) else { return };
        self.name(from).set(None);
        if let Some(to) = to {
            if let Some(other) = self.at(to) {
                self.file(other).name.set(None);
            }
            self.name(to).set(Some(file));
        }
        self.file(file).name.set(to.map(Path::to_owned));
    }

    /// A file that shares all blocks of another was made.
    pub fn shared(&mut self, file: FileId, path: &Path, other: FileId) {
        let (size, blocks) = (self.files[&file].size.0, self.files[&file].blocks.clone());
        self.created(path, other);
        let new = self.file(other);
        new.size.set(size);
        new.blocks = vec![Values::new(0); blocks.len()];
        for (block, old) in new.blocks.iter_mut().zip(blocks) {
            block.1.extend(old.1);
            block.set(old.0);
        }
    }

    /// A file is durable, with its name.
    pub fn synced(&mut self, id: FileId) {
        let file = self.file(id);
        file.settle();
        let Some(path) = file.name.0.clone() else { return };
        let left: Vec<PathBuf> = file.name.1.iter().flatten().cloned().collect();
        file.name.settle();
        for name in left.iter().filter(|name| **name != path) {
            self.name(name).1.remove(&Some(id));
        }
        self.name(&path).settle();
        // Another file cannot be there any more.
        for other in self.files.iter_mut().filter(|(other, _)| **other != id).map(|(_, file)| file)
        {
            other.name.1.remove(&Some(path.clone()));
        }
    }

    /// All is durable.
    pub fn all_synced(&mut self) {
        self.files.retain(|_, file| file.name.0.is_some());
        for file in self.files.values_mut() {
            file.settle();
            file.name.settle();
        }
        self.names.values_mut().for_each(Values::settle);
    }

    /// Compares what is mounted after a cut with what may be there.
    pub fn compare(&self, fs: &dyn FileSystem) -> Result<(), String> {
        let mut found: BTreeMap<FileId, PathBuf> = BTreeMap::new();
        let mut result = Ok(());
        fs.files(&mut |path, file| {
            let Ok(file) = file else { return };
            if let Some(other) = found.insert(file, path.to_owned()) {
                result = Err(format!("{other:?} and {path:?} are one file"));
            }
        })
        .map_err(|skip| format!("{skip:?}"))?;
        result?;
        for (file, path) in &found {
            match self.files.get(file) {
                Some(expected) => self.compare_file(fs, *file, path, expected)?,
                None if self.creating.as_ref() == Some(path) => {}
                None => return Err(format!("{path:?} is a file that nobody has made")),
            }
        }
        for (file, expected) in &self.files {
            let name = found.get(file).cloned();
            if !expected.name.1.contains(&name) {
                return Err(format!("{file:?} is {name:?} and not in {:?}", expected.name.1));
            }
        }
        for (path, expected) in &self.names {
            let at = found.iter().find(|(_, found)| *found == path).map(|(file, _)| *file);
            let is_new = at.is_some_and(|at| !self.files.contains_key(&at));
            if !expected.1.contains(&at) && !is_new {
                return Err(format!("{path:?} is {at:?} and not in {:?}", expected.1));
            }
        }
        Ok(())
    }

    fn compare_file(
        &self,
        fs: &dyn FileSystem,
        file: FileId,
        path: &Path,
        expected: &File,
    ) -> Result<(), String> {
        let size = fs.size(file).map_err(|error| error.to_string())?;
        if !expected.has_size(size) {
            return Err(format!("{path:?} has {size} bytes and not {:?}", expected.size.1));
        }
        let blocks = size.div_ceil(self.block);
        let content = fs.content(file, 0..blocks).map_err(|error| error.to_string())?;
        for (block, token) in content.into_iter().enumerate() {
            let fits = match expected.blocks.get(block) {
                Some(values) => values.1.contains(&token),
                None => token == 0,
            };
            if !fits {
                let values = expected.blocks.get(block).map(|values| &values.1);
                return Err(format!("{path:?}, block {block}: {token} and not in {values:?}"));
            }
        }
        Ok(())
    }

    /// The content of files is what programs see now; nothing of that is durable for it.
    pub fn observe(&mut self, fs: &dyn FileSystem) {
        for (_, id) in self.present() {
            let size = fs.size(id).expect("its size");
            let file = self.file(id);
            file.size.set(size);
            let content = fs.content(id, 0..file.blocks.len() as u64).expect("its content");
            file.blocks.iter_mut().zip(content).for_each(|(block, token)| block.set(token));
        }
    }

    /// What is mounted is what the files are from now on.
    pub fn adopt(&mut self, fs: &dyn FileSystem) {
        *self = Self::new(self.block);
        let mut found = Vec::new();
        fs.files(&mut |path, file| found.extend(file.map(|file| (path.to_owned(), file)).ok()))
            .expect("all files");
        for (path, id) in found {
            let size = fs.size(id).expect("its size");
            let content = fs.content(id, 0..size.div_ceil(self.block)).expect("its content");
            self.created(&path, id);
            let file = self.file(id);
            file.size.set(size);
            file.blocks = content.into_iter().map(Values::new).collect();
        }
        self.all_synced();
    }
}
