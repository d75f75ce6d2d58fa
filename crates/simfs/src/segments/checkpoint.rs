//! Checkpoints: all nodes and tables become durable together.
//!
//! 1. Dirty nodes are written to the node log, then the tables of the pack. The last checkpoint's blocks, and what an fsync has
//!    written since, are held (`sections.rs`); a power cut finds the last checkpoint, and what can be rolled forward from it.
//! 2. A flush: all that the tables refer to is durable, data of before included.
//! 3. The checkpoint block is written, and flushed. A power cut before its end finds the last checkpoint, one after it this one.
//! 4. Now nothing else is referred to: sections without valid blocks are free, their zones are reset, invalid blocks discarded.

use super::node::HOLE;
use super::pack::{CheckpointBlock, NatEntry, Tables, division, packed_logs};
use super::sections::{Section, State as Use};
use super::settings::{Barrier, Discard};
use super::state::{Contents, LogKind, State};
use crate::error::Error;
use crate::record;
use fragmend_flash::command::{Command, Units};

/// A pack that is to be written: its area, its first block there, the blocks of its tables.
struct Pack {
    area: u32,
    at: u32,
    tables: Vec<Box<[u8]>>,
}

impl State {
    /// Makes a checkpoint. Dirty data is not written back for it.
    ///
    /// # Errors
    /// No section is free, the tables are larger than their area, or the drive refuses.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        let nodes: Vec<(u32, u32)> = self.dirty_nodes.iter().copied().collect();
        if self.keeps(Barrier::NodesBeforeCheckpoint) {
            self.write_nodes(&nodes, false)?;
        }
        if !self.keeps(Barrier::DiscardAfterCheckpoint) {
            self.emptied_sections()
                .into_iter()
                .try_for_each(|section| self.discard_section(section))?;
        }
        // A roll-forward begins where the next node will be.
        self.next_place(LogKind::Node)?;
        let pack = self.pack()?;
        let (area, next) = (pack.area, pack.at + pack.tables.len() as u32 + 1);
        self.write_pack(pack)?;
        if area != self.area {
            // The other area is not written to before it is emptied.
            self.each_zone_of_area(self.area, Self::finish_zone)?;
        }
        (self.area, self.area_next) = (area, Some(next));
        self.version += 1;
        self.checkpointed_ns = self.machine.now_ns();
        self.counts.checkpoints += 1;
        self.moved_nodes.clear();
        self.retired.clear();
        self.unrepeatable.clear();
        self.cleaned_nodes.clear();
        self.release()?;
        if !self.keeps(Barrier::NodesBeforeCheckpoint) {
            self.write_nodes(&nodes, false)?;
        }
        Ok(())
    }

    /// The next pack: behind the last one, with what has changed, or in the other area, which is emptied.
    fn pack(&mut self) -> Result<Pack, Error> {
        if let Some(at) = self.area_next {
            let tables = record::pack(&self.tables(false), self.geometry.block_bytes);
            if at + (tables.len() as u32) < self.geometry.area_blocks() {
                return Ok(Pack { area: self.area, at, tables });
            }
        }
        let tables = record::pack(&self.tables(true), self.geometry.block_bytes);
        if tables.len() as u32 >= self.geometry.area_blocks() {
            return Err(Error::NoSpace);
        }
        let area = 1 - self.area;
        self.each_zone_of_area(area, Self::reset_zone)?;
        Ok(Pack { area, at: 0, tables })
    }

    fn each_zone_of_area(
        &self,
        area: u32,
        action: impl Fn(&Self, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let first = self.geometry.area_start(area);
        let mut sections =
            (0..self.geometry.area_sections).map(|n| first + n * self.geometry.section);
        sections.try_for_each(|place| action(self, place))
    }

    fn tables(&self, is_full: bool) -> Tables {
        let place = |inode: u32, number: u32| {
            let node = self.files.get(inode).ok()?.nodes.get(&number)?;
            Some(node.place).filter(|place| *place != HOLE)
        };
        let mut nat: Vec<NatEntry> = Vec::new();
        if is_full {
            for (inode, file) in self.files.iter() {
                let numbers = file.nodes.keys();
                let placed = numbers.map(|number| (inode, *number, place(inode, *number)));
                nat.extend(placed.filter(|(_, _, place)| place.is_some()));
            }
        } else if self.keeps(Barrier::NodesInTable) {
            let moved = self.moved_nodes.iter();
            nat.extend(moved.map(|(inode, number)| (*inode, *number, place(*inode, *number))));
        }
        let has_sections = is_full || self.keeps(Barrier::SectionsInTable);
        Tables {
            version: self.version + 1,
            is_full,
            division: division(&self.geometry),
            nat,
            sit: if has_sections { self.sections.entries(is_full) } else { Vec::new() },
            logs: packed_logs(&self.logs),
            next_inode: self.next_inode,
            next_generation: self.next_generation,
        }
    }

    fn write_pack(&mut self, pack: Pack) -> Result<(), Error> {
        let Pack { area, at, tables } = pack;
        let first = self.geometry.area_start(area) + at;
        let block = CheckpointBlock { version: self.version + 1 };
        let checkpoint = record::pack(&block, self.geometry.block_bytes);
        let behind = first + tables.len() as u32;
        if !self.keeps(Barrier::CheckpointLast) {
            self.flush()?;
            self.write_area(behind, checkpoint)?;
            self.flush()?;
            return self.write_area(first, tables);
        }
        self.write_area(first, tables)?;
        if self.keeps(Barrier::FlushBeforeCheckpoint) {
            self.flush()?;
        }
        self.write_area(behind, checkpoint)?;
        if self.keeps(Barrier::FlushAfterCheckpoint) { self.flush() } else { Ok(()) }
    }

    /// Writes blocks of an area, no more at once than to the end of a zone.
    fn write_area(&mut self, first: u32, blocks: Vec<Box<[u8]>>) -> Result<(), Error> {
        let (mut at, mut blocks) = (first, blocks.into_iter().peekable());
        while blocks.peek().is_some() {
            let most = self.geometry.section - at % self.geometry.section;
            let mut contents: Contents =
                (at..at + most).zip(blocks.by_ref().take(most as usize)).collect();
            let count = contents.len() as u32;
            self.put(&[Units::new(at, count)], &mut contents)?;
            at += count;
        }
        Ok(())
    }

    fn emptied_sections(&self) -> Vec<u32> {
        let emptied = |section: &Section| section.state == Use::Closed && section.valid == 0;
        self.sections.iter().filter(|(_, section)| emptied(section)).map(|(n, _)| n).collect()
    }

    /// What the last checkpoint does not refer to is free.
    fn release(&mut self) -> Result<(), Error> {
        let blocks =
            self.settings.discard == Discard::Blocks && self.settings.zone_blocks.is_none();
        let (freed, released) = self.sections.settle(blocks);
        if self.keeps(Barrier::DiscardAfterCheckpoint) {
            freed.into_iter().try_for_each(|section| self.discard_section(section))?;
        }
        for (section, offset, count) in released {
            let units = Units::new(self.geometry.place(section, offset), count);
            self.machine.command(&Command::Trim(units))?;
        }
        Ok(())
    }

    /// Discards all of a section, or resets its zone.
    pub fn discard_section(&self, section: u32) -> Result<(), Error> {
        let first = self.geometry.place(section, 0);
        if self.settings.zone_blocks.is_some() {
            return self.reset_zone(first);
        }
        if self.settings.discard != Discard::Never {
            self.machine.command(&Command::Trim(Units::new(first, self.geometry.section)))?;
        }
        Ok(())
    }
}
