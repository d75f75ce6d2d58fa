//! [`crate::drive::Placement::FileAffine`]: an append continues in the page where its file ends. It is added
//! to that page while the page is being assembled; if the page is programmed already, the file's tail in it
//! is programmed again, together with the append.

use super::buffer::Slot;
use super::place::Write;
use super::{Ftl, NoSpace};
use crate::counters::ProgramCause;
use crate::space::{Location, Stream};

/// Where a file ends.
pub(super) enum Tail {
    /// In a slot of its own, which is not full.
    InSlot(u32),
    /// At the end of a page of its own.
    PageEnd {
        /// The die of the file's next page.
        next_die: u32,
    },
    /// In the middle of a page, or in a page with data of other files.
    Partial {
        /// The file's units in that page.
        units: Vec<u32>,
        /// The die of the page.
        die: u32,
    },
}

impl Ftl {
    /// Where a file ends, by its last unit; `None` if that is not mapped.
    pub(super) fn tail_of_file(&self, last: u32) -> Option<Tail> {
        if last >= self.space.map().len() {
            return None;
        }
        match self.space.map().locate(last) {
            Location::Unmapped => None,
            Location::Buffered(place) => Some(self.tail_in_buffer(last, place)),
            Location::Flash(physical) => Some(self.tail_in_flash(last, physical)),
        }
    }

    fn tail_in_buffer(&self, last: u32, place: u32) -> Tail {
        let (number, index) = self.buffer.slot_of(place);
        let slot = self.buffer.slot(number);
        if index + 1 == slot.units.len() && self.placer.is_exclusive(number) {
            return Tail::InSlot(number);
        }
        // Units before it in the slot belong to the file as far as their logical units directly precede it.
        let precedes = |n: usize| {
            let unit = last.checked_sub(n as u32);
            unit.is_some() && slot.units[index - n].owner == unit
        };
        let count = (0..=index).take_while(|n| precedes(*n)).count() as u32;
        Tail::Partial { units: (last + 1 - count..=last).collect(), die: slot.die }
    }

    fn tail_in_flash(&self, last: u32, physical: u32) -> Tail {
        let (shape, map) = (&self.shape, self.space.map());
        let die = shape.die_of(physical);
        let end = Tail::PageEnd { next_die: shape.next_die(die) };
        if map.is_single_file(physical) {
            // All units before it are the file's, whatever their logical units are.
            let in_program_unit = physical % shape.units_per_program;
            if in_program_unit + 1 == shape.units_per_program {
                return end;
            }
            let valid = (physical - in_program_unit..=physical).filter(|unit| map.is_valid(*unit));
            return Tail::Partial {
                units: valid.filter_map(|unit| map.address(unit)).collect(),
                die,
            };
        }
        let in_page = physical % shape.units_per_page;
        let precedes = |n: u32| {
            let unit = last.checked_sub(n);
            unit.is_some_and(|unit| map.in_flash(unit) == Some(physical - n))
        };
        let count = (0..=in_page).take_while(|n| precedes(*n)).count() as u32;
        if count == shape.units_per_page {
            return end;
        }
        Tail::Partial { units: (last + 1 - count..=last).collect(), die }
    }

    /// Appends units at the end of a file, in slots of its own.
    pub(super) fn append(&mut self, tail: Tail, write: Write<'_>) -> Result<u64, NoSpace> {
        let Write { units, cause, contents, mut ready } = write;
        let (mut die, mut slot) = match tail {
            Tail::InSlot(slot) => (self.buffer.slot(slot).die, Some(slot)),
            Tail::PageEnd { next_die } => (next_die, None),
            Tail::Partial { units, die } => {
                let die = self.die_with_space(die);
                let slot = self.open_exclusive_slot(die, ready)?;
                self.rejoin(slot, &units, ready)?;
                (die, Some(slot))
            }
        };
        for unit in units.each() {
            ready = self.wait_for_buffer(ready)?;
            // The wait may have programmed the slot.
            let open = match slot.filter(|slot| self.placer.is_exclusive(*slot)) {
                Some(slot) => slot,
                None => {
                    die = self.die_with_space(die);
                    self.open_exclusive_slot(die, ready)?
                }
            };
            slot = Some(open);
            if self.add_to_slot(open, unit, cause, contents(unit), ready)? {
                (slot, die) = (None, self.shape.next_die(die));
            }
        }
        if let Some(slot) = slot {
            self.placer.touch_exclusive(slot);
        }
        Ok(ready)
    }

    /// Reads the tail of a file, which is in one page, and adds it to a slot.
    fn rejoin(&mut self, slot: u32, units: &[u32], ready: u64) -> Result<(), NoSpace> {
        let mut arrived = ready;
        let first = units.first().and_then(|unit| self.space.map().in_flash(*unit));
        if let Some(first) = first.filter(|_| self.timed) {
            let bytes = units.len() as u32 * self.shape.unit_bytes;
            let page = self.shape.page_of(first);
            arrived = self.nand.read(self.now, ready, page, bytes, false);
        }
        for unit in units {
            let bytes = self.bytes(*unit);
            self.add_to_slot(slot, *unit, ProgramCause::Rejoined, bytes, arrived)?;
        }
        Ok(())
    }

    /// Opens a slot for one file. If there are too many such slots, the units of the least recently used one
    /// go to the slots for units of any file.
    fn open_exclusive_slot(&mut self, die: u32, ready: u64) -> Result<u32, NoSpace> {
        while let Some(oldest) = self.placer.pop_exclusive_if_full() {
            self.share_slot(oldest, ready)?;
        }
        let slot = self.buffer.open(die, Stream::Host);
        self.placer.add_exclusive(slot);
        Ok(slot)
    }

    /// Dissolves a slot: its units go to the slot of its die for units of any file.
    fn share_slot(&mut self, number: u32, ready: u64) -> Result<(), NoSpace> {
        let Slot { die, touched, ref units, .. } = *self.buffer.slot(number);
        for index in 0..units.len() {
            // Adding the units before may have programmed it as it is.
            if !self.buffer.is_unchanged(number, touched) {
                return Ok(());
            }
            let member = &self.buffer.slot(number).units[index];
            let (cause, bytes) = (member.cause, member.bytes.clone());
            if let Some(owner) = member.owner {
                self.add_to_shared_slot(die, owner, cause, bytes, ready)?;
            }
        }
        if self.buffer.is_unchanged(number, touched) {
            self.buffer.take(number);
        }
        Ok(())
    }
}
