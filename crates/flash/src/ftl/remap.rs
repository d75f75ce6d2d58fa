//! Remaps (janusd, section 4.1), and the spreading of units over the dies (section 4.2).
//!
//! **What survives a power cut.** Out-of-band areas name addresses as they were when their unit was programmed;
//! the entries of the defrag log say what remaps have changed since. At every instant:
//!
//! - Before an entry is in the flash, recovery knows nothing of its remap: `from` leads to its data. That is there,
//!   because `from` keeps the unit valid (it is held, or shares it), until it is trimmed or written by the host.
//! - An entry is programmed only after the units that it leads to ([`Ftl::write_log`]), so with it they are there.
//! - A unit that several addresses lead to, or one that is held, is moved with its version; the entries refer to
//!   the copy as they do to the unit. When one address is left, the copy names that, and the entries are not
//!   needed; until the copy is programmed, the unit is not erased.
//! - A commit gives up what is held. The block of such a unit is not erased before the commit is in the flash;
//!   until then a discard restores it.
//! - A compaction drops entries whose remaps other things in the flash tell: so what is in the write buffer and
//!   the journal is programmed first. An entry that has unmapped `from` leaves that to a note of the journal,
//!   because older copies of `from` may be in the flash. The area that the log is in is left as it is: the next
//!   compaction erases it, when the snapshot in the other area is complete. If the power fails before that, the
//!   log is in the old area.
//! - A discard is a compaction that drops the entries which are not committed.

use super::append::Tail;
use super::defrag_log::Area;
use super::in_flight::OperationKind;
use super::journal::Note;
use super::place::Write;
use super::{Ftl, NoSpace};
use crate::command::{Refused, Units};
use crate::counters::ProgramCause;
use crate::device::Bytes;
use crate::space::{Location, LogEntry};

impl Ftl {
    /// Remaps units; returns when that is done.
    pub fn remap(
        &mut self,
        from: Units,
        to: u32,
        shared: bool,
        ready: u64,
    ) -> Result<u64, Refused> {
        let target = Units::new(to, from.count);
        if from.start < target.end() && to < from.end() {
            return Err(Refused::Overlap);
        }
        self.check_mapped(from)?;
        if from.each().any(|unit| self.space.map().leads().is_uncommitted(unit)) {
            return Err(Refused::Uncommitted);
        }
        if self.log.is_full() {
            self.compact_log(ready)?;
        }
        if self.log.is_full() {
            return Err(Refused::LogFull);
        }
        self.program_units(from, ready)?;
        self.trim(target);
        let entry = self.space.remap(from, to, shared);
        self.log.push(entry);
        self.counters.remapped += u64::from(from.count);
        Ok(ready)
    }

    /// Checks that all of these units hold data.
    pub fn check_mapped(&self, units: Units) -> Result<(), Refused> {
        let is_mapped = |unit| self.space.map().locate(unit) != Location::Unmapped;
        if units.each().all(is_mapped) { Ok(()) } else { Err(Refused::Unmapped) }
    }

    /// Begins the programs of those units that are in slots.
    fn program_units(&mut self, units: Units, ready: u64) -> Result<(), NoSpace> {
        // Garbage collection may move a unit to another slot meanwhile, but not for ever: each round programs
        // what it has moved.
        for _ in 0..=self.shape.blocks_per_die {
            let mut buffered = false;
            for unit in units.each() {
                if let Location::Buffered(place) = self.space.map().locate(unit) {
                    buffered = true;
                    self.program_slot(self.buffer.slot_of(place).0, ready)?;
                }
            }
            if !buffered {
                return Ok(());
            }
        }
        Err(NoSpace)
    }

    /// Writes the defrag log; returns when all remaps, and what they lead to, are durable.
    pub fn flush_log(&mut self, ready: u64) -> Result<u64, NoSpace> {
        if self.protected {
            return Ok(ready);
        }
        self.write_log(ready)?;
        Ok(self.end_of_programs(ready))
    }

    /// Commits all remaps, and gives up what was held; returns when that is durable.
    pub fn commit_log(&mut self, ready: u64) -> Result<u64, NoSpace> {
        self.log.commit();
        let end = self.flush_log(ready)?;
        for released in self.space.commit_remaps() {
            let physical = self.predecessor_of(released);
            if let Some(physical) = physical {
                self.space.set_succeeded(physical, end);
            }
        }
        Ok(end)
    }

