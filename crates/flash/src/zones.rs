//! A zoned drive (NVMe zoned namespaces), with the mapping of InDeF (section III-B): a zone is a block
//! of each die, taken when the zone is opened, the least worn ones that are free; its pages lie
//! on the dies in turn. The host writes a zone from its start to its end, and resets it as a whole;
//! so there is nothing to collect, and the map is a block for each die of each zone.
//!
//! **If the power fails here.** What was acknowledged is in the flash or in the buffer, and the
//! buffer must have capacitors: a shot that is not full cannot be programmed and gone on with, so
//! without them a zone could not keep what was flushed. A reset lets go of the blocks; they are
//! erased when a zone takes them.

use crate::command::{Command, Completion, Refused, Units, ZoneAction};
use crate::content::Content;
use crate::drive::Drive;
use crate::geometry::{Inconsistent, Shape};
use crate::host::Device;
use crate::nand::{Nand, Ticket};
use crate::slots::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing is written.
    Empty,
    /// It has resources, and can be written to.
    Open,
    /// Nothing more can be written.
    Full,
}

/// A zone as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// What it is.
    pub state: ZoneState,
    /// Its first unit.
    pub start: u32,
    /// Where it is written to next.
    pub write_pointer: u32,
}

#[derive(Clone, Debug)]
struct Zone {
    state: ZoneState,
    /// Units written.
    written: u32,
    /// Its block on each die, once it is opened.
    blocks: Vec<u32>,
    /// Units that are in the flash whatever their programs say: a power cut had them saved.
    saved: u32,
    /// The program of each shot, by die and place in its block.
    programs: Vec<Option<Ticket>>,
}

/// A zoned drive.
#[derive(Clone, Debug)]
pub struct Zoned {
    drive: Drive,
    shape: Shape,
    nand: Nand,
    zones: Vec<Zone>,
    /// Free blocks of each die, and how often all blocks were erased.
    free: Vec<Vec<u32>>,
    erases: Vec<u32>,
    /// Whether a block was opened since it was made.
    used: Vec<bool>,
    most_open: u32,
    now: u64,
    /// Ends of programs, and the bytes that they hold in the buffer.
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    buffered: u64,
    content: Option<Content>,
}

impl Zoned {
    /// A new drive whose zones are empty; so many may be open at once.
    ///
    /// # Errors
    /// When its description does not fit together.
    pub fn new(drive: &Drive, most_open: u32, keeps_content: bool) -> Result<Self, Inconsistent> {
        let shape = drive.shape()?;
        if !shape.block_units.is_multiple_of(shape.granule_units.max(shape.shot_units)) {
            let why = "a block must hold whole granules in a zone";
            return Err(Inconsistent::new("die_granularity_bytes", why));
        }
        if !drive.buffer.protected {
            let why = "the buffer of a zoned drive must survive a power cut";
            return Err(Inconsistent::new("protected", why));
        }
        let zone_units = shape.dies * shape.block_units;
        let zones = shape.logical_units / zone_units;
        let empty = Zone {
            state: ZoneState::Empty,
            written: 0,
            saved: 0,
            blocks: Vec::new(),
            programs: vec![None; (zone_units / shape.shot_units) as usize],
        };
        let of_die = |die: u32| (die * shape.die_blocks..(die + 1) * shape.die_blocks).collect();
        Ok(Self {
            nand: Nand::new(drive, &shape),
            zones: vec![empty; zones as usize],
            free: (0..shape.dies).map(of_die).collect(),
            erases: vec![0; shape.blocks() as usize],
            used: vec![false; shape.blocks() as usize],
            most_open,
            now: 0,
            ends: BinaryHeap::new(),
            buffered: 0,
            content: keeps_content.then(|| Content::new(&shape)),
            drive: drive.clone(),
            shape,
        })
    }

    /// What it is like.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Units of a zone.
    pub fn zone_units(&self) -> u32 {
        self.shape.dies * self.shape.block_units
    }

    /// All zones.
    pub fn report(&self) -> Vec<ZoneReport> {
        let report = |(number, zone): (usize, &Zone)| {
            let start = number as u32 * self.zone_units();
            ZoneReport { state: zone.state, start, write_pointer: start + zone.written }
        };
        self.zones.iter().enumerate().map(report).collect()
    }

    /// How often a block was erased.
    pub fn erases_of(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }

    /// Die of a unit of a zone, and its place in the die's block.
    fn in_zone(&self, unit: u32) -> (u32, u32) {
        let (granule, within) = (unit / self.shape.granule_units, unit % self.shape.granule_units);
        let (turn, die) = (granule / self.shape.dies, granule % self.shape.dies);
        (die, turn * self.shape.granule_units + within)
    }

