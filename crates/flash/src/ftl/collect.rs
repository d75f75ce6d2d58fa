//! Garbage collection, and wear levelling among the blocks of a die. Moved units stay on their die as long as
//! the die has invalid units to collect, so files stay spread over the dies as they were (FAST'24, section
//! 2.3).

use super::in_flight::OperationKind;
use super::open::FREE_BLOCKS;
use super::{Ftl, NoSpace};
use crate::counters::ProgramCause;
use crate::drive::Collection;
use crate::geometry::Shape;
use crate::space::{BlockState, Stream};

/// The state of garbage collection on each die.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    dies: Vec<DieState>,
}

#[derive(Clone, Debug, Default)]
struct DieState {
    /// The slot of the units that are moved to the die.
    slot: Option<u32>,
    /// Whether the die is being collected.
    collecting: bool,
    /// Whether a power cut has left fewer free blocks than collection provides. The open blocks are then for
    /// moved units first: if the host filled them, there would be no space to free any.
    short: bool,
    /// The block that is collected in steps, and how many valid units it had at first.
    victim: Option<(u32, u32)>,
    /// The number of erases of the die at which its wear is checked again.
    level_at: u64,
}

impl Collector {
    pub fn new(shape: &Shape) -> Self {
        Self { dies: vec![DieState::default(); shape.dies as usize] }
    }

    /// Whether a die is being collected.
    pub fn is_collecting(&self, die: u32) -> bool {
        self.dies[die as usize].collecting
    }

    /// Closes the slot of units that are moved to a die: it is being programmed, and nothing more is added to
    /// it.
    pub fn close_slot(&mut self, die: u32) {
        self.dies[die as usize].slot = None;
    }

    /// Whether a die must be collected before the host writes to its open block.
    pub fn is_short(&self, die: u32) -> bool {
        self.dies[die as usize].short
    }

    /// Notes on which dies a power cut has left too few free blocks.
    pub fn note_shortage(&mut self, is_short: impl Fn(u32) -> bool) {
        for (die, state) in (0..).zip(&mut self.dies) {
            state.short = is_short(die);
        }
    }

    /// The slots of moved units.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.dies.iter().filter_map(|die| die.slot)
    }

    /// Resets the state, as a power cut does: nothing is being moved.
    pub fn clear(&mut self) {
        for die in &mut self.dies {
            (die.slot, die.collecting, die.victim) = (None, false, None);
        }
    }
}

impl Ftl {
    /// Collects blocks of a die until enough are free, and levels their wear.
    pub(super) fn collect(&mut self, die: u32, ready: u64) -> Result<(), NoSpace> {
        if std::mem::replace(&mut self.collector.dies[die as usize].collecting, true) {
            return Ok(());
        }
        let done = self.free_blocks(die, ready).and_then(|()| self.level_wear(die, ready));
        self.collector.dies[die as usize].short &= done.is_err();
        self.collector.dies[die as usize].collecting = false;
        done
    }

    fn free_blocks(&mut self, die: u32, ready: u64) -> Result<(), NoSpace> {
        // Programming slots that are not full may need as much space as a victim frees, so the rounds are
        // bounded.
        for _ in 0..self.shape.blocks_per_die {
            let erasable = self.erasable_blocks(die);
            if erasable >= FREE_BLOCKS {
                break;
            }
            let victim = self.choose_victim(die);
            let is_whole = |block| self.space.blocks().valid(block) == self.shape.units_per_block;
            let frees_units = victim.is_some_and(|block| !is_whole(block));
            // Some free blocks await the program of slots that are not full. A victim's units may fill those
            // slots; but the slots are programmed as they are if there is no block for the victim's units, if
            // that makes enough blocks erasable, or if no victim has invalid units.
            let free = self.space.blocks().free(die);
            let enough = free > FREE_BLOCKS;
            if free > erasable && (erasable == 0 || enough || !frees_units) {
                self.program_awaited_slots(die, ready)?;
                if self.erasable_blocks(die) > erasable {
                    continue;
                }
                if enough && erasable > 0 {
                    break;
                }
            }
            let victim = victim.ok_or(NoSpace)?;
            // If the die has no invalid units to collect, a block of it moves to another die.
            let to = if frees_units { die } else { self.emptiest_die() };
            if !frees_units && to == die {
                return Err(NoSpace);
            }
            if to != die {
                self.collect(to, ready)?;
            }
            self.move_block(victim, to, ProgramCause::Collected, ready)?;
        }
        Ok(())
    }

