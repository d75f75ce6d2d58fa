//! Where a write goes: which die, and together with what.
//!
//! Without a hint the dies take turns, granule by granule, in the order of writing. FAST'24
//! (section 4) has the host say what a write goes on from, or that it takes the place of
//! something, and the drive place it behind the one or on the die of the other. What its artefact
//! does is [`Placement::DieAffine`]. Its limit (section 5.2, fileserver small) is that an append
//! of less than a flash page ends up in one page with others' data, so the file is spread over
//! more pages than it needs. [`Placement::FileAffine`] goes on in the page where the file ended:
//! while that is being put together, and once it is programmed by bringing its tail along.

use crate::blocks::Stream;
use crate::command::{Hint, Units};
use crate::drive::Placement;
use crate::ftl::{Ftl, Full};
use crate::geometry::Shape;
use crate::map::{BUFFERED, NONE};
use crate::slots::{Bytes, Cause, Slot, Slots};

/// Whose turn it is, and which slots wait for more.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The die whose turn it is.
    turn: u32,
    /// For each die, units of its granule that are there.
    filled: Vec<u32>,
    /// For each die, the slot that everybody shares.
    shared: Vec<Option<u32>>,
    /// Slots of one file each, the one that was gone on with longest ago first.
    own: Vec<u32>,
    own_limit: usize,
}

/// Where a file ends.
enum Tail {
    /// In a slot of its own, which is not full.
    Open(u32),
    /// At the end of a page that is all its own, or nowhere that can be gone on from: next is
    /// this die.
    Ended(u32),
    /// In the middle of a page, or in one with others: its units there, on this die.
    Mixed(Vec<u32>, u32),
}

impl Places {
    pub fn new(shape: &Shape, own_limit: u32) -> Self {
        Self {
            turn: 0,
            filled: vec![0; shape.dies as usize],
            shared: vec![None; shape.dies as usize],
            own: Vec::new(),
            own_limit: own_limit as usize,
        }
    }

    /// A slot for that die is programmed.
    pub fn closed(&mut self, slot: u32, die: u32) {
        if self.shared[die as usize] == Some(slot) {
            self.shared[die as usize] = None;
        }
        self.own.retain(|own| *own != slot);
    }

    /// Whether a slot is one file's.
    pub fn is_own(&self, slot: u32) -> bool {
        self.own.contains(&slot)
    }

    /// All slots that wait for more.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.shared.iter().flatten().chain(&self.own).copied()
    }

    /// After a power cut: no slot waits.
    pub fn forget(&mut self) {
        self.shared.fill(None);
        self.filled.fill(0);
        self.own.clear();
    }

    /// One more unit of a die's granule is there; whether it is full.
    fn fill(&mut self, die: u32, granule: u32) -> bool {
        let filled = &mut self.filled[die as usize];
        *filled = (*filled + 1) % granule;
        *filled == 0
    }
}

/// Content of a command's units, in order, where the drive keeps that.
pub(crate) type Contents<'a> = &'a mut dyn FnMut(u32) -> Bytes;

impl Ftl {
    /// Takes in units; gives when the last of them was.
    pub fn write(
        &mut self,
        units: Units,
        hint: Hint,
        cause: Cause,
        contents: Contents,
        ready: u64,
    ) -> Result<u64, Full> {
        let affine = self.firmware.placement;
        match (affine, hint) {
            (Placement::RoundRobin, _) | (_, Hint::None) => {
                self.in_turn(units, cause, contents, ready)
            }
            (_, Hint::Overwrite) => self.in_place(units, cause, contents, ready),
            (Placement::DieAffine, Hint::Append { predecessor }) => {
                match self.die_of_logical(predecessor) {
                    Some(die) => {
                        self.counters.hints_taken += 1;
                        let first = (die + 1) % self.shape.dies;
                        self.along_dies(first, units, cause, contents, ready)
                            .map(|(ready, _)| ready)
                    }
                    None => self.without(units, cause, contents, ready),
                }
            }
            (Placement::FileAffine, Hint::Append { predecessor }) => match self.tail(predecessor) {
                Some(tail) => {
                    self.counters.hints_taken += 1;
                    self.go_on(tail, units, cause, contents, ready)
                }
                None => self.without(units, cause, contents, ready),
            },
        }
    }

