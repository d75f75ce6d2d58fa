//! Reads, writes and writeback of files' data.
//!
//! A buffered write promises space for what it makes (`NEW_ADDR`), and gets a place when it is written back; a direct one gets it at
//! once. What is written goes to the log of the file's temperature. Its old block stays as it is until the next checkpoint
//! (`sections.rs`), so a power cut at any command leaves the file with the old addresses or the new ones, and each of them leads to
//! whole data: new addresses become durable behind a flush (`fsync.rs`, `checkpoint.rs`).

use super::Temperature;
use super::files::Node;
use super::node::{HOLE, RESERVED, is_place};
use super::state::{Contents, LogKind, Owner, State, add_block};
use crate::error::Error;
use crate::file_system::{Access, Token};
use crate::machine::{block_of_token, token_of_block};
use crate::readahead::{Readahead, blocks_of};
use fragmend_flash::command::Units;
use fragmend_layout::ByteRange;
use std::ops::Range;

/// The most blocks that one call writes.
const AT_ONCE: u64 = 256;
/// The block of a file behind the last one that there can be.
const BLOCKS: u64 = 1 << 32;

/// A block that is being written: its number in the file, its new place, and whether that was allocated for it.
struct Placed {
    block: u64,
    place: u32,
    is_new: bool,
}

impl State {
    /// See [`crate::file_system::FileSystem::write`].
    pub fn write(&mut self, inode: u32, range: ByteRange, access: Access) -> Result<(), Error> {
        let block_bytes = self.machine.block_bytes();
        let blocks = blocks_of(range, block_bytes);
        if range.is_empty() {
            return Ok(());
        }
        self.check_blocks(&blocks)?;
        let first = self.machine.fresh_tokens(blocks.end - blocks.start);
        let start = blocks.start;
        let token = |block: u64| first + (block - start);
        self.read_cut_blocks(inode, range)?;
        self.allocate_blocks(inode, blocks.clone())?;
        match access {
            Access::Buffered => {
                let keeps = self.machine.keeps_content();
                self.cache.write(inode.into(), blocks, |block| keeps.then(|| token(block)));
            }
            Access::Direct => {
                self.cache.forget(inode.into(), blocks.clone());
                let log = self.files.get(inode)?.attributes.temperature.log();
                self.write_out(inode, blocks, log, &token)?;
            }
        }
        self.grow(inode, range.end)?;
        if self.cache.dirty_blocks() > self.settings.dirty_blocks {
            self.write_back_all()?;
        }
        Ok(())
    }

    /// A file has this size at least.
    pub fn grow(&mut self, inode: u32, bytes: u64) -> Result<(), Error> {
        let attributes = &mut self.files.get_mut(inode)?.attributes;
        if attributes.size < bytes {
            attributes.size = bytes;
            self.dirty(inode, 0);
        }
        Ok(())
    }

    /// Reads the blocks of which a write leaves a part as it was, unless they are in memory.
    fn read_cut_blocks(&mut self, inode: u32, range: ByteRange) -> Result<(), Error> {
        let block_bytes = self.machine.block_bytes();
        for cut in [range.start, range.end] {
            let block = cut / block_bytes;
            let size = self.files.get(inode)?.attributes.size;
            if !cut.is_multiple_of(block_bytes) && cut < size {
                self.read_missing(inode, block..block + 1)?;
            }
        }
        Ok(())
    }

    fn check_blocks(&self, blocks: &Range<u64>) -> Result<(), Error> {
        if blocks.end > BLOCKS {
            return Err(Error::Unsupported("a file has four billion blocks at most"));
        }
        Ok(())
    }

    /// Promises a place to each hole in a range, and to the nodes that their addresses need.
    ///
    /// # Errors
    /// There is not so much space: nothing was promised. Or the file is gone, or cannot have so many blocks.
    pub fn allocate_blocks(&mut self, inode: u32, blocks: Range<u64>) -> Result<(), Error> {
        self.check_blocks(&blocks)?;
        if blocks.is_empty() {
            return Ok(());
        }
        let (capacity, file) = (self.capacity, self.files.get(inode)?);
        let holes =
            blocks.end - blocks.start - file.addresses(capacity, blocks.clone()).count() as u64;
        if holes == 0 {
            return Ok(());
        }
        let numbers = capacity.slot(blocks.start).0..=capacity.slot(blocks.end - 1).0;
        let missing = u64::from(numbers.end() - numbers.start() + 1)
            - file.nodes.range(numbers.clone()).count() as u64;
        self.promise(holes + missing)?;
        for number in numbers {
            let file = self.files.get_mut(inode)?;
            file.nodes.entry(number).or_insert_with(|| Node::empty(capacity.of(number)));
            self.dirty(inode, number);
        }
        for block in blocks {
            if self.files.get(inode)?.address(capacity, block) == HOLE {
                self.set_address(inode, block, RESERVED)?;
            }
        }
        Ok(())
    }

