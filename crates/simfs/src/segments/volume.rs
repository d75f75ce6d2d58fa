//! The calls of programs, and the file system as a volume.

use super::LogStructured;
use super::files::new_file;
use super::mover::Open;
use super::node::PATH;
use crate::error::Error;
use crate::file_system::{Access, FileSystem, Token};
use crate::machine::Machine;
use crate::readahead::blocks_of;
use fragmend_layout::{
    ByteRange, DeviceProfile, FileId, FsKind, Layout, Movable, Skip, SkipReason, Volume,
};
use std::ops::Range;
use std::path::Path;

/// The device number of its files.
const DEVICE: u64 = 0xF2F5;

fn id(inode: u32, generation: u32) -> FileId {
    FileId { device: DEVICE, inode: inode.into(), generation }
}

impl LogStructured {
    /// The inode of a file.
    pub(super) fn inode(&self, file: FileId) -> Result<u32, Error> {
        let inode = u32::try_from(file.inode).map_err(|_| Error::Gone)?;
        let state = self.state.borrow();
        let found = state.files.get(inode)?.attributes.generation;
        if found == file.generation { Ok(inode) } else { Err(Error::Reused) }
    }

    /// The layout of a range of a file.
    pub(super) fn layout_of(&self, file: FileId, range: ByteRange) -> Result<Layout, Error> {
        let inode = self.inode(file)?;
        let state = self.state.borrow();
        let (found, block) = (state.files.get(inode)?, self.machine.block_bytes());
        let blocks = blocks_of(range, block);
        let dirty = state.cache.dirty(inode.into(), blocks.clone());
        let is_dirty = |block: u64| {
            let behind = dirty.partition_point(|range| range.end <= block);
            dirty.get(behind).is_some_and(|range| range.contains(&block))
        };
        let mut layout = Layout::new(file, found.attributes.size);
        let extents = found.extents(state.capacity, block, blocks, is_dirty);
        extents.into_iter().for_each(|extent| layout.push(extent));
        Ok(layout)
    }

    /// A file that is not there any more, or whose path leads to another one.
    fn missing(&self, file: FileId, hint: &Path) -> Option<Skip> {
        let error = self.inode(file).err()?;
        let is_replaced = self.state.borrow().files.named(hint).is_some();
        if is_replaced {
            return Some(Skip::new(SkipReason::IdentityChanged, "another file has its path"));
        }
        Some(error.into())
    }
}

impl FileSystem for LogStructured {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn create(&self, path: &Path) -> Result<FileId, Error> {
        let mut state = self.state.borrow_mut();
        let bytes = path.to_str().ok_or(Error::Unsupported("its path is no text"))?.len();
        if bytes > PATH {
            return Err(Error::Unsupported("its path is too long"));
        }
        if state.files.named(path).is_some() {
            return Err(Error::Exists(path.to_owned()));
        }
        let (inode, generation) = (state.next_inode, state.next_generation);
        let next = inode.checked_add(1).zip(generation.checked_add(1));
        let next = next.ok_or(Error::Unsupported("it has no inode left"))?;
        state.promise(1)?;
        (state.next_inode, state.next_generation) = next;
        let file = new_file(path, generation, state.capacity);
        state.files.add(inode, file);
        state.dirty(inode, 0);
        Ok(id(inode, generation))
    }

    fn find(&self, path: &Path) -> Result<FileId, Error> {
        let state = self.state.borrow();
        let inode = state.files.named(path).ok_or_else(|| Error::NotFound(path.to_owned()))?;
        Ok(id(inode, state.files.get(inode)?.attributes.generation))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        let inode = state.files.named(path).ok_or_else(|| Error::NotFound(path.to_owned()))?;
        let file = state.files.remove(inode).ok_or(Error::Gone)?;
        state.retired.insert(path.to_owned());
        state.forget_file(inode, &file);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let inode = self.inode(self.find(from)?)?;
        if to.to_str().is_none_or(|to| to.len() > PATH) {
            return Err(Error::Unsupported("its new path is no text, or too long"));
        }
        if from == to {
            return Ok(());
        }
        if self.find(to).is_ok() {
            self.remove(to)?;
        }
        let mut state = self.state.borrow_mut();
        state.files.rename(inode, to)?;
        state.retired.insert(from.to_owned());
        state.unrepeatable.insert(inode);
        state.dirty(inode, 0);
        Ok(())
    }

    fn size(&self, file: FileId) -> Result<u64, Error> {
        let inode = self.inode(file)?;
        Ok(self.state.borrow().files.get(inode)?.attributes.size)
    }

    fn write(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        let inode = self.inode(file)?;
        self.state.borrow_mut().write(inode, range, access)
    }

    fn read(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        let inode = self.inode(file)?;
        self.state.borrow_mut().read(inode, range, access)
    }

    fn content(&self, file: FileId, blocks: Range<u64>) -> Result<Vec<Token>, Error> {
        let inode = self.inode(file)?;
        self.state.borrow().content(inode, blocks)
    }

    fn allocate(&self, file: FileId, range: ByteRange) -> Result<(), Error> {
        let inode = self.inode(file)?;
        let mut state = self.state.borrow_mut();
        let blocks = blocks_of(range, self.machine.block_bytes());
        state.allocate_blocks(inode, blocks)
    }

    fn punch(&self, file: FileId, range: ByteRange) -> Result<(), Error> {
        let (inode, block) = (self.inode(file)?, self.machine.block_bytes());
        let whole = range.start.div_ceil(block)..range.end / block;
        if whole.is_empty() {
            return Ok(());
        }
        self.state.borrow_mut().punch(inode, whole)
    }

    fn truncate(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        let inode = self.inode(file)?;
        self.state.borrow_mut().truncate(inode, bytes)
    }

    fn sync_file(&self, file: FileId) -> Result<(), Error> {
        let inode = self.inode(file)?;
        self.state.borrow_mut().sync_file(inode)
    }

    fn sync(&self) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        state.write_back_all()?;
        state.make_space(0)?;
        state.checkpoint()
    }

    fn drop_caches(&self) {
        let mut state = self.state.borrow_mut();
        state.cache.drop_clean();
        state.readahead.clear();
    }

    fn check(&self) -> Result<(), String> {
        self.state.borrow().check()
    }
}

impl Volume for LogStructured {
    fn label(&self) -> String {
        "segments".into()
    }

    fn kind(&self) -> FsKind {
        FsKind::F2fs
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        Ok(self.state.borrow().free_blocks() * self.machine.block_bytes())
    }

    fn total_bytes(&self) -> u64 {
        u64::from(self.machine.blocks()) * self.machine.block_bytes()
    }

    fn block_bytes(&self) -> u64 {
        self.machine.block_bytes()
    }

    fn profile(&self) -> Option<DeviceProfile> {
        self.machine.profile()
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        let files: Vec<_> = self
            .state
            .borrow()
            .files
            .iter()
            .map(|(inode, file)| {
                let attributes = &file.attributes;
                (attributes.path.clone(), id(inode, attributes.generation))
            })
            .collect();
        files.iter().for_each(|(path, file)| visit(path, Ok(*file)));
        Ok(())
    }

    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip> {
        if let Some(skip) = self.missing(file, hint) {
            return Err(skip);
        }
        Ok(self.layout_of(file, ByteRange { start: 0, end: u64::MAX })?)
    }

    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        match self.missing(file, hint) {
            Some(skip) => Err(skip),
            None => Ok(Box::new(Open::new(self, file, self.primitive.get()))),
        }
    }
}
