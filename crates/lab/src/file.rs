//! Files as extents of a drive. There is no file system here: an append is allocated the next units of the
//! drive, as by ext4 without preallocation or delayed allocation (FAST'24, section 3), so files that are
//! written in turns are interleaved on the drive.

use fragmend_flash::command::{Hint, Refused, Units};
use fragmend_flash::device::Device;
use fragmend_flash::host::Host;

/// A file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileOnDrive {
    /// Its extents, in the order of the file; no extent continues the one before it on the drive.
    extents: Vec<Units>,
    /// The first unit of the file of each extent.
    starts: Vec<u32>,
    units: u32,
}

/// Allocates the units of a drive, in order.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    next: u32,
}

impl Allocator {
    /// Allocates units from this one on.
    pub fn from(next: u32) -> Self {
        Self { next }
    }

    /// Allocates the next `count` units.
    pub fn take(&mut self, count: u32) -> Units {
        let units = Units::new(self.next, count);
        self.next += count;
        units
    }
}

/// Extents of a file that its inode has, and that a block of 4 KiB of its map has (fs/ext4/ext4_extents.h: 60 and
/// 4,096 bytes, less a header of 12, hold entries of 12 bytes).
const INODE_EXTENTS: usize = 4;
const BLOCK_EXTENTS: usize = 340;

impl FileOnDrive {
    /// Units of the file.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// How many extents the file has.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// The last unit of the file.
    pub fn last(&self) -> Option<u32> {
        self.extents.last().map(|last| last.end() - 1)
    }

    /// FAST'24's hint for an append to the file.
    pub fn append_hint(&self) -> Hint {
        self.last().map_or(Hint::None, |predecessor| Hint::Append { predecessor })
    }

    /// Adds units at the end of the file.
    pub fn push(&mut self, units: Units) {
        match self.extents.last_mut().filter(|last| last.end() == units.start) {
            Some(last) => last.count += units.count,
            None => {
                self.extents.push(units);
                self.starts.push(self.units);
            }
        }
        self.units += units.count;
    }

    /// Writes this many units at the end of the file, with one call and with [`Self::append_hint`].
    ///
    /// # Errors
    /// Why the drive refused; the file has not grown then.
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

    /// The extents of `count` units of the file, from its unit `from` on.
    pub fn within(&self, from: u32, count: u32) -> Vec<Units> {
        let (end, mut found) = (from + count, Vec::new());
        let first = self.starts.partition_point(|start| *start <= from).saturating_sub(1);
        for (extent, at) in self.extents[first..].iter().zip(&self.starts[first..]) {
            let (start, stop) = (from.max(*at), end.min(at + extent.count));
            if start >= stop {
                break;
            }
            found.push(Units::new(extent.start + start - at, stop - start));
        }
        found
    }

    /// The blocks that ext4's map of the file has on the drive besides the inode, in the order in which a reader of
    /// the file needs them: for each, the first unit of the file whose place it, or a block below it, holds. Files
    /// that only grew at their end have full blocks.
    pub fn map_blocks(&self) -> Vec<u32> {
        let mut level = self.starts.clone();
        let mut blocks = Vec::new();
        // The inode holds the root.
        while level.len() > INODE_EXTENTS {
            level = level.into_iter().step_by(BLOCK_EXTENTS).collect();
            // A block is read before those below it.
            blocks.splice(0..0, level.iter().copied());
        }
        blocks.sort_unstable();
        blocks
    }

    /// Reads the file from its start to its end, `step` units with each call.
    ///
    /// # Errors
    /// Why the drive refused.
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
    fn units_that_follow_each_other_on_the_drive_are_one_extent() {
        let mut space = Allocator::from(100);
        let mut file = FileOnDrive::default();
        file.push(space.take(8));
        file.push(space.take(8));
        space.take(4);
        file.push(space.take(8));
        assert_eq!((file.extents(), file.units(), file.last()), (2, 24, Some(127)));
        assert_eq!(file.within(12, 8), [Units::new(112, 4), Units::new(120, 4)]);
        assert_eq!(file.within(20, 4), [Units::new(124, 4)]);
        assert_eq!((file.within(24, 4), file.within(22, 0)), (vec![], vec![]));
        assert_eq!(FileOnDrive::default().within(0, 1), []);
    }

    #[test]
    fn a_map_has_a_block_for_each_340_extents_but_none_for_four() {
        let mut file = FileOnDrive::default();
        let grow = |file: &mut FileOnDrive| file.push(Units::new(file.units() * 2, 3));
        (0..4).for_each(|_| grow(&mut file));
        assert_eq!((file.extents(), file.map_blocks()), (4, vec![]));
        grow(&mut file);
        assert_eq!(file.map_blocks(), [0]);
        (5..681).for_each(|_| grow(&mut file));
        assert_eq!((file.extents(), file.map_blocks()), (681, vec![0, 1020, 2040]));
        (681..1361).for_each(|_| grow(&mut file));
        assert_eq!(file.map_blocks(), [0, 0, 1020, 2040, 3060, 4080], "an index above five leaves");
    }
}
