//! What programs do with the files.

use super::{Gathered, Kind, Mounted, State};
use crate::error::Error;
use crate::file_system::{Access, FileSystem, Token};
use crate::files::File;
use crate::machine::Machine;
use crate::readahead::blocks_of;
use fragmend_layout::{ByteRange, FileId};
use std::ops::Range;
use std::path::Path;

/// The most blocks of a file, so that block numbers have at most five bytes in a record.
const MOST_BLOCKS: u64 = 1 << 32;
/// Of the page cache, the part that may be dirty until writers write back themselves: a fifth (`vm.dirty_ratio`).
const DIRTY_SHARE: u64 = 5;

impl<K: Kind> State<K> {
    fn id(&self, inode: u64) -> Result<FileId, Error> {
        let file = self.files.get(inode).ok_or(Error::Gone)?;
        Ok(FileId { device: self.settings.device, inode, generation: file.generation })
    }

    fn create(&mut self, path: &Path) -> Result<FileId, Error> {
        if self.files.at(path).is_ok() {
            return Err(Error::Exists(path.to_owned()));
        }
        if path.to_str().is_none_or(|text| text.len() > self.kind.longest_path()) {
            return Err(Error::Unsupported("a name that is so long, or is no UTF-8"));
        }
        let inode = self.files.next_number();
        if inode >= self.kind.most_files() {
            return Err(Error::NoSpace);
        }
        // Tokens are never repeated, so generations are not, before 2^32 of them.
        let generation = self.machine.fresh_tokens(1) as u32;
        self.files.add(inode, File::new(path, generation, K::LONGEST));
        self.change(inode);
        self.id(inode)
    }

    fn remove(&mut self, inode: u64) -> Result<(), Error> {
        self.cut(inode, 0..u64::MAX)?;
        self.readahead.remove(&inode);
        let Some(mut file) = self.files.remove(inode) else { return Ok(()) };
        self.kind.unreserve(&mut self.space, &mut file);
        for place in file.leaves.places().collect::<Vec<_>>() {
            K::leave_metadata(self, place)?;
        }
        self.change(inode);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        let inode = self.files.at(from)?;
        if from == to {
            return Ok(());
        }
        if to.to_str().is_none_or(|text| text.len() > self.kind.longest_path()) {
            return Err(Error::Unsupported("a name that is so long, or is no UTF-8"));
        }
        if let Ok(other) = self.files.at(to) {
            self.remove(other)?;
        }
        self.files.rename(inode, to);
        self.change(inode);
        Ok(())
    }

    fn write(&mut self, id: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        let blocks = self.blocks(id, range)?;
        let count = blocks.end - blocks.start;
        let direct = access == Access::Direct;
        let whole = [range.start, range.len()].iter().all(|n| n.is_multiple_of(self.block_bytes));
        if direct && !whole {
            return Err(Error::Unsupported("direct I/O of parts of blocks"));
        }
        if count == 0 {
            return Ok(());
        }
        let first = self.machine.fresh_tokens(count);
        self.ensure(count)?;
        let keeps = self.machine.keeps_content();
        let token = |block: u64| keeps.then(|| first + (block - blocks.start));
        let file = self.files.of_mut(id)?;
        file.size = file.size.max(range.end);
        if direct {
            self.cache.forget(id.inode, blocks.clone());
            self.assign(id.inode, blocks.clone())?;
            return self.write_out(id.inode, blocks.clone(), token);
        }
        self.cache.write(id.inode, blocks.clone(), token);
        self.is_dirty();
        if let Some(ahead) = self.readahead.get_mut(&id.inode) {
            ahead.add(range);
        }
        if !self.settings.delayed_allocation {
            self.assign(id.inode, blocks)?;
        }
        if self.cache.dirty_blocks() > self.settings.cache_blocks / DIRTY_SHARE {
            self.write_back_all()?;
        }
        Ok(())
    }

    fn allocate(&mut self, id: FileId, range: ByteRange) -> Result<(), Error> {
        let blocks = self.blocks(id, range)?;
        self.ensure(blocks.end - blocks.start)?;
        // What is dirty and has no place gets one, so that it is not in the way of what is never written.
        self.write_back(id.inode, blocks.clone())?;
        for hole in self.files.of(id)?.map.holes(blocks.clone()) {
            self.place(id.inode, hole, true)?;
        }
        self.touch(id.inode, blocks);
        Ok(())
    }

    /// What is dirty still is to get its place from what is reserved (`ext4_release_file`).
    fn close(&mut self, id: FileId) -> Result<(), Error> {
        let file = self.files.of_mut(id)?;
        if self.cache.dirty(id.inode, 0..u64::MAX).is_empty() {
            self.kind.unreserve(&mut self.space, file);
        }
        Ok(())
    }