    /// Writes blocks that have an address to new places in a log, or in place; `token` returns what they hold.
    pub fn write_out(
        &mut self,
        inode: u32,
        blocks: Range<u64>,
        log: LogKind,
        token: &dyn Fn(u64) -> Token,
    ) -> Result<(), Error> {
        let mut rest = blocks;
        while !rest.is_empty() {
            let end = rest.end.min(rest.start + AT_ONCE);
            self.make_space(end - rest.start)?;
            rest.start = self.write_some(inode, rest.start..end, log, token)?;
        }
        Ok(())
    }

    /// Writes blocks up to the end of the log's section, or all; returns the block after the last one.
    pub fn write_some(
        &mut self,
        inode: u32,
        blocks: Range<u64>,
        log: LogKind,
        token: &dyn Fn(u64) -> Token,
    ) -> Result<u64, Error> {
        let (mut placed, mut units) = (Vec::<Placed>::new(), Vec::<Units>::new());
        let mut contents = Contents::new();
        for block in blocks {
            let before = self.files.get(inode)?.address(self.capacity, block);
            let in_place = self.settings.in_place && is_place(before) && log != LogKind::Cold;
            let owner = Owner { inode, number: block as u32 };
            let place = match if in_place { Ok(before) } else { self.allocate(log, owner) } {
                Ok(place) => place,
                Err(error) if placed.is_empty() => return Err(error),
                Err(_) => break,
            };
            if self.machine.keeps_content() {
                let bytes = block_of_token(token(block), self.machine.block_bytes());
                contents.extend(bytes.map(|bytes| (place, bytes)));
            }
            add_block(&mut units, place);
            placed.push(Placed { block, place, is_new: !in_place });
            // The next block is in another section, and perhaps in another zone.
            if !in_place && !self.logs[log as usize].is_open {
                break;
            }
        }
        let end = placed.last().map_or(0, |last| last.block + 1);
        self.put(&units, &mut contents)?;
        for Placed { block, place, .. } in placed.iter().filter(|placed| placed.is_new) {
            self.set_address(inode, *block, *place)?;
        }
        let writes = self.writes;
        self.files.get_mut(inode)?.written = writes;
        Ok(end)
    }

    /// Writes back what is dirty in a range of a file.
    pub fn write_back(
        &mut self,
        inode: u32,
        blocks: Range<u64>,
        log: LogKind,
    ) -> Result<(), Error> {
        for dirty in self.cache.dirty(inode.into(), blocks) {
            let tokens = self.tokens(inode, dirty.clone());
            let start = dirty.start;
            let token = |block: u64| tokens.get((block - start) as usize).copied().unwrap_or(0);
            self.write_out(inode, dirty.clone(), log, &token)?;
            self.cache.clean(inode.into(), dirty);
        }
        Ok(())
    }

    /// What the dirty blocks of a range hold, where that is kept.
    fn tokens(&self, inode: u32, blocks: Range<u64>) -> Vec<Token> {
        if !self.machine.keeps_content() {
            return Vec::new();
        }
        blocks.map(|block| self.cache.token(inode.into(), block).unwrap_or(0)).collect()
    }

    /// Writes back all that is dirty of a file, to the log of its temperature.
    pub fn write_back_file(&mut self, inode: u32) -> Result<(), Error> {
        let log = self.files.get(inode)?.attributes.temperature.log();
        self.write_back(inode, 0..BLOCKS, log)
    }

    /// Writes back all that is dirty.
    pub fn write_back_all(&mut self) -> Result<(), Error> {
        self.cache
            .dirty_files()
            .into_iter()
            .try_for_each(|inode| self.write_back_file(inode as u32))
    }

    /// See [`crate::file_system::FileSystem::read`].
    pub fn read(&mut self, inode: u32, range: ByteRange, access: Access) -> Result<(), Error> {
        let block_bytes = self.machine.block_bytes();
        let size = self.files.get(inode)?.attributes.size;
        let range = range.intersect(ByteRange { start: 0, end: size });
        if range.is_empty() {
            return Ok(());
        }
        let blocks = blocks_of(range, block_bytes);
        if access == Access::Direct {
            // What is dirty is on the drive before it is read from there.
            self.write_back_file(inode)?;
            let units = self.places(inode, [blocks.clone()]);
            return self.read_units(inode, blocks, &units, access);
        }
        let path = &self.path;
        let ahead = self.readahead.entry(inode).or_insert_with(|| Readahead::new(size, path));
        if ahead.size() != size {
            ahead.forget(size);
        }
        self.fetch(inode, range)?;
        if !self.cache.missing(inode.into(), blocks).is_empty() {
            // It was evicted since.
            self.readahead.get_mut(&inode).ok_or(Error::Gone)?.forget(size);
            self.fetch(inode, range)?;
        }
        self.readahead.get_mut(&inode).ok_or(Error::Gone)?.end(&self.machine, range);
        self.machine.use_bytes(range.len());
        Ok(())
    }

