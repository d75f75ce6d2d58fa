//! The write buffer: program units that are being assembled, each in a slot, and those whose program has not
//! ended. Units that garbage collection moves are assembled here, too, but do not count against the buffer's
//! size.

use crate::counters::ProgramCause;
use crate::device::Bytes;
use crate::drive::BufferSpec;
use crate::geometry::Shape;
use crate::space::Stream;

/// A program unit that is being assembled.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The die that it is to be programmed to.
    pub die: u32,
    /// Its units so far, in order.
    pub units: Vec<Member>,
    /// The stream that its units belong to.
    pub stream: Stream,
    /// When it was opened or last added to, as a count of such events; no two slots have the same.
    pub touched: u64,
}

/// A unit in a slot.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The logical unit that it holds; `None` if that was written again or trimmed since.
    pub owner: Option<u32>,
    /// The physical unit of which it is the successor.
    pub predecessor: Option<u32>,
    /// Why it is programmed.
    pub cause: ProgramCause,
    /// Its content.
    pub bytes: Bytes,
}

/// The write buffer of a drive.
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    slots: Vec<Option<Slot>>,
    /// Numbers of slots that may be used again, by the same stream only: so the number of a host slot for
    /// which a block is being freed cannot become that of a slot of moved units.
    vacant: [Vec<u32>; 2],
    touches: u64,
    /// Units of the host in all slots, including obsolete ones.
    units: u64,
    /// Bytes of the host whose program has not ended.
    programming_bytes: u64,
    capacity_bytes: u64,
    unit_bytes: u32,
    units_per_program: u32,
}

impl WriteBuffer {
    /// An empty write buffer.
    pub fn new(spec: &BufferSpec, shape: &Shape) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Default::default(),
            touches: 0,
            units: 0,
            programming_bytes: 0,
            capacity_bytes: spec.bytes,
            unit_bytes: shape.unit_bytes,
            units_per_program: shape.units_per_program,
        }
    }

    /// Opens a slot; returns its number.
    pub fn open(&mut self, die: u32, stream: Stream) -> u32 {
        self.touches += 1;
        let units = Vec::with_capacity(self.units_per_program as usize);
        let slot = Some(Slot { die, units, stream, touched: self.touches });
        if let Some(number) = self.vacant[stream as usize].pop() {
            self.slots[number as usize] = slot;
            return number;
        }
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    /// An open slot.
    pub fn slot(&self, number: u32) -> &Slot {
        self.slots[number as usize].as_ref().expect("an open slot")
    }

    /// Whether a slot is open, and has not changed since it had this `touched`.
    pub fn is_unchanged(&self, number: u32, touched: u64) -> bool {
        let slot = self.slots.get(number as usize).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.touched == touched)
    }

    /// Whether a slot is open.
    pub fn is_open(&self, number: u32) -> bool {
        self.slots.get(number as usize).is_some_and(Option::is_some)
    }

    /// Adds a unit to a slot; returns its place for the mapping, and whether the slot is full then.
    pub fn push(&mut self, number: u32, member: Member) -> (u32, bool) {
        self.touches += 1;
        let (touched, units_per_program) = (self.touches, self.units_per_program);
        let slot = self.slot_mut(number);
        slot.touched = touched;
        slot.units.push(member);
        let count = slot.units.len() as u32;
        self.units += u64::from(self.slot(number).stream == Stream::Host);
        (number * units_per_program + count - 1, count == units_per_program)
    }

    /// Removes a slot, to program it or to discard it.
    pub fn take(&mut self, number: u32) -> Slot {
        let slot = self.slots[number as usize].take().expect("an open slot");
        self.vacant[slot.stream as usize].push(number);
        if slot.stream == Stream::Host {
            self.units -= slot.units.len() as u64;
        }
        slot
    }

    /// The number of the slot of a place of the mapping, and the index in that slot.
    pub fn slot_of(&self, place: u32) -> (u32, usize) {
        (place / self.units_per_program, (place % self.units_per_program) as usize)
    }

    /// The unit at a place of the mapping.
    pub fn member(&self, place: u32) -> &Member {
        let (number, index) = self.slot_of(place);
        &self.slot(number).units[index]
    }

    /// Marks the unit at a place of the mapping as obsolete; returns the physical unit of which it was to be
    /// the successor.
    pub fn discard(&mut self, place: u32) -> Option<u32> {
        let (number, index) = self.slot_of(place);
        let member = &mut self.slot_mut(number).units[index];
        (member.owner, member.bytes) = (None, None);
        member.predecessor.take()
    }

    /// Numbers of the open slots.
    pub fn open_slots(&self) -> Vec<u32> {
        let open = |(number, slot): (usize, &Option<Slot>)| slot.as_ref().map(|_| number as u32);
        self.slots.iter().enumerate().filter_map(open).collect()
    }

    /// The number of an open slot, if there is one.
    pub fn first_open(&self) -> Option<u32> {
        self.slots.iter().position(Option::is_some).map(|number| number as u32)
    }

    /// The number of the open slot that was touched longest ago.
    pub fn oldest_open(&self) -> Option<u32> {
        self.open_slots().into_iter().min_by_key(|number| self.slot(*number).touched)
    }

    /// Whether one more unit of the host fits.
    pub fn has_space(&self) -> bool {
        let unit_bytes = u64::from(self.unit_bytes);
        self.programming_bytes + (self.units + 1) * unit_bytes <= self.capacity_bytes
    }

    /// Counts the bytes of a removed slot, whose program begins, as buffered until that ends; returns their
    /// number.
    pub fn start_program(&mut self, slot: &Slot) -> u32 {
        let bytes = match slot.stream {
            Stream::Host => slot.units.len() as u32 * self.unit_bytes,
            Stream::Moved => 0,
        };
        self.programming_bytes += u64::from(bytes);
        bytes
    }

    /// Stops counting the bytes of a program that has ended.
    pub fn end_program(&mut self, bytes: u32) {
        self.programming_bytes -= u64::from(bytes);
    }

    /// Empties the buffer, as a power cut does.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.vacant.iter_mut().for_each(Vec::clear);
        (self.units, self.programming_bytes) = (0, 0);
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        self.slots[number as usize].as_mut().expect("an open slot")
    }
}
