//! A zoned drive (NVMe zoned namespaces), with the mapping of InDeF (section III-B): a zone is a block of
//! each die, the least worn free one, which is allocated when the zone is opened; its stripe units are on the
//! dies in turn. The host writes a zone from its start to its end, and resets it as a whole; so there is no
//! garbage collection, and the mapping has one entry for each die of each zone.
//!
//! **What survives a power cut.** Acknowledged data is in the flash or in the buffer, and the buffer must
//! have capacitors: a program unit that is programmed before it is full cannot be continued, so without
//! capacitors a zone could not keep flushed data. Copies that the drive is still making are lost
//! (`defragment.rs`). A reset releases the blocks; they are erased when they are allocated again.

mod assemble;
mod blocks;
mod defragment;

use crate::command::{Command, Completion, Refused, Units, ZoneAction};
use crate::content::Content;
use crate::counters::{Counters, ProgramCause};
use crate::device::{Contents, Device, Recovery, joined};
use crate::drive::Drive;
use crate::geometry::{Inconsistent, Shape};
use crate::nand::{Nand, Ticket};
use crate::pages::{dof_p_per_mille, page_runs};
use blocks::{FreeBlocks, TakenBlock};
use defragment::Copying;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing is written.
    Empty,
    /// It has blocks, and can be written.
    Open,
    /// Nothing more can be written.
    Full,
}

/// The state of a zone, as the drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// Its state.
    pub state: ZoneState,
    /// Its first unit.
    pub start: u32,
    /// The unit that is written next: the write pointer.
    pub write_pointer: u32,
}

#[derive(Clone, Debug)]
struct Zone {
    state: ZoneState,
    /// How many of its units are written.
    written: u32,
    /// Its block on each die, once it is opened.
    blocks: Vec<u32>,
    /// How many units capacitors have saved: they are in the flash, whatever became of their programs.
    saved: u32,
    /// The programs that were begun, by the die of the program unit and its place in its block.
    programs: Vec<Option<Ticket>>,
    /// The program unit that is being assembled for each die.
    assembled: Vec<Assembled>,
}

/// What there is of a program unit that is not full.
#[derive(Clone, Copy, Debug, Default)]
struct Assembled {
    /// How many of its units are copies.
    copied: u32,
    /// When the last one that arrives is in the buffer.
    ready: u64,
}

/// A zoned drive.
#[derive(Clone, Debug)]
pub struct Zoned {
    drive: Drive,
    shape: Shape,
    nand: Nand,
    zones: Vec<Zone>,
    free: FreeBlocks,
    max_open: u32,
    now: u64,
    /// Programs in flight: when each ends, the bytes that it keeps in the buffer, and whether it is of copies alone.
    programs: BinaryHeap<Reverse<(u64, u64, bool)>>,
    buffered_bytes: u64,
    /// Copies that have not completed.
    copying: Vec<Copying>,
    counters: Counters,
    content: Option<Content>,
}

impl Zoned {
    /// Checks that a drive of this description can have zones, of which so many may be open at once.
    ///
    /// # Errors
    /// What is inconsistent in the drive's description.
    pub fn check(drive: &Drive, max_open: u32) -> Result<Shape, Inconsistent> {
        let shape = drive.shape()?;
        let alternating = shape.units_per_stripe_unit.max(shape.units_per_program);
        if !shape.units_per_block.is_multiple_of(alternating) {
            let why = "a block must hold whole stripe units in a zone";
            return Err(Inconsistent::new("stripe_unit_bytes", why));
        }
        if !drive.buffer.protected {
            let why = "the buffer of a zoned drive must survive a power cut";
            return Err(Inconsistent::new("protected", why));
        }
        if max_open == 0 {
            return Err(Inconsistent::new("open_zones", "must not be 0"));
        }
        // The program units of an open zone that are being assembled: those of a stripe if it is shorter than they are.
        let smaller = shape.units_per_stripe_unit < shape.units_per_program;
        let assembled = u64::from(max_open) * u64::from(if smaller { shape.dies } else { 1 });
        let least = (assembled + 1) * u64::from(shape.program_unit_bytes());
        if drive.buffer.bytes < least {
            let why = format!("must hold what is being assembled of each open zone: {least} bytes");
            return Err(Inconsistent::new("bytes", why));
        }
        Ok(shape)
    }

