//! Files as stretches of a drive. There is no file system here: who appends gets the next units
//! of the drive, as ext4 without preallocation or delayed allocation gives them out (FAST'24,
//! section 3), so what is written in turns lies in turns.

use fragmend_flash::command::{Hint, Refused, Units};
use fragmend_flash::host::{Device, Host};

/// A file.
#[derive(Clone, Debug, Default)]
pub struct FileOnDrive {
    /// What it holds, in order; what follows each other on the drive too is one stretch.
    stretches: Vec<Units>,
    units: u32,
}

/// Who gives out units of a drive, in order.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    next: u32,
}

impl Allocator {
    /// From this unit on.
    pub fn from(next: u32) -> Self {
        Self { next }
    }

    /// The next ones.
    pub fn take(&mut self, count: u32) -> Units {
        let units = Units::new(self.next, count);
        self.next += count;
        units
    }
}

impl FileOnDrive {
    /// Units in it.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Stretches in it: its extents.
    pub fn extents(&self) -> usize {
        self.stretches.len()
    }

    /// Its last unit.
    pub fn last(&self) -> Option<u32> {
        self.stretches.last().map(|last| last.end() - 1)
    }

    /// What a host that knows of FAST'24's hints says of an append.
    pub fn append_hint(&self) -> Hint {
        self.last().map_or(Hint::None, |predecessor| Hint::Append { predecessor })
    }

    /// It goes on there.
    pub fn push(&mut self, units: Units) {
        self.units += units.count;
        match self.stretches.last_mut().filter(|last| last.end() == units.start) {
            Some(last) => last.count += units.count,
            None => self.stretches.push(units),
        }
    }

    /// It grows by so many units, with one call that says so.
    ///
    /// # Errors
    /// What the drive refused; then it has not grown.
    pub fn append<D: Device + ?Sized>(
        &mut self,
        host: &mut Host<D>,
        space: &mut Allocator,
        units: u32,
    ) -> Result<(), Refused> {
        let (hint, new) = (self.append_hint(), space.take(units));
        host.write(&[new], hint)?;
        self.push(new);
        Ok(())
    }

    /// Where `count` units lie from the unit `from` of the file on.
    pub fn within(&self, from: u32, count: u32) -> Vec<Units> {
        let (mut at, end) = (0, from + count);
        let mut found = Vec::new();
        for stretch in &self.stretches {
            let (start, stop) = (from.max(at), end.min(at + stretch.count));
            if start < stop {
                found.push(Units::new(stretch.start + start - at, stop - start));
            }
            at += stretch.count;
            if at >= end {
                break;
            }
        }
        found
    }

    /// Reads it from its start to its end, `step` units with each call.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn read<D: Device + ?Sized>(&self, host: &mut Host<D>, step: u32) -> Result<(), Refused> {
        for from in (0..self.units).step_by(step as usize) {
            host.read(&self.within(from, step.min(self.units - from)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_turns_lies_in_turns() {
        let mut space = Allocator::from(100);
        let mut file = FileOnDrive::default();
        file.push(space.take(8));
        file.push(space.take(8));
        space.take(4);
        file.push(space.take(8));
        assert_eq!((file.extents(), file.units(), file.last()), (2, 24, Some(127)));
        assert_eq!(file.within(12, 8), [Units::new(112, 4), Units::new(120, 4)]);
        assert_eq!(file.within(20, 4), [Units::new(124, 4)]);
    }
}
