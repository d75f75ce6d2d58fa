//! Making room on a die: garbage collection, and wear levelling among its blocks. What is moved
//! stays on its die as long as the die has anything to gain: so do the files that lie across
//! dies as they should (FAST'24, section 2.3).

use crate::blocks::{State, Stream};
use crate::drive::Collection;
use crate::ftl::{Doing, Ftl, Full};
use crate::map::NONE;
use crate::slots::Cause;

/// A die that opens a block for the host keeps one more free, to move things to.
const FREE_BLOCKS: usize = 2;

impl Ftl {
    /// Collects blocks of a die until there are enough free ones.
    pub fn collect(&mut self, die: u32, ready: u64) -> Result<(), Full> {
        if std::mem::replace(&mut self.collecting[die as usize], true) {
            return Ok(());
        }
        let done = self.collect_all(die, ready);
        self.collecting[die as usize] = false;
        done
    }

    fn collect_all(&mut self, die: u32, ready: u64) -> Result<(), Full> {
        // What is programmed as it is may cost as much as a victim gains: that must end.
        for _ in 0..self.shape.die_blocks {
            let ready_ones = self.ready_blocks(die);
            if ready_ones >= FREE_BLOCKS {
                break;
            }
            let victim = match self.firmware.collection {
                Collection::Greedy => self.blocks.emptiest(die),
                Collection::CostBenefit => self.blocks.best_by_cost(die, self.programs),
            };
            let is_whole = |block: u32| self.blocks.valid(block) == self.shape.block_units;
            let gains = victim.is_some_and(|block| !is_whole(block));
            // Free blocks wait for shots that are being put together. The units of a victim would
            // fill them; where there is no room for that, they are programmed as they are.
            let (free, enough) = (self.blocks.free(die), self.blocks.free(die) > FREE_BLOCKS);
            if free > ready_ones && (ready_ones == 0 || enough || !gains) {
                self.settle(die, ready)?;
                if self.ready_blocks(die) > ready_ones {
                    continue;
                }
                if enough && ready_ones > 0 {
                    break;
                }
            }
            let victim = victim.ok_or(Full)?;
            // A die that is full of valid data gives some away.
            let to = if gains { die } else { self.emptiest_die() };
            if !gains && to == die {
                return Err(Full);
            }
            if to != die {
                self.collect(to, ready)?;
            }
            self.move_block(victim, to, Cause::Collected, ready)?;
        }
        let spread = self.firmware.wear.block_spread;
        if spread > 0 && self.blocks.erases_of_die(die) >= self.level_at[die as usize] {
            // Were all blocks cold but one, each would have to move once in `spread` rounds: one in
            // `spread` erases. Twice as often leaves room.
            let after = u64::from(spread / 2).max(1);
            self.level_at[die as usize] = self.blocks.erases_of_die(die) + after;
            let least = self.blocks.least_worn(die).filter(|(_, less)| *less > spread);
            if let Some((block, _)) = least {
                self.move_block(block, die, Cause::Levelled, ready)?;
            }
        }
        Ok(())
    }

    /// Free blocks of a die that may be erased, as far as it matters how many.
    pub fn ready_blocks(&self, die: u32) -> usize {
        match self.spec.protected {
            true => self.blocks.free(die).min(FREE_BLOCKS),
            false => self.blocks.ready(die, FREE_BLOCKS),
        }
    }

    /// Programs slots that free blocks of a die wait for, where that takes no new block.
    fn settle(&mut self, die: u32, ready: u64) -> Result<(), Full> {
        for number in self.slots.open_ones() {
            if !self.slots.is_open(number) {
                continue;
            }
            let slot = self.slots.get(number);
            let is_awaited = |old: u32| {
                let block = self.shape.block_of(old);
                self.shape.die_of_block(block) == die && self.blocks.state(block) == State::Free
            };
            let waits = slot.units.iter().any(|m| m.old != NONE && is_awaited(m.old));
            let open = |stream| self.blocks.has_open(slot.die, stream);
            if waits && (open(Stream::Host) || open(Stream::Moved)) {
                self.program_slot(number, ready)?;
            }
        }
        Ok(())
    }