    /// A new drive, whose zones are empty; up to `max_open` of them may be open at once.
    ///
    /// # Errors
    /// What is inconsistent in the drive's description.
    pub fn new(drive: &Drive, max_open: u32, keeps_content: bool) -> Result<Self, Inconsistent> {
        let shape = Self::check(drive, max_open)?;
        let zone_units = shape.dies * shape.units_per_block;
        let empty = Zone {
            state: ZoneState::Empty,
            written: 0,
            saved: 0,
            blocks: Vec::new(),
            programs: vec![None; (zone_units / shape.units_per_program) as usize],
            assembled: vec![Assembled::default(); shape.dies as usize],
        };
        Ok(Self {
            nand: Nand::new(drive, &shape),
            zones: vec![empty; (shape.logical_units / zone_units) as usize],
            free: FreeBlocks::new(&shape),
            max_open,
            now: 0,
            programs: BinaryHeap::new(),
            buffered_bytes: 0,
            copying: Vec::new(),
            counters: Counters::default(),
            content: keeps_content.then(|| Content::new(&shape)),
            drive: drive.clone(),
            shape,
        })
    }

    /// The shape of the drive.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How often a block was erased.
    pub fn erases_of(&self, block: u32) -> u32 {
        self.free.erases(block)
    }

    /// The die of a unit of a zone, and its place in the zone's block on that die.
    fn in_zone(&self, unit: u32) -> (u32, u32) {
        let size = self.shape.units_per_stripe_unit;
        let (stripe_unit, within) = (unit / size, unit % size);
        let (stripe, die) = (stripe_unit / self.shape.dies, stripe_unit % self.shape.dies);
        (die, stripe * size + within)
    }

    /// The physical unit of a unit, if that is written.
    pub fn physical(&self, unit: u32) -> Option<u32> {
        let zone = self.zones.get((unit / self.zone_units()) as usize)?;
        let within = unit % self.zone_units();
        if within >= zone.written {
            return None;
        }
        let (die, at) = self.in_zone(within);
        Some(zone.blocks[die as usize] * self.shape.units_per_block + at)
    }

    fn zone(&self, number: u32) -> Result<&Zone, Refused> {
        self.zones.get(number as usize).ok_or(Refused::OutOfRange)
    }

    fn zone_mut(&mut self, number: u32) -> &mut Zone {
        &mut self.zones[number as usize]
    }

    /// Removes the program that ends first, and its bytes from the buffer; returns when it ends.
    fn end_program(&mut self) -> Option<u64> {
        let Reverse((end, bytes, _)) = self.programs.pop()?;
        self.buffered_bytes -= bytes;
        Some(end)
    }

    fn act(
        &mut self,
        start: u64,
        number: u32,
        action: ZoneAction,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        let first = number.checked_mul(self.zone_units()).ok_or(Refused::OutOfRange)?;
        let zone = self.zone(number)?;
        let at = first + zone.written;
        let done_ns = match action {
            ZoneAction::Open if zone.state == ZoneState::Full => return Err(Refused::ZoneState),
            ZoneAction::Open => self.open(start, number)?,
            ZoneAction::Append(count) => self.write(start, number, count, contents)?,
            ZoneAction::Reset => {
                self.reset(number);
                start
            }
            ZoneAction::Finish => {
                self.finish(start, number);
                start
            }
        };
        Ok(Completion { done_ns, at, ..Completion::default() })
    }

    fn reset(&mut self, number: u32) {
        self.buffered_bytes -= self.assembled_bytes(&self.zones[number as usize]);
        self.copying.retain(|copying| copying.zone != number);
        let zone = self.zone_mut(number);
        (zone.state, zone.written, zone.saved) = (ZoneState::Empty, 0, 0);
        zone.programs.fill(None);
        zone.assembled.fill(Assembled::default());
        for block in std::mem::take(&mut zone.blocks) {
            self.free.release(self.shape.die_of_block(block), block);
        }
    }

    /// Opens a zone unless it is open: allocates its blocks, and erases those that were used before.
    fn open(&mut self, start: u64, number: u32) -> Result<u64, Refused> {
        if self.zone(number)?.state == ZoneState::Open {
            return Ok(start);
        }
        let open = self.zones.iter().filter(|zone| zone.state == ZoneState::Open).count();
        if open as u32 >= self.max_open {
            return Err(Refused::ZoneState);
        }
        let taken = self.free.take().ok_or(Refused::NoSpace)?;
        for (die, TakenBlock { block, must_erase }) in (0..).zip(&taken) {
            if *must_erase {
                self.counters.erases += 1;
                self.nand.erase(self.now, start, die, self.shape.plane_of_block(*block));
            }
        }
        let zone = self.zone_mut(number);
        zone.blocks = taken.iter().map(|taken| taken.block).collect();
        zone.state = ZoneState::Open;
        Ok(start)
    }

