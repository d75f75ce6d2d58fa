//! The translation layer: where each unit is, and the programs and erases that follow from that.
//!
//! What is written is collected in [slots](crate::slots); a full one is programmed to the open
//! block of its die. Neighbours: [`crate::place`] chooses the die, [`crate::collect`] makes room,
//! [`crate::recover`] finds everything again after a power cut.
//!
//! **What is on the flash if the power fails here.** Acknowledged data that was not flushed may be
//! gone, what was flushed may not, and nothing older may come back. So a block is erased only
//! after everything that took the place of its units is programmed ([`Blocks::safe_at`]), and
//! after the journal says so of what was trimmed. That holds at every instant, because an erase
//! is the only thing that takes away; and it is why a block is not erased when it becomes free,
//! but when it is opened: by then there is nothing to wait for.

use crate::blocks::{Blocks, Stream};
use crate::content::Content;
use crate::counters::Counters;
use crate::drive::{BufferSpec, Drive, Firmware};
use crate::geometry::Shape;
use crate::journal::Journal;
use crate::map::{BUFFERED, Map, NONE, Wiped};
use crate::nand::{Nand, Ticket};
use crate::place::Places;
use crate::slots::{Bytes, Cause, Member, Slot, Slots};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A program or an erase that a power cut may still catch.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub ticket: Ticket,
    pub doing: Doing,
}

/// See [`UnderWay`].
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    /// Writes a shot.
    Program { first: u32, buffered: u32 },
    /// Erases a block that held this.
    Erase { wiped: Wiped, content: Vec<Bytes> },
    /// Writes what the journal had noted by then.
    Journal { noted: u64 },
}

/// The translation layer's state.
#[derive(Clone, Debug)]
pub(crate) struct Ftl {
    pub shape: Shape,
    pub firmware: Firmware,
    pub spec: BufferSpec,
    pub map: Map,
    pub blocks: Blocks,
    pub slots: Slots,
    pub places: Places,
    pub nand: Nand,
    pub journal: Journal,
    pub content: Option<Content>,
    pub counters: Counters,
    /// Programs so far.
    pub programs: u64,
    /// Of each die, in order.
    pub under_way: Vec<VecDeque<UnderWay>>,
    /// When the first of each die ends, as it seemed when it began.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bytes of programs that have not ended.
    programming_bytes: u64,
    /// For each die, the slot of what is moved there.
    pub moving: Vec<Option<u32>>,
    /// For each die, whether it is being collected.
    pub collecting: Vec<bool>,
    /// For each die, the erases after which its wear is looked at again.
    pub level_at: Vec<u64>,
    /// The earliest time that can still be asked for.
    pub now: u64,
    /// Whether time passes: preconditioning takes none.
    pub timed: bool,
}

