//! The defrag log (janusd, section 4.1): what remaps have changed in the mapping, which out-of-band areas cannot
//! tell. New entries are in memory until they are written. The log has two areas of blocks of its own. It is in
//! one of them; compaction writes what is still needed of it, a *snapshot*, to the other one, which it erases
//! before. So recovery writes nothing, and needs no space, however often it is cut off.
//!
//! Each program of the log has a place in its area, and the programs of an area are done in order, on one die.
//! Of the two areas that one counts whose snapshot is complete, and later.

use crate::geometry::Shape;
use crate::space::LogEntry;

/// Bytes of an entry: a version of eight bytes, two addresses and a length of four each.
const ENTRY_BYTES: u32 = 20;

/// One program of the log.
#[derive(Clone, Debug)]
pub(super) struct LogProgram {
    entries: Vec<LogEntry>,
    /// The version up to which the log is committed.
    committed: u64,
    /// Whether it was cut off.
    torn: bool,
}

/// An area of the log, since its last erase.
#[derive(Clone, Debug, Default)]
pub(super) struct Area {
    /// The number of its snapshot; 0 if it has none.
    snapshot: u64,
    /// How many of its programs are the snapshot.
    snapshot_programs: usize,
    programs: Vec<LogProgram>,
}

impl Area {
    fn is_complete(&self) -> bool {
        let snapshot = self.programs.get(..self.snapshot_programs);
        snapshot.is_some_and(|programs| programs.iter().all(|program| !program.torn))
    }
}

/// The defrag log of a drive.
#[derive(Clone, Debug)]
pub(super) struct DefragLog {
    /// All entries, in the order of their versions: those that were written come first.
    entries: Vec<LogEntry>,
    /// How many of the entries have a program that has begun.
    written: usize,
    /// The version up to which remaps are committed, and the one that the last program of the log has.
    committed: u64,
    written_commit: u64,
    areas: [Area; 2],
    /// The area that the log is in.
    present: usize,
    programs_per_area: usize,
    entries_per_program: usize,
    blocks_per_area: u64,
}

impl DefragLog {
    /// An empty log of at most this many bytes, which are two program units at least.
    pub fn new(bytes: u64, shape: &Shape) -> Self {
        let program_bytes = u64::from(shape.program_unit_bytes());
        let programs_per_area = bytes / program_bytes;
        Self {
            entries: Vec::new(),
            written: 0,
            committed: 0,
            written_commit: 0,
            areas: [Area { snapshot: 1, ..Area::default() }, Area::default()],
            present: 0,
            programs_per_area: programs_per_area as usize,
            entries_per_program: (shape.program_unit_bytes() / ENTRY_BYTES) as usize,
            blocks_per_area: programs_per_area.div_ceil(shape.programs_per_block().into()),
        }
    }

    /// All entries, in the order of their versions.
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// The version up to which remaps are committed.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether all remaps are committed.
    pub fn is_committed(&self) -> bool {
        self.entries.iter().rev().all(|entry| !entry.is_uncommitted(self.committed))
    }

    /// Whether no further entry may be added before a compaction.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.programs_per_area * self.entries_per_program
    }

    /// Adds an entry, in memory.
    pub fn push(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }

    /// Commits all entries, in memory.
    pub fn commit(&mut self) {
        self.committed = self.entries.last().map_or(self.committed, |entry| entry.version);
    }

    /// Whether something is in memory only.
    pub fn is_unwritten(&self) -> bool {
        self.written < self.entries.len() || self.written_commit < self.committed
    }

    /// Begins the programs of what is in memory only, if there is space for them; returns the area, and the
    /// places in it.
    pub fn begin_write(&mut self) -> Option<(usize, std::ops::Range<usize>)> {
        let unwritten = self.entries.len() - self.written;
        let programs = unwritten.div_ceil(self.entries_per_program).max(1);
        let first = self.areas[self.present].programs.len();
        if first + programs > self.programs_per_area {
            return None;
        }
        self.add_programs(self.written);
        Some((self.present, first..first + programs))
    }

    /// Begins a compaction, which leaves these entries; returns the area that is to be erased and the number of
    /// programs that follow.
    pub fn begin_snapshot(&mut self, entries: Vec<LogEntry>) -> (usize, Area, usize) {
        let snapshot = self.areas[self.present].snapshot + 1;
        self.present = 1 - self.present;
        self.entries = entries;
        let programs = self.entries.len().div_ceil(self.entries_per_program).max(1);
        let new = Area { snapshot, snapshot_programs: programs, programs: Vec::new() };
        let erased = std::mem::replace(&mut self.areas[self.present], new);
        self.add_programs(0);
        (self.present, erased, programs)
    }

    /// Adds the programs of the entries from this one on. The last of them alone has the commit, so that there
    /// is no commit without all that it commits.
    fn add_programs(&mut self, first: usize) {
        let programs = &mut self.areas[self.present].programs;
        let (committed, begun) = (self.written_commit, programs.len());
        let program =
            |entries: &[LogEntry]| LogProgram { entries: entries.to_vec(), committed, torn: false };
        programs.extend(self.entries[first..].chunks(self.entries_per_program).map(program));
        if programs.len() == begun {
            programs.push(program(&[]));
        }
        if let Some(last) = programs.last_mut() {
            last.committed = self.committed;
        }
        (self.written, self.written_commit) = (self.entries.len(), self.committed);
    }

    /// Erases that an area needs before its first program.
    pub fn blocks_per_area(&self) -> u64 {
        self.blocks_per_area
    }

    /// Notes that a program was cut off.
    pub fn tear(&mut self, area: usize, place: usize) {
        if let Some(program) = self.areas[area].programs.get_mut(place) {
            program.torn = true;
        }
    }

    /// Restores an area whose erase had not begun when the power was cut.
    pub fn undo_erase(&mut self, area: usize, erased: Area) {
        self.areas[area] = erased;
    }

    /// Reads the log after a power cut.
    pub fn recover(&mut self) {
        let later = |area: &usize| (self.areas[*area].is_complete(), self.areas[*area].snapshot);
        self.present = usize::from(later(&1) > later(&0));
        let readable = || self.areas[self.present].programs.iter().filter(|program| !program.torn);
        self.committed = readable().map(|program| program.committed).max().unwrap_or(0);
        self.entries = readable().flat_map(|program| program.entries.iter().copied()).collect();
        (self.written, self.written_commit) = (self.entries.len(), self.committed);
    }
}
