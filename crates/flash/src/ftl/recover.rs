//! Recovery from power cuts. The mapping is rebuilt from the out-of-band areas, which have the logical unit
//! of each copy and the number of its program; the latest copy counts, unless a later note of the journal has
//! trimmed the unit, or a later entry of the defrag log has remapped it ([`super::remap`]).

use super::Ftl;
use super::in_flight::{Operation, OperationKind};
use super::open::FREE_BLOCKS;
use crate::command::Units;
use crate::device::Recovery;
use crate::nand::Ticket;

impl Ftl {
    /// Cuts the power at this time, and recovers. Programs and erases that had not ended are cut off; what
    /// was in memory is lost, unless capacitors save it.
    pub fn power_cut(&mut self, at: u64) -> Recovery {
        self.advance_to(at);
        if self.protected {
            self.untimed(Self::save_all);
        }
        for operations in self.in_flight.take_all() {
            // The latest first, so that what was programmed to a block after its erase is undone before the
            // erase.
            for operation in operations.into_iter().rev() {
                self.cut_off(operation, at);
            }
        }
        self.buffer.clear();
        self.placer.clear();
        self.collector.clear();
        self.journal.drop_unwritten();
        self.log.recover();
        self.nand.reset();
        let notes = self.journal.notes().iter().map(|note| (note.units, note.program));
        let notes: Vec<(Units, u64)> = notes.collect();
        let pages = self.space.rebuild(&notes, self.log.entries(), self.log.committed());
        self.collector.note_shortage(|die| self.space.blocks().free(die) < FREE_BLOCKS);
        let per_die = pages.div_ceil(u64::from(self.shape.dies));
        Recovery { pages, elapsed_ns: per_die * self.nand.max_sensing_ns() }
    }

    fn cut_off(&mut self, operation: Operation, at: u64) {
        let ended = self.protected || self.nand.end_of(operation.ticket) <= at;
        match operation.kind {
            // What never began has left its program unit erased: only the one that was under way is torn.
            OperationKind::Program { first, .. } if self.never_began(operation.ticket, at) => {
                self.space.unprogram(first);
            }
            OperationKind::Program { first, .. } if !ended => self.space.tear(first),
            // With capacitors the erase counts as done: the successors of the block's units are saved.
            OperationKind::Erase(erased) if self.never_began(operation.ticket, at) => {
                self.space.undo_erase(erased);
            }
            OperationKind::Journal { notes } if ended => self.journal.end_write(notes),
            OperationKind::LogProgram { area, place } if !ended => self.log.tear(area, place),
            OperationKind::LogErase { area, erased } if self.never_began(operation.ticket, at) => {
                self.log.undo_erase(area, erased);
            }
            _ => {}
        }
    }

    fn never_began(&self, operation: Ticket, at: u64) -> bool {
        !self.protected && self.nand.start_of(operation) >= at
    }

    /// Programs everything in the buffer, for which the energy of the capacitors suffices.
    fn save_all(&mut self) {
        let saved = self.program_all(self.now);
        debug_assert_eq!(saved, Ok(()), "there is space for as much as the buffer holds");
        if let Some(notes) = self.journal.unwritten() {
            self.journal.end_write(notes);
        }
        let saved = self.write_log(self.now);
        debug_assert_eq!(saved, Ok(()), "an area of the log holds all its entries");
    }
}