    /// Asks for what a buffered read fetches, window by window.
    fn fetch(&mut self, inode: u32, range: ByteRange) -> Result<(), Error> {
        let (program, block_bytes) = (self.machine.present().number(), self.machine.block_bytes());
        let end = self.files.get(inode)?.attributes.size.div_ceil(block_bytes);
        let fetched = self.readahead.get_mut(&inode).ok_or(Error::Gone)?.fetches(program, range);
        for part in fetched {
            let blocks = blocks_of(part, block_bytes);
            let blocks = blocks.start..blocks.end.min(end);
            for missing in self.cache.missing(inode.into(), blocks.clone()) {
                let units = self.places(inode, [missing.clone()]);
                if units.is_empty() {
                    continue;
                }
                if self.path.readahead_bytes == 0 {
                    self.machine.read(&units, Access::Direct)?;
                } else {
                    let ahead = self.readahead.get_mut(&inode).ok_or(Error::Gone)?;
                    ahead.begin(&self.machine, part, &units)?;
                }
                self.seen(inode, missing);
            }
            self.cache.add(inode.into(), blocks);
        }
        Ok(())
    }

    /// The monitor is told of a read that has reached the drive.
    fn seen(&mut self, inode: u32, blocks: Range<u64>) {
        if let Some(monitor) = &mut self.monitor {
            monitor.read(inode.into(), blocks);
        }
    }

    /// Reads what of a range is not in the page cache, which has it afterwards, for a write or a move: no read of a program.
    pub fn read_missing(&mut self, inode: u32, blocks: Range<u64>) -> Result<(), Error> {
        let missing = self.cache.missing(inode.into(), blocks);
        let units = self.places(inode, missing.iter().cloned());
        if !units.is_empty() {
            self.machine.read(&units, Access::Direct)?;
        }
        missing.into_iter().for_each(|range| self.cache.add(inode.into(), range));
        Ok(())
    }

    /// The same of one block, as part of a call that is being made.
    pub fn read_missing_block(&mut self, inode: u32, block: u64) -> Result<(), Error> {
        for missing in self.cache.missing(inode.into(), block..block + 1) {
            let units = self.places(inode, [missing.clone()]);
            if !units.is_empty() {
                let ready = self.machine.begin_read(&units)?;
                self.machine.end_read(ready);
            }
            self.cache.add(inode.into(), missing);
        }
        Ok(())
    }

    /// The runs of places of ranges of a file, in its order; holes have none.
    fn places(&self, inode: u32, ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Units> {
        let mut units = Vec::new();
        let Ok(file) = self.files.get(inode) else { return units };
        for range in ranges {
            let addresses = file.addresses(self.capacity, range);
            let places = addresses.map(|(_, address)| address).filter(|address| is_place(*address));
            places.for_each(|place| add_block(&mut units, place));
        }
        units
    }

    fn read_units(
        &mut self,
        inode: u32,
        blocks: Range<u64>,
        units: &[Units],
        access: Access,
    ) -> Result<(), Error> {
        if units.is_empty() {
            return Ok(());
        }
        self.machine.read(units, access)?;
        self.seen(inode, blocks);
        Ok(())
    }

    /// See [`crate::file_system::FileSystem::content`].
    pub fn content(&self, inode: u32, blocks: Range<u64>) -> Result<Vec<Token>, Error> {
        let file = self.files.get(inode)?;
        let of_block = |block: u64| match self.cache.token(inode.into(), block) {
            Some(token) => token,
            None => match file.address(self.capacity, block) {
                place if is_place(place) => {
                    token_of_block(&self.machine.bytes(Units::new(place, 1)))
                }
                _ => 0,
            },
        };
        Ok(blocks.map(of_block).collect())
    }

    /// Blocks of a range become holes.
    pub fn punch(&mut self, inode: u32, blocks: Range<u64>) -> Result<(), Error> {
        let file = self.files.get(inode)?;
        let addresses = file.addresses(self.capacity, blocks.clone());
        let gone: Vec<u64> = addresses.map(|(block, _)| block).collect();
        let first = self.capacity.slot(blocks.start).0;
        self.cache.forget(inode.into(), blocks);
        for block in &gone {
            self.set_address(inode, *block, HOLE)?;
            self.used -= 1;
        }
        let nodes = self.files.get(inode)?.nodes.range(first.max(1)..);
        let empty: Vec<u32> = nodes.filter(|(_, node)| node.used == 0).map(|(n, _)| *n).collect();
        empty.into_iter().for_each(|number| self.remove_node(inode, number));
        Ok(())
    }

    /// See [`crate::file_system::FileSystem::truncate`].
    pub fn truncate(&mut self, inode: u32, bytes: u64) -> Result<(), Error> {
        let end = bytes.div_ceil(self.machine.block_bytes());
        self.check_blocks(&(0..end))?;
        self.punch(inode, end..BLOCKS)?;
        self.files.get_mut(inode)?.attributes.size = bytes;
        self.dirty(inode, 0);
        Ok(())
    }
}

impl Temperature {
    /// Where data of this temperature is written.
    pub fn log(self) -> LogKind {
        match self {
            Self::Hot => LogKind::Hot,
            Self::Warm => LogKind::Warm,
            Self::Cold => LogKind::Cold,
        }
    }
}
