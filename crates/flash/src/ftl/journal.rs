//! The journal: what the out-of-band areas do not say, which is that units were trimmed. Each note
//! has the number of the last program before it, so it is older or newer than each copy of a unit.

use crate::command::Units;

/// Units that were trimmed after a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Number of the last program before the trim.
    pub program: u64,
    /// The units.
    pub units: Units,
}

/// All notes that are still needed, and how many of them are in the flash.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    notes: Vec<Note>,
    /// Notes that were dropped from the front.
    dropped: u64,
    /// Notes, since the first, whose program has begun.
    begun: u64,
    /// Notes, since the first, that are in the flash.
    written: u64,
    /// When the programs that have begun end.
    safe_at: u64,
    /// With more notes than this, it is worth looking for some to drop.
    drop_at: usize,
}

/// With fewer notes it is not worth looking for some to drop.
const MIN_DROP_AT: usize = 1024;

impl Journal {
    /// Adds a note.
    pub fn push(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// How many notes there have been, if the last of them is not written or being written.
    pub fn unwritten(&self) -> Option<u64> {
        let all = self.dropped + self.notes.len() as u64;
        (all > self.begun).then_some(all)
    }

    /// A program of this many notes has begun, and ends at `end`.
    pub fn start_write(&mut self, notes: u64, end: u64) {
        (self.begun, self.safe_at) = (notes, self.safe_at.max(end));
    }

    /// This many notes are in the flash.
    pub fn end_write(&mut self, notes: u64) {
        (self.begun, self.written) = (self.begun.max(notes), self.written.max(notes));
    }

    /// Until when the blocks of units that were trimmed must not be erased.
    pub fn safe_at(&self) -> u64 {
        self.safe_at
    }

    /// The power was off: notes that were not written are gone.
    pub fn drop_unwritten(&mut self) {
        self.notes.truncate((self.written - self.dropped) as usize);
        (self.begun, self.safe_at) = (self.written, 0);
    }

    /// Whether it is worth looking for notes to drop.
    pub fn is_long(&self) -> bool {
        self.notes.len() >= self.drop_at.max(MIN_DROP_AT)
    }

    /// Drops notes that are older than every copy in the flash.
    pub fn drop_before(&mut self, oldest_program: u64) {
        let written = (self.written - self.dropped) as usize;
        let old = self.notes[..written].iter().take_while(|note| note.program < oldest_program);
        let old = old.count();
        self.notes.drain(..old);
        self.dropped += old as u64;
        self.drop_at = self.notes.len() * 2;
    }

    /// All notes that are still needed.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}
