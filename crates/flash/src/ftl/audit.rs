//! Checks that the tables of the translation layer agree.

use super::Ftl;
use crate::space::{BlockState, Location, Stream};

impl Ftl {
    /// See [`crate::ssd::Ssd::audit`].
    pub fn audit(&self) -> Result<(), String> {
        let valid = self.audit_mapping()?;
        self.audit_slots()?;
        self.audit_program_units()?;
        self.audit_blocks(&valid)?;
        self.audit_dies()
    }

    /// Checks that every mapped unit is where the mapping leads. Returns the number of valid units of each
    /// block.
    fn audit_mapping(&self) -> Result<Vec<u32>, String> {
        let (shape, map) = (&self.shape, self.space.map());
        let mut valid = vec![0; shape.blocks() as usize];
        for unit in 0..map.len() {
            match map.locate(unit) {
                Location::Unmapped => {}
                Location::Buffered(place) => {
                    let owner = self.buffer.member(place).owner;
                    if owner != Some(unit) && !map.is_led_to(place) {
                        return Err(format!("unit {unit}: the buffer has {owner:?} there"));
                    }
                }
                Location::Flash(physical) => {
                    if map.leads().contains(physical) {
                        continue;
                    }
                    let owner = map.owner(physical);
                    if owner != Some(unit) {
                        return Err(format!("unit {unit} is mapped to {physical}, of {owner:?}"));
                    }
                    valid[shape.block_of(physical) as usize] += 1;
                }
            }
        }
        self.audit_leads(&mut valid)?;
        let mapped: u32 = valid.iter().sum();
        let counted = (0..shape.units()).filter(|unit| map.is_valid(*unit)).count() as u32;
        if counted != mapped {
            return Err(format!("{mapped} units are mapped, {counted} are valid"));
        }
        Ok(valid)
    }

    /// Checks that the table of leads has exactly the addresses that lead to its units, and no unit to which
    /// only the address in its out-of-band area leads; counts its units.
    fn audit_leads(&self, valid: &mut [u32]) -> Result<(), String> {
        let (map, mut led) = (self.space.map(), 0);
        for (location, group) in map.leads().groups() {
            let place = map.decoded(location);
            if let Location::Flash(physical) = place {
                valid[self.shape.block_of(physical) as usize] += 1;
                if map.owner(physical) != Some(group.home.owner) {
                    return Err(format!("unit {physical} is not of {:?}", group.home));
                }
            }
            for address in &group.addresses {
                let held = map.leads().held_at(*address);
                let mapped = map.locate(*address);
                let agrees = match held {
                    Some(held) => held == location && mapped == Location::Unmapped,
                    None => mapped == place,
                };
                if !agrees {
                    return Err(format!("{address} is in {group:?} of {place:?}, not {mapped:?}"));
                }
                led += usize::from(held.is_none());
            }
            let is_plain = |address: &u32| {
                let leads = map.leads();
                let open = leads.is_held(*address) || leads.is_uncommitted(*address);
                *address == group.home.owner && !open
            };
            if group.addresses.len() < 2 && group.addresses.iter().all(is_plain) {
                return Err(format!("{group:?} of {place:?} is as any other unit"));
            }
        }
        let in_table = |unit: &u32| match map.locate(*unit) {
            Location::Unmapped => false,
            Location::Buffered(place) => map.is_led_to(place),
            Location::Flash(physical) => map.leads().contains(physical),
        };
        let mapped = (0..map.len()).filter(in_table).count();
        let held = map.leads().held();
        let lost = held.filter(|(_, location)| !map.leads().contains(*location)).count();
        if mapped != led || lost > 0 {
            return Err(format!(
                "{mapped} addresses lead to remapped units, {led} are known; {lost}"
            ));
        }
        Ok(())
    }