    /// The hint leads nowhere.
    fn without(
        &mut self,
        units: Units,
        cause: Cause,
        contents: Contents,
        ready: u64,
    ) -> Result<u64, Full> {
        self.counters.hints_lost += 1;
        self.in_turn(units, cause, contents, ready)
    }

    /// The die that has a logical unit, if one does.
    fn die_of_logical(&self, logical: u32) -> Option<u32> {
        if logical >= self.map.len() {
            return None;
        }
        match self.map.get(logical) {
            NONE => None,
            place if place >= BUFFERED => Some(self.slots.get(self.slots.at(place).0).die),
            physical => Some(self.shape.die_of(physical)),
        }
    }

    fn in_turn(
        &mut self,
        units: Units,
        cause: Cause,
        contents: Contents,
        ready: u64,
    ) -> Result<u64, Full> {
        let (ready, next) = self.along_dies(self.places.turn, units, cause, contents, ready)?;
        self.places.turn = next;
        Ok(ready)
    }

    /// From a die on, the next one whenever a granule is full; gives which one is next, too.
    fn along_dies(
        &mut self,
        first: u32,
        units: Units,
        cause: Cause,
        contents: Contents,
        mut ready: u64,
    ) -> Result<(u64, u32), Full> {
        let mut die = first;
        for unit in units.each() {
            ready = self.wait_for_room(ready)?;
            die = self.with_room(die);
            self.put_shared(die, unit, cause, contents(unit), ready)?;
            if self.places.fill(die, self.shape.granule_units) {
                die = (die + 1) % self.shape.dies;
            }
        }
        Ok((ready, die))
    }

    /// Each unit to the die that has it, unless that is worn.
    fn in_place(
        &mut self,
        units: Units,
        cause: Cause,
        contents: Contents,
        mut ready: u64,
    ) -> Result<u64, Full> {
        for unit in units.each() {
            let one = Units::new(unit, 1);
            match self.die_of_logical(unit) {
                Some(die) if self.is_worn(die) => {
                    self.counters.hints_refused += 1;
                    ready = self.in_turn(one, cause, contents, ready)?;
                }
                Some(die) => {
                    self.counters.hints_taken += 1;
                    ready = self.wait_for_room(ready)?;
                    let die = self.with_room(die);
                    self.put_shared(die, unit, cause, contents(unit), ready)?;
                    self.places.fill(die, self.shape.granule_units);
                }
                None => ready = self.without(one, cause, contents, ready)?,
            }
        }
        Ok(ready)
    }

    /// Whether a die's blocks have been erased more often than those of others, by more than they
    /// should.
    fn is_worn(&self, die: u32) -> bool {
        let spread = u64::from(self.firmware.wear.die_spread) * u64::from(self.shape.die_blocks);
        let least = (0..self.shape.dies).map(|d| self.blocks.erases_of_die(d)).min().unwrap_or(0);
        spread > 0 && self.blocks.erases_of_die(die) > least + spread
    }

    /// This die, or the next one that is not full of valid data.
    fn with_room(&self, die: u32) -> u32 {
        let most = self.shape.most_valid_units();
        let dies = (0..self.shape.dies).map(|n| (die + n) % self.shape.dies);
        { dies }.find(|die| self.blocks.valid_of_die(*die) < most).unwrap_or(die)
    }

    fn put_shared(
        &mut self,
        die: u32,
        owner: u32,
        cause: Cause,
        bytes: Bytes,
        ready: u64,
    ) -> Result<(), Full> {
        let slot = match self.places.shared[die as usize] {
            Some(slot) => slot,
            None => {
                let slot = self.slots.open(die, Stream::Host);
                self.places.shared[die as usize] = Some(slot);
                slot
            }
        };
        self.put(slot, owner, cause, bytes, ready).map(drop)
    }

