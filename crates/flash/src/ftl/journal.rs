//! The journal of trims, which are not in the out-of-band areas. Each note has the number of the last program
//! before it, so that it is known to be older or newer than each copy of a unit.

use crate::command::Units;

/// A note: units that were trimmed after a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The number of the last program before the trim.
    pub program: u64,
    /// The units.
    pub units: Units,
}

/// The notes that are still needed, and how many of them are in the flash.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    notes: Vec<Note>,
    /// How many notes were dropped from the front.
    dropped: u64,
    /// How many notes, since the first, have a program that has begun.
    begun: u64,
    /// How many notes, since the first, are in the flash.
    written: u64,
    /// When the last of the programs that have begun ends.
    safe_at: u64,
    /// The number of notes from which on a search for notes to drop is worth its time.
    drop_at: usize,
}

/// With fewer notes, a search for notes to drop is not worth its time.
const MIN_DROP_AT: usize = 1024;

impl Journal {
    /// Adds a note.
    pub fn push(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// How many notes there have been since the first, if the program of the last of them has not begun.
    pub fn unwritten(&self) -> Option<u64> {
        let all = self.dropped + self.notes.len() as u64;
        (all > self.begun).then_some(all)
    }

    /// Records that a program of the notes up to this number has begun, and ends at `end`.
    pub fn start_write(&mut self, notes: u64, end: u64) {
        (self.begun, self.safe_at) = (notes, self.safe_at.max(end));
    }

    /// Records that the notes up to this number are in the flash.
    pub fn end_write(&mut self, notes: u64) {
        (self.begun, self.written) = (self.begun.max(notes), self.written.max(notes));
    }

    /// Until when blocks with trimmed units must not be erased.
    pub fn safe_at(&self) -> u64 {
        self.safe_at
    }

    /// Drops the notes that are not in the flash, as a power cut does.
    pub fn drop_unwritten(&mut self) {
        self.notes.truncate((self.written - self.dropped) as usize);
        (self.begun, self.safe_at) = (self.written, 0);
    }

    /// Whether a search for notes to drop is worth its time.
    pub fn is_long(&self) -> bool {
        self.notes.len() >= self.drop_at.max(MIN_DROP_AT)
    }

    /// Drops the notes in the flash that are older than every copy of a unit there.
    pub fn drop_before(&mut self, oldest_program: u64) {
        let written = (self.written - self.dropped) as usize;
        let old = self.notes[..written].iter().take_while(|note| note.program < oldest_program);
        let old = old.count();
        self.notes.drain(..old);
        self.dropped += old as u64;
        self.drop_at = self.notes.len() * 2;
    }

    /// The notes that are still needed.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}
