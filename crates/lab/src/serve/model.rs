//! The requests of a block device as commands of a simulated drive.
//!
//! A block device counts in bytes, a drive in units. What reaches into a unit without covering it is a
//! read-modify-write of the drive (a write, a zeroed range), a read of the whole unit, or, of a discard, nothing:
//! a drive forgets whole units only.

use fragmend_flash::command::{Command, Hint, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::Device;
use fragmend_served::request::Kind;

/// A request of the block device; offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its kind.
    pub kind: Kind,
    /// The first byte; 0 for a flush.
    pub offset: u64,
    /// How many bytes; 0 for a flush.
    pub len: u64,
}

impl Request {
    fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// A drive that carries out requests.
pub struct Model {
    device: Box<dyn Device + Send>,
    unit: u64,
}

impl Model {
    /// Requests of this drive.
    pub fn new(device: Box<dyn Device + Send>) -> Self {
        let unit = device.unit_bytes().into();
        Self { device, unit }
    }

    /// Carries out a request that arrives at this time; returns when it is done.
    ///
    /// # Errors
    /// Why the drive refused it.
    pub fn submit(&mut self, at: u64, request: Request) -> Result<u64, Refused> {
        let mut done = at;
        for command in self.commands(request)? {
            done = done.max(self.device.submit(at, &command)?.done_ns);
        }
        Ok(done)
    }

    /// Brings the drive into the state after all of it was written in order, without time.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn fill(&mut self) -> Result<(), Refused> {
        let units = self.device.units();
        self.device.precondition(Units::new(0, units))
    }

    /// The drive's counters.
    pub fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn commands(&self, request: Request) -> Result<Vec<Command>, Refused> {
        if request.kind == Kind::Flush {
            return Ok(vec![Command::Flush]);
        }
        if request.len == 0 {
            return Ok(Vec::new());
        }
        match request.kind {
            Kind::Read => Ok(vec![Command::Read(self.touched(request)?)]),
            Kind::Write => Ok(vec![self.write(request)?]),
            Kind::Discard => Ok(self.covered(request)?.map(Command::Trim).into_iter().collect()),
            _ => self.zeroes(request),
        }
    }

    fn write(&self, request: Request) -> Result<Command, Refused> {
        let (units, hint) = (self.touched(request)?, Hint::None);
        if self.is_whole(request.offset) && self.is_whole(request.len) {
            return Ok(Command::Write { units, hint, fua: false });
        }
        let bytes = u32::try_from(request.len).map_err(|_| Refused::Length)?;
        // Units are smaller than 4 GiB.
        let offset = (request.offset % self.unit) as u32;
        Ok(Command::WritePart { units, bytes, offset, hint })
    }

    /// Whole units are zeroed by a command of their own, and parts of units are written.
    fn zeroes(&self, request: Request) -> Result<Vec<Command>, Refused> {
        let Some(whole) = self.covered(request)? else { return Ok(vec![self.write(request)?]) };
        let first = u64::from(whole.start) * self.unit;
        let last = (u64::from(whole.start) + u64::from(whole.count)) * self.unit;
        let mut commands = vec![Command::WriteZeroes(whole)];
        for (offset, end) in [(request.offset, first), (last, request.end())] {
            if offset < end {
                let part = Request { kind: Kind::Write, offset, len: end - offset };
                commands.push(self.write(part)?);
            }
        }
        Ok(commands)
    }

    fn is_whole(&self, bytes: u64) -> bool {
        bytes.is_multiple_of(self.unit)
    }

    /// The units that a request reaches into.
    fn touched(&self, request: Request) -> Result<Units, Refused> {
        units(request.offset / self.unit, request.end().div_ceil(self.unit))
    }

    /// The units that a request covers, if there are any.
    fn covered(&self, request: Request) -> Result<Option<Units>, Refused> {
        let (start, end) = (request.offset.div_ceil(self.unit), request.end() / self.unit);
        if start < end { units(start, end).map(Some) } else { Ok(None) }
    }
}

fn units(start: u64, end: u64) -> Result<Units, Refused> {
    let number = |n: u64| u32::try_from(n).map_err(|_| Refused::OutOfRange);
    Ok(Units::new(number(start)?, number(end - start)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn commands(kind: Kind, offset: u64, len: u64) -> Vec<Command> {
        let model = Model::new(presets::named("nvme-b").expect("a preset").device());
        model.commands(Request { kind, offset, len }).expect("commands")
    }

    #[test]
    fn requests_are_commands_in_units() {
        let units = Units::new;
        assert_eq!(commands(Kind::Read, 4096, 8192), [Command::Read(units(1, 2))]);
        assert_eq!(commands(Kind::Read, 4608, 512), [Command::Read(units(1, 1))]);
        assert_eq!(commands(Kind::Read, 3584, 1024), [Command::Read(units(0, 2))]);
        let write = Command::Write { units: units(2, 1), hint: Hint::None, fua: false };
        assert_eq!(commands(Kind::Write, 8192, 4096), [write]);
        let part =
            |units, bytes, offset| Command::WritePart { units, bytes, offset, hint: Hint::None };
        assert_eq!(commands(Kind::Write, 8704, 512), [part(units(2, 1), 512, 512)]);
        assert_eq!(commands(Kind::Write, 8704, 4096), [part(units(2, 2), 4096, 512)]);
        assert_eq!(commands(Kind::Flush, 0, 0), [Command::Flush]);
    }

    #[test]
    fn a_discard_forgets_whole_units_and_zeroes_are_written_everywhere() {
        let units = Units::new;
        assert_eq!(commands(Kind::Discard, 512, 12288), [Command::Trim(units(1, 2))]);
        assert_eq!(commands(Kind::Discard, 512, 4096), []);
        let part =
            |units, bytes, offset| Command::WritePart { units, bytes, offset, hint: Hint::None };
        assert_eq!(
            commands(Kind::Zero, 512, 12288),
            [
                Command::WriteZeroes(units(1, 2)),
                part(units(0, 1), 3584, 512),
                part(units(3, 1), 512, 0)
            ]
        );
        assert_eq!(commands(Kind::Zero, 512, 1024), [part(units(0, 1), 1024, 512)]);
    }
}
