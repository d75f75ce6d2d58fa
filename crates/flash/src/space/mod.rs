//! The flash space: the content of every physical unit, and the state of every block. The tables of this
//! module change together, so only its own functions change them.

mod blocks;
mod map;

pub(crate) use blocks::{BlockState, Blocks, Stream};
pub(crate) use map::{Location, Map};

use crate::command::Units;
use crate::content::Content;
use crate::device::Bytes;
use crate::geometry::Shape;
use map::ErasedAreas;

/// The mapping, the out-of-band areas, the blocks, and the content where the drive keeps it.
#[derive(Clone, Debug)]
pub(crate) struct FlashSpace {
    shape: Shape,
    map: Map,
    blocks: Blocks,
    content: Option<Content>,
    /// The number of programs so far.
    programs: u64,
}

/// A block as it was before an erase.
#[derive(Clone, Debug)]
pub(crate) struct ErasedBlock {
    first: u32,
    areas: ErasedAreas,
    content: Vec<Bytes>,
}

impl FlashSpace {
    /// A flash space that was never written to.
    pub fn new(shape: &Shape, keeps_content: bool) -> Self {
        Self {
            map: Map::new(shape),
            blocks: Blocks::new(shape),
            content: keeps_content.then(|| Content::new(shape)),
            programs: 0,
            shape: shape.clone(),
        }
    }

    /// The mapping and the out-of-band areas.
    #[inline]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The blocks.
    #[inline]
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The number of the last program.
    pub fn programs(&self) -> u64 {
        self.programs
    }

    /// The content of a physical unit, where the drive keeps it.
    pub fn bytes(&self, physical: u32) -> Bytes {
        self.content.as_ref().and_then(|content| content.get(physical))
    }

    /// Unmaps a logical unit: its physical unit becomes invalid, and the block of that must not be erased
    /// before [`Self::set_succeeded`]. Returns where the logical unit was.
    #[inline]
    pub fn unmap(&mut self, logical: u32) -> Location {
        let location = self.map.unmap(logical);
        if let Location::Flash(physical) = location {
            let block = self.shape.block_of(physical);
            self.blocks.remove_valid(block);
            self.blocks.await_successor(block);
        }
        location
    }

    /// Maps a logical unit to a place in the write buffer.
    #[inline]
    pub fn set_buffered(&mut self, logical: u32, place: u32) {
        self.map.set_buffered(logical, place);
    }

    /// Notes that the successor of a physical unit is programmed at `safe_at`, or that there will be none.
    #[inline]
    pub fn set_succeeded(&mut self, physical: u32, safe_at: u64) {
        self.blocks.set_succeeded(self.shape.block_of(physical), safe_at);
    }

    /// Programs the program unit at the write pointer of a die's open block; returns its first unit, or
    /// `None` if no block is open.
    pub fn program_next(&mut self, die: u32, stream: Stream, single_file: bool) -> Option<u32> {
        self.programs += 1;
        let first = self.blocks.advance(die, stream, self.programs)?;
        self.map.set_program(first, self.programs, single_file);
        Some(first)
    }

    /// Maps a logical unit to a physical unit of that program unit.
    #[inline]
    pub fn set_programmed(&mut self, physical: u32, logical: u32, bytes: Bytes) {
        self.map.set_programmed(physical, logical);
        self.blocks.add_valid(self.shape.block_of(physical));
        if let Some(content) = &mut self.content {
            content.put(physical, bytes);
        }
    }

    /// Opens a free block. If it must be erased first, erases it in the tables, and returns what it held.
    pub fn open_block(&mut self, block: u32, stream: Stream) -> Option<ErasedBlock> {
        if !self.blocks.open(block, stream) {
            return None;
        }
        let (first, count) = (self.shape.units_of_block(block).start, self.shape.units_per_block);
        let areas = self.map.erase(first, count);
        let content = self.content.as_mut().map(|c| c.take(first, count)).unwrap_or_default();
        self.blocks.count_erase(block);
        Some(ErasedBlock { first, areas, content })
    }

    /// Makes a closed block without valid units free.
    pub fn release_block(&mut self, block: u32) {
        self.blocks.release(block);
    }

    /// Undoes an erase that had not begun at a power cut.
    pub fn undo_erase(&mut self, erased: ErasedBlock) {
        self.map.undo_erase(&erased.areas);
        if let Some(content) = &mut self.content {
            content.restore(erased.first, erased.content);
        }
    }

    /// Spoils a program unit whose program had not ended at a power cut.
    pub fn tear(&mut self, first: u32) {
        if let Some(content) = &mut self.content {
            content.spoil(first, self.shape.units_per_program, self.shape.unit_bytes);
        }
        self.map.tear(first);
    }

    /// Rebuilds all tables after a power cut: from the out-of-band areas, and from the journal's notes of
    /// which units were unmapped after which program. Returns the number of flash pages as [`Map::rebuild`]
    /// does.
    pub fn rebuild(&mut self, unmapped: impl Iterator<Item = (Units, u64)>) -> u64 {
        let pages = self.map.rebuild(self.shape.units_per_page);
        for (units, program) in unmapped {
            self.map.unmap_if_older(units, program);
        }
        let mut valid = vec![0; self.shape.blocks() as usize];
        for physical in (0..self.map.len()).filter_map(|unit| self.map.in_flash(unit)) {
            valid[self.shape.block_of(physical) as usize] += 1;
        }
        let (map, shape) = (&self.map, &self.shape);
        let programmed = |block: u32| {
            let first = |n: &u32| shape.units_of_block(block).start + n * shape.units_per_program;
            let last = (0..shape.programs_per_block()).rev().find(|n| map.is_programmed(first(n)));
            last.map_or(0, |n| n + 1)
        };
        self.blocks.rebuild(&valid, self.programs, programmed);
        pages
    }

    /// Bytes of memory that the tables use, without content.
    pub fn memory_bytes(&self) -> usize {
        self.map.memory_bytes() + self.blocks.memory_bytes()
    }
}
