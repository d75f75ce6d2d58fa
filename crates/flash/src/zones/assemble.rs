//! Program units of zones that are being assembled: their units are in the buffer until the program ends, or the zone is reset. A power cut
//! leaves them there, as the capacitors save the buffer.

use super::{Assembled, Zone, ZoneState, Zoned};
use std::cmp::Reverse;

impl Zoned {
    /// The units of a zone that are written to its block on a die.
    fn on_die(&self, zone: &Zone, die: u32) -> u32 {
        let size = self.shape.units_per_stripe_unit;
        let (stripes, rest) =
            (zone.written / (size * self.shape.dies), zone.written % (size * self.shape.dies));
        stripes * size + rest.saturating_sub(die * size).min(size)
    }

    /// How many of them are in a program unit that is not full.
    fn assembled(&self, zone: &Zone, die: u32) -> u32 {
        if zone.state != ZoneState::Open {
            return 0;
        }
        self.on_die(zone, die) % self.shape.units_per_program
    }

    /// The bytes of the buffer that those of a zone use on all dies.
    pub(super) fn assembled_bytes(&self, zone: &Zone) -> u64 {
        let units: u32 = (0..self.shape.dies).map(|die| self.assembled(zone, die)).sum();
        u64::from(units) * u64::from(self.shape.unit_bytes)
    }

    /// Nothing more is written to a zone: its program units that are not full are programmed with padding.
    pub(super) fn finish(&mut self, ready: u64, number: u32) {
        for die in 0..self.shape.dies {
            let zone = &self.zones[number as usize];
            let (units, assembled) = (self.assembled(zone, die), zone.assembled[die as usize]);
            if units == 0 {
                continue;
            }
            let last = self.on_die(zone, die) - 1;
            let bytes = u64::from(units) * u64::from(self.shape.unit_bytes);
            let Assembled { copied, ready: arrived } = assembled;
            self.program(number, die, last, bytes, ready.max(arrived), false);
            self.counters.padded += u64::from(self.shape.units_per_program - units);
            self.counters.copied += u64::from(copied);
            self.counters.programmed += u64::from(units - copied);
        }
        let zone = self.zone_mut(number);
        zone.assembled.fill(Assembled::default());
        zone.state = ZoneState::Full;
    }

    /// Programs the program unit of a zone that has this unit of its block on a die, and this many bytes in the buffer; whether all of it
    /// is copied.
    pub(super) fn program(
        &mut self,
        number: u32,
        die: u32,
        at: u32,
        buffered: u64,
        ready: u64,
        copies: bool,
    ) {
        let block = self.zones[number as usize].blocks[die as usize];
        let (bytes, plane) = (self.shape.program_unit_bytes(), self.shape.plane_of_block(block));
        let ticket = self.nand.program(self.now, ready, die, plane, bytes);
        self.programs.push(Reverse((self.nand.end_of(ticket), buffered, copies)));
        let program_unit = self.program_unit_of(die, at);
        self.zone_mut(number).programs[program_unit] = Some(ticket);
    }
}
