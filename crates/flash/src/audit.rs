//! Whether everything that the translation layer keeps twice agrees.

use crate::blocks::{State, Stream};
use crate::ftl::Ftl;
use crate::map::{BUFFERED, NONE};
use std::collections::BTreeMap;

impl Ftl {
    /// See [`crate::ssd::Ssd::audit`].
    pub fn audit(&self) -> Result<(), String> {
        let shape = &self.shape;
        let mut valid = vec![0; shape.blocks() as usize];
        let mut mapped = 0;
        for unit in 0..self.map.len() {
            match self.map.get(unit) {
                NONE => {}
                place if place >= BUFFERED => {
                    let member = self.slots.member(place);
                    if member.owner != unit {
                        return Err(format!("unit {unit}: the buffer has {} there", member.owner));
                    }
                }
                physical if self.map.owner(physical) != unit => {
                    let owner = self.map.owner(physical);
                    return Err(format!("unit {unit} is mapped to {physical}, which is {owner}'s"));
                }
                physical => {
                    valid[shape.block_of(physical) as usize] += 1;
                    mapped += 1;
                }
            }
        }
        // A physical unit is valid through its owner only, so none can be mapped twice.
        let by_owner = (0..shape.units()).filter(|unit| self.map.is_valid(*unit)).count();
        if by_owner != mapped {
            return Err(format!("{mapped} units are mapped, {by_owner} are valid"));
        }
        self.audit_slots()?;
        self.audit_shots()?;
        let mut awaited: BTreeMap<u32, u32> = BTreeMap::new();
        for slot in self.slots.open_ones() {
            for member in &self.slots.get(slot).units {
                if member.old != NONE {
                    *awaited.entry(shape.block_of(member.old)).or_default() += 1;
                }
            }
        }
        for block in 0..shape.blocks() {
            let (counted, known) = (valid[block as usize], self.blocks.valid(block));
            if counted != known {
                return Err(format!("block {block}: {counted} valid units, {known} counted"));
            }
            let waits = awaited.get(&block).is_some_and(|n| *n > 0);
            if waits != self.blocks.is_awaited(block) {
                return Err(format!("block {block}: waits for the buffer: {waits}"));
            }
            if known > 0 && self.blocks.state(block) == State::Free {
                return Err(format!("block {block} is free and has {known} valid units"));
            }
        }
        for die in 0..shape.dies {
            let of_die = |block: &u32| shape.die_of_block(*block) == die;
            let blocks = || (0..shape.blocks()).filter(of_die);
            let counted: u32 = blocks().map(|block| self.blocks.valid(block)).sum();
            let free = blocks().filter(|b| self.blocks.state(*b) == State::Free).count();
            if counted != self.blocks.valid_of_die(die) || free != self.blocks.free(die) {
                return Err(format!("die {die}: counts of valid units or free blocks differ"));
            }
        }
        Ok(())
    }

    /// An open block is written up to its next shot; a shot that is not written holds nothing; and
    /// free, valid and invalid units are all there are.
    fn audit_shots(&self) -> Result<(), String> {
        let (shape, units) = (&self.shape, self.shape.shot_units);
        let next: Vec<u32> = (0..shape.dies)
            .flat_map(|die| [(die, Stream::Host), (die, Stream::Moved)])
            .filter_map(|(die, stream)| self.blocks.peek_shot(die, stream))
            .collect();
        let (mut free, mut invalid) = (0, 0);
        for first in (0..shape.units()).step_by(units as usize) {
            let (block, begun) = (shape.block_of(first), self.map.is_begun(first));
            if !begun && (first..first + units).any(|unit| self.map.owner(unit) != NONE) {
                return Err(format!("unit {first} and on: somebody's, but not programmed"));
            }
            if self.blocks.state(block) == State::Open {
                let next = next.iter().find(|next| shape.block_of(**next) == block);
                if next.is_none_or(|next| begun != (first < *next)) {
                    return Err(format!("open block {block}: {next:?} is next, {first}: {begun}"));
                }
            }
            match begun {
                false => free += units,
                true => {
                    let old = |unit: &u32| !self.map.is_valid(*unit);
                    invalid += (first..first + units).filter(old).count() as u32;
                }
            }
        }
        let valid: u32 = (0..shape.dies).map(|die| self.blocks.valid_of_die(die)).sum();
        match free + valid + invalid == shape.units() {
            true => Ok(()),
            false => Err(format!("{free} free, {valid} valid, {invalid} invalid do not add up")),
        }
    }

    /// Whoever puts a shot together has one that is open, not full, and nobody else's.
    fn audit_slots(&self) -> Result<(), String> {
        let moving = self.moving.iter().flatten().map(|slot| (*slot, Stream::Moved));
        let host = self.places.slots().map(|slot| (slot, Stream::Host));
        let mut of: Vec<(u32, Stream)> = moving.chain(host).collect();
        of.sort_by_key(|(slot, _)| *slot);
        if of.iter().map(|(slot, _)| *slot).ne(self.slots.open_ones()) {
            return Err(format!("slots {:?} are open, {of:?} are used", self.slots.open_ones()));
        }
        for (number, stream) in of {
            let slot = self.slots.get(number);
            if slot.stream != stream || slot.units.len() >= self.shape.shot_units as usize {
                return Err(format!("slot {number} of {stream:?} is {slot:?}"));
            }
        }
        Ok(())
    }
}
