//! In-device defragmentation (InDeF, section III-C): the drive copies fragments to the write pointer of a zone.
//!
//! A flash page goes by copyback, with nothing on the channel, if all of its units are copied in order to one
//! flash page of the zone, which is on the same plane. Everything else goes through the controller's memory, as
//! the register of a plane cannot shift units or join them with those of another page.
//!
//! A die does its operations in the order in which they arrive, so a sensing behind a program waits for it. So as
//! many units as the buffer has space for are sensed first, each page once, and are programmed then.
//!
//! **What survives a power cut.** A copy that has completed, as a write does: it is in the flash, or in the buffer. Capacitors cannot sense
//! pages, so of one that has not completed nothing is counted on: its units have garbage, and the write pointer stays behind them. Nor does a
//! flush wait for it, which is for what has completed before (NVMe). The fragments stay where they are, until the host resets their zones:
//! it must not do so, nor refer to the copies, before they have completed.

use super::{ZoneState, Zoned};
use crate::command::{Completion, Refused, Units, check_apart};
use crate::counters::ProgramCause;
use crate::device::Device;
use crate::geometry::Page;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// A copy that is being made: when it completes, and the units of a zone where it goes.
#[derive(Clone, Debug)]
pub(super) struct Copying {
    pub end: u64,
    pub zone: u32,
    units: Range<u32>,
}

/// Where the units of a run are copied from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The register of their plane, by copyback.
    Register,
    /// Their flash page, through the controller.
    Flash,
    /// The buffer: they are in it still.
    Buffer,
}

/// Consecutive units of one flash page that are copied to one stripe unit.
struct Run<'a> {
    source: Source,
    units: &'a [u32],
    /// Where the first one goes in the zone.
    within: u32,
}

impl Zoned {
    /// Copies fragments to the write pointer of a zone.
    pub(super) fn defragment(
        &mut self,
        start: u64,
        from: &[Units],
        number: u32,
    ) -> Result<Completion, Refused> {
        let sources = self.sources(from)?;
        let start = start.max(self.copied_at(from));
        let (state, written) = (self.zone(number)?.state, self.zone(number)?.written);
        let free = (self.zone_units() - written) as usize;
        if state == ZoneState::Full || sources.len() > free {
            return Err(Refused::ZoneState);
        }
        // Units that are in the buffer need no sensing.
        let units = from.iter().flat_map(|units| units.each());
        let buffered: Vec<bool> = units.map(|unit| self.is_buffered(unit)).collect();
        self.open(start, number)?;
        let runs = self.runs(&sources, &buffered, number);
        let (mut done_ns, mut rest) = (start, &runs[..]);
        while !rest.is_empty() {
            let (count, ready) = self.space_for(rest, start)?;
            let (batch, behind) = rest.split_at(count);
            let sensed = self.sense(ready, batch);
            for run in batch {
                done_ns = done_ns.max(match run.source {
                    Source::Register => self.copy_back(ready, run, number),
                    _ => self.copy_units(ready, &sensed, run, number),
                });
            }
            self.advance(number, batch.iter().map(|run| run.units.len() as u32).sum());
            rest = behind;
        }
        let first = number * self.zone_units();
        let (at, end) = (first + written, first + self.zones[number as usize].written);
        self.copying.push(Copying { end: done_ns, zone: number, units: at..end });
        Ok(Completion { done_ns, at, ..Completion::default() })
    }

    /// When all of these units that are still being copied are there; none of them can be read before.
    pub(super) fn copied_at(&self, units: &[Units]) -> u64 {
        let among = |copying: &&Copying| {
            units.iter().any(|u| u.start < copying.units.end && copying.units.start < u.end())
        };
        self.copying.iter().filter(among).map(|copying| copying.end).max().unwrap_or(0)
    }

    /// The power fails: what is still being copied is nowhere but where it comes from.
    pub(super) fn lose_copies(&mut self) {
        let copying = std::mem::take(&mut self.copying);
        let lost = copying.into_iter().filter(|copying| copying.end > self.now);
        for unit in lost.flat_map(|copying| copying.units) {
            let physical = self.physical(unit);
            if let (Some(content), Some(physical)) = (&mut self.content, physical) {
                content.spoil(physical, 1, self.shape.unit_bytes);
            }
        }
    }

    /// When all is in the flash that was acknowledged so far.
    pub(super) fn written_at(&self) -> u64 {
        let is_acknowledged = |copies: bool| !copies || self.copying.is_empty();
        let programs = self.programs.iter().map(|Reverse(program)| program);
        let ends = programs.filter(|(.., copies)| is_acknowledged(*copies)).map(|(end, ..)| *end);
        ends.max().unwrap_or(0)
    }

    /// The physical units of fragments.
    fn sources(&self, from: &[Units]) -> Result<Vec<u32>, Refused> {
        if from.is_empty() || from.iter().any(|units| units.count == 0) {
            return Err(Refused::Length);
        }
        let all = self.zones.len() as u32 * self.zone_units();
        if from.iter().any(|units| units.count > all || units.start > all - units.count) {
            return Err(Refused::OutOfRange);
        }
        check_apart(from)?;
        let units = from.iter().flat_map(|units| units.each());
        units.map(|unit| self.physical(unit).ok_or(Refused::Unmapped)).collect()
    }

