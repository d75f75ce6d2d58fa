//! From the write buffer to the flash: adds units to slots, and programs slots.

use super::buffer::{Member, Slot};
use super::in_flight::OperationKind;
use super::{Ftl, NoSpace};
use crate::counters::ProgramCause;
use crate::device::Bytes;
use crate::space::{Location, Stream};

impl Ftl {
    /// Waits until the write buffer has space for a unit; returns when it has, no earlier than `ready`.
    pub(super) fn wait_for_buffer(&mut self, ready: u64) -> Result<u64, NoSpace> {
        let mut at = ready;
        while !self.buffer.has_space() {
            // What ends until then counts as ended from now on, also if the power is cut while the host waits.
            if let Some((end, ended)) = self.in_flight.pop_next(&self.nand) {
                at = at.max(end);
                self.end(&ended);
            } else {
                // No program is in flight, so slots that are not full use all of it: the one that was touched
                // longest ago is programmed as it is.
                let oldest = self.buffer.oldest_open().ok_or(NoSpace)?;
                self.program_slot(oldest, at)?;
            }
        }
        Ok(at)
    }

    /// Adds a logical unit to a slot, which makes its earlier copy obsolete; if the slot is full then,
    /// programs it. Returns whether it was full.
    pub(super) fn add_to_slot(
        &mut self,
        slot: u32,
        logical: u32,
        cause: ProgramCause,
        bytes: Bytes,
        ready: u64,
    ) -> Result<bool, NoSpace> {
        let predecessor = self.detach(logical);
        let member = Member { owner: Some(logical), predecessor, cause, bytes };
        let (place, full) = self.buffer.push(slot, member);
        self.space.set_buffered(logical, place);
        if full {
            self.program_slot(slot, ready)?;
        }
        Ok(full)
    }

    /// Unmaps a logical unit; returns the physical unit that awaits a successor for it, if there is one.
    fn detach(&mut self, logical: u32) -> Option<u32> {
        let left = self.space.unmap(logical);
        self.predecessor_of(left)
    }

    /// The physical unit that awaits a successor for an address that led to a location; the second is whether
    /// nothing leads there any more.
    #[inline]
    pub(super) fn predecessor_of(&mut self, left: (Location, bool)) -> Option<u32> {
        match left {
            (Location::Unmapped, _) => None,
            (Location::Buffered(place), true) => self.buffer.discard(place),
            (Location::Buffered(place), false) => {
                // Other addresses lead to it, too: its predecessor awaits two successors.
                let predecessor = self.buffer.member(place).predecessor;
                predecessor.inspect(|physical| self.space.await_successor(*physical))
            }
            (Location::Flash(physical), _) => Some(physical),
        }
    }

    /// Adds a physical unit to which addresses lead by remaps to a slot, which moves it; if the slot is full
    /// then, programs it.
    pub(super) fn move_to_slot(
        &mut self,
        slot: u32,
        physical: u32,
        cause: ProgramCause,
        ready: u64,
    ) -> Result<(), NoSpace> {
        let (owner, bytes) = (self.space.map().owner(physical), self.space.bytes(physical));
        let member = Member { owner, predecessor: Some(physical), cause, bytes };
        let (place, full) = self.buffer.push(slot, member);
        self.space.move_to_buffer(physical, place);
        if full { self.program_slot(slot, ready) } else { Ok(()) }
    }

    /// Unmaps a logical unit without a successor; only the journal records that.
    pub(super) fn unmap(&mut self, logical: u32) {
        if let Some(predecessor) = self.detach(logical) {
            self.space.set_succeeded(predecessor, 0);
        }
    }

    /// Programs a slot, with padding if it is not full.
    pub(super) fn program_slot(&mut self, number: u32, ready: u64) -> Result<(), NoSpace> {
        let Slot { die: wanted, stream, touched, .. } = *self.buffer.slot(number);
        if stream == Stream::Moved {
            // The collection of another die may move units to this one, too.
            self.collector.close_slot(wanted);
        }
        let (die, block_stream) = self.ensure_open(wanted, stream, ready)?;
        // Garbage collection may have programmed the slot already, and its number may be in use again.
        if !self.buffer.is_unchanged(number, touched) {
            return Ok(());
        }
        let single_file = self.placer.is_exclusive(number);
        let padding = self.shape.units_per_program - self.buffer.slot(number).units.len() as u32;
        if stream == Stream::Host {
            self.placer.close_slot(number, wanted, padding);
        }
        let first = self.space.program_next(die, block_stream, single_file).ok_or(NoSpace)?;
        let slot = self.buffer.take(number);
        let end = self.start_program(die, first, &slot, ready);
        self.counters.padded += u64::from(padding);
        let place = number * self.shape.units_per_program;
        for ((physical, place), member) in (first..).zip(place..).zip(slot.units) {
            let Member { owner, predecessor, cause, bytes } = member;
            *self.counters.programmed_for(cause) += 1;
            let Some(owner) = owner else { continue };
            if self.space.map().is_led_to(place) {
                self.space.move_to_flash(place, physical, bytes);
            } else {
                self.space.set_programmed(physical, owner, bytes);
            }
            if let Some(predecessor) = predecessor {
                self.space.set_succeeded(predecessor, end);
            }
        }
        if stream == Stream::Host { self.collect_in_step(die, ready) } else { Ok(()) }
    }

    /// Starts the program of a slot; returns when it ends.
    fn start_program(&mut self, die: u32, first: u32, slot: &Slot, ready: u64) -> u64 {
        if !self.timed {
            return 0;
        }
        let plane = self.shape.plane_of_block(self.shape.block_of(first));
        let bytes = self.shape.program_unit_bytes();
        let ticket = self.nand.program(self.now, ready, die, plane, bytes);
        let buffered_bytes = self.buffer.start_program(slot);
        let program = OperationKind::Program { first, buffered_bytes };
        self.in_flight.push(die, ticket, program, &self.nand);
        self.nand.end_of(ticket)
    }
}
