//! The mapping of logical to physical units, and the out-of-band areas: for each physical unit the logical
//! unit that it was written for, and for each program unit the number of its program. A physical unit is
//! valid if the mapping leads to it; no other table records that, so none can disagree.

use crate::command::Units;
use crate::geometry::Shape;

/// Stands for "unmapped" and "no owner".
const NONE: u32 = u32::MAX;
/// In the mapping, numbers from here on are places in the write buffer.
const BUFFERED: u32 = 1 << 31;
/// The program number of a program unit whose program was cut off.
const TORN: u64 = u64::MAX;

/// Where a logical unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Nowhere: it was never written, or it was trimmed.
    Unmapped,
    /// At this place in the write buffer.
    Buffered(u32),
    /// In this physical unit.
    Flash(u32),
}

/// The mapping and the out-of-band areas: eight bytes for each unit, and nine for each program unit.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// The location of each logical unit: a physical unit, [`BUFFERED`] plus a place, or [`NONE`].
    forward: Vec<u32>,
    /// Out-of-band: the logical unit that each physical one was written for since its block was
    /// erased, or [`NONE`].
    owners: Vec<u32>,
    /// Out-of-band: the number of the program of each program unit; 0 if it is erased.
    programs: Vec<u64>,
    /// Out-of-band: whether each program unit holds units of one file only; see
    /// [`crate::drive::Placement::FileAffine`].
    single_file: Vec<bool>,
    units_per_program: u32,
}

impl Map {
    /// A mapping in which no unit is mapped.
    pub fn new(shape: &Shape) -> Self {
        let program_units = (shape.units() / shape.units_per_program) as usize;
        Self {
            forward: vec![NONE; shape.logical_units as usize],
            owners: vec![NONE; shape.units() as usize],
            programs: vec![0; program_units],
            single_file: vec![false; program_units],
            units_per_program: shape.units_per_program,
        }
    }

    /// Where a logical unit is.
    #[inline]
    pub fn locate(&self, logical: u32) -> Location {
        match self.forward[logical as usize] {
            NONE => Location::Unmapped,
            place if place >= BUFFERED => Location::Buffered(place & !BUFFERED),
            physical => Location::Flash(physical),
        }
    }

    /// The physical unit of a logical one, if it is in the flash.
    #[inline]
    pub fn in_flash(&self, logical: u32) -> Option<u32> {
        Some(self.forward[logical as usize]).filter(|place| *place < BUFFERED)
    }

    /// Unmaps a logical unit; returns where it was.
    #[inline]
    pub fn unmap(&mut self, logical: u32) -> Location {
        let location = self.locate(logical);
        self.forward[logical as usize] = NONE;
        location
    }

    /// Maps a logical unit to a place in the write buffer.
    #[inline]
    pub fn set_buffered(&mut self, logical: u32, place: u32) {
        self.forward[logical as usize] = BUFFERED | place;
    }

    /// Maps a logical unit to a physical one, which is programmed with it.
    #[inline]
    pub fn set_programmed(&mut self, physical: u32, logical: u32) {
        self.owners[physical as usize] = logical;
        self.forward[logical as usize] = physical;
    }

    /// The logical unit that a physical one was written for, if it was written.
    #[inline]
    pub fn owner(&self, physical: u32) -> Option<u32> {
        Some(self.owners[physical as usize]).filter(|owner| *owner != NONE)
    }

    /// Whether a physical unit is valid: its owner is mapped to it.
    #[inline]
    pub fn is_valid(&self, physical: u32) -> bool {
        let owner = self.owners[physical as usize];
        owner != NONE && self.forward[owner as usize] == physical
    }

    /// Writes the out-of-band area of a program unit: the number of its program, and whether all its units
    /// are of one file.
    pub fn set_program(&mut self, first_unit: u32, program: u64, single_file: bool) {
        let at = self.program_unit(first_unit);
        self.programs[at] = program;
        self.single_file[at] = single_file;
    }

    /// Whether the program unit of a physical unit holds units of one file only.
    pub fn is_single_file(&self, physical: u32) -> bool {
        self.single_file[self.program_unit(physical)]
    }

    /// Whether a program of the program unit was begun since its block was erased.
    pub fn is_programmed(&self, physical: u32) -> bool {
        self.program_of(physical) != 0
    }

    /// The number of the oldest program whose units can still be read.
    pub fn oldest_program(&self) -> u64 {
        let readable = self.programs.iter().filter(|program| !matches!(**program, 0 | TORN));
        readable.min().copied().unwrap_or(u64::MAX)
    }

