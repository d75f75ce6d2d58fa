//! Reads, through the page cache with readahead, or past it.

use super::{Kind, State};
use crate::error::Error;
use crate::extent_map::{ExtentMap, Piece};
use crate::file_system::{Access, Token};
use crate::machine::token_of_block;
use crate::readahead::{Readahead, blocks_of};
use fragmend_flash::command::Units;
use fragmend_layout::{ByteRange, FileId};
use std::ops::Range;

/// Where the written blocks of a range are.
fn places(map: &ExtentMap, range: Range<u64>) -> Vec<Units> {
    map.within(range).filter(|piece| !piece.unwritten).map(|piece| piece.units()).collect()
}

impl<K: Kind> State<K> {
    /// Reads a range of a file, as far as it has one.
    pub fn read(&mut self, id: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        let size = self.files.of(id)?.size;
        let range = ByteRange { start: range.start, end: range.end.min(size) };
        if range.is_empty() {
            return Ok(());
        }
        let blocks = blocks_of(range, self.block_bytes);
        if access == Access::Direct {
            self.write_back(id.inode, blocks.clone())?;
            let units = places(&self.files.of(id)?.map, blocks);
            if !units.is_empty() {
                self.machine.read(&units, Access::Direct)?;
            }
            return Ok(());
        }
        let path = &self.path;
        let ahead = self.readahead.entry(id.inode).or_insert_with(|| Readahead::new(size, path));
        if ahead.size() != size {
            ahead.forget(size);
        }
        self.fetch(id, range)?;
        if !self.cache.missing(id.inode, blocks.clone()).is_empty() {
            // It was evicted since.
            self.readahead.get_mut(&id.inode).ok_or(Error::Gone)?.forget(size);
            self.fetch(id, range)?;
        }
        let ahead = self.readahead.get_mut(&id.inode).ok_or(Error::Gone)?;
        ahead.end(&self.machine, range);
        self.machine.use_bytes(range.len());
        Ok(())
    }

    /// Asks for what a read fetches, window by window.
    fn fetch(&mut self, id: FileId, range: ByteRange) -> Result<(), Error> {
        let program = self.machine.present().number();
        let ahead = self.readahead.get_mut(&id.inode).ok_or(Error::Gone)?;
        let file = self.files.of(id)?;
        let end = file.size.div_ceil(self.block_bytes);
        let window_blocks = u64::from(self.path.readahead_bytes) / self.block_bytes;
        for part in ahead.fetches(program, range) {
            let blocks = blocks_of(part, self.block_bytes);
            for missing in self.cache.missing(id.inode, blocks.start..blocks.end.min(end)) {
                let units = places(&file.map, missing.clone());
                if units.is_empty() {
                    continue;
                }
                if window_blocks == 0 {
                    self.machine.read(&units, Access::Direct)?;
                } else {
                    ahead.begin(&self.machine, part, &units)?;
                }
            }
            self.cache.add(id.inode, blocks.start..blocks.end.min(end));
        }
        Ok(())
    }

    /// What blocks of a file hold as programs see it.
    pub fn content(&self, id: FileId, blocks: Range<u64>) -> Result<Vec<Token>, Error> {
        let file = self.files.of(id)?;
        let token = |block: u64| {
            if let Some(token) = self.cache.token(id.inode, block) {
                return token;
            }
            match file.map.at(block) {
                Some(Piece { block: first, place, unwritten: false, .. }) => {
                    self.token_at(place + (block - first) as u32)
                }
                _ => 0,
            }
        };
        Ok(blocks.map(token).collect())
    }

    /// What a block of the drive holds.
    pub fn token_at(&self, place: u32) -> Token {
        token_of_block(&self.machine.bytes(Units::new(place, 1)))
    }
}
