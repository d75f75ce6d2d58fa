//! Two drives as one, whose addresses follow each other, as the kernel's `dm-linear` joins them: a file system on it can have its journal
//! on the second one. A command that reaches beyond the first drive's end is split; a flush goes to both.

use crate::command::{Command, Completion, Hint, Refused, Units};
use crate::counters::Counters;
use crate::device::{Contents, Device, Recovery};

/// Two drives with units of the same length. It reads, writes, trims and flushes; other commands it does not support.
pub struct Joined {
    first: Box<dyn Device>,
    second: Box<dyn Device>,
    /// Commands that were carried out; a drive counts its part of one.
    commands: u64,
}

impl Joined {
    /// Joins two drives; `None` if their units differ, or are too many to be counted.
    pub fn new(first: Box<dyn Device>, second: Box<dyn Device>) -> Option<Self> {
        let same = first.unit_bytes() == second.unit_bytes();
        let counted = first.units().checked_add(second.units()).is_some();
        (same && counted).then_some(Self { first, second, commands: 0 })
    }

    /// The parts of a run that are on either drive, as that drive counts; a part may have no units.
    fn parts(&self, units: Units) -> (Units, Units) {
        let border = self.first.units();
        let (start, end) = (units.start.min(border), units.end().min(border));
        let (from, to) = (units.start.max(border), units.end().max(border));
        (Units::new(start, end - start), Units::new(from - border, to - from))
    }

    /// The drive that has this unit, and the unit as it counts.
    fn locate(&self, unit: u32) -> (&dyn Device, u32) {
        match unit.checked_sub(self.first.units()) {
            None => (&*self.first, unit),
            Some(unit) => (&*self.second, unit),
        }
    }

    /// The hint for the second drive; what the first one holds is no predecessor there.
    fn second_hint(&self, hint: Hint) -> Hint {
        let Hint::Append { predecessor } = hint else { return hint };
        let predecessor = predecessor.checked_sub(self.first.units());
        predecessor.map_or(Hint::None, |predecessor| Hint::Append { predecessor })
    }
}

/// Both parts of a command are done.
fn both(one: Completion, other: Completion) -> Completion {
    Completion {
        done_ns: one.done_ns.max(other.done_ns),
        collision_percent: one.collision_percent.max(other.collision_percent),
        ..one
    }
}

impl Device for Joined {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        let units = match command {
            Command::Read(units) | Command::Trim(units) | Command::WriteZeroes(units) => *units,
            Command::Write { units, .. } => *units,
            Command::Flush => {
                let done = both(self.first.submit(at, command)?, self.second.submit(at, command)?);
                self.commands += 1;
                return Ok(done);
            }
            _ => return Err(Refused::Unsupported),
        };
        let is_in_range =
            units.start.checked_add(units.count).is_some_and(|end| end <= self.units());
        if !is_in_range {
            return Err(Refused::OutOfRange);
        }
        if units.count == 0 {
            return Err(Refused::Length);
        }
        let (here, there) = self.parts(units);
        let border = self.first.units();
        let mut done = Completion::default();
        if here.count > 0 {
            done = self.first.submit_with(at, &on(command, here, |hint| hint), contents)?;
        }
        if there.count > 0 {
            let command = on(command, there, |hint| self.second_hint(hint));
            let contents: Contents<'_> = &mut |unit| contents(unit + border);
            done = both(done, self.second.submit_with(at, &command, contents)?);
        }
        self.commands += 1;
        Ok(done)
    }

    fn unit_bytes(&self) -> u32 {
        self.first.unit_bytes()
    }

    fn units(&self) -> u32 {
        self.first.units() + self.second.units()
    }

    fn idle_at(&self) -> u64 {
        self.first.idle_at().max(self.second.idle_at())
    }

    /// Those of both.
    fn counters(&self) -> Counters {
        let sum = self.first.counters().plus(&self.second.counters());
        Counters { commands: self.commands, ..sum }
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        let (here, there) = self.parts(units);
        let mut bytes = self.first.bytes(here);
        bytes.extend(self.second.bytes(there));
        bytes
    }

    fn precondition(&mut self, units: Units) -> Result<(), Refused> {
        let (here, there) = self.parts(units);
        if here.count > 0 {
            self.first.precondition(here)?;
        }
        if there.count > 0 { self.second.precondition(there) } else { Ok(()) }
    }

    fn dies(&self) -> u32 {
        self.first.dies() + self.second.dies()
    }

    /// The dies of the second drive follow those of the first.
    fn die_of(&self, unit: u32) -> Option<u32> {
        let (drive, local) = self.locate(unit);
        let before = if unit < self.first.units() { 0 } else { self.first.dies() };
        drive.die_of(local).map(|die| before + die)
    }

    /// That of those units that are on the first drive.
    fn dof_p_per_mille(&self, units: &[Units]) -> u32 {
        let here = units.iter().map(|run| self.parts(*run).0);
        self.first.dof_p_per_mille(&here.filter(|run| run.count > 0).collect::<Vec<_>>())
    }

    fn busy_ns(&self) -> Vec<u64> {
        let mut busy = self.first.busy_ns();
        busy.extend(self.second.busy_ns());
        busy
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        let (first, second) = (self.first.power_cut(at), self.second.power_cut(at));
        Recovery {
            pages: first.pages + second.pages,
            elapsed_ns: first.elapsed_ns.max(second.elapsed_ns),
        }
    }
}

/// The same command for other units.
fn on(command: &Command, units: Units, change: impl Fn(Hint) -> Hint) -> Command {
    match command {
        Command::Write { hint, fua, .. } => {
            Command::Write { units, hint: change(*hint), fua: *fua }
        }
        Command::Read(_) => Command::Read(units),
        Command::Trim(_) => Command::Trim(units),
        Command::WriteZeroes(_) => Command::WriteZeroes(units),
        other => other.clone(),
    }
}
