//! The flash space: the content of every physical unit, and the state of every block. The tables of this
//! module change together, so only its own functions change them.

mod blocks;
mod leads;
mod map;
mod remaps;
mod replay;

pub(crate) use blocks::{BlockState, Blocks, Stream};
pub(crate) use map::{Location, Map};
pub(crate) use replay::LogEntry;

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

    /// Unmaps a logical unit: its physical unit becomes invalid, unless other addresses lead to it, and the
    /// block of that must not be erased before [`Self::set_succeeded`]. Returns where the logical unit was, and
    /// whether nothing leads there any more.
    #[inline]
    pub fn unmap(&mut self, logical: u32) -> (Location, bool) {
        let (location, last) = self.map.unmap(logical);
        if let Location::Flash(physical) = location {
            let block = self.shape.block_of(physical);
            if last {
                self.blocks.remove_valid(block);
            }
            self.blocks.await_successor(block);
        }
        (location, last)
    }

    /// Notes that one more unit will be the successor of a physical one.
    pub fn await_successor(&mut self, physical: u32) {
        self.blocks.await_successor(self.shape.block_of(physical));
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
        self.occupy(physical, bytes);
    }

    /// Moves a physical unit to another one, which is programmed with it. The block of the first must not be
    /// erased before [`Self::set_succeeded`].
    pub fn move_in_flash(&mut self, from: u32, to: u32) {
        let bytes = self.bytes(from);
        self.map.move_in_flash(from, to);
        self.vacate(from);
        self.occupy(to, bytes);
    }

    /// Moves a physical unit to which addresses lead by remaps to a place in the write buffer; the same holds.
    pub fn move_to_buffer(&mut self, physical: u32, place: u32) {
        self.map.move_to_buffer(physical, place);
        self.vacate(physical);
    }

    /// Programs a physical unit with such a place.
    pub fn move_to_flash(&mut self, place: u32, physical: u32, bytes: Bytes) {
        self.map.move_to_flash(place, physical);
        self.occupy(physical, bytes);
    }

    fn vacate(&mut self, physical: u32) {
        let block = self.shape.block_of(physical);
        self.blocks.remove_valid(block);
        self.blocks.await_successor(block);
    }

    fn occupy(&mut self, physical: u32, bytes: Bytes) {
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

    /// Undoes a program that had not begun at a power cut.
    pub fn unprogram(&mut self, first: u32) {
        let count = self.shape.units_per_program;
        if let Some(content) = &mut self.content {
            content.take(first, count);
        }
        self.map.erase(first, count);
    }

    /// Spoils a program unit whose program had not ended at a power cut.
    pub fn tear(&mut self, first: u32) {
        if let Some(content) = &mut self.content {
            content.spoil(first, self.shape.units_per_program, self.shape.unit_bytes);
        }
        self.map.tear(first);
    }

    /// Rebuilds all tables after a power cut: from the out-of-band areas, from the journal's notes of which
    /// units were unmapped after which program, and from the entries of the defrag log, which is committed up to
    /// a version. Returns the number of flash pages as [`Map::rebuild`] does.
    pub fn rebuild(&mut self, unmapped: &[(Units, u64)], log: &[LogEntry], committed: u64) -> u64 {
        let pages = self.map.rebuild(self.shape.units_per_page);
        if log.is_empty() {
            for (units, program) in unmapped {
                self.map.unmap_if_older(*units, *program);
            }
        } else {
            self.rebuild_by_log(unmapped, log, committed);
        }
        let mut valid = vec![0; self.shape.blocks() as usize];
        for unit in 0..self.map.len() {
            // Units that several addresses lead to are in the table of leads, and counted there.
            let physical = self.map.in_flash(unit);
            if let Some(physical) = physical.filter(|place| !self.map.leads().contains(*place)) {
                valid[self.shape.block_of(physical) as usize] += 1;
            }
        }
        for (physical, _) in self.map.leads().groups() {
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