    /// The die with the least valid data.
    pub fn emptiest_die(&self) -> u32 {
        (0..self.shape.dies).min_by_key(|die| self.blocks.valid_of_die(*die)).unwrap_or(0)
    }

    /// Moves what is valid of a closed block to another of `to`; the block is free then.
    pub fn move_block(
        &mut self,
        block: u32,
        to: u32,
        cause: Cause,
        ready: u64,
    ) -> Result<(), Full> {
        let before = self.nand.busy_in_all_ns();
        let (first, page) = (block * self.shape.block_units, self.shape.page_units);
        // Owners lie anywhere in the map. Looked up all at once, they are waited for side by side,
        // and then they are in the processor's cache.
        let all = first..first + self.shape.block_units;
        let valid = all.fold(0, |sum, unit| sum + u32::from(self.map.is_valid(unit)));
        assert_eq!(valid, self.blocks.valid(block), "valid units of block {block}");
        for at in (first..first + self.shape.block_units).step_by(page as usize) {
            if self.blocks.valid(block) == 0 {
                break;
            }
            let valid = (at..at + page).filter(|unit| self.map.is_valid(*unit)).count() as u32;
            if valid == 0 {
                continue;
            }
            if valid == page && self.copies_back(at, to) {
                self.copy_back(at, to, cause, ready)?;
                continue;
            }
            let ready = match self.timed {
                true => {
                    let (page, bytes) = (self.shape.page_of(at), valid * self.shape.unit_bytes);
                    self.nand.read(self.now, ready, page, bytes, false)
                }
                false => ready,
            };
            for unit in at..at + page {
                if !self.map.is_valid(unit) {
                    continue;
                }
                let bytes = self.content.as_ref().and_then(|content| content.get(unit));
                let slot = match self.moving[to as usize] {
                    Some(slot) => slot,
                    None => {
                        let slot = self.slots.open(to, Stream::Moved);
                        self.moving[to as usize] = Some(slot);
                        slot
                    }
                };
                self.put(slot, self.map.owner(unit), cause, bytes, ready)?;
            }
        }
        self.blocks.release(block);
        self.counters.collecting_ns += self.nand.busy_in_all_ns() - before;
        Ok(())
    }

    /// Whether a flash page can be programmed where a die's moved units go, out of the die's
    /// register.
    fn copies_back(&self, first: u32, to: u32) -> bool {
        let (from, shape) = (self.shape.page_of(first), &self.shape);
        let may = self.firmware.copyback && from.die == to && shape.shot_units == shape.page_units;
        let next = if may { self.blocks.peek_shot(to, Stream::Moved) } else { None };
        next.is_some_and(|next| shape.page_of(next).plane == from.plane)
    }

    /// Programs a valid page to where its die's moved units go.
    fn copy_back(&mut self, from: u32, die: u32, cause: Cause, ready: u64) -> Result<(), Full> {
        self.programs += 1;
        let first = self.blocks.next_shot(die, Stream::Moved, self.programs).ok_or(Full)?;
        let (old, new) = (self.shape.block_of(from), self.shape.block_of(first));
        let end = match self.timed {
            true => {
                let ticket = self.nand.copyback(self.now, ready, self.shape.page_of(from));
                self.begin(die, ticket, Doing::Program { first, buffered: 0 });
                self.nand.end_of(ticket)
            }
            false => 0,
        };
        self.map.stamp(first, self.programs);
        self.map.set_own(first, self.map.is_own(from));
        for (from, to) in (from..from + self.shape.page_units).zip(first..) {
            let owner = self.map.owner(from);
            self.map.write(to, owner);
            self.map.set(owner, to);
            self.blocks.lose(old);
            self.blocks.gain(new);
            self.blocks.await_successor(old);
            self.blocks.succeeded(old, end);
            if let Some(content) = &mut self.content {
                let bytes = content.get(from);
                content.put(to, bytes);
            }
        }
        *self.counters.of(cause) += u64::from(self.shape.page_units);
        Ok(())
    }
}
