//! Space to program to: opens free blocks of a die, and erases them when it opens them.

use super::in_flight::OperationKind;
use super::{Ftl, NoSpace};
use crate::space::Stream;

/// Free blocks of a die that collection provides: one to open for the host, and one to move data to.
pub(super) const FREE_BLOCKS: usize = 2;

impl Ftl {
    /// Makes sure that there is an open block: the stream's on the die or, where that is impossible now, the
    /// other stream's or another die's. Returns its die and stream.
    pub(super) fn ensure_open(
        &mut self,
        die: u32,
        stream: Stream,
        ready: u64,
    ) -> Result<(u32, Stream), NoSpace> {
        if self.has_open(die, stream) {
            if stream == Stream::Moved || !self.collector.is_short(die) {
                return Ok((die, stream));
            }
            // If the host filled it, there would be no space to move a victim's units to.
            self.collect(die, ready)?;
            if self.has_open(die, stream) {
                return Ok((die, stream));
            }
        }
        if stream == Stream::Host {
            self.collect(die, ready)?;
            // The programs of the collection may have opened one.
            if self.has_open(die, stream) {
                return Ok((die, stream));
            }
        }
        let other = stream.other();
        if !self.may_open(die, stream) && self.has_open(die, other) {
            return Ok((die, other));
        }
        // The last block of a die that can be opened is reserved for units that are moved to it.
        let reserved = usize::from(stream == Stream::Host);
        if self.erasable_blocks(die) > reserved {
            self.open_block(die, stream, ready);
            return Ok((die, stream));
        }
        // The free blocks of the die await successors that are in the write buffer, perhaps in this very
        // slot. Another die's open block serves as well, but not the host where that die must collect first.
        let may_use = |die| stream == Stream::Moved || !self.collector.is_short(die);
        if let Some(open) = self.open_of_any_die(die, stream, may_use) {
            return Ok(open);
        }
        self.ensure_open_anywhere(die, stream, ready)
    }

    /// The first die from this one on that may be used and has an open block, and the stream of that, if possible
    /// this one.
    fn open_of_any_die(
        &self,
        die: u32,
        stream: Stream,
        may_use: impl Fn(u32) -> bool,
    ) -> Option<(u32, Stream)> {
        let dies = self.shape.dies_from(die).filter(|die| may_use(*die));
        let mut open = dies.flat_map(|die| [(die, stream), (die, stream.other())]);
        open.find(|(die, stream)| self.has_open(*die, *stream))
    }

    /// Opens a block of some die, as none is open. All dies collect, and keep their last free block as long
    /// as they can. Closed blocks without valid units are released without collection.
    fn ensure_open_anywhere(
        &mut self,
        die: u32,
        stream: Stream,
        ready: u64,
    ) -> Result<(u32, Stream), NoSpace> {
        for other in self.shape.dies_from(die) {
            if !self.collector.is_collecting(other) {
                self.release_empty(other);
                self.collect(other, ready)?;
            }
            if self.has_open(other, stream) {
                return Ok((other, stream));
            }
            if self.erasable_blocks(other) > 1 {
                self.open_block(other, stream, ready);
                return Ok((other, stream));
            }
        }
        // The collection of one die may have moved units to another, whose turn was before.
        if let Some(open) = self.open_of_any_die(die, stream, |_| true) {
            return Ok(open);
        }
        let mut dies = 0..self.shape.dies;
        let other = dies.find(|die| self.may_open(*die, stream)).ok_or(NoSpace)?;
        self.open_block(other, stream, ready);
        Ok((other, stream))
    }

    fn has_open(&self, die: u32, stream: Stream) -> bool {
        self.space.blocks().has_open(die, stream)
    }

    /// Releases the closed blocks of a die without valid units.
    fn release_empty(&mut self, die: u32) {
        while let Some(block) = self.space.blocks().emptiest(die) {
            if self.space.blocks().valid(block) > 0 {
                break;
            }
            self.space.release_block(block);
        }
    }

    /// Whether a die has a free block that may be erased now.
    fn may_open(&self, die: u32, stream: Stream) -> bool {
        let blocks = self.space.blocks();
        let block = blocks.next_free(die, stream);
        block.is_some_and(|block| self.protected || !blocks.awaits_successor(block))
    }

    /// Free blocks of a die that may be erased, counted up to [`FREE_BLOCKS`].
    pub(super) fn erasable_blocks(&self, die: u32) -> usize {
        if self.protected {
            return self.space.blocks().free(die).min(FREE_BLOCKS);
        }
        self.space.blocks().erasable(die, FREE_BLOCKS)
    }

    /// Opens the next free block of a die, and erases it if that is necessary.
    fn open_block(&mut self, die: u32, stream: Stream, ready: u64) {
        let Some(block) = self.space.blocks().next_free(die, stream) else { return };
        let Some(erased) = self.space.open_block(block, stream) else { return };
        if !self.protected {
            self.write_journal(ready);
        }
        self.counters.erases += 1;
        if !self.timed {
            return;
        }
        let mut safe_at = 0;
        if !self.protected {
            // The erase relies on the ends of these programs, so reads must not delay them any more.
            let pinned_end = self.nand.pin_programs();
            let succeeded_at = self.space.blocks().safe_at(block);
            safe_at = succeeded_at.max(self.journal.safe_at()).max(pinned_end);
        }
        let plane = self.shape.plane_of_block(block);
        let ticket = self.nand.erase(self.now, ready.max(safe_at), die, plane);
        self.in_flight.push(die, ticket, OperationKind::Erase(erased), &self.nand);
    }

    /// Programs the journal if it has notes that are not written.
    pub(super) fn write_journal(&mut self, ready: u64) {
        let Some(notes) = self.journal.unwritten() else { return };
        self.counters.journal_programs += 1;
        if !self.timed {
            return self.journal.end_write(notes);
        }
        let die = (self.counters.journal_programs % u64::from(self.shape.dies)) as u32;
        let bytes = self.shape.program_unit_bytes();
        let ticket = self.nand.program(self.now, ready, die, 0, bytes);
        self.journal.start_write(notes, self.nand.end_of(ticket));
        self.in_flight.push(die, ticket, OperationKind::Journal { notes }, &self.nand);
    }
}
