//! A flash SSD: takes commands at instants of virtual time and says when each is done.

use crate::command::{Command, Completion, Hint, Refused, Units};
use crate::counters::Counters;
use crate::drive::Drive;
use crate::ftl::{Ftl, Full};
use crate::geometry::{Inconsistent, Page, Shape};
use crate::journal::Note;
use crate::map::{BUFFERED, NONE};
use crate::nand::{Busy, Work};
use crate::recover::Recovery;
use crate::slots::{Bytes, Cause};
use crate::timeline::Timeline;

/// A command may ask for so many units.
const MOST_UNITS: u32 = 1 << 16;

/// How often blocks were erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWear {
    /// The least worn one.
    pub least: u32,
    /// On average, in thousandths.
    pub mean_per_mille: u64,
    /// The most worn one.
    pub most: u32,
}

/// A flash SSD.
#[derive(Clone, Debug)]
pub struct Ssd {
    drive: Drive,
    ftl: Ftl,
    processor: Timeline,
    /// Pages that a command reads of each die, and of which command that is said.
    of_die: Vec<(u64, u32)>,
    command: u64,
}

impl Ssd {
    /// A new drive, that keeps no content: all of it is in the times and the counters.
    ///
    /// # Errors
    /// When its description does not fit together.
    pub fn new(drive: &Drive) -> Result<Self, Inconsistent> {
        Self::make(drive, false)
    }

    /// A new drive that keeps what is written to it.
    ///
    /// # Errors
    /// When its description does not fit together.
    pub fn with_content(drive: &Drive) -> Result<Self, Inconsistent> {
        Self::make(drive, true)
    }

    fn make(drive: &Drive, keeps_content: bool) -> Result<Self, Inconsistent> {
        let shape = drive.shape()?;
        let of_die = vec![(0, 0); shape.dies as usize];
        let ftl = Ftl::new(drive, shape, keeps_content);
        let processor = Timeline::default();
        Ok(Self { drive: drive.clone(), ftl, processor, of_die, command: 0 })
    }

    /// What it is like.
    pub fn shape(&self) -> &Shape {
        &self.ftl.shape
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.ftl.counters
    }