    /// Writes units of the host at the write pointer of the zone in which they begin.
    fn write_units(
        &mut self,
        start: u64,
        units: Units,
        contents: Contents<'_>,
    ) -> Result<u64, Refused> {
        let number = units.start / self.zone_units();
        let zone = self.zone(number)?;
        let write_pointer = number * self.zone_units() + zone.written;
        if zone.state == ZoneState::Full || write_pointer != units.start {
            return Err(Refused::ZoneState);
        }
        self.write(start, number, units.count, contents)
    }

    /// Writes this many units at the write pointer of a zone; returns when they are in the buffer.
    fn write(
        &mut self,
        start: u64,
        number: u32,
        count: u32,
        contents: Contents<'_>,
    ) -> Result<u64, Refused> {
        let Zone { written, state, .. } = *self.zone(number)?;
        if count == 0 {
            return Err(Refused::Length);
        }
        if state == ZoneState::Full || count > self.zone_units() - written {
            return Err(Refused::ZoneState);
        }
        self.open(start, number)?;
        let unit_bytes = u64::from(self.shape.unit_bytes);
        let handled = start + self.drive.buffer.accept_ns(count);
        let mut ready = self.nand.transfer(self.now, handled, u64::from(count) * unit_bytes);
        for within in written..written + count {
            ready = self.wait_for_space(unit_bytes, ready)?;
            self.write_unit(number, within, ProgramCause::Host, contents, ready);
        }
        self.counters.host_written += u64::from(count);
        self.advance(number, count);
        Ok(ready)
    }

    /// Advances the write pointer of a zone by this many units.
    fn advance(&mut self, number: u32, count: u32) {
        let zone_units = self.zone_units();
        let zone = self.zone_mut(number);
        zone.written += count;
        if zone.written == zone_units {
            zone.state = ZoneState::Full;
        }
    }

    /// Waits until the buffer has space for this many bytes, which are in it then; returns when it has.
    fn wait_for_space(&mut self, bytes: u64, mut ready: u64) -> Result<u64, Refused> {
        while self.buffered_bytes + bytes > self.drive.buffer.bytes {
            // If no program is in flight, program units that are not full use all of the buffer.
            ready = ready.max(self.end_program().ok_or(Refused::NoSpace)?);
        }
        self.buffered_bytes += bytes;
        Ok(ready)
    }

    /// Adds a unit to its program unit, and programs that if it is full then.
    fn write_unit(
        &mut self,
        number: u32,
        within: u32,
        cause: ProgramCause,
        contents: Contents<'_>,
        ready: u64,
    ) {
        let (die, at) = self.in_zone(within);
        let assembled = &mut self.zone_mut(number).assembled[die as usize];
        assembled.copied += u32::from(cause == ProgramCause::Copied);
        assembled.ready = assembled.ready.max(ready);
        let block = self.zones[number as usize].blocks[die as usize];
        if let Some(content) = &mut self.content {
            let unit = number * self.shape.dies * self.shape.units_per_block + within;
            content.put(block * self.shape.units_per_block + at, contents(unit));
        }
        if (at + 1).is_multiple_of(self.shape.units_per_program) {
            let Assembled { copied, ready } =
                std::mem::take(&mut self.zone_mut(number).assembled[die as usize]);
            let copies = copied == self.shape.units_per_program;
            self.program(number, die, at, self.shape.program_unit_bytes().into(), ready, copies);
            self.counters.copied += u64::from(copied);
            self.counters.programmed += u64::from(self.shape.units_per_program - copied);
        }
    }

    /// The number of a program unit in its zone.
    fn program_unit_of(&self, die: u32, at: u32) -> usize {
        (die * self.shape.programs_per_block() + at / self.shape.units_per_program) as usize
    }

