//! The other commands of a drive among remaps: writes that are acknowledged once they are in the flash, parts of units, zeroes, long
//! commands, several runs; and commands that are refused, after which all is as before.

use super::drives::other;
use super::{Run, number};
use fragmend_flash::command::{Command, Hint, LogAction, Refused, Units, ZoneAction};
use fragmend_flash::device::Device;
use std::collections::BTreeSet;

impl Run {
    pub(super) fn other_step(&mut self) {
        match self.random.below(9) {
            0 => {
                let units = self.units(4);
                self.force(units);
            }
            1 => {
                let units = self.units(3);
                self.write_part(units);
            }
            2 => {
                let units = self.units(60);
                self.ask(&Command::WriteZeroes(units));
                units.each().for_each(|unit| self.model.write(unit, 0));
            }
            3..=4 => self.copy_runs(),
            5 => self.spread_runs(),
            6 => self.remap_long(),
            7 => self.refusals(),
            _ => {
                let units = self.units(30);
                self.ask(&Command::Read(units));
            }
        }
    }

    fn values(&mut self, units: Units) -> Vec<u32> {
        units.each().map(|_| self.model.fresh()).collect()
    }

    /// A write that is acknowledged when it is in the flash.
    fn force(&mut self, units: Units) {
        let values = self.values(units);
        let write = Command::Write { units, hint: Hint::None, fua: true };
        let done = self.submit(&write, &values, units.start);
        let done = done.unwrap_or_else(|why| panic!("seed {}: {why}", self.seed));
        units.each().zip(values).for_each(|(unit, value)| self.model.write(unit, value));
        if self.random.below(3) > 0 {
            self.now = done;
            self.model.settle_units(units.each());
        }
    }

    fn write_part(&mut self, units: Units) {
        let values = self.values(units);
        let bytes = units.count * super::UNIT - 100;
        let write = Command::WritePart { units, bytes, offset: 50, hint: Hint::Overwrite };
        let done = self.submit(&write, &values, units.start);
        assert!(done.is_ok(), "seed {}: {done:?}", self.seed);
        units.each().zip(values).for_each(|(unit, value)| self.model.write(unit, value));
    }

    fn runs(&mut self) -> Vec<Units> {
        (0..1 + self.random.below(3)).map(|_| self.units(4)).collect()
    }

    /// Copies runs that may overlap each other, and the place where they are copied to.
    fn copy_runs(&mut self) {
        let from = self.runs();
        let count: u32 = from.iter().map(|units| units.count).sum();
        let to = self.units(1).start.min(self.ssd.units() - count);
        let all = from.iter().flat_map(|units| units.each());
        let values: Vec<u32> = all.map(|unit| self.model.now(unit)).collect();
        if values.contains(&0) {
            return; // The copy would be mapped, and hold zeroes.
        }
        self.ask(&Command::Copy { from, to });
        (to..).zip(values).for_each(|(unit, value)| self.model.write(unit, value));
    }

    fn spread_runs(&mut self) {
        let runs = self.runs();
        let all: Vec<u32> = runs.iter().flat_map(|units| units.each()).collect();
        let overlap = all.iter().collect::<BTreeSet<_>>().len() < all.len();
        let unmapped = all.iter().any(|unit| self.model.now(*unit) == 0);
        let done = self.submit(&Command::PhysicalDefragment(runs), &[], 0);
        let why = if unmapped { Some(Refused::Unmapped) } else { Some(Refused::Overlap) };
        assert_eq!(done.err(), why.filter(|_| unmapped || overlap), "seed {}", self.seed);
        if !unmapped && !overlap {
            all.into_iter().for_each(|unit| self.model.write(unit, self.model.now(unit)));
        }
    }

    /// Remaps as much of a long run as holds data.
    fn remap_long(&mut self) {
        let units = self.units(50);
        let mapped = units.each().take_while(|unit| self.model.now(*unit) != 0);
        let count = mapped.count() as u32;
        let to = self.units(1).start.min(self.ssd.units() - count);
        let shared = self.random.below(2) == 0;
        let from = Units::new(units.start, count);
        if count == 0 || from.each().any(|unit| self.model.is_uncommitted(unit)) {
            return;
        }
        let overlap = from.start < to + count && to < from.end();
        match self.submit(&Command::Remap { from, to, shared }, &[], 0) {
            Ok(_) => {
                assert!(!overlap, "seed {}", self.seed);
                let pairs = from.each().zip(to..);
                pairs.for_each(|(from, to)| self.model.remap(from, to, shared));
            }
            Err(Refused::Overlap) => assert!(overlap, "seed {}", self.seed),
            Err(why) => assert_eq!(why, Refused::LogFull, "seed {}", self.seed),
        }
    }

    /// Commands that are refused.
    fn refusals(&mut self) {
        let all = self.ssd.units();
        let write = |units| Command::Write { units, hint: Hint::None, fua: false };
        let part = |bytes, offset| Command::WritePart {
            units: Units::new(0, 1),
            bytes,
            offset,
            hint: Hint::None,
        };
        let remap = |from, to| Command::Remap { from, to, shared: false };
        for (command, why) in [
            (write(Units::new(all, 1)), Refused::OutOfRange),
            (write(Units::new(u32::MAX, 2)), Refused::OutOfRange),
            (write(Units::new(0, 0)), Refused::Length),
            (Command::Read(Units::new(0, u32::MAX)), Refused::Length),
            (Command::Trim(Units::new(1, u32::MAX)), Refused::OutOfRange),
            (part(0, 0), Refused::Length),
            (part(u32::MAX, u32::MAX), Refused::Length),
            (Command::Copy { from: vec![], to: 0 }, Refused::Length),
            (Command::Copy { from: vec![Units::new(0, 2)], to: u32::MAX }, Refused::OutOfRange),
            (Command::Copy { from: vec![Units::new(0, 2)], to: all - 1 }, Refused::OutOfRange),
            (remap(Units::new(0, 2), u32::MAX), Refused::OutOfRange),
            (remap(Units::new(all - 1, 2), 0), Refused::OutOfRange),
            (remap(Units::new(0, 0), 8), Refused::Length),
            (Command::PhysicalDefragment(vec![]), Refused::Length),
            (Command::PhysicalDefragment(vec![Units::new(u32::MAX, 2)]), Refused::OutOfRange),
            (Command::Zone { zone: 0, action: ZoneAction::Reset }, Refused::Unsupported),
            (
                Command::InDeviceDefragment { from: vec![Units::new(0, 1)], zone: 0 },
                Refused::Unsupported,
            ),
        ] {
            let before = self.ssd.counters();
            let done = self.submit(&command, &[], 0);
            assert_eq!(done, Err(why), "seed {}: {command:?}", self.seed);
            let after = self.ssd.counters();
            assert_eq!(after.host_written, before.host_written, "{command:?}");
            assert_eq!(after.programmed, before.programmed, "{command:?}");
        }
        let check = Command::DefragLog(LogAction::Check);
        self.ask(&check);
    }
}

#[test]
fn other_commands_among_remaps() {
    let (first, runs) = (number("REMAP_SEED", 1), number("REMAP_OTHERS", 400));
    let mut cuts = 0;
    for seed in first..first + runs {
        let mut run = Run::new(seed, &other(seed), 20);
        run.others = true;
        cuts += run.go(200).cuts;
    }
    println!("{cuts} cuts");
    assert!(cuts > 4 * runs, "{cuts}");
}