    /// Moves some units of a victim of a die after each program of the host there, while few blocks are free: as
    /// many as keep pace, so that a block is free again when the host has filled one. So the host seldom waits
    /// for whole victims ([`Self::collect`]). Between two steps the victim is a closed block as any other.
    pub(super) fn collect_in_step(&mut self, die: u32, ready: u64) -> Result<(), NoSpace> {
        let blocks = self.space.blocks();
        if !self.firmware.collection_paced || blocks.free(die) > FREE_BLOCKS + 1 {
            return Ok(());
        }
        let has_space = blocks.has_open(die, Stream::Moved) || self.erasable_blocks(die) > 1;
        let Some((victim, valid)) = self.victim_in_steps(die) else { return Ok(()) };
        let state = &mut self.collector.dies[die as usize];
        if !has_space || state.collecting {
            return Ok(());
        }
        (state.collecting, state.victim) = (true, Some((victim, valid)));
        let all = self.shape.units_per_block;
        let units = (self.shape.units_per_program * valid).div_ceil(all - valid);
        let done = self.move_units(victim, die, ProgramCause::Collected, units, ready);
        self.collector.dies[die as usize].collecting = false;
        done
    }

    /// The block of a die that is being collected in steps, or is to be, and how many valid units it had at
    /// first; none without invalid units.
    fn victim_in_steps(&self, die: u32) -> Option<(u32, u32)> {
        let blocks = self.space.blocks();
        let is_victim = |(block, valid): &(u32, u32)| {
            blocks.state(*block) == BlockState::Closed && blocks.valid(*block) <= *valid
        };
        let begun = self.collector.dies[die as usize].victim.filter(is_victim);
        let next = || self.choose_victim(die).map(|block| (block, blocks.valid(block)));
        begun.or_else(next).filter(|(_, valid)| *valid < self.shape.units_per_block)
    }

    fn choose_victim(&self, die: u32) -> Option<u32> {
        let blocks = self.space.blocks();
        if self.collector.is_short(die)
            && let Some(block) = blocks.emptiest_that_awaits_none(die)
            && blocks.valid(block) < self.shape.units_per_block
        {
            // The program unit that is left may be the last: it must free a block at once.
            return Some(block);
        }
        match self.firmware.collection {
            Collection::Greedy => blocks.emptiest(die),
            Collection::CostBenefit => blocks.best_by_cost_benefit(die, self.space.programs()),
        }
    }

    /// Moves the data of the least worn block of a die, if it lags too far behind the most worn one.
    fn level_wear(&mut self, die: u32, ready: u64) -> Result<(), NoSpace> {
        let spread = self.firmware.wear.block_spread;
        let erases = self.space.blocks().erases_of_die(die);
        if spread == 0 || erases < self.collector.dies[die as usize].level_at {
            return Ok(());
        }
        // If all blocks but one were cold, one of them would have to move for every `spread` erases. Twice as
        // often leaves a margin.
        self.collector.dies[die as usize].level_at = erases + u64::from(spread / 2).max(1);
        match self.space.blocks().least_worn(die) {
            Some((block, less)) if less > spread => {
                self.move_block(block, die, ProgramCause::Levelled, ready)
            }
            _ => Ok(()),
        }
    }

    /// Programs the slots that free blocks of a die await, as far as the die of a slot has an open block.
    fn program_awaited_slots(&mut self, die: u32, ready: u64) -> Result<(), NoSpace> {
        for number in self.buffer.open_slots() {
            if !self.buffer.is_open(number) {
                continue;
            }
            let (slot, blocks) = (self.buffer.slot(number), self.space.blocks());
            let is_awaited = |predecessor: u32| {
                let block = self.shape.block_of(predecessor);
                self.shape.die_of_block(block) == die && blocks.state(block) == BlockState::Free
            };
            let awaited = slot.units.iter().filter_map(|member| member.predecessor).any(is_awaited);
            let has_open = |stream| blocks.has_open(slot.die, stream);
            if awaited && (has_open(Stream::Host) || has_open(Stream::Moved)) {
                self.program_slot(number, ready)?;
            }
        }
        Ok(())
    }

    /// The die with the fewest valid units.
    fn emptiest_die(&self) -> u32 {
        let valid = |die: &u32| self.space.blocks().valid_of_die(*die);
        (0..self.shape.dies).min_by_key(valid).unwrap_or(0)
    }