    /// Carries out a command that arrives then, or now if that is past. What it writes is zeroes.
    ///
    /// # Errors
    /// Why not; then nothing has changed.
    pub fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        self.submit_with(at, command, &mut |_| None)
    }

    /// The same; `contents` gives the bytes of each unit that is written, from its number.
    ///
    /// # Errors
    /// Why not; then nothing has changed.
    pub fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: &mut dyn FnMut(u32) -> Bytes,
    ) -> Result<Completion, Refused> {
        self.check(command)?;
        self.ftl.pass(at);
        let now = self.ftl.now;
        self.command += 1;
        self.ftl.counters.commands += 1;
        let busy = self.drive.timing.firmware_busy_ns;
        let start = self.processor.reserve(now, now, busy) + busy;
        let done = |done_ns| Ok(Completion { done_ns, ..Completion::default() });
        match command {
            Command::Read(units) => Ok(self.read(start, *units)),
            Command::Write { units, hint, fua } => {
                self.ftl.counters.host_written += u64::from(units.count);
                let taken = self.take_in(start, units.count);
                let end = self.ftl.write(*units, *hint, Cause::Host, contents, taken)?;
                done(if *fua { self.ftl.settle_units(*units, end)? } else { end })
            }
            Command::WritePart { units, bytes, offset, hint } => {
                done(self.write_part(start, *units, *bytes, *offset, *hint, contents)?)
            }
            Command::Flush => done(self.ftl.flush(start)?),
            Command::Trim(units) | Command::WriteZeroes(units) => {
                self.ftl.trim(*units);
                done(start)
            }
            Command::Copy { from, to } => done(self.copy(start, from, *to)?),
            Command::Zone { .. } | Command::Remap { .. } | Command::InDeviceDefragment { .. } => {
                Err(Refused::Unsupported)
            }
        }
    }

    /// Whether a command is for this drive.
    fn check(&self, command: &Command) -> Result<(), Refused> {
        let within = |units: &Units| match units.start.checked_add(units.count) {
            _ if units.count == 0 || units.count > MOST_UNITS => Err(Refused::Length),
            Some(end) if end <= self.shape().logical_units => Ok(()),
            _ => Err(Refused::OutOfRange),
        };
        match command {
            Command::Read(units) | Command::Write { units, .. } => within(units),
            Command::WritePart { units, bytes, offset, .. } => {
                let room = u64::from(units.count) * u64::from(self.shape().unit_bytes);
                match u64::from(*offset) + u64::from(*bytes) <= room && *bytes > 0 {
                    true => within(units),
                    false => Err(Refused::Length),
                }
            }
            // As long as the drive.
            Command::Trim(units) | Command::WriteZeroes(units) => {
                let within = units.start.checked_add(units.count);
                let fits = within.is_some_and(|end| end <= self.shape().logical_units);
                if fits { Ok(()) } else { Err(Refused::OutOfRange) }
            }
            Command::Copy { from, to } => {
                from.iter().try_for_each(within)?;
                let count = from.iter().map(|units| u64::from(units.count)).sum::<u64>();
                let count = u32::try_from(count).map_err(|_| Refused::Length)?;
                within(&Units::new(*to, count))
            }
            Command::Flush
            | Command::Zone { .. }
            | Command::Remap { .. }
            | Command::InDeviceDefragment { .. } => Ok(()),
        }
    }

    /// Data of a write comes over the link and is handled by the processor.
    fn take_in(&mut self, start: u64, units: u32) -> u64 {
        let spec = &self.drive.buffer;
        let handled = start + spec.command_ns + spec.unit_ns * u64::from(units);
        let bytes = u64::from(units) * u64::from(self.ftl.shape.unit_bytes);
        self.ftl.nand.receive(self.ftl.now, handled, bytes)
    }

    fn read(&mut self, start: u64, units: Units) -> Completion {
        let unit_bytes = self.ftl.shape.unit_bytes;
        let bytes = u64::from(units.count) * u64::from(unit_bytes);
        let timing = &self.drive.timing;
        let firmware = match bytes <= u64::from(timing.small_command_bytes) {
            true => timing.firmware_small_read_ns,
            false => timing.firmware_read_ns,
        };
        let ready = start + firmware;
        self.ftl.counters.host_read += u64::from(units.count);
        let (mut done, mut elsewhere) = (ready, 0);
        let (mut pages, mut busiest) = (0, 0);
        let mut open: Option<(Page, u32)> = None;
        for unit in units.each() {
            let Some(physical) = self.physical(unit) else {
                elsewhere += u64::from(unit_bytes);
                continue;
            };
            let page = self.ftl.shape.page_of(physical);
            match &mut open {
                Some((of, count)) if *of == page => *count += 1,
                _ => {
                    if let Some((page, count)) = open.replace((page, 1)) {
                        done = done.max(self.read_page(ready, page, count));
                    }
                    let of_die = &mut self.of_die[page.die as usize];
                    let before = if of_die.0 == self.command { of_die.1 } else { 0 };
                    *of_die = (self.command, before + 1);
                    (pages, busiest) = (pages + 1, busiest.max(before + 1));
                }
            }
        }
        if let Some((page, count)) = open {
            done = done.max(self.read_page(ready, page, count));
        }
        if elsewhere > 0 {
            done = done.max(self.ftl.nand.answer(self.ftl.now, ready, elsewhere));
        }
        let even = u32::div_ceil(pages, self.ftl.shape.dies);
        let counters = &mut self.ftl.counters;
        counters.pages_read += u64::from(pages);
        counters.busiest_pages += u64::from(busiest);
        counters.even_pages += u64::from(even);
        let collision_percent = (busiest * 100).checked_div(even).unwrap_or(100);
        Completion { done_ns: done, collision_percent, at: 0 }
    }

    /// Where a unit must be sensed, if it must.
    fn physical(&mut self, unit: u32) -> Option<u32> {
        let place = self.ftl.map.get(unit);
        if place == NONE {
            return None;
        }
        let is_buffered = place >= BUFFERED || {
            let die = self.ftl.shape.die_of(place);
            let idle = self.ftl.under_way[die as usize].is_empty();
            !idle && self.ftl.program_end(place) > self.ftl.now
        };
        if is_buffered {
            self.ftl.counters.buffer_read += 1;
            return None;
        }
        Some(place)
    }

    fn read_page(&mut self, ready: u64, page: Page, units: u32) -> u64 {
        let bytes = units * self.ftl.shape.unit_bytes;
        self.ftl.nand.read(self.ftl.now, ready, page, bytes, true)
    }

    /// What is written in part is read first, and written as a whole.
    fn write_part(
        &mut self,
        start: u64,
        units: Units,
        bytes: u32,
        offset: u32,
        hint: Hint,
        contents: &mut dyn FnMut(u32) -> Bytes,
    ) -> Result<u64, Refused> {
        let unit_bytes = u64::from(self.ftl.shape.unit_bytes);
        let whole = u64::from(units.count) * unit_bytes == u64::from(bytes);
        let mut ready = start;
        if !whole {
            self.ftl.counters.merged_writes += 1;
            let last = Units::new(units.end() - 1, 1);
            let first = Units::new(units.start, 1);
            let cut = u64::from(offset) > 0;
            let ends_within = !(u64::from(offset) + u64::from(bytes)).is_multiple_of(unit_bytes);
            let both = [(cut, first), (ends_within && (!cut || last != first), last)];
            for (_, unit) in both.into_iter().filter(|(needed, _)| *needed) {
                ready = ready.max(self.ftl.fetch(unit, start));
            }
        }
        self.ftl.counters.host_written += u64::from(units.count);
        let taken = self.take_in(ready, units.count);
        Ok(self.ftl.write(units, hint, Cause::Host, contents, taken)?)
    }

    /// Copies stretches, one behind the other.
    fn copy(&mut self, start: u64, from: &[Units], to: u32) -> Result<u64, Refused> {
        let mut all: Vec<Bytes> = Vec::new();
        let mut ready = start;
        for units in from {
            ready = ready.max(self.ftl.fetch(*units, start));
            all.extend(units.each().map(|unit| self.ftl.bytes_of(unit)));
        }
        let target = Units::new(to, all.len() as u32);
        let contents = &mut |unit: u32| all[(unit - to) as usize].take();
        Ok(self.ftl.write(target, Hint::None, Cause::Copied, contents, ready)?)
    }

    /// What units hold, where the drive keeps content; zeroes where nothing was written.
    pub fn bytes(&self, units: Units) -> Vec<u8> {
        let of = |unit| {
            let zeroes = || vec![0; self.ftl.shape.unit_bytes as usize];
            self.ftl.bytes_of(unit).map_or_else(zeroes, |bytes| bytes.to_vec())
        };
        units.each().flat_map(of).collect()
    }

    /// Where a unit lies in the flash: its die and physical unit. None while it is in the buffer,
    /// and where nothing was written.
    pub fn place_of(&self, unit: u32) -> Option<(u32, u32)> {
        let physical = self.ftl.map.in_flash(unit)?;
        Some((self.ftl.shape.die_of(physical), physical))
    }

    /// Writes units without time passing, to bring a drive into a state.
    ///
    /// # Errors
    /// As a write.
    pub fn precondition(&mut self, units: Units) -> Result<(), Refused> {
        let timed = std::mem::replace(&mut self.ftl.timed, false);
        let now = self.ftl.now;
        let done = self.ftl.write(units, Hint::None, Cause::Host, &mut |_| None, now);
        self.ftl.timed = timed;
        Ok(done.map(drop)?)
    }

    /// When all that was asked for is done and every die is idle.
    pub fn idle_at(&self) -> u64 {
        self.ftl.nand.idle_at().max(self.ftl.now)
    }

    /// The power fails at this instant, no earlier than the last command, and comes back.
    pub fn power_cut(&mut self, at: u64) -> Recovery {
        self.processor = self.processor.idle();
        self.ftl.power_cut(at)
    }

    /// From now on keeps every stretch of every die's time.
    pub fn trace(&mut self) {
        self.ftl.nand.trace();
    }

    /// What the dies did, all that will not change any more by `now`.
    pub fn traced(&mut self, now: u64) -> Vec<Busy> {
        self.ftl.nand.traced(now)
    }

    /// How often a block was erased.
    pub fn erases_of(&self, block: u32) -> u32 {
        self.ftl.blocks.erases(block)
    }

    /// For how long each die (or plane) and each channel was busy, in nanoseconds.
    pub fn busy_ns(&self) -> (Vec<u64>, Vec<u64>) {
        (self.ftl.nand.busy_ns().collect(), self.ftl.nand.channels_busy_ns().collect())
    }

    /// How worn the blocks are.
    pub fn wear(&self) -> BlockWear {
        let erases = self.ftl.blocks.all_erases();
        let sum: u64 = erases.iter().map(|erases| u64::from(*erases)).sum();
        BlockWear {
            least: erases.iter().min().copied().unwrap_or(0),
            mean_per_mille: (sum * 1000).checked_div(erases.len() as u64).unwrap_or(0),
            most: erases.iter().max().copied().unwrap_or(0),
        }
    }

    /// How often a die's blocks were erased, in all.
    pub fn erases_of_die(&self, die: u32) -> u64 {
        self.ftl.blocks.erases_of_die(die)
    }

    /// Bytes that crossed the channels, both ways, those of collection included.
    pub fn bus_bytes(&self) -> u64 {
        self.ftl.nand.channel_bytes()
    }

    /// How often the dies did this.
    pub fn count(&self, work: Work) -> u64 {
        self.ftl.nand.count(work)
    }

    /// Share of so many nanoseconds that dies (or planes) and channels were busy since the drive was
    /// made, on average, in thousandths.
    pub fn utilization_per_mille(&self, elapsed_ns: u64) -> (u64, u64) {
        let share = |busy: Vec<u64>| {
            let all = u128::from(elapsed_ns) * busy.len() as u128;
            let sum: u64 = busy.iter().sum();
            (u128::from(sum) * 1000).checked_div(all).unwrap_or(0) as u64
        };
        let (dies, channels) = self.busy_ns();
        (share(dies), share(channels))
    }

    /// Bytes of memory that the tables take whose size follows from the drive's: mapping,
    /// out-of-band areas, blocks. Beside them are the write buffer, what is under way, notes of
    /// trims, and content where it is kept.
    pub fn memory_bytes(&self) -> usize {
        self.ftl.map.memory_bytes() + self.ftl.blocks.memory_bytes()
    }

    /// Bytes of memory that the mapping takes.
    pub fn mapping_bytes(&self) -> usize {
        self.ftl.map.memory_bytes()
    }

    /// Whether mapping, out-of-band areas, counts and free blocks agree: every valid unit is mapped
    /// exactly once, and valid, invalid and free units add up.
    ///
    /// # Errors
    /// What disagrees.
    pub fn audit(&self) -> Result<(), String> {
        self.ftl.audit()
    }
}

