//! A flash SSD: checks commands, reserves time of its processor and its link for them, and carries them out
//! through its translation layer.

use crate::command::{
    Command, Completion, Hint, LogAction, MAX_UNITS, Refused, Units, check_apart, cut_units,
};
use crate::counters::{Counters, ProgramCause};
use crate::device::{Bytes, Contents, Device, Recovery, joined};
use crate::drive::{Drive, Timing};
use crate::ftl::{Ftl, NoSpace};
use crate::geometry::{Inconsistent, Shape};
use crate::nand::{Busy, Work};
use crate::pages::dof_p_per_mille;
use crate::timeline::Timeline;

/// How evenly the blocks of a drive are worn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWear {
    /// Erases of the least worn block.
    pub least: u32,
    /// Erases of a block on average, in thousandths.
    pub mean_per_mille: u64,
    /// Erases of the most worn block.
    pub most: u32,
}

/// A flash SSD.
#[derive(Clone, Debug)]
pub struct Ssd {
    drive: Drive,
    ftl: Ftl,
    processor: Timeline,
}

/// A write of less than whole units.
#[derive(Clone, Copy)]
struct PartialWrite {
    units: Units,
    bytes: u32,
    offset: u32,
    hint: Hint,
}

impl Ssd {
    /// A new drive that keeps no content: its results are times and counters.
    ///
    /// # Errors
    /// What is inconsistent in the drive's description.
    pub fn new(drive: &Drive) -> Result<Self, Inconsistent> {
        Self::make(drive, false)
    }

    /// A new drive that keeps content.
    ///
    /// # Errors
    /// What is inconsistent in the drive's description.
    pub fn with_content(drive: &Drive) -> Result<Self, Inconsistent> {
        Self::make(drive, true)
    }

    fn make(drive: &Drive, keeps_content: bool) -> Result<Self, Inconsistent> {
        let ftl = Ftl::new(drive, drive.shape()?, keeps_content);
        Ok(Self { drive: drive.clone(), ftl, processor: Timeline::default() })
    }

    /// The shape of the drive.
    pub fn shape(&self) -> &Shape {
        self.ftl.shape()
    }

    /// Checks the addresses and lengths of a command.
    fn check(&self, command: &Command) -> Result<(), Refused> {
        match command {
            Command::Read(units) | Command::Write { units, .. } => self.check_units(*units),
            Command::WritePart { units, bytes, offset, .. } => {
                let length = u64::from(units.count) * u64::from(self.shape().unit_bytes);
                if *bytes == 0 || u64::from(*offset) + u64::from(*bytes) > length {
                    return Err(Refused::Length);
                }
                self.check_units(*units)
            }
            // They may be as long as the drive.
            Command::Trim(units) | Command::WriteZeroes(units) => self.check_end(*units),
            Command::Copy { from, to } => {
                from.iter().try_for_each(|units| self.check_units(*units))?;
                let count = from.iter().map(|units| u64::from(units.count)).sum::<u64>();
                let count = u32::try_from(count).map_err(|_| Refused::Length)?;
                self.check_units(Units::new(*to, count))
            }
            Command::Remap { from, to, .. } => {
                self.check_units(*from)?;
                self.check_units(Units::new(*to, from.count))
            }
            Command::PhysicalDefragment(runs) => {
                if runs.is_empty() {
                    return Err(Refused::Length);
                }
                runs.iter().try_for_each(|units| {
                    self.check_units(*units)?;
                    self.ftl.check_mapped(*units)
                })?;
                check_apart(runs)
            }
            Command::Flush
            | Command::DefragLog(_)
            | Command::Zone { .. }
            | Command::InDeviceDefragment { .. } => Ok(()),
        }
    }

    fn check_units(&self, units: Units) -> Result<(), Refused> {
        if units.count == 0 || units.count > MAX_UNITS {
            return Err(Refused::Length);
        }
        self.check_end(units)
    }

    fn check_end(&self, units: Units) -> Result<(), Refused> {
        let end = units.start.checked_add(units.count);
        let fits = end.is_some_and(|end| end <= self.shape().logical_units);
        if fits { Ok(()) } else { Err(Refused::OutOfRange) }
    }