    fn punch(&mut self, id: FileId, range: ByteRange) -> Result<(), Error> {
        let block = self.block_bytes;
        let blocks = range.start.div_ceil(block)..range.end / block;
        let file = self.files.of_mut(id)?;
        if blocks.is_empty() {
            return Ok(());
        }
        // No data will be written back that would bring the size to the drive (`ext4_update_disksize_before_punch`).
        if blocks.end * block > file.stored_size && file.stored_size < file.size {
            file.stored_size = file.size;
            self.change(id.inode);
        }
        self.cut(id.inode, blocks)
    }

    fn truncate(&mut self, id: FileId, bytes: u64) -> Result<(), Error> {
        self.blocks(id, ByteRange { start: 0, end: bytes })?;
        let file = self.files.of_mut(id)?;
        self.kind.unreserve(&mut self.space, file);
        if bytes < file.size {
            self.cut(id.inode, bytes.div_ceil(self.block_bytes)..u64::MAX)?;
        }
        let file = self.files.of_mut(id)?;
        (file.size, file.stored_size) = (bytes, bytes);
        self.change(id.inode);
        Ok(())
    }

    fn share(&mut self, id: FileId, path: &Path) -> Result<FileId, Error> {
        if !K::SHARES {
            return Err(Error::Unsupported("its files cannot share blocks"));
        }
        if self.files.at(path).is_ok() {
            return Err(Error::Exists(path.to_owned()));
        }
        self.write_back(id.inode, 0..u64::MAX)?;
        let other = self.create(path)?;
        let (map, size) = (self.files.of(id)?.map.clone(), self.files.of(id)?.size);
        for piece in map.pieces() {
            self.owners.add(piece.units());
        }
        let file = self.files.of_mut(other)?;
        (file.size, file.stored_size, file.map) = (size, size, map);
        self.touch(other.inode, 0..u64::MAX);
        Ok(other)
    }

    /// The blocks of a range of a file.
    fn blocks(&self, id: FileId, range: ByteRange) -> Result<Range<u64>, Error> {
        self.files.of(id)?;
        let blocks = blocks_of(range, self.block_bytes);
        if blocks.end > MOST_BLOCKS {
            return Err(Error::Unsupported("a file of that size"));
        }
        Ok(blocks)
    }
}

impl<K: Kind> Mounted<K> {
    /// A read or a write. Past the page cache its system call is that of the machine.
    fn transfer(
        &self,
        access: Access,
        call: impl FnOnce(&mut State<K>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match access {
            Access::Buffered => self.call(call),
            Access::Direct => self.untimed_call(call),
        }
    }
}

impl<K: Kind> FileSystem for Mounted<K> {
    fn machine(&self) -> &Machine {
        &self.0.machine
    }

    fn create(&self, path: &Path) -> Result<FileId, Error> {
        self.call(|state| state.create(path))
    }

    fn find(&self, path: &Path) -> Result<FileId, Error> {
        self.call(|state| state.id(state.files.at(path)?))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.call(|state| {
            let inode = state.files.at(path)?;
            state.remove(inode)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.call(|state| state.rename(from, to))
    }

    fn size(&self, file: FileId) -> Result<u64, Error> {
        self.call(|state| Ok(state.files.of(file)?.size))
    }

    fn write(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        self.transfer(access, |state| state.write(file, range, access))
    }

    fn read(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        self.transfer(access, |state| state.read(file, range, access))
    }

    fn content(&self, file: FileId, blocks: Range<u64>) -> Result<Vec<Token>, Error> {
        self.0.state.borrow().content(file, blocks)
    }

    fn allocate(&self, file: FileId, range: ByteRange) -> Result<(), Error> {
        self.call(|state| state.allocate(file, range))
    }

    fn punch(&self, file: FileId, range: ByteRange) -> Result<(), Error> {
        self.call(|state| state.punch(file, range))
    }

    fn truncate(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        self.call(|state| state.truncate(file, bytes))
    }

    fn share(&self, file: FileId, path: &Path) -> Result<FileId, Error> {
        self.call(|state| state.share(file, path))
    }

    fn gather_free_space(&self) -> Result<Gathered, Error> {
        self.call(super::State::gather_free_space)
    }

    fn close(&self, file: FileId) -> Result<(), Error> {
        self.call(|state| state.close(file))
    }

    fn sync_file(&self, file: FileId) -> Result<(), Error> {
        self.call(|state| {
            state.files.of(file)?;
            state.write_back(file.inode, 0..u64::MAX)?;
            if state.changes.inodes.contains(&file.inode) {
                return state.commit_for_file();
            }
            state.flush_unless(super::Omit::FlushOfOverwrites)
        })
    }

    fn sync(&self) -> Result<(), Error> {
        self.call(|state| {
            state.write_back_all()?;
            state.commit()
        })
    }

    fn drop_caches(&self) {
        let state = &mut *self.0.state.borrow_mut();
        state.cache.drop_clean();
        state.readahead.clear();
    }

    fn check(&self) -> Result<(), String> {
        self.0.state.borrow().check()
    }
}