    /// The runs of units that are copied to the write pointer of a zone, which is open.
    fn runs<'a>(&self, sources: &'a [u32], buffered: &[bool], number: u32) -> Vec<Run<'a>> {
        let (mut runs, mut at) = (Vec::new(), 0);
        let written = self.zones[number as usize].written;
        while at < sources.len() {
            let within = written + at as u32;
            let count = self.run_of_page(&sources[at..], &buffered[at..], within);
            let units = &sources[at..at + count];
            let source = if buffered[at] {
                Source::Buffer
            } else if self.may_copy_back(units, number, within) {
                Source::Register
            } else {
                Source::Flash
            };
            runs.push(Run { source, units, within });
            at += count;
        }
        runs
    }

    /// How many of these units, which are copied from `within` on, are consecutive in one flash page and stay
    /// so in one stripe unit, and all of them in the buffer or none.
    fn run_of_page(&self, sources: &[u32], buffered: &[bool], within: u32) -> usize {
        let page = self.shape.units_per_page;
        let stripe = self.shape.units_per_stripe_unit;
        let of_page = (page - sources[0] % page).min(stripe - within % stripe);
        let follows =
            |n: &usize| sources[*n] == sources[0] + *n as u32 && buffered[*n] == buffered[0];
        (0..sources.len().min(of_page as usize)).take_while(follows).count()
    }

    /// Whether a run of units is a flash page that can be programmed from the register of its plane.
    fn may_copy_back(&self, run: &[u32], number: u32, within: u32) -> bool {
        let (shape, (die, at)) = (&self.shape, self.in_zone(within));
        let page = shape.units_per_page;
        let target = self.zones[number as usize].blocks[die as usize] * shape.units_per_block + at;
        let (from, to) = (shape.page_of(run[0]), shape.page_of(target));
        run.len() as u32 == page
            && shape.units_per_program == page
            && at.is_multiple_of(page)
            && (from.die, from.plane) == (to.die, to.plane)
    }

    /// Allocates space in the buffer to runs, to one at least, and waits for it: until half of the buffer is free if
    /// they need so much, so that sensings do not go page by page behind programs. Returns for how many runs there is
    /// space, and when.
    fn space_for(&mut self, runs: &[Run<'_>], mut ready: u64) -> Result<(usize, u64), Refused> {
        let (buffer, unit_bytes) = (self.drive.buffer.bytes, u64::from(self.shape.unit_bytes));
        let bytes = |run: &Run<'_>| match run.source {
            Source::Register => 0,
            Source::Flash | Source::Buffer => run.units.len() as u64 * unit_bytes,
        };
        let wanted = runs.iter().map(bytes).sum::<u64>().min(buffer / 2);
        while self.buffered_bytes + wanted > buffer {
            let Some(end) = self.end_program() else { break };
            ready = ready.max(end);
        }
        let mut count = 0;
        for bytes in runs.iter().map(bytes) {
            if self.buffered_bytes + bytes > buffer {
                break;
            }
            self.buffered_bytes += bytes;
            count += 1;
        }
        // If no program is in flight, program units that are not full use all of the buffer.
        if count == 0 { Err(Refused::NoSpace) } else { Ok((count, ready)) }
    }

    /// Senses the pages of runs that come from the flash; returns when each page, by its number, is in the buffer.
    fn sense(&mut self, ready: u64, batch: &[Run<'_>]) -> BTreeMap<u32, u64> {
        let (mut pages, mut at) = (Vec::<(Page, u32)>::new(), BTreeMap::new());
        for Run { units, .. } in batch.iter().filter(|run| run.source == Source::Flash) {
            let page = self.shape.page_of(units[0]);
            let at = *at.entry(page.number).or_insert(pages.len());
            if at == pages.len() {
                pages.push((page, 0));
            }
            pages[at].1 += units.len() as u32 * self.shape.unit_bytes;
        }
        let sensed = pages.into_iter().map(|(page, bytes)| {
            (page.number, self.nand.read(self.now, ready, page, bytes, false))
        });
        sensed.collect()
    }

    fn copy_back(&mut self, ready: u64, run: &Run<'_>, number: u32) -> u64 {
        let ticket = self.nand.copyback(self.now, ready, self.shape.page_of(run.units[0]));
        let (die, at) = self.in_zone(run.within);
        let block = self.zones[number as usize].blocks[die as usize];
        if let Some(content) = &mut self.content {
            for (from, to) in run.units.iter().zip(block * self.shape.units_per_block + at..) {
                let bytes = content.get(*from);
                content.put(to, bytes);
            }
        }
        let program_unit = self.program_unit_of(die, at);
        self.zone_mut(number).programs[program_unit] = Some(ticket);
        self.counters.copybacks += 1;
        self.counters.copied += run.units.len() as u64;
        let end = self.nand.end_of(ticket);
        self.programs.push(Reverse((end, 0, true)));
        end
    }

    /// Copies a run that has space in the buffer; returns when it is there.
    fn copy_units(
        &mut self,
        ready: u64,
        sensed: &BTreeMap<u32, u64>,
        run: &Run<'_>,
        number: u32,
    ) -> u64 {
        let page = self.shape.page_of(run.units[0]).number;
        let sensed = (run.source == Source::Flash).then(|| sensed.get(&page).copied());
        let ready = sensed.flatten().unwrap_or(ready);
        for (from, within) in run.units.iter().zip(run.within..) {
            let bytes = self.content.as_ref().and_then(|content| content.get(*from));
            let mut bytes = Some(bytes);
            let contents = &mut |_| bytes.take().flatten();
            self.write_unit(number, within, ProgramCause::Copied, contents, ready);
        }
        ready
    }
}
