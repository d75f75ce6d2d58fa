//! A power cut, and how everything is found again: the out-of-band area of every page says whose
//! its units are, the number of its program which of several copies is the newest, and the journal
//! what is nobody's.

use crate::ftl::{Doing, Ftl};
use crate::map::{BUFFERED, NONE};
use crate::nand::Ticket;

/// What it took to find everything again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Flash pages whose out-of-band areas were read.
    pub pages: u64,
    /// How long that took, on all dies at once.
    pub elapsed_ns: u64,
}

impl Ftl {
    /// The power fails at this instant and comes back: what a program or an erase had not done by
    /// then is not done, and what was in memory is gone, but for what capacitors saved.
    pub fn power_cut(&mut self, at: u64) -> Recovery {
        self.pass(at);
        if self.spec.protected {
            self.save_all();
        }
        for of_die in self.stop() {
            for done in of_die.into_iter().rev() {
                let ended = self.nand.end_of(done.ticket) <= at || self.spec.protected;
                match done.doing {
                    Doing::Program { first, .. } if !ended => {
                        if let Some(content) = &mut self.content {
                            content.spoil(first, self.shape.shot_units, self.shape.unit_bytes);
                        }
                        self.map.tear(first);
                    }
                    // Never begun. With capacitors it may stay undone: what was in it is elsewhere.
                    Doing::Erase { wiped, content } if self.never_began(done.ticket, at) => {
                        let first = self.map.restore(&wiped);
                        if let Some(kept) = &mut self.content {
                            kept.restore(first, content);
                        }
                    }
                    Doing::Journal { noted } if ended => self.journal.written(noted),
                    _ => {}
                }
            }
        }
        self.slots.clear();
        self.places.forget();
        self.moving.fill(None);
        self.collecting.fill(false);
        self.journal.forget_unwritten();
        self.nand.reset();
        self.rebuild()
    }

    fn never_began(&self, erase: Ticket, at: u64) -> bool {
        !self.spec.protected && self.nand.start_of(erase) >= at
    }

    /// The capacitors last until everything is programmed.
    fn save_all(&mut self) {
        let timed = std::mem::replace(&mut self.timed, false);
        // Making room for one may collect, and so open others.
        while let Some(slot) = self.slots.first_open() {
            let saved = self.program_slot(slot, self.now);
            debug_assert_eq!(saved, Ok(()), "there is room for as much as the buffer holds");
            if saved.is_err() {
                break;
            }
        }
        if let Some(noted) = self.journal.unwritten() {
            self.journal.written(noted);
        }
        self.timed = timed;
    }

    /// Finds the newest copy of every unit.
    fn rebuild(&mut self) -> Recovery {
        self.map.forget();
        let mut pages = 0;
        for physical in 0..self.shape.units() {
            let owner = self.map.owner(physical);
            pages += u64::from(owner != NONE && physical % self.shape.page_units == 0);
            if owner == NONE {
                continue;
            }
            let known = self.map.get(owner);
            let program = self.map.program_of(physical);
            if known == NONE || self.map.program_of(known) < program {
                self.map.set(owner, physical);
            }
        }
        for note in self.journal.notes() {
            for unit in note.start..note.start + note.count {
                let place = self.map.get(unit);
                if place < BUFFERED && self.map.program_of(place) <= note.program {
                    self.map.set(unit, NONE);
                }
            }
        }
        let mut valid = vec![0; self.shape.blocks() as usize];
        for unit in 0..self.map.len() {
            if let Some(physical) = self.map.in_flash(unit) {
                valid[self.shape.block_of(physical) as usize] += 1;
            }
        }
        let (map, shape) = (&self.map, &self.shape);
        let begun = |block: u32| {
            let shot = |n: &u32| block * shape.block_units + n * shape.shot_units;
            let last = (0..shape.block_shots()).rev().find(|n| map.is_begun(shot(n)));
            last.map_or(0, |n| n + 1)
        };
        self.blocks.recount(&valid, self.programs, begun);
        let elapsed_ns = pages.div_ceil(u64::from(self.shape.dies)) * self.nand.sense_ns();
        Recovery { pages, elapsed_ns }
    }
}
