//! Power cuts. Everything is found again by the out-of-band areas, which say which logical unit each
//! copy is of, by the numbers of the programs, which say which copy is the latest, and by the
//! journal, which says what was trimmed.

use super::Ftl;
use super::in_flight::{Operation, OperationKind};
use crate::device::Recovery;
use crate::nand::Ticket;

impl Ftl {
    /// The power fails at this time and comes back. Programs and erases have done what they had done
    /// by then, and what was in memory is gone, but for what capacitors saved.
    pub fn power_cut(&mut self, at: u64) -> Recovery {
        self.advance_to(at);
        if self.protected {
            self.untimed(Self::save_all);
        }
        for operations in self.in_flight.take_all() {
            // The latest first: a block is as it was before its erase once what was programmed to it
            // since is undone.
            for operation in operations.into_iter().rev() {
                self.cut_off(operation, at);
            }
        }
        self.buffer.clear();
        self.placer.clear();
        self.collector.clear();
        self.journal.drop_unwritten();
        self.nand.reset();
        let notes = self.journal.notes().iter().map(|note| (note.units, note.program));
        let pages = self.space.rebuild(notes);
        let per_die = pages.div_ceil(u64::from(self.shape.dies));
        Recovery { pages, elapsed_ns: per_die * self.nand.max_sensing_ns() }
    }

    fn cut_off(&mut self, operation: Operation, at: u64) {
        let ended = self.protected || self.nand.end_of(operation.ticket) <= at;
        match operation.kind {
            OperationKind::Program { first, .. } if !ended => self.space.tear(first),
            // With capacitors it may as well be done: the successors of its units are saved.
            OperationKind::Erase(erased) if self.never_began(operation.ticket, at) => {
                self.space.undo_erase(erased);
            }
            OperationKind::Journal { notes } if ended => self.journal.end_write(notes),
            _ => {}
        }
    }

    fn never_began(&self, erase: Ticket, at: u64) -> bool {
        !self.protected && self.nand.start_of(erase) >= at
    }

    /// Programs everything in the buffer, which the capacitors last for.
    fn save_all(&mut self) {
        // Making room for a slot may collect, and so open other slots.
        while let Some(slot) = self.buffer.first_open() {
            let saved = self.program_slot(slot, self.now);
            debug_assert_eq!(saved, Ok(()), "there is room for as much as the buffer holds");
            if saved.is_err() {
                break;
            }
        }
        if let Some(notes) = self.journal.unwritten() {
            self.journal.end_write(notes);
        }
    }
}