    /// Where the file ends whose last unit this is.
    fn tail(&self, last: u32) -> Option<Tail> {
        let next = |die: u32| (die + 1) % self.shape.dies;
        if last >= self.map.len() {
            return None;
        }
        match self.map.get(last) {
            NONE => None,
            place if place >= BUFFERED => {
                let (number, index) = self.slots.at(place);
                let slot = self.slots.get(number);
                let is_last = index + 1 == slot.units.len();
                if is_last && self.places.is_own(number) {
                    return Some(Tail::Open(number));
                }
                let before = |n: usize| {
                    let unit = last.checked_sub(n as u32);
                    unit.is_some_and(|unit| slot.units[index - n].owner == unit)
                };
                let own = (0..=index).take_while(|n| before(*n)).count() as u32;
                Some(Tail::Mixed((last + 1 - own..=last).collect(), slot.die))
            }
            physical => {
                let (shot_units, die) = (self.shape.shot_units, self.shape.die_of(physical));
                let in_shot = physical % shot_units;
                let first = physical - in_shot;
                if self.map.is_own(first) {
                    // All before it is the file's, wherever the file system has put that.
                    let valid = (first..=physical).filter(|unit| self.map.is_valid(*unit));
                    return Some(match in_shot + 1 == shot_units {
                        true => Tail::Ended(next(die)),
                        false => Tail::Mixed(valid.map(|unit| self.map.owner(unit)).collect(), die),
                    });
                }
                let in_page = physical % self.shape.page_units;
                let before = |n: u32| self.map.before(last, n) == Some(physical - n);
                let own = (0..=in_page).take_while(|n| before(*n)).count() as u32;
                Some(match own == self.shape.page_units {
                    true => Tail::Ended(next(die)),
                    false => Tail::Mixed((last + 1 - own..=last).collect(), die),
                })
            }
        }
    }

    /// Goes on where a file ends, in slots that nobody else writes to.
    fn go_on(
        &mut self,
        tail: Tail,
        units: Units,
        cause: Cause,
        contents: Contents,
        mut ready: u64,
    ) -> Result<u64, Full> {
        let (mut die, mut slot) = match tail {
            Tail::Open(slot) => (self.slots.get(slot).die, Some(slot)),
            Tail::Ended(die) => (die, None),
            Tail::Mixed(own, die) => {
                let die = self.with_room(die);
                let slot = self.open_own(die, ready)?;
                ready = self.bring_along(slot, &own, ready)?;
                (die, self.places.is_own(slot).then_some(slot))
            }
        };
        for unit in units.each() {
            ready = self.wait_for_room(ready)?;
            let own = match slot.filter(|slot| self.places.is_own(*slot)) {
                Some(slot) => slot,
                None => {
                    die = self.with_room(die);
                    self.open_own(die, ready)?
                }
            };
            slot = Some(own);
            if self.put(own, unit, cause, contents(unit), ready)? {
                (slot, die) = (None, (die + 1) % self.shape.dies);
            }
        }
        // It was gone on with last.
        if let Some(slot) = slot.filter(|slot| self.places.is_own(*slot)) {
            self.places.own.retain(|own| *own != slot);
            self.places.own.push(slot);
        }
        Ok(ready)
    }

    /// Units of one page are programmed again, in this slot.
    fn bring_along(&mut self, slot: u32, units: &[u32], ready: u64) -> Result<u64, Full> {
        let mut arrived = ready;
        let first = units.first().and_then(|unit| self.map.in_flash(*unit));
        if let Some(first) = first.filter(|_| self.timed) {
            let bytes = units.len() as u32 * self.shape.unit_bytes;
            let page = self.shape.page_of(first);
            arrived = self.nand.read(self.now, ready, page, bytes, false);
        }
        for unit in units {
            let bytes = self.bytes_of(*unit);
            self.put(slot, *unit, Cause::Rejoined, bytes, arrived)?;
        }
        Ok(ready)
    }

    /// A slot of one file. Where there are too many, the one that was gone on with longest ago
    /// is given up: what it holds goes where everybody writes.
    fn open_own(&mut self, die: u32, ready: u64) -> Result<u32, Full> {
        while self.places.own.len() >= self.places.own_limit.max(1) {
            let oldest = self.places.own.remove(0);
            let Slot { die, touched, .. } = *self.slots.get(oldest);
            // Making room for the others may program it as it is.
            let is_there =
                |slots: &Slots| slots.is_open(oldest) && slots.get(oldest).touched == touched;
            for index in 0..self.slots.get(oldest).units.len() {
                if !is_there(&self.slots) {
                    break;
                }
                let member = &self.slots.get(oldest).units[index];
                let (owner, cause, bytes) = (member.owner, member.cause, member.bytes.clone());
                if owner != NONE {
                    self.put_shared(die, owner, cause, bytes, ready)?;
                }
            }
            if is_there(&self.slots) {
                self.slots.take(oldest);
            }
        }
        let slot = self.slots.open(die, Stream::Host);
        self.places.own.push(slot);
        Ok(slot)
    }
}