    /// Whether all remaps are committed.
    pub fn is_committed(&self) -> bool {
        self.log.is_committed()
    }

    /// Undoes the remaps that are not committed; returns when that is durable.
    pub fn discard_log(&mut self, ready: u64) -> Result<u64, NoSpace> {
        if self.log.is_committed() {
            return Ok(ready);
        }
        let undone: Vec<u32> = self.space.map().leads().uncommitted().collect();
        for unit in undone {
            self.trim(Units::new(unit, 1));
        }
        self.space.restore_held();
        let committed = self.log.committed();
        let mut kept = self.log.entries().to_vec();
        kept.retain(|entry| !entry.is_uncommitted(committed));
        self.write_snapshot(kept, ready)?;
        Ok(self.end_of_programs(ready))
    }

    /// Programs what the defrag log has in memory only, after all programs that have begun.
    pub(super) fn write_log(&mut self, ready: u64) -> Result<(), NoSpace> {
        if !self.log.is_unwritten() {
            return Ok(());
        }
        let Some((area, places)) = self.log.begin_write() else {
            return self.compact_log(ready);
        };
        let ready = self.end_of_programs(ready);
        places.for_each(|place| self.program_log(area, place, ready));
        Ok(())
    }

    /// Writes the entries of the defrag log that are needed to its other area.
    fn compact_log(&mut self, ready: u64) -> Result<(), NoSpace> {
        let kept = self.log.entries().to_vec();
        self.write_snapshot(kept, ready)
    }

    /// Writes a snapshot of those of these entries that are needed.
    fn write_snapshot(&mut self, entries: Vec<LogEntry>, ready: u64) -> Result<(), NoSpace> {
        self.program_all(ready)?;
        let needed = self.space.needed_entries(&entries, self.log.committed());
        let mut kept = Vec::new();
        for (entry, needed) in entries.into_iter().zip(needed) {
            if needed {
                kept.push(entry);
            } else if !entry.shared {
                self.journal.push(Note { program: entry.version, units: entry.from });
            }
        }
        self.write_journal(ready);
        let ready = self.end_of_programs(ready);
        let (area, erased, programs) = self.log.begin_snapshot(kept);
        self.erase_log(area, erased, ready);
        (0..programs).for_each(|place| self.program_log(area, place, ready));
        self.counters.log_compacted += programs as u64;
        Ok(())
    }

    /// The die that an area of the log is on.
    fn die_of_area(&self, area: usize) -> u32 {
        area as u32 % self.shape.dies
    }

    fn erase_log(&mut self, area: usize, erased: Area, ready: u64) {
        if !self.timed {
            return;
        }
        let die = self.die_of_area(area);
        let mut erased = Some(erased);
        for _ in 0..self.log.blocks_per_area() {
            let ticket = self.nand.erase(self.now, ready, die, 0);
            // What the area held is there as long as the first of these erases has not begun.
            if let Some(erased) = erased.take() {
                let kind = OperationKind::LogErase { area, erased };
                self.in_flight.push(die, ticket, kind, &self.nand);
            }
        }
    }

    fn program_log(&mut self, area: usize, place: usize, ready: u64) {
        self.counters.log_programs += 1;
        if !self.timed {
            return;
        }
        let (die, bytes) = (self.die_of_area(area), self.shape.program_unit_bytes());
        let ticket = self.nand.program(self.now, ready, die, 0, bytes);
        let kind = OperationKind::LogProgram { area, place };
        self.in_flight.push(die, ticket, kind, &self.nand);
    }

    /// Writes units anew, each flash page of them on the die after that of the last one, so that as many dies as
    /// possible can read them at once; returns when they are in the write buffer.
    pub fn spread(&mut self, runs: &[Units], ready: u64) -> Result<u64, NoSpace> {
        let mut end = ready;
        let mut next_die = self.placer.next_die();
        for units in runs {
            let arrived = self.fetch(*units, ready);
            let mut held: Vec<Bytes> = units.each().map(|unit| self.bytes(unit)).collect();
            let contents = &mut |unit: u32| held[(unit - units.start) as usize].take();
            let cause = ProgramCause::Spread;
            let write = Write { units: *units, cause, contents, ready: arrived.max(end) };
            end = self.append(Tail::PageEnd { next_die }, write)?;
            next_die = self.shape.next_die(next_die);
        }
        self.placer.set_next_die(next_die);
        Ok(end)
    }
}