/// There is no room, whatever is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Ftl {
    pub fn new(drive: &Drive, shape: Shape, keeps_content: bool) -> Self {
        Self {
            firmware: drive.firmware,
            spec: drive.buffer.clone(),
            map: Map::new(&shape),
            blocks: Blocks::new(&shape),
            slots: Slots::new(shape.shot_units),
            places: Places::new(&shape, drive.buffer.open_shots),
            nand: Nand::new(drive, &shape),
            journal: Journal::default(),
            content: keeps_content.then(|| Content::new(&shape)),
            counters: Counters::default(),
            programs: 0,
            under_way: vec![VecDeque::new(); shape.dies as usize],
            ends: BinaryHeap::new(),
            programming_bytes: 0,
            moving: vec![None; shape.dies as usize],
            collecting: vec![false; shape.dies as usize],
            level_at: vec![0; shape.dies as usize],
            now: 0,
            timed: true,
            shape,
        }
    }

    /// Time goes on: what has ended by then is out of the buffer.
    pub fn pass(&mut self, now: u64) {
        self.now = self.now.max(now);
        while self.ends.peek().is_some_and(|Reverse((end, _))| *end <= self.now) {
            let Some(Reverse((_, die))) = self.ends.pop() else { return };
            let Some(first) = self.under_way[die as usize].front() else { continue };
            // What was suspended ends later than it seemed.
            let end = self.nand.end_of(first.ticket);
            match end <= self.now {
                true => self.end_first(die),
                false => self.ends.push(Reverse((end, die))),
            }
        }
    }

    fn end_first(&mut self, die: u32) {
        let Some(done) = self.under_way[die as usize].pop_front() else { return };
        match done.doing {
            Doing::Program { buffered, .. } => self.programming_bytes -= u64::from(buffered),
            Doing::Erase { .. } => {}
            Doing::Journal { noted } => self.journal.written(noted),
        }
    }

    /// A program or an erase of a die is under way from now on.
    pub fn begin(&mut self, die: u32, ticket: Ticket, doing: Doing) {
        self.ends.push(Reverse((self.nand.end_of(ticket), die)));
        self.under_way[die as usize].push_back(UnderWay { ticket, doing });
    }

    /// Nothing is under way any more; gives what was, of each die in order.
    pub fn stop(&mut self) -> Vec<VecDeque<UnderWay>> {
        self.ends.clear();
        self.programming_bytes = 0;
        let none = vec![VecDeque::new(); self.under_way.len()];
        std::mem::replace(&mut self.under_way, none)
    }

    /// Bytes in the write buffer.
    pub fn buffered_bytes(&self) -> u64 {
        self.programming_bytes + self.slots.units() as u64 * u64::from(self.shape.unit_bytes)
    }

    /// Waits until the buffer has room for a unit; gives when, no earlier than `ready`.
    pub fn wait_for_room(&mut self, ready: u64) -> Result<u64, Full> {
        let mut at = ready;
        while self.buffered_bytes() + u64::from(self.shape.unit_bytes) > self.spec.bytes {
            let Some(Reverse((end, die))) = self.ends.pop() else {
                // All of it is being put together: what was touched longest ago goes.
                let oldest = self.slots.open_ones().into_iter();
                let oldest = oldest.min_by_key(|slot| self.slots.get(*slot).touched);
                self.program_slot(oldest.ok_or(Full)?, at)?;
                continue;
            };
            let Some(first) = self.under_way[die as usize].front() else { continue };
            match self.nand.end_of(first.ticket) {
                later if later > end => self.ends.push(Reverse((later, die))),
                end => {
                    at = at.max(end);
                    self.end_first(die);
                }
            }
        }
        Ok(at)
    }

    /// When the program that wrote a physical unit ends, or ended at the latest.
    pub fn program_end(&self, physical: u32) -> u64 {
        let shot = physical - physical % self.shape.shot_units;
        let of_die = &self.under_way[self.shape.die_of(physical) as usize];
        let of_shot =
            |done: &&UnderWay| matches!(done.doing, Doing::Program { first, .. } if first == shot);
        of_die.iter().find(of_shot).map_or(0, |done| self.nand.end_of(done.ticket))
    }

    /// Puts a logical unit into a slot, from where it takes the place of what was there; programs
    /// the slot when that makes it full, and says so.
    pub fn put(
        &mut self,
        slot: u32,
        owner: u32,
        cause: Cause,
        bytes: Bytes,
        ready: u64,
    ) -> Result<bool, Full> {
        let old = self.leave(owner);
        let (place, full) = self.slots.push(slot, Member { owner, old, cause, bytes });
        self.map.set(owner, place);
        if full {
            self.program_slot(slot, ready)?;
        }
        Ok(full)
    }

    /// A logical unit leaves where it is; gives the physical unit in the flash that waits for what
    /// comes next, if there is one.
    fn leave(&mut self, owner: u32) -> u32 {
        match self.map.set(owner, NONE) {
            NONE => NONE,
            place if place >= BUFFERED => {
                let member = self.slots.member_mut(place);
                member.disown();
                std::mem::replace(&mut member.old, NONE)
            }
            physical => {
                let block = self.shape.block_of(physical);
                self.blocks.lose(block);
                self.blocks.await_successor(block);
                physical
            }
        }
    }

    /// A logical unit is nowhere any more, which only the journal knows.
    pub fn unmap(&mut self, owner: u32) {
        let old = self.leave(owner);
        if old != NONE {
            self.blocks.succeeded(self.shape.block_of(old), 0);
        }
    }

    /// Programs a slot; what it lacks stays empty.
    pub fn program_slot(&mut self, number: u32, ready: u64) -> Result<(), Full> {
        let Slot { die: wanted, stream, touched, .. } = *self.slots.get(number);
        if stream == Stream::Moved {
            // Another die that makes room may move something here, too.
            self.moving[wanted as usize] = None;
        }
        let (die, of) = self.make_room(wanted, stream, ready)?;
        // Making room may have programmed it already, and its number may be another's.
        if !self.slots.is_open(number) || self.slots.get(number).touched != touched {
            return Ok(());
        }
        let own = self.places.is_own(number);
        if stream == Stream::Host {
            self.places.closed(number, wanted);
        }
        self.programs += 1;
        let first = self.blocks.next_shot(die, of, self.programs).ok_or(Full)?;
        let block = self.shape.block_of(first);
        let end = match self.timed {
            false => 0,
            true => {
                let shot_bytes = self.shape.shot_units * self.shape.unit_bytes;
                let plane = block % self.shape.planes;
                let ticket = self.nand.program(self.now, ready, die, plane, shot_bytes);
                let buffered = match stream {
                    Stream::Host => {
                        self.slots.get(number).units.len() as u32 * self.shape.unit_bytes
                    }
                    Stream::Moved => 0,
                };
                self.programming_bytes += u64::from(buffered);
                self.begin(die, ticket, Doing::Program { first, buffered });
                self.nand.end_of(ticket)
            }
        };
        self.map.stamp(first, self.programs);
        self.map.set_own(first, own);
        let slot = self.slots.take(number);
        self.counters.padded += u64::from(self.shape.shot_units) - slot.units.len() as u64;
        for (physical, member) in (first..).zip(slot.units) {
            let Member { owner, old, cause, bytes } = member;
            *self.counters.of(cause) += 1;
            if owner == NONE {
                continue;
            }
            self.map.write(physical, owner);
            self.map.set(owner, physical);
            self.blocks.gain(block);
            if old != NONE {
                self.blocks.succeeded(self.shape.block_of(old), end);
            }
            if let Some(content) = &mut self.content {
                content.put(physical, bytes);
            }
        }
        Ok(())
    }

    /// Has an open block of the stream on the die, or where that cannot be now, of the other
    /// stream or on another die; gives which.
    fn make_room(&mut self, die: u32, stream: Stream, ready: u64) -> Result<(u32, Stream), Full> {
        if self.blocks.has_open(die, stream) {
            return Ok((die, stream));
        }
        if stream == Stream::Host {
            self.collect(die, ready)?;
            // What was programmed meanwhile may have opened one.
            if self.blocks.has_open(die, stream) {
                return Ok((die, stream));
            }
        }
        let other = stream.other();
        if !self.may_open(die, stream) && self.blocks.has_open(die, other) {
            return Ok((die, other));
        }
        // The last block of a die that can be opened is for what is moved there.
        let least = usize::from(stream == Stream::Host);
        if self.ready_blocks(die) > least {
            self.open(die, stream, ready);
            return Ok((die, stream));
        }
        // Its free blocks wait for what is in the buffer, perhaps for this very slot.
        let dies = (0..self.shape.dies).map(|n| (die + n) % self.shape.dies);
        let places = dies.flat_map(|die| [(die, stream), (die, stream.other())]);
        if let Some(place) = { places }.find(|(die, stream)| self.blocks.has_open(*die, *stream)) {
            return Ok(place);
        }
        // As does every other die's: they collect, too, and keep their last one as long as they can.
        // What has nothing valid any more is free without that.
        for n in 0..self.shape.dies {
            let other = (die + n) % self.shape.dies;
            if !self.collecting[other as usize] {
                self.release_empty(other);
                self.collect(other, ready)?;
            }
            if self.blocks.has_open(other, stream) {
                return Ok((other, stream));
            }
            if self.ready_blocks(other) > 1 {
                self.open(other, stream, ready);
                return Ok((other, stream));
            }
        }
        let other = (0..self.shape.dies).find(|die| self.may_open(*die, stream)).ok_or(Full)?;
        self.open(other, stream, ready);
        Ok((other, stream))
    }

    /// Closed blocks of a die without a valid unit are free.
    fn release_empty(&mut self, die: u32) {
        while let Some(block) = self.blocks.emptiest(die).filter(|b| self.blocks.valid(*b) == 0) {
            self.blocks.release(block);
        }
    }

    /// Whether a die has a free block that may be erased.
    fn may_open(&self, die: u32, stream: Stream) -> bool {
        let block = self.blocks.next_free(die, stream);
        block.is_some_and(|block| self.spec.protected || !self.blocks.is_awaited(block))
    }

    /// Opens the next free block of a die, erasing it first if that must be.
    fn open(&mut self, die: u32, stream: Stream, ready: u64) {
        let Some(block) = self.blocks.next_free(die, stream) else { return };
        if !self.blocks.open(block, stream) {
            return;
        }
        if !self.spec.protected {
            self.journal_if_needed(ready);
        }
        let (first, count) = (block * self.shape.block_units, self.shape.block_units);
        let wiped = self.map.wipe(first, count);
        let content = self.content.as_mut().map(|c| c.take(first, count)).unwrap_or_default();
        self.blocks.erased(block);
        self.counters.erases += 1;
        if self.timed {
            let safe = match self.spec.protected {
                true => 0,
                // Reads may have delayed what was to end by then.
                false => {
                    self.blocks.safe_at(block).max(self.journal.safe_at()).max(self.nand.pin())
                }
            };
            let plane = block % self.shape.planes;
            let ticket = self.nand.erase(self.now, ready.max(safe), die, plane);
            self.begin(die, ticket, Doing::Erase { wiped, content });
        }
    }

    /// Writes the journal if it has noted anything that is not written.
    pub fn journal_if_needed(&mut self, ready: u64) {
        let Some(noted) = self.journal.unwritten() else { return };
        self.counters.journal_programs += 1;
        if !self.timed {
            return self.journal.written(noted);
        }
        let die = (self.counters.journal_programs % u64::from(self.shape.dies)) as u32;
        let bytes = self.shape.shot_units * self.shape.unit_bytes;
        let ticket = self.nand.program(self.now, ready, die, 0, bytes);
        self.journal.writing(noted, self.nand.end_of(ticket));
        self.begin(die, ticket, Doing::Journal { noted });
    }

    /// Everything that was taken in goes to the flash; gives when it is there.
    pub fn flush(&mut self, ready: u64) -> Result<u64, Full> {
        if self.spec.protected {
            return Ok(ready);
        }
        for slot in self.slots.open_ones() {
            if self.slots.is_open(slot) {
                self.program_slot(slot, ready)?;
            }
        }
        self.journal_if_needed(ready);
        self.nand.pin();
        // Planes that work alone end in any order.
        let last = self.under_way.iter().flatten().map(|done| self.nand.end_of(done.ticket)).max();
        Ok(last.map_or(ready, |end| end.max(ready)))
    }
}
