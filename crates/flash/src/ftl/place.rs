//! The placement of writes: on which die, and together with which other units.
//!
//! Without a hint, stripe units go to the dies in turn, in the order of writing. With the hints of FAST'24
//! (section 4) the drive places an append on the die after its predecessor's, and an overwrite on the die of
//! the data that it overwrites; [`Placement::DieAffine`] does so as its artefact does. Its limit (section
//! 5.2, fileserver small) is that an append of less than a flash page shares the page with data of other
//! files, so that the file is spread over more pages than it needs. [`Placement::FileAffine`] continues in
//! the page where the file ends (`append`). [`Placement::ByAddress`] asks the address alone, as drives with a
//! static allocation do.

use super::{Ftl, NoSpace};
use crate::command::{Hint, Units};
use crate::counters::ProgramCause;
use crate::device::{Bytes, Contents};
use crate::drive::Placement;
use crate::geometry::Shape;
use crate::space::{Location, Stream};

/// The die whose turn it is, and the slots to which units of the host are added.
#[derive(Clone, Debug)]
pub(super) struct Placer {
    /// The die whose turn it is.
    next_die: u32,
    /// For each die, how many units of its present stripe unit are placed.
    filled: Vec<u32>,
    /// For each die, the slot for units of any file.
    shared: Vec<Option<u32>>,
    /// Slots for units of one file each; the least recently used one comes first.
    exclusive: Vec<u32>,
    max_exclusive: usize,
    units_per_stripe_unit: u32,
}

impl Placer {
    pub fn new(shape: &Shape, max_exclusive: u32) -> Self {
        Self {
            next_die: 0,
            filled: vec![0; shape.dies as usize],
            shared: vec![None; shape.dies as usize],
            exclusive: Vec::new(),
            max_exclusive: max_exclusive.max(1) as usize,
            units_per_stripe_unit: shape.units_per_stripe_unit,
        }
    }

    /// The die whose turn it is.
    pub fn next_die(&self) -> u32 {
        self.next_die
    }

    /// Makes it the turn of this die.
    pub fn set_next_die(&mut self, die: u32) {
        self.next_die = die;
    }

    /// Closes a slot for that die: it is being programmed, with so many units of padding, and nothing more is added to it.
    pub fn close_slot(&mut self, slot: u32, die: u32, padding: u32) {
        if self.shared[die as usize] == Some(slot) {
            self.shared[die as usize] = None;
            self.pad(die, padding);
        }
        self.exclusive.retain(|exclusive| *exclusive != slot);
    }

    /// The stripe unit that is begun on a die is padded as far as its program unit is. Were it filled up instead, by one unit in a
    /// program unit of its own, all later program units of the die would have units of two turns.
    fn pad(&mut self, die: u32, padding: u32) {
        let filled = &mut self.filled[die as usize];
        if *filled == 0 || padding == 0 {
            return;
        }
        *filled += padding;
        if *filled >= self.units_per_stripe_unit {
            *filled = 0;
            if self.next_die == die {
                self.next_die = (die + 1) % self.filled.len() as u32;
            }
        }
    }

    /// Whether a slot is for units of one file.
    pub fn is_exclusive(&self, slot: u32) -> bool {
        self.exclusive.contains(&slot)
    }

    /// Makes a slot one for units of one file.
    pub fn add_exclusive(&mut self, slot: u32) {
        self.exclusive.push(slot);
    }

    /// Makes a slot for one file the most recently used one.
    pub fn touch_exclusive(&mut self, slot: u32) {
        if self.is_exclusive(slot) {
            self.exclusive.retain(|exclusive| *exclusive != slot);
            self.exclusive.push(slot);
        }
    }

    /// Removes and returns the least recently used slot for one file, if there are as many as there may be.
    pub fn pop_exclusive_if_full(&mut self) -> Option<u32> {
        let full = self.exclusive.len() >= self.max_exclusive;
        full.then(|| self.exclusive.remove(0))
    }

    /// All slots to which units may be added.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.shared.iter().flatten().chain(&self.exclusive).copied()
    }

    /// Forgets all slots, as a power cut does.
    pub fn clear(&mut self) {
        self.shared.fill(None);
        self.filled.fill(0);
        self.exclusive.clear();
    }

    /// Counts a unit that is placed on a die; returns whether it completes a stripe unit.
    fn fill(&mut self, die: u32) -> bool {
        let filled = &mut self.filled[die as usize];
        *filled = (*filled + 1) % self.units_per_stripe_unit;
        *filled == 0
    }
}

/// Units that are to be placed.
pub(super) struct Write<'a> {
    /// The logical units.
    pub units: Units,
    /// Why they are programmed.
    pub cause: ProgramCause,
    /// Their content.
    pub contents: Contents<'a>,
    /// When they have arrived in the controller.
    pub ready: u64,
}

