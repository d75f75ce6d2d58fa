//! What the out-of-band areas do not say: that units are nobody's any more. Notes are numbered
//! by the programs before them, so a unit's newest copy is older or newer than each of them.

/// Units that were nobody's after so many programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Number of the last program before it.
    pub program: u64,
    /// The first unit.
    pub start: u32,
    /// How many.
    pub count: u32,
}

/// Notes, and how many of them are in the flash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    notes: Vec<Note>,
    /// Dropped from the front.
    dropped: u64,
    /// Notes that are being written, or are.
    begun: u64,
    /// Notes that are written.
    written: u64,
    /// When all that are being written will be.
    safe_at: u64,
    /// With so many notes it is worth to look which ones are needed no more.
    long: usize,
}

/// No fewer notes are worth that.
const LONG: usize = 1024;

impl Journal {
    /// Notes that units are nobody's.
    pub fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// How many notes there are by now, if not all are written or being written.
    pub fn unwritten(&self) -> Option<u64> {
        let all = self.dropped + self.notes.len() as u64;
        (all > self.begun).then_some(all)
    }

    /// Notes up to this number are being written, until then.
    pub fn writing(&mut self, noted: u64, until: u64) {
        (self.begun, self.safe_at) = (noted, self.safe_at.max(until));
    }

    /// Notes up to this number are written.
    pub fn written(&mut self, noted: u64) {
        (self.begun, self.written) = (self.begun.max(noted), self.written.max(noted));
    }

    /// Until when something must not be erased that a note is about.
    pub fn safe_at(&self) -> u64 {
        self.safe_at
    }

    /// The power was off: what was not written is gone.
    pub fn forget_unwritten(&mut self) {
        self.notes.truncate((self.written - self.dropped) as usize);
        (self.begun, self.safe_at) = (self.written, 0);
    }

    /// Whether it is worth to look which notes are needed no more.
    pub fn is_long(&self) -> bool {
        self.notes.len() >= self.long.max(LONG)
    }

    /// Drops notes that are older than every copy in the flash.
    pub fn drop_before(&mut self, oldest_program: u64) {
        let written = (self.written - self.dropped) as usize;
        let old = self.notes[..written].iter().take_while(|note| note.program < oldest_program);
        let old = old.count();
        self.notes.drain(..old);
        self.dropped += old as u64;
        self.long = self.notes.len() * 2;
    }

    /// All notes.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}