    /// Carries out a checked command, from `start` on.
    fn execute(
        &mut self,
        start: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        let done_ns = match command {
            Command::Read(units) => return Ok(self.read(start, *units)),
            Command::Write { units, hint, fua } => {
                let end = self.write(start, *units, *hint, contents)?;
                if *fua { self.ftl.force(*units, end)? } else { end }
            }
            Command::WritePart { units, bytes, offset, hint } => {
                let (units, bytes, offset, hint) = (*units, *bytes, *offset, *hint);
                self.write_part(start, PartialWrite { units, bytes, offset, hint }, contents)?
            }
            Command::Flush => self.ftl.flush(start)?,
            Command::Trim(units) | Command::WriteZeroes(units) => {
                let unmapped = self.ftl.trim(*units);
                self.count_trim(start, unmapped)
            }
            Command::Copy { from, to } => self.copy(start, from, *to)?,
            Command::Remap { from, to, shared } => self.ftl.remap(*from, *to, *shared, start)?,
            Command::DefragLog(LogAction::Flush) => self.ftl.flush_log(start)?,
            Command::DefragLog(LogAction::Commit) => self.ftl.commit_log(start)?,
            Command::DefragLog(LogAction::Discard) => self.ftl.discard_log(start)?,
            Command::DefragLog(LogAction::Check) => {
                let committed = self.ftl.is_committed();
                return Ok(Completion { done_ns: start, committed, ..Completion::default() });
            }
            Command::PhysicalDefragment(runs) => self.ftl.spread(runs, start)?,
            Command::Zone { .. } | Command::InDeviceDefragment { .. } => {
                return Err(Refused::Unsupported);
            }
        };
        Ok(Completion { done_ns, ..Completion::default() })
    }

    /// Occupies the processor with a trim that unmapped this many units; returns when that is done.
    fn count_trim(&mut self, start: u64, unmapped: u32) -> u64 {
        let timing = &self.drive.timing;
        let busy = timing.trim_command_ns + timing.trim_unit_ns * u64::from(unmapped);
        self.processor.reserve(self.ftl.now(), start, busy) + busy
    }

    fn read(&mut self, start: u64, units: Units) -> Completion {
        let bytes = u64::from(units.count) * u64::from(self.shape().unit_bytes);
        self.ftl.read(units, start + self.drive.timing.firmware_read_ns(bytes))
    }

    fn write(
        &mut self,
        start: u64,
        units: Units,
        hint: Hint,
        contents: Contents<'_>,
    ) -> Result<u64, Refused> {
        self.ftl.counters_mut().host_written += u64::from(units.count);
        // The data crosses the link once the processor has accepted the write.
        let handled = start + self.drive.buffer.accept_ns(units.count);
        let bytes = u64::from(units.count) * u64::from(self.shape().unit_bytes);
        let now = self.ftl.now();
        let received = self.ftl.nand_mut().transfer(now, handled, bytes);
        Ok(self.ftl.write(units, hint, ProgramCause::Host, contents, received)?)
    }

    /// Reads the units that are written in part, and writes all units as whole ones.
    fn write_part(
        &mut self,
        start: u64,
        write: PartialWrite,
        contents: Contents<'_>,
    ) -> Result<u64, Refused> {
        let PartialWrite { units, bytes, offset, hint } = write;
        let unit_bytes = u64::from(self.shape().unit_bytes);
        let mut ready = start;
        if u64::from(units.count) * unit_bytes != u64::from(bytes) {
            self.ftl.counters_mut().merged_writes += 1;
            for unit in cut_units(units, bytes, offset, self.shape().unit_bytes) {
                ready = ready.max(self.ftl.fetch(unit, start));
            }
        }
        self.write(ready, units, hint, contents)
    }

    /// Copies runs of units, one after the other.
    fn copy(&mut self, start: u64, from: &[Units], to: u32) -> Result<u64, Refused> {
        let mut copied: Vec<Bytes> = Vec::new();
        let mut ready = start;
        for units in from {
            ready = ready.max(self.ftl.fetch(*units, start));
            copied.extend(units.each().map(|unit| self.ftl.bytes(unit)));
        }
        let target = Units::new(to, copied.len() as u32);
        let contents = &mut |unit: u32| copied[(unit - to) as usize].take();
        Ok(self.ftl.write(target, Hint::None, ProgramCause::Copied, contents, ready)?)
    }

    /// The die and the physical unit of a unit; `None` if it is in the buffer only, or not mapped.
    pub fn place_of(&self, unit: u32) -> Option<(u32, u32)> {
        let physical = self.ftl.space().map().in_flash(unit)?;
        Some((self.shape().die_of(physical), physical))
    }

    /// Starts to record when each die is busy, for [`Self::traced`].
    pub fn trace(&mut self) {
        self.ftl.nand_mut().trace();
    }

    /// When the dies were busy, as far as it cannot change after `now`; each time is returned once.
    pub fn traced(&mut self, now: u64) -> Vec<Busy> {
        self.ftl.nand_mut().traced(now)
    }

    /// Erases of a block.
    pub fn erases_of(&self, block: u32) -> u32 {
        self.ftl.space().blocks().erases(block)
    }