impl Ftl {
    /// Takes units into the write buffer; returns when the last of them is in it.
    pub fn write(
        &mut self,
        units: Units,
        hint: Hint,
        cause: ProgramCause,
        contents: Contents<'_>,
        ready: u64,
    ) -> Result<u64, NoSpace> {
        let write = Write { units, cause, contents, ready };
        match (self.firmware.placement, hint) {
            (Placement::ByAddress, _) => self.write_by_address(write),
            (Placement::RoundRobin, _) | (_, Hint::None) => self.write_round_robin(write),
            (_, Hint::Overwrite) => self.overwrite(write),
            (Placement::DieAffine, Hint::Append { predecessor }) => {
                let Some(die) = self.die_of_logical(predecessor) else {
                    return self.write_without_hint(write);
                };
                self.counters.hints_taken += 1;
                let first = self.shape.next_die(die);
                Ok(self.write_from_die(first, write)?.0)
            }
            (Placement::FileAffine, Hint::Append { predecessor }) => {
                let Some(tail) = self.tail_of_file(predecessor) else {
                    return self.write_without_hint(write);
                };
                self.counters.hints_taken += 1;
                self.append(tail, write)
            }
        }
    }

    /// Writes units whose hint cannot be followed.
    fn write_without_hint(&mut self, write: Write<'_>) -> Result<u64, NoSpace> {
        self.counters.hints_lost += 1;
        self.write_round_robin(write)
    }

    /// The die that a logical unit is on, or is to be programmed to, if it is mapped.
    pub fn die_of_logical(&self, logical: u32) -> Option<u32> {
        if logical >= self.space.map().len() {
            return None;
        }
        match self.space.map().locate(logical) {
            Location::Unmapped => None,
            Location::Buffered(place) => {
                let (slot, _) = self.buffer.slot_of(place);
                Some(self.buffer.slot(slot).die)
            }
            Location::Flash(physical) => Some(self.shape.die_of(physical)),
        }
    }

    fn write_round_robin(&mut self, write: Write<'_>) -> Result<u64, NoSpace> {
        let first = self.placer.next_die;
        let (ready, next) = self.write_from_die(first, write)?;
        self.placer.next_die = next;
        Ok(ready)
    }

    /// Writes to a die and, after each complete stripe unit, to the next one; returns when the last unit is
    /// in the buffer, and the die whose turn is next.
    fn write_from_die(&mut self, first: u32, write: Write<'_>) -> Result<(u64, u32), NoSpace> {
        let Write { units, cause, contents, mut ready } = write;
        let mut die = first;
        for unit in units.each() {
            ready = self.wait_for_buffer(ready)?;
            die = self.die_with_space(die);
            self.add_to_shared_slot(die, unit, cause, contents(unit), ready)?;
            if self.placer.fill(die) {
                die = self.shape.next_die(die);
            }
        }
        Ok((ready, die))
    }

    /// Writes each unit to the die of its address.
    fn write_by_address(&mut self, write: Write<'_>) -> Result<u64, NoSpace> {
        let Write { units, cause, contents, mut ready } = write;
        for unit in units.each() {
            ready = self.wait_for_buffer(ready)?;
            let die = unit / self.shape.units_per_stripe_unit % self.shape.dies;
            let die = self.die_with_space(die);
            self.add_to_shared_slot(die, unit, cause, contents(unit), ready)?;
        }
        Ok(ready)
    }

    /// Writes each unit to the die that it is on, unless that is worn.
    fn overwrite(&mut self, write: Write<'_>) -> Result<u64, NoSpace> {
        let Write { units, cause, contents, mut ready } = write;
        for unit in units.each() {
            let die = self.die_of_logical(unit);
            let one = Write { units: Units::new(unit, 1), cause, contents: &mut *contents, ready };
            match die {
                Some(die) if self.is_worn(die) => {
                    self.counters.hints_refused += 1;
                    ready = self.write_round_robin(one)?;
                }
                Some(die) => {
                    self.counters.hints_taken += 1;
                    ready = self.wait_for_buffer(ready)?;
                    let die = self.die_with_space(die);
                    self.add_to_shared_slot(die, unit, cause, contents(unit), ready)?;
                    self.placer.fill(die);
                }
                None => ready = self.write_without_hint(one)?,
            }
        }
        Ok(ready)
    }

    /// Whether the blocks of a die have been erased more often than those of the least worn die by
    /// more than [`crate::drive::Wear::die_spread`].
    fn is_worn(&self, die: u32) -> bool {
        let spread =
            u64::from(self.firmware.wear.die_spread) * u64::from(self.shape.blocks_per_die);
        let erases = |die| self.space.blocks().erases_of_die(die);
        let least = (0..self.shape.dies).map(erases).min().unwrap_or(0);
        spread > 0 && erases(die) > least + spread
    }

    /// The first die from this one on that is not full of valid units; this one if all are.
    pub(super) fn die_with_space(&self, die: u32) -> u32 {
        let max = self.shape.max_valid_units_per_die();
        let has_space = |die: &u32| self.space.blocks().valid_of_die(*die) < max;
        self.shape.dies_from(die).find(has_space).unwrap_or(die)
    }

    /// Adds a unit to the die's slot for units of any file.
    pub(super) fn add_to_shared_slot(
        &mut self,
        die: u32,
        logical: u32,
        cause: ProgramCause,
        bytes: Bytes,
        ready: u64,
    ) -> Result<(), NoSpace> {
        let shared = &mut self.placer.shared[die as usize];
        let slot = *shared.get_or_insert_with(|| self.buffer.open(die, Stream::Host));
        self.add_to_slot(slot, logical, cause, bytes, ready).map(drop)
    }
}