    /// Checks that each slot in use is open, not full, and used once, for its stream; and that no other is
    /// open.
    fn audit_slots(&self) -> Result<(), String> {
        let moved = self.collector.slots().map(|slot| (slot, Stream::Moved));
        let host = self.placer.slots().map(|slot| (slot, Stream::Host));
        let mut used: Vec<(u32, Stream)> = moved.chain(host).collect();
        used.sort_by_key(|(slot, _)| *slot);
        let open = self.buffer.open_slots();
        if used.iter().map(|(slot, _)| *slot).ne(open.iter().copied()) {
            return Err(format!("slots {open:?} are open, {used:?} are used"));
        }
        for (number, stream) in used {
            let slot = self.buffer.slot(number);
            if slot.stream != stream || slot.units.len() >= self.shape.units_per_program as usize {
                return Err(format!("slot {number} of {stream:?} is {slot:?}"));
            }
        }
        Ok(())
    }

    /// Checks that an open block is programmed exactly up to its write pointer, that the units of a program
    /// unit which is not programmed have no owners, and that free, valid and invalid units add up.
    fn audit_program_units(&self) -> Result<(), String> {
        let (shape, map, blocks) = (&self.shape, self.space.map(), self.space.blocks());
        let units = shape.units_per_program;
        let write_pointers: Vec<u32> = (0..shape.dies)
            .flat_map(|die| [(die, Stream::Host), (die, Stream::Moved)])
            .filter_map(|(die, stream)| blocks.write_pointer(die, stream))
            .collect();
        let (mut free, mut invalid) = (0, 0);
        for first in (0..shape.units()).step_by(units as usize) {
            let (block, programmed) = (shape.block_of(first), map.is_programmed(first));
            if !programmed && (first..first + units).any(|unit| map.owner(unit).is_some()) {
                return Err(format!("units from {first} on have owners, but are not programmed"));
            }
            if blocks.state(block) == BlockState::Open {
                let next = write_pointers.iter().find(|next| shape.block_of(**next) == block);
                if next.is_none_or(|next| programmed != (first < *next)) {
                    let state = if programmed { "programmed" } else { "not programmed" };
                    let why = format!("write pointer {next:?}, but {first} is {state}");
                    return Err(format!("open block {block}: {why}"));
                }
            }
            if programmed {
                let is_invalid = |unit: &u32| !map.is_valid(*unit);
                invalid += (first..first + units).filter(is_invalid).count() as u32;
            } else {
                free += units;
            }
        }
        let valid: u32 = (0..shape.dies).map(|die| blocks.valid_of_die(die)).sum();
        if free + valid + invalid != shape.units() {
            return Err(format!("{free} free, {valid} valid, {invalid} invalid do not add up"));
        }
        Ok(())
    }

    /// Checks each block's count of valid units, and whether it awaits a successor.
    fn audit_blocks(&self, valid: &[u32]) -> Result<(), String> {
        let (shape, blocks) = (&self.shape, self.space.blocks());
        let mut awaits = vec![false; shape.blocks() as usize];
        for slot in self.buffer.open_slots() {
            let members = &self.buffer.slot(slot).units;
            for predecessor in members.iter().filter_map(|member| member.predecessor) {
                awaits[shape.block_of(predecessor) as usize] = true;
            }
        }
        for block in 0..shape.blocks() {
            let (mapped, counted) = (valid[block as usize], blocks.valid(block));
            if mapped != counted {
                return Err(format!("block {block}: {mapped} valid units, {counted} counted"));
            }
            let awaits = awaits[block as usize];
            if awaits != blocks.awaits_successor(block) {
                return Err(format!("block {block}: awaits a successor: {awaits}"));
            }
            if counted > 0 && blocks.state(block) == BlockState::Free {
                return Err(format!("block {block} is free and has {counted} valid units"));
            }
        }
        Ok(())
    }

    /// Checks each die's counts of valid units and free blocks.
    fn audit_dies(&self) -> Result<(), String> {
        let (shape, blocks) = (&self.shape, self.space.blocks());
        for die in 0..shape.dies {
            let valid: u32 = shape.blocks_of_die(die).map(|block| blocks.valid(block)).sum();
            let is_free = |block: &u32| blocks.state(*block) == BlockState::Free;
            let free = shape.blocks_of_die(die).filter(is_free).count();
            if valid != blocks.valid_of_die(die) || free != blocks.free(die) {
                return Err(format!("die {die}: counts of valid units or free blocks differ"));
            }
        }
        Ok(())
    }
}
