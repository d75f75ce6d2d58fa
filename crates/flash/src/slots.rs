//! Shots that are being put together in the controller's memory, unit by unit. A unit in one is
//! mapped to its place here until its shot is programmed.

use crate::blocks::Stream;
use crate::map::{BUFFERED, NONE};

/// Bytes of a unit, where the drive keeps content.
pub type Bytes = Option<Box<[u8]>>;

/// A shot that is being put together.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The die that it will go to.
    pub die: u32,
    /// Its units, whose they are; [`NONE`] where that was written again since.
    pub units: Vec<Member>,
    /// Who fills it. What is moved has memory of its own, beside the write buffer.
    pub stream: Stream,
    /// When it was touched last, as a count of touches.
    pub touched: u64,
}

/// A unit of a slot.
#[derive(Clone, Debug)]
pub struct Member {
    /// Whose it is.
    pub owner: u32,
    /// The physical unit that it takes the place of, or [`NONE`].
    pub old: u32,
    /// Why it is programmed.
    pub cause: Cause,
    /// What it holds.
    pub bytes: Bytes,
}

/// Why a unit is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host wrote it.
    Host,
    /// Its block is collected.
    Collected,
    /// Its block is less worn than others.
    Levelled,
    /// Its file goes on.
    Rejoined,
    /// The host asked for a copy.
    Copied,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Slots {
    slots: Vec<Option<Slot>>,
    /// Numbers that may be given again, to the same stream only: while room is made for the host's
    /// slot, what is moved cannot have its number.
    vacant: [Vec<u32>; 2],
    shot_units: u32,
    touches: u64,
    units: usize,
}

impl Slots {
    /// None.
    pub fn new(shot_units: u32) -> Self {
        Self { slots: Vec::new(), vacant: Default::default(), shot_units, touches: 0, units: 0 }
    }

    /// A new one; gives its number.
    pub fn open(&mut self, die: u32, stream: Stream) -> u32 {
        self.touches += 1;
        let units = Vec::with_capacity(self.shot_units as usize);
        let slot = Some(Slot { die, units, stream, touched: self.touches });
        match self.vacant[stream as usize].pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// One that is open.
    pub fn get(&self, number: u32) -> &Slot {
        self.slots[number as usize].as_ref().expect("an open slot")
    }

    /// Whether this number is one's that is open.
    pub fn is_open(&self, number: u32) -> bool {
        self.slots.get(number as usize).is_some_and(Option::is_some)
    }

    /// One that is open, to change.
    pub fn get_mut(&mut self, number: u32) -> &mut Slot {
        self.slots[number as usize].as_mut().expect("an open slot")
    }

    /// Adds a unit; gives its place for the mapping, and whether the slot is full now.
    pub fn push(&mut self, number: u32, member: Member) -> (u32, bool) {
        self.touches += 1;
        let touched = self.touches;
        let full = self.shot_units as usize;
        let slot = self.get_mut(number);
        let buffered = usize::from(slot.stream == Stream::Host);
        slot.touched = touched;
        slot.units.push(member);
        let (at, is_full) = (slot.units.len() as u32 - 1, slot.units.len() == full);
        self.units += buffered;
        (BUFFERED | (number * self.shot_units + at), is_full)
    }

    /// Takes one out, to program it.
    pub fn take(&mut self, number: u32) -> Slot {
        let slot = self.slots[number as usize].take().expect("an open slot");
        self.vacant[slot.stream as usize].push(number);
        if slot.stream == Stream::Host {
            self.units -= slot.units.len();
        }
        slot
    }

    /// Slot and index that a place of the mapping names.
    pub fn at(&self, place: u32) -> (u32, usize) {
        let place = place & !BUFFERED;
        (place / self.shot_units, (place % self.shot_units) as usize)
    }

    /// The unit that a place of the mapping names.
    pub fn member_mut(&mut self, place: u32) -> &mut Member {
        let (number, index) = self.at(place);
        &mut self.get_mut(number).units[index]
    }

    /// The same, to look at.
    pub fn member(&self, place: u32) -> &Member {
        let (number, index) = self.at(place);
        &self.get(number).units[index]
    }

    /// Numbers of those that are open.
    pub fn open_ones(&self) -> Vec<u32> {
        let open = |(number, slot): (usize, &Option<Slot>)| slot.as_ref().map(|_| number as u32);
        self.slots.iter().enumerate().filter_map(open).collect()
    }

    /// Number of one that is open, if any is.
    pub fn first_open(&self) -> Option<u32> {
        self.slots.iter().position(Option::is_some).map(|number| number as u32)
    }

    /// Units of the host's in all of them, replaced ones included.
    pub fn units(&self) -> usize {
        self.units
    }

    /// All are gone: the power was off.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.vacant.iter_mut().for_each(Vec::clear);
        self.units = 0;
    }
}

impl Member {
    /// Nobody's any more.
    pub fn disown(&mut self) {
        (self.owner, self.bytes) = (NONE, None);
    }
}