    /// Moves the valid units of a closed block to the die `to`, and releases the block.
    fn move_block(
        &mut self,
        block: u32,
        to: u32,
        cause: ProgramCause,
        ready: u64,
    ) -> Result<(), NoSpace> {
        self.move_units(block, to, cause, self.shape.units_per_block, ready)
    }

    /// Moves valid units of a closed block, page by page, until these many are moved, and releases the block
    /// when it has no others.
    fn move_units(
        &mut self,
        block: u32,
        to: u32,
        cause: ProgramCause,
        most: u32,
        ready: u64,
    ) -> Result<(), NoSpace> {
        let before = self.nand.total_busy_ns();
        let (units, page) = (self.shape.units_of_block(block), self.shape.units_per_page);
        // The owners' entries are in the processor's cache afterwards.
        let valid = self.space.map().count_valid(units.clone());
        assert_eq!(valid, self.space.blocks().valid(block), "valid units of block {block}");
        let left = valid.saturating_sub(most);
        for first in units.step_by(page as usize) {
            let valid = self.space.blocks().valid(block);
            if valid == 0 || valid <= left {
                break;
            }
            let is_valid = |unit: &u32| self.space.map().is_valid(*unit);
            let valid = (first..first + page).filter(is_valid).count() as u32;
            if valid == page && self.may_copy_back(first, to) {
                self.copy_back(first, to, cause, ready)?;
            } else if valid > 0 {
                self.move_page(first, valid, to, cause, ready)?;
            }
        }
        if self.space.blocks().valid(block) == 0 {
            self.space.release_block(block);
        }
        self.counters.collecting_ns += self.nand.total_busy_ns() - before;
        Ok(())
    }

    /// Moves the `valid` valid units of a flash page through the controller.
    fn move_page(
        &mut self,
        first: u32,
        valid: u32,
        to: u32,
        cause: ProgramCause,
        ready: u64,
    ) -> Result<(), NoSpace> {
        let mut arrived = ready;
        if self.timed {
            let (page, bytes) = (self.shape.page_of(first), valid * self.shape.unit_bytes);
            arrived = self.nand.read(self.now, ready, page, bytes, false);
        }
        for unit in first..first + self.shape.units_per_page {
            // Programming a slot may collect, and so move a unit before its turn here.
            let Some(owner) = self.space.map().owner(unit) else { continue };
            if !self.space.map().is_valid(unit) {
                continue;
            }
            let slot = &mut self.collector.dies[to as usize].slot;
            let slot = *slot.get_or_insert_with(|| self.buffer.open(to, Stream::Moved));
            if self.space.map().leads().contains(unit) {
                self.move_to_slot(slot, unit, cause, arrived)?;
            } else {
                let bytes = self.space.bytes(unit);
                self.add_to_slot(slot, owner, cause, bytes, arrived)?;
            }
        }
        Ok(())
    }

    /// Whether a flash page can be programmed from the register of its die at the write pointer for moved
    /// units of `to`.
    fn may_copy_back(&self, first: u32, to: u32) -> bool {
        let (page, shape) = (self.shape.page_of(first), &self.shape);
        if !self.firmware.copyback
            || page.die != to
            || shape.units_per_program != shape.units_per_page
        {
            return false;
        }
        let next = self.space.blocks().write_pointer(to, Stream::Moved);
        next.is_some_and(|next| shape.page_of(next).plane == page.plane)
    }

    /// Programs a wholly valid flash page from the register of its die at the die's write pointer for moved
    /// units.
    fn copy_back(
        &mut self,
        from: u32,
        die: u32,
        cause: ProgramCause,
        ready: u64,
    ) -> Result<(), NoSpace> {
        let single_file = self.space.map().is_single_file(from);
        let first = self.space.program_next(die, Stream::Moved, single_file).ok_or(NoSpace)?;
        let mut end = 0;
        if self.timed {
            let ticket = self.nand.copyback(self.now, ready, self.shape.page_of(from));
            let program = OperationKind::Program { first, buffered_bytes: 0 };
            self.in_flight.push(die, ticket, program, &self.nand);
            end = self.nand.end_of(ticket);
        }
        for (from, to) in (from..from + self.shape.units_per_page).zip(first..) {
            self.space.move_in_flash(from, to);
            self.space.set_succeeded(from, end);
        }
        self.counters.copybacks += 1;
        *self.counters.programmed_for(cause) += u64::from(self.shape.units_per_page);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