    fn read(&mut self, start: u64, units: Units) -> Result<u64, Refused> {
        let end = units.start.checked_add(units.count).ok_or(Refused::OutOfRange)?;
        if units.count == 0 {
            return Err(Refused::Length);
        }
        if end > self.units() {
            return Err(Refused::OutOfRange);
        }
        let unit_bytes = u64::from(self.shape.unit_bytes);
        let bytes = u64::from(units.count) * unit_bytes;
        let ready = start.max(self.copied_at(&[units])) + self.drive.timing.firmware_read_ns(bytes);
        let sensed = |unit| self.physical(unit).filter(|_| !self.is_buffered(unit));
        let sensed: Vec<u32> = units.each().filter_map(sensed).collect();
        let mut done = ready;
        for run in page_runs(&self.shape, sensed.iter().copied()) {
            let bytes = run.bytes(&self.shape);
            done = done.max(self.nand.read(self.now, ready, run.page, bytes, true));
            self.counters.pages_read += 1;
        }
        let elsewhere = u64::from(units.count) - sensed.len() as u64;
        if elsewhere > 0 {
            done = done.max(self.nand.transfer(self.now, ready, elsewhere * unit_bytes));
        }
        self.counters.host_read += u64::from(units.count);
        Ok(done)
    }

    /// Whether a written unit is in the buffer because its program has not ended.
    fn is_buffered(&self, unit: u32) -> bool {
        let within = unit % self.zone_units();
        let zone = &self.zones[(unit / self.zone_units()) as usize];
        if within < zone.saved {
            return false;
        }
        let (die, at) = self.in_zone(within);
        let ticket = zone.programs[self.program_unit_of(die, at)];
        ticket.is_none_or(|ticket| self.nand.end_of(ticket) > self.now)
    }
}

impl Device for Zoned {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        self.now = self.now.max(at);
        while self.programs.peek().is_some_and(|Reverse((end, ..))| *end <= self.now) {
            self.end_program();
        }
        self.copying.retain(|copying| copying.end > self.now);
        let timing = &self.drive.timing;
        let start = self.now + timing.link_latency_ns + timing.firmware_busy_ns;
        let mut completion = Completion::default();
        match command {
            Command::Read(units) => completion.done_ns = self.read(start, *units)?,
            Command::Write { units, .. } => {
                completion.done_ns = self.write_units(start, *units, contents)?;
            }
            Command::Zone { zone, action } => {
                completion = self.act(start, *zone, *action, contents)?;
            }
            Command::InDeviceDefragment { from, zone } => {
                completion = self.defragment(start, from, *zone)?;
            }
            Command::Flush => {
                completion.done_ns = self.written_at().max(start);
            }
            _ => return Err(Refused::Unsupported),
        }
        self.counters.commands += 1;
        Ok(completion)
    }

    fn unit_bytes(&self) -> u32 {
        self.shape.unit_bytes
    }

    fn units(&self) -> u32 {
        self.zones.len() as u32 * self.zone_units()
    }

    fn idle_at(&self) -> u64 {
        self.nand.idle_at().max(self.now)
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        let bytes = |unit| {
            let content = self.content.as_ref()?;
            self.physical(unit).and_then(|physical| content.get(physical))
        };
        joined(units.each().map(bytes), self.shape.unit_bytes)
    }

    fn dies(&self) -> u32 {
        self.shape.dies
    }

    fn die_of(&self, unit: u32) -> Option<u32> {
        (unit < self.units()).then(|| self.in_zone(unit % self.zone_units()).0)
    }

    fn dof_p_per_mille(&self, units: &[Units]) -> u32 {
        let units = units.iter().flat_map(|units| units.each());
        dof_p_per_mille(&self.shape, units.filter_map(|unit| self.physical(unit)))
    }

    fn busy_ns(&self) -> Vec<u64> {
        self.nand.busy_ns().collect()
    }

    fn zones(&self) -> Vec<ZoneReport> {
        let report = |(number, zone): (usize, &Zone)| {
            let start = number as u32 * self.zone_units();
            ZoneReport { state: zone.state, start, write_pointer: start + zone.written }
        };
        self.zones.iter().enumerate().map(report).collect()
    }

    fn zone_units(&self) -> u32 {
        self.shape.dies * self.shape.units_per_block
    }

    /// The capacitors save the buffer, and what is still being copied is lost.
    fn power_cut(&mut self, at: u64) -> Recovery {
        self.now = self.now.max(at);
        self.lose_copies();
        self.nand.reset();
        self.programs.clear();
        // What is being assembled is there again.
        self.buffered_bytes = self.zones.iter().map(|zone| self.assembled_bytes(zone)).sum();
        self.zones.iter_mut().for_each(|zone| zone.saved = zone.written);
        Recovery::default()
    }
}