    /// Where a unit of the drive lies, if it is written.
    pub fn physical(&self, unit: u32) -> Option<u32> {
        let zone = self.zones.get((unit / self.zone_units()) as usize)?;
        let within = unit % self.zone_units();
        if within >= zone.written {
            return None;
        }
        let (die, at) = self.in_zone(within);
        Some(zone.blocks[die as usize] * self.shape.block_units + at)
    }

    /// Carries out a command that arrives then; `contents` gives the bytes of each unit that is
    /// written, from its number.
    ///
    /// # Errors
    /// Why not; then nothing has changed.
    pub fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: &mut dyn FnMut(u32) -> Bytes,
    ) -> Result<Completion, Refused> {
        self.now = self.now.max(at);
        while self.ends.peek().is_some_and(|Reverse((end, _))| *end <= self.now) {
            self.end_one();
        }
        let start = self.now + self.drive.timing.firmware_busy_ns;
        let done = |done_ns| Ok(Completion { done_ns, ..Completion::default() });
        match command {
            Command::Read(units) => done(self.read(start, *units)?),
            Command::Write { units, .. } => {
                let zone = units.start / self.zone_units();
                let begin = zone * self.zone_units();
                let here = self.zones.get(zone as usize).ok_or(Refused::OutOfRange)?;
                if here.state == ZoneState::Full || begin + here.written != units.start {
                    return Err(Refused::ZoneState);
                }
                done(self.write(start, zone, units.count, contents)?)
            }
            Command::Zone { zone, action } => self.act(start, *zone, *action, contents),
            Command::Flush => {
                let last = self.ends.iter().map(|Reverse((end, _))| *end).max();
                done(last.map_or(start, |end| end.max(start)))
            }
            _ => Err(Refused::Unsupported),
        }
    }

    fn end_one(&mut self) -> Option<u64> {
        let Reverse((end, bytes)) = self.ends.pop()?;
        self.buffered -= bytes;
        Some(end)
    }

    fn act(
        &mut self,
        start: u64,
        zone: u32,
        action: ZoneAction,
        contents: &mut dyn FnMut(u32) -> Bytes,
    ) -> Result<Completion, Refused> {
        let begin = zone.checked_mul(self.zone_units()).ok_or(Refused::OutOfRange)?;
        let here = self.zones.get(zone as usize).ok_or(Refused::OutOfRange)?;
        let at = begin + here.written;
        let done_ns = match action {
            ZoneAction::Open if here.state == ZoneState::Full => return Err(Refused::ZoneState),
            ZoneAction::Open => self.open(start, zone)?,
            ZoneAction::Append(count) => self.write(start, zone, count, contents)?,
            ZoneAction::Reset => {
                let blocks = std::mem::take(&mut self.zones[zone as usize].blocks);
                for block in blocks {
                    self.free[self.shape.die_of_block(block) as usize].push(block);
                }
                let zone = &mut self.zones[zone as usize];
                (zone.state, zone.written, zone.saved) = (ZoneState::Empty, 0, 0);
                zone.programs.fill(None);
                start
            }
            ZoneAction::Finish => {
                self.zones[zone as usize].state = ZoneState::Full;
                start
            }
        };
        Ok(Completion { done_ns, at, ..Completion::default() })
    }

    /// Gives a zone its blocks, which are erased if they have been used.
    fn open(&mut self, start: u64, zone: u32) -> Result<u64, Refused> {
        if self.zones[zone as usize].state == ZoneState::Open {
            return Ok(start);
        }
        let open = self.zones.iter().filter(|zone| zone.state == ZoneState::Open).count();
        if open as u32 >= self.most_open {
            return Err(Refused::ZoneState);
        }
        let erases = &self.erases;
        let least = |free: &Vec<u32>| {
            (0..free.len()).min_by_key(|at| (erases[free[*at] as usize], free[*at]))
        };
        let chosen: Option<Vec<usize>> = self.free.iter().map(least).collect();
        let chosen = chosen.ok_or(Refused::Full)?;
        let mut blocks = Vec::new();
        for (die, at) in (0..).zip(chosen) {
            let block = self.free[die as usize].swap_remove(at);
            if std::mem::replace(&mut self.used[block as usize], true) {
                self.erases[block as usize] += 1;
                self.nand.erase(self.now, start, die, block % self.shape.planes);
            }
            blocks.push(block);
        }
        let zone = &mut self.zones[zone as usize];
        (zone.blocks, zone.state) = (blocks, ZoneState::Open);
        Ok(start)
    }

    /// Writes so many units where a zone ends.
    fn write(
        &mut self,
        start: u64,
        zone: u32,
        count: u32,
        contents: &mut dyn FnMut(u32) -> Bytes,
    ) -> Result<u64, Refused> {
        let written = self.zones[zone as usize].written;
        if count == 0 {
            return Err(Refused::Length);
        }
        if self.zones[zone as usize].state == ZoneState::Full || count > self.zone_units() - written
        {
            return Err(Refused::ZoneState);
        }
        self.open(start, zone)?;
        let spec = &self.drive.buffer;
        let unit_bytes = u64::from(self.shape.unit_bytes);
        let handled = start + spec.command_ns + spec.unit_ns * u64::from(count);
        let mut ready = self.nand.receive(self.now, handled, u64::from(count) * unit_bytes);
        let most = spec.bytes;
        for within in written..written + count {
            while self.buffered + unit_bytes > most {
                // Shots of other zones that are not full hold the rest: they must be small enough.
                ready = ready.max(self.end_one().ok_or(Refused::Full)?);
            }
            self.buffered += unit_bytes;
            let (die, at) = self.in_zone(within);
            let block = self.zones[zone as usize].blocks[die as usize];
            if let Some(content) = &mut self.content {
                let unit = zone * self.shape.dies * self.shape.block_units + within;
                content.put(block * self.shape.block_units + at, contents(unit));
            }
            if (at + 1).is_multiple_of(self.shape.shot_units) {
                let bytes = self.shape.shot_units * self.shape.unit_bytes;
                let plane = block % self.shape.planes;
                let ticket = self.nand.program(self.now, ready, die, plane, bytes);
                self.ends.push(Reverse((self.nand.end_of(ticket), bytes.into())));
                let shot = self.shot_of(die, at);
                self.zones[zone as usize].programs[shot] = Some(ticket);
            }
        }
        let full = self.zone_units();
        let zone = &mut self.zones[zone as usize];
        zone.written += count;
        if zone.written == full {
            zone.state = ZoneState::Full;
        }
        Ok(ready)
    }

    /// The number of a shot in its zone.
    fn shot_of(&self, die: u32, at: u32) -> usize {
        (die * self.shape.block_shots() + at / self.shape.shot_units) as usize
    }

    fn read(&mut self, start: u64, units: Units) -> Result<u64, Refused> {
        let end = units.start.checked_add(units.count).ok_or(Refused::OutOfRange)?;
        if units.count == 0 {
            return Err(Refused::Length);
        }
        if end > self.zones.len() as u32 * self.zone_units() {
            return Err(Refused::OutOfRange);
        }
        let bytes = u64::from(units.count) * u64::from(self.shape.unit_bytes);
        let timing = &self.drive.timing;
        let ready = start
            + match bytes <= u64::from(timing.small_command_bytes) {
                true => timing.firmware_small_read_ns,
                false => timing.firmware_read_ns,
            };
        let (mut done, mut elsewhere) = (ready, 0);
        let mut unit = units.start;
        while unit < end {
            let Some(physical) = self.physical(unit).filter(|_| !self.is_buffered(unit)) else {
                elsewhere += u64::from(self.shape.unit_bytes);
                unit += 1;
                continue;
            };
            let page = self.shape.page_of(physical);
            let same = |n: &u32| {
                let next = (unit + n < end).then(|| self.physical(unit + n)).flatten();
                next.is_some_and(|physical| self.shape.page_of(physical) == page)
            };
            let count = (0..).take_while(same).count() as u32;
            let bytes = count * self.shape.unit_bytes;
            done = done.max(self.nand.read(self.now, ready, page, bytes, true));
            unit += count;
        }
        if elsewhere > 0 {
            done = done.max(self.nand.answer(self.now, ready, elsewhere));
        }
        Ok(done)
    }

    /// Whether a written unit's shot is not programmed yet.
    fn is_buffered(&self, unit: u32) -> bool {
        let (die, at) = self.in_zone(unit % self.zone_units());
        let zone = &self.zones[(unit / self.zone_units()) as usize];
        if unit % self.zone_units() < zone.saved {
            return false;
        }
        let ticket = zone.programs[self.shot_of(die, at)];
        ticket.is_none_or(|ticket| self.nand.end_of(ticket) > self.now)
    }

    /// The power fails at this instant and comes back: the capacitors have saved the buffer.
    pub fn power_cut(&mut self, at: u64) {
        self.now = self.now.max(at);
        self.nand.reset();
        self.ends.clear();
        self.buffered = 0;
        self.zones.iter_mut().for_each(|zone| zone.saved = zone.written);
    }

    /// What units hold, where the drive keeps content.
    pub fn bytes(&self, units: Units) -> Vec<u8> {
        let zeroes = || vec![0; self.shape.unit_bytes as usize];
        let of = |unit| {
            let content = self.content.as_ref()?;
            self.physical(unit).and_then(|physical| content.get(physical))
        };
        units.each().flat_map(|unit| of(unit).map_or_else(zeroes, |b| b.to_vec())).collect()
    }
}

impl Device for Zoned {
    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        self.submit_with(at, command, &mut |_| None)
    }

    fn unit_bytes(&self) -> u32 {
        self.shape.unit_bytes
    }
}
