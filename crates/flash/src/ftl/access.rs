//! Reads, trims and flushes.

use super::journal::Note;
use super::{Ftl, NoSpace};
use crate::command::{Completion, Units};
use crate::pages::page_runs;
use crate::space::Location;

/// How the pages of a read are distributed over the dies.
#[derive(Default)]
struct DieLoad {
    pages: u32,
    /// Pages on the die with the most of them.
    busiest: u32,
}

impl Ftl {
    /// Reads units for the host, not before `ready`.
    pub fn read(&mut self, units: Units, ready: u64) -> Completion {
        let (mut from_buffer, mut unmapped) = (0, 0);
        let mut runs = std::mem::take(&mut self.runs);
        let sensed = units.each().filter_map(|unit| {
            let location = self.location_for_read(unit);
            from_buffer += u32::from(matches!(location, Location::Buffered(_)));
            unmapped += u32::from(location == Location::Unmapped);
            if let Location::Flash(physical) = location { Some(physical) } else { None }
        });
        runs.extend(page_runs(&self.shape, sensed));
        let (mut done_ns, mut load) = (ready, DieLoad::default());
        for run in &runs {
            let bytes = run.bytes(&self.shape);
            done_ns = done_ns.max(self.nand.read(self.now, ready, run.page, bytes, true));
            let on_die = &mut self.pages_on_die[run.page.die as usize];
            *on_die += 1;
            (load.pages, load.busiest) = (load.pages + 1, load.busiest.max(*on_die));
        }
        for run in runs.drain(..) {
            self.pages_on_die[run.page.die as usize] = 0;
        }
        self.runs = runs;
        if from_buffer + unmapped > 0 {
            let bytes = u64::from(from_buffer + unmapped) * u64::from(self.shape.unit_bytes);
            done_ns = done_ns.max(self.nand.transfer(self.now, ready, bytes));
        }
        self.counters.host_read += u64::from(units.count);
        self.counters.buffer_read += u64::from(from_buffer);
        let collision_percent = self.count_collisions(&load);
        Completion { done_ns, collision_percent, ..Completion::default() }
    }

    /// Where a unit is read from: the buffer, as long as its program has not ended.
    fn location_for_read(&self, unit: u32) -> Location {
        let location = self.space.map().locate(unit);
        if let Location::Flash(physical) = location {
            let die = self.shape.die_of(physical);
            if !self.in_flight.is_idle(die) && self.end_of_program(physical) > self.now {
                return Location::Buffered(physical);
            }
        }
        location
    }

    /// Counts the pages of a read; returns how many are on the busiest die, in per cent of an even share.
    fn count_collisions(&mut self, load: &DieLoad) -> u32 {
        let even = load.pages.div_ceil(self.shape.dies);
        self.counters.pages_read += u64::from(load.pages);
        self.counters.busiest_pages += u64::from(load.busiest);
        self.counters.even_pages += u64::from(even);
        (load.busiest * 100).checked_div(even).unwrap_or(100)
    }

    /// Reads units into the controller; returns when they have arrived.
    pub fn fetch(&mut self, units: Units, ready: u64) -> u64 {
        let in_flash = units.each().filter_map(|unit| self.space.map().in_flash(unit));
        page_runs(&self.shape, in_flash).fold(ready, |arrived, run| {
            let bytes = run.bytes(&self.shape);
            arrived.max(self.nand.read(self.now, ready, run.page, bytes, false))
        })
    }

    /// Unmaps trimmed units, and notes that in the journal; returns how many were mapped.
    pub fn trim(&mut self, units: Units) -> u32 {
        let mut unmapped = 0;
        let program = self.space.programs();
        let mut trimmed: Option<Units> = None;
        for unit in units.each() {
            let map = self.space.map();
            if map.locate(unit) == Location::Unmapped && !map.leads().is_held(unit) {
                continue;
            }
            self.unmap(unit);
            unmapped += 1;
            match &mut trimmed {
                Some(units) if units.end() == unit => units.count += 1,
                _ => {
                    let before = trimmed.replace(Units::new(unit, 1));
                    self.note_trimmed(program, before);
                }
            }
        }
        self.note_trimmed(program, trimmed);
        if self.journal.is_long() {
            self.journal.drop_before(self.space.map().oldest_version());
        }
        unmapped
    }

    fn note_trimmed(&mut self, program: u64, units: Option<Units>) {
        if let Some(units) = units {
            self.journal.push(Note { program, units });
        }
    }

    /// Programs everything that is buffered, and the journal; returns when all of it is durable.
    pub fn flush(&mut self, ready: u64) -> Result<u64, NoSpace> {
        if self.protected {
            return Ok(ready);
        }
        for slot in self.buffer.open_slots() {
            if self.buffer.is_open(slot) {
                self.program_slot(slot, ready)?;
            }
        }
        self.write_journal(ready);
        Ok(self.end_of_programs(ready))
    }

    /// When all operations that have begun have ended, and no earlier than `ready`; reads cannot delay them any
    /// more.
    pub(super) fn end_of_programs(&mut self, ready: u64) -> u64 {
        self.nand.pin_programs();
        self.in_flight.last_end(&self.nand).map_or(ready, |end| end.max(ready))
    }

    /// Programs all slots, and those that collection opens meanwhile.
    pub(super) fn program_all(&mut self, ready: u64) -> Result<(), NoSpace> {
        while let Some(slot) = self.buffer.first_open() {
            self.program_slot(slot, ready)?;
        }
        Ok(())
    }

    /// Programs these units; returns when they are durable.
    pub fn force(&mut self, units: Units, ready: u64) -> Result<u64, NoSpace> {
        for unit in units.each() {
            if let Location::Buffered(place) = self.space.map().locate(unit)
                && !self.protected
            {
                self.program_slot(self.buffer.slot_of(place).0, ready)?;
            }
        }
        self.nand.pin_programs();
        let mut end = ready;
        for unit in units.each() {
            let physical = match self.space.map().locate(unit) {
                Location::Unmapped => None,
                // Garbage collection may be moving it already: then its copy in the flash counts.
                Location::Buffered(place) => self.buffer.member(place).predecessor,
                Location::Flash(physical) => Some(physical),
            };
            if let Some(physical) = physical {
                end = end.max(self.end_of_program(physical));
            }
        }
        Ok(end)
    }
}
