//! In-device defragmentation (InDeF, section III-C): the drive copies fragments to the write pointer of a zone.
//!
//! A flash page goes by copyback, with nothing on the channel, if all of its units are copied in order to one
//! flash page of the zone, which is on the same plane. Everything else goes through the controller's memory, as
//! the register of a plane cannot shift units or join them with those of another page.
//!
//! **What survives a power cut.** The capacitors finish what was begun, as for a write. Nothing is lost in any
//! case: the fragments stay where they are, until the host resets their zones.

use super::{ZoneState, Zoned};
use crate::command::{Completion, Refused, Units, check_apart};
use crate::counters::ProgramCause;
use crate::device::Device;
use std::cmp::Reverse;

impl Zoned {
    /// Copies fragments to the write pointer of a zone.
    pub(super) fn defragment(
        &mut self,
        start: u64,
        from: &[Units],
        number: u32,
    ) -> Result<Completion, Refused> {
        let sources = self.sources(from)?;
        let (state, written) = (self.zone(number)?.state, self.zone(number)?.written);
        let free = (self.zone_units() - written) as usize;
        if state == ZoneState::Full || sources.len() > free {
            return Err(Refused::ZoneState);
        }
        // Units that are in the buffer need no sensing.
        let units = from.iter().flat_map(|units| units.each());
        let buffered: Vec<bool> = units.map(|unit| self.is_buffered(unit)).collect();
        self.open(start, number)?;
        let (mut done_ns, mut at) = (start, 0);
        while at < sources.len() {
            let within = written + at as u32;
            let run = self.run_of_page(&sources[at..], &buffered[at..], within);
            let (run, buffered) = (&sources[at..at + run], buffered[at]);
            let copied = if self.may_copy_back(run, buffered, number, within) {
                Ok(self.copy_back(start, run, number, within))
            } else {
                self.copy_units(start, run, buffered, number, within)
            };
            let end = copied.inspect_err(|_| self.advance(number, at as u32))?;
            (done_ns, at) = (done_ns.max(end), at + run.len());
        }
        self.advance(number, sources.len() as u32);
        let at = number * self.zone_units() + written;
        Ok(Completion { done_ns, at, ..Completion::default() })
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

    /// How many of these units, which are copied from `within` on, are consecutive in one flash page and stay
    /// so in one program unit.
    fn run_of_page(&self, sources: &[u32], buffered: &[bool], within: u32) -> usize {
        let page = self.shape.units_per_page;
        let stripe = self.shape.units_per_stripe_unit;
        let of_page = (page - sources[0] % page).min(stripe - within % stripe);
        let follows =
            |n: &usize| sources[*n] == sources[0] + *n as u32 && buffered[*n] == buffered[0];
        (0..sources.len().min(of_page as usize)).take_while(follows).count()
    }

    /// Whether a run of units is a flash page that can be programmed from the register of its plane.
    fn may_copy_back(&self, run: &[u32], buffered: bool, number: u32, within: u32) -> bool {
        let (shape, (die, at)) = (&self.shape, self.in_zone(within));
        let page = shape.units_per_page;
        let target = self.zones[number as usize].blocks[die as usize] * shape.units_per_block + at;
        let (from, to) = (shape.page_of(run[0]), shape.page_of(target));
        !buffered
            && run.len() as u32 == page
            && shape.units_per_program == page
            && at.is_multiple_of(page)
            && (from.die, from.plane) == (to.die, to.plane)
    }

    fn copy_back(&mut self, ready: u64, run: &[u32], number: u32, within: u32) -> u64 {
        let ticket = self.nand.copyback(self.now, ready, self.shape.page_of(run[0]));
        let (die, at) = self.in_zone(within);
        let block = self.zones[number as usize].blocks[die as usize];
        if let Some(content) = &mut self.content {
            for (from, to) in run.iter().zip(block * self.shape.units_per_block + at..) {
                let bytes = content.get(*from);
                content.put(to, bytes);
            }
        }
        let program_unit = self.program_unit_of(die, at);
        self.zone_mut(number).programs[program_unit] = Some(ticket);
        self.counters.copybacks += 1;
        self.counters.copied += run.len() as u64;
        let end = self.nand.end_of(ticket);
        self.programs.push(Reverse((end, 0)));
        end
    }

    /// Copies units of one flash page through the controller; returns when they are in the buffer.
    fn copy_units(
        &mut self,
        start: u64,
        run: &[u32],
        buffered: bool,
        number: u32,
        within: u32,
    ) -> Result<u64, Refused> {
        let bytes = run.len() as u32 * self.shape.unit_bytes;
        let mut ready = self.wait_for_space(u64::from(bytes), start)?;
        if !buffered {
            let page = self.shape.page_of(run[0]);
            ready = self.nand.read(self.now, ready, page, bytes, false);
        }
        for (from, within) in run.iter().zip(within..) {
            let bytes = self.content.as_ref().and_then(|content| content.get(*from));
            let mut bytes = Some(bytes);
            let contents = &mut |_| bytes.take().flatten();
            self.write_unit(number, within, ProgramCause::Copied, contents, ready);
        }
        Ok(ready)
    }
}