impl From<Full> for Refused {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl Ftl {
    /// Bytes of a logical unit, where content is kept.
    pub fn bytes_of(&self, logical: u32) -> Bytes {
        match self.map.get(logical) {
            NONE => None,
            place if place >= BUFFERED => self.slots.member(place).bytes.clone(),
            physical => self.content.as_ref().and_then(|content| content.get(physical)),
        }
    }

    /// Reads units into the controller; gives when they are there.
    fn fetch(&mut self, units: Units, ready: u64) -> u64 {
        let mut arrived = ready;
        let mut unit = units.start;
        while unit < units.end() {
            let Some(physical) = self.map.in_flash(unit) else {
                unit += 1;
                continue;
            };
            let page = self.shape.page_of(physical);
            let same = |n: &u32| {
                let place = (unit + n < units.end()).then(|| self.map.get(unit + n));
                place.is_some_and(|p| p < BUFFERED && self.shape.page_of(p) == page)
            };
            let count = (0..).take_while(same).count() as u32;
            let bytes = count * self.shape.unit_bytes;
            arrived = arrived.max(self.nand.read(self.now, ready, page, bytes, false));
            unit += count;
        }
        arrived
    }

    /// Nobody needs these any more.
    fn trim(&mut self, units: Units) {
        let program = self.programs;
        let mut note: Option<Note> = None;
        for unit in units.each() {
            if self.map.get(unit) == NONE {
                continue;
            }
            self.unmap(unit);
            match &mut note {
                Some(note) if note.start + note.count == unit => note.count += 1,
                _ => {
                    if let Some(note) = note.replace(Note { program, start: unit, count: 1 }) {
                        self.journal.note(note);
                    }
                }
            }
        }
        if let Some(note) = note {
            self.journal.note(note);
        }
        if self.journal.is_long() {
            self.journal.drop_before(self.map.oldest_program());
        }
    }

    /// Units go to the flash; gives when they are there.
    fn settle_units(&mut self, units: Units, ready: u64) -> Result<u64, Full> {
        let mut end = ready;
        for unit in units.each() {
            let place = self.map.get(unit);
            if place != NONE && place >= BUFFERED && !self.spec.protected {
                self.program_slot(self.slots.at(place).0, ready)?;
            }
        }
        self.nand.pin();
        for unit in units.each() {
            // Collection may be moving it already: then the copy that it comes from counts.
            let physical = match self.map.get(unit) {
                place if place != NONE && place >= BUFFERED => self.slots.member(place).old,
                place => place,
            };
            if physical != NONE {
                end = end.max(self.program_end(physical));
            }
        }
        Ok(end)
    }
}