    /// Erases of all blocks of a die.
    pub fn erases_of_die(&self, die: u32) -> u64 {
        self.ftl.space().blocks().erases_of_die(die)
    }

    /// The wear of the blocks.
    pub fn wear(&self) -> BlockWear {
        let erases = self.ftl.space().blocks().all_erases();
        let sum: u64 = erases.iter().map(|erases| u64::from(*erases)).sum();
        BlockWear {
            least: erases.iter().min().copied().unwrap_or(0),
            mean_per_mille: (sum * 1000).checked_div(erases.len() as u64).unwrap_or(0),
            most: erases.iter().max().copied().unwrap_or(0),
        }
    }

    /// For how long each die (or plane) and each channel was busy, in nanoseconds.
    pub fn busy_dies_and_channels_ns(&self) -> (Vec<u64>, Vec<u64>) {
        let nand = self.ftl.nand();
        (nand.busy_ns().collect(), nand.channels_busy_ns().collect())
    }

    /// The share of `elapsed_ns` for which dies (or planes) and channels were busy since the drive was made,
    /// on average, in thousandths.
    pub fn utilization_per_mille(&self, elapsed_ns: u64) -> (u64, u64) {
        let share = |busy: Vec<u64>| {
            let all = u128::from(elapsed_ns) * busy.len() as u128;
            let sum: u64 = busy.iter().sum();
            (u128::from(sum) * 1000).checked_div(all).unwrap_or(0) as u64
        };
        let (dies, channels) = self.busy_dies_and_channels_ns();
        (share(dies), share(channels))
    }

    /// Bytes that crossed the channels in both directions, including those of garbage collection.
    pub fn bus_bytes(&self) -> u64 {
        self.ftl.nand().channel_bytes()
    }

    /// How many operations of this kind the dies have done.
    pub fn count(&self, work: Work) -> u64 {
        self.ftl.nand().count(work)
    }

    /// Bytes of memory of the tables whose size follows from the drive's: mapping, out-of-band areas, blocks.
    /// The write buffer, operations in flight, the journal and content are not counted.
    pub fn memory_bytes(&self) -> usize {
        self.ftl.space().memory_bytes()
    }

    /// Bytes of memory of the mapping and the out-of-band areas.
    pub fn mapping_bytes(&self) -> usize {
        self.ftl.space().map().memory_bytes()
    }

    /// Checks that mapping, out-of-band areas, counts and free blocks agree: every valid unit is
    /// mapped exactly once, and valid, invalid and free units add up.
    ///
    /// # Errors
    /// What disagrees.
    pub fn audit(&self) -> Result<(), String> {
        self.ftl.audit()
    }
}

impl Device for Ssd {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        self.check(command)?;
        let now = self.ftl.advance_to(at);
        self.ftl.counters_mut().commands += 1;
        let Timing { link_latency_ns: latency, firmware_busy_ns: busy, .. } = self.drive.timing;
        let start = self.processor.reserve(now, now + latency, busy) + busy;
        self.execute(start, command, contents)
    }

    fn unit_bytes(&self) -> u32 {
        self.shape().unit_bytes
    }

    fn units(&self) -> u32 {
        self.shape().logical_units
    }

    fn idle_at(&self) -> u64 {
        self.ftl.nand().idle_at().max(self.ftl.now())
    }

    fn counters(&self) -> Counters {
        *self.ftl.counters()
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        joined(units.each().map(|unit| self.ftl.bytes(unit)), self.unit_bytes())
    }

    fn precondition(&mut self, units: Units) -> Result<(), Refused> {
        let now = self.ftl.now();
        self.ftl.untimed(|ftl| {
            ftl.write(units, Hint::None, ProgramCause::Host, &mut |_| None, now)?;
            Ok(())
        })
    }

    fn dies(&self) -> u32 {
        self.shape().dies
    }

    fn die_of(&self, unit: u32) -> Option<u32> {
        self.ftl.die_of_logical(unit)
    }

    /// Units that are in the write buffer only do not count.
    fn dof_p_per_mille(&self, units: &[Units]) -> u32 {
        let map = self.ftl.space().map();
        let units = units.iter().flat_map(|units| units.each()).filter(|unit| *unit < map.len());
        dof_p_per_mille(self.shape(), units.filter_map(|unit| map.in_flash(unit)))
    }

    fn busy_ns(&self) -> Vec<u64> {
        self.ftl.nand().busy_ns().collect()
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        self.processor = self.processor.idle();
        self.ftl.power_cut(at)
    }
}

impl From<NoSpace> for Refused {
    fn from(NoSpace: NoSpace) -> Self {
        Self::NoSpace
    }
}