    /// Erases the out-of-band areas of whole program units; returns their content.
    pub fn erase(&mut self, first: u32, count: u32) -> ErasedAreas {
        let units = first as usize..(first + count) as usize;
        let last = self.program_unit(first + count - 1);
        let program_units = self.program_unit(first)..last + 1;
        let erased = ErasedAreas {
            first,
            owners: self.owners[units.clone()].into(),
            programs: self.programs[program_units.clone()].into(),
            single_file: self.single_file[program_units.clone()].into(),
        };
        self.owners[units].fill(NONE);
        self.programs[program_units.clone()].fill(0);
        self.single_file[program_units].fill(false);
        erased
    }

    /// Restores the out-of-band areas as they were before an erase.
    pub fn undo_erase(&mut self, erased: &ErasedAreas) {
        let (unit, at) = (erased.first as usize, self.program_unit(erased.first));
        self.owners[unit..unit + erased.owners.len()].copy_from_slice(&erased.owners);
        self.programs[at..at + erased.programs.len()].copy_from_slice(&erased.programs);
        self.single_file[at..at + erased.single_file.len()].copy_from_slice(&erased.single_file);
    }

    /// Marks a program unit whose program was cut off: it cannot be read, nor programmed again before an
    /// erase.
    pub fn tear(&mut self, first_unit: u32) {
        self.erase(first_unit, self.units_per_program);
        self.set_program(first_unit, TORN, false);
    }

    /// Rebuilds the mapping from the out-of-band areas: of several copies of a logical unit, that of the
    /// latest program counts. Returns the number of flash pages whose first unit has an owner.
    pub fn rebuild(&mut self, units_per_page: u32) -> u64 {
        self.forward.fill(NONE);
        let mut pages = 0;
        for physical in 0..self.owners.len() as u32 {
            let Some(owner) = self.owner(physical) else { continue };
            pages += u64::from(physical.is_multiple_of(units_per_page));
            let known = self.in_flash(owner);
            if known.is_none_or(|known| self.program_of(known) < self.program_of(physical)) {
                self.forward[owner as usize] = physical;
            }
        }
        pages
    }

    /// Unmaps those of these logical units that no program after `program` wrote.
    pub fn unmap_if_older(&mut self, units: Units, program: u64) {
        for unit in units.each() {
            if self.in_flash(unit).is_some_and(|physical| self.program_of(physical) <= program) {
                self.forward[unit as usize] = NONE;
            }
        }
    }

    /// Logical units.
    pub fn len(&self) -> u32 {
        self.forward.len() as u32
    }

    /// Bytes of memory that the tables use.
    pub fn memory_bytes(&self) -> usize {
        (self.forward.len() + self.owners.len()) * 4 + self.programs.len() * 9
    }

    fn program_unit(&self, physical: u32) -> usize {
        (physical / self.units_per_program) as usize
    }

    fn program_of(&self, physical: u32) -> u64 {
        self.programs[self.program_unit(physical)]
    }
}

/// Out-of-band areas as they were before an erase.
#[derive(Clone, Debug)]
pub(crate) struct ErasedAreas {
    first: u32,
    owners: Box<[u32]>,
    programs: Box<[u64]>,
    single_file: Box<[bool]>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::small;

    #[test]
    fn an_erase_that_never_began_leaves_the_out_of_band_areas_as_they_were() {
        let mut map = Map::new(&small().shape().expect("a consistent geometry"));
        map.set_program(2, 7, true);
        map.set_programmed(2, 5);
        map.set_programmed(3, 6);
        let erased = map.erase(0, 8);
        assert!(!map.is_single_file(2) && !map.is_programmed(2));
        // The block is programmed again before the power cut shows that it was never erased.
        map.set_program(0, 8, true);
        map.set_programmed(0, 9);
        map.undo_erase(&erased);
        assert_eq!((map.owner(0), map.owner(2), map.owner(3)), (None, Some(5), Some(6)));
        assert_eq!((map.program_of(0), map.program_of(2)), (0, 7));
        assert!(map.is_single_file(2), "the program unit still holds one file only");
        assert!(!map.is_single_file(0), "this one was never programmed");
    }

    #[test]
    fn of_several_copies_the_latest_program_counts_unless_a_trim_is_later() {
        let mut map = Map::new(&small().shape().expect("a consistent geometry"));
        for (physical, program) in [(0, 3), (4, 5), (8, 4)] {
            map.set_program(physical, program, false);
            map.set_programmed(physical, 1);
            map.set_programmed(physical + 1, 2);
        }
        map.set_buffered(1, 0);
        assert_eq!(map.rebuild(2), 3);
        assert_eq!(map.locate(1), Location::Flash(4));
        map.unmap_if_older(Units::new(1, 1), 4);
        map.unmap_if_older(Units::new(2, 1), 5);
        assert_eq!((map.locate(1), map.locate(2)), (Location::Flash(4), Location::Unmapped));
        map.tear(4);
        assert_eq!(map.rebuild(2), 2);
        assert_eq!(map.locate(1), Location::Flash(8));
        assert_eq!(map.oldest_program(), 3);
    }
}
