//! Which physical unit holds a logical one, and what each physical unit says in its out-of-band
//! area: whose it is, and from which program on. A physical unit is valid if the mapping leads to
//! it; nothing else says so, so nothing can disagree.

use crate::geometry::Shape;

/// Nowhere; nobody.
pub const NONE: u32 = u32::MAX;
/// The program of a shot that was cut off in it.
const TORN: u64 = u64::MAX;
/// Places from here on are in the write buffer.
pub const BUFFERED: u32 = 1 << 31;

/// The mapping and the out-of-band areas. Eight bytes a unit, and nine a shot.
#[derive(Clone, Debug)]
pub struct Map {
    /// Physical unit of each logical one, or [`NONE`], or [`BUFFERED`] and a place in the buffer.
    forward: Vec<u32>,
    /// Logical unit of each physical one since its block was erased, or [`NONE`].
    backward: Vec<u32>,
    /// Number of the program that wrote each shot, of all programs; 0 is none.
    written: Vec<u64>,
    /// Whether each shot holds one file's units only; see [`crate::place`].
    own: Vec<bool>,
    shot_units: u32,
}

impl Map {
    /// Nothing is mapped.
    pub fn new(shape: &Shape) -> Self {
        Self {
            forward: vec![NONE; shape.logical_units as usize],
            backward: vec![NONE; shape.units() as usize],
            written: vec![0; (shape.units() / shape.shot_units) as usize],
            own: vec![false; (shape.units() / shape.shot_units) as usize],
            shot_units: shape.shot_units,
        }
    }

    /// Where a logical unit is.
    #[inline]
    pub fn get(&self, logical: u32) -> u32 {
        self.forward[logical as usize]
    }

    /// Where it is in the flash, if it is there.
    #[inline]
    pub fn in_flash(&self, logical: u32) -> Option<u32> {
        Some(self.get(logical)).filter(|place| *place < BUFFERED)
    }

    /// Where the logical unit is that comes so many before another, if there is one.
    pub fn before(&self, logical: u32, by: u32) -> Option<u32> {
        logical.checked_sub(by).map(|logical| self.get(logical))
    }

    /// It is there now; gives where it was.
    #[inline]
    pub fn set(&mut self, logical: u32, place: u32) -> u32 {
        std::mem::replace(&mut self.forward[logical as usize], place)
    }

    /// Whose a physical unit is or was.
    #[inline]
    pub fn owner(&self, physical: u32) -> u32 {
        self.backward[physical as usize]
    }

    /// Whether it holds what its owner has now.
    #[inline]
    pub fn is_valid(&self, physical: u32) -> bool {
        let owner = self.owner(physical);
        owner != NONE && self.get(owner) == physical
    }

    /// A physical unit is written: its out-of-band area names its owner.
    #[inline]
    pub fn write(&mut self, physical: u32, owner: u32) {
        self.backward[physical as usize] = owner;
    }

    /// The program that wrote a shot.
    pub fn stamp(&mut self, first_unit: u32, program: u64) {
        self.written[(first_unit / self.shot_units) as usize] = program;
    }

    /// Whether a shot holds one file's units only.
    pub fn is_own(&self, first_unit: u32) -> bool {
        self.own[(first_unit / self.shot_units) as usize]
    }

    /// Says so in the shot's out-of-band area.
    pub fn set_own(&mut self, first_unit: u32, own: bool) {
        self.own[(first_unit / self.shot_units) as usize] = own;
    }

    /// Number of the program that wrote a physical unit.
    pub fn program_of(&self, physical: u32) -> u64 {
        self.written[(physical / self.shot_units) as usize]
    }

    /// Number of the oldest program that can still be read.
    pub fn oldest_program(&self) -> u64 {
        let readable = self.written.iter().filter(|program| !matches!(**program, 0 | TORN));
        readable.min().copied().unwrap_or(u64::MAX)
    }

    /// Wipes the out-of-band areas of physical units, whole shots; gives what they were.
    pub fn wipe(&mut self, from: u32, count: u32) -> Wiped {
        let units = from as usize..(from + count) as usize;
        let shots =
            (from / self.shot_units) as usize..(from + count).div_ceil(self.shot_units) as usize;
        let wiped = Wiped {
            from,
            owners: self.backward[units.clone()].into(),
            programs: self.written[shots.clone()].into(),
            own: self.own[shots.clone()].into(),
        };
        self.backward[units].fill(NONE);
        self.written[shots.clone()].fill(0);
        self.own[shots].fill(false);
        wiped
    }

    /// The program of a shot was cut off: nothing in it can be read, nothing written.
    pub fn tear(&mut self, first_unit: u32) {
        self.wipe(first_unit, self.shot_units);
        self.stamp(first_unit, TORN);
    }

    /// Whether a shot was begun since its block was erased.
    pub fn is_begun(&self, first_unit: u32) -> bool {
        self.program_of(first_unit) != 0
    }

    /// Puts back what was wiped; gives the first unit of it.
    pub fn restore(&mut self, wiped: &Wiped) -> u32 {
        let (at, shot) = (wiped.from as usize, (wiped.from / self.shot_units) as usize);
        self.backward[at..at + wiped.owners.len()].copy_from_slice(&wiped.owners);
        self.written[shot..shot + wiped.programs.len()].copy_from_slice(&wiped.programs);
        self.own[shot..shot + wiped.own.len()].copy_from_slice(&wiped.own);
        wiped.from
    }

    /// Forgets where everything is, which is in memory only.
    pub fn forget(&mut self) {
        self.forward.fill(NONE);
    }

    /// Logical units.
    pub fn len(&self) -> u32 {
        self.forward.len() as u32
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        (self.forward.len() + self.backward.len()) * 4 + self.written.len() * 9
    }
}

/// Out-of-band areas as they were.
#[derive(Clone, Debug)]
pub struct Wiped {
    from: u32,
    owners: Box<[u32]>,
    programs: Box<[u64]>,
    own: Box<[bool]>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;

    fn shape() -> Shape {
        Geometry {
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            planes_together: false,
            planes_read_alone: false,
            blocks_per_plane: 16,
            pages_per_block: 4,
            flash_page_bytes: 1024,
            one_shot_bytes: 1024,
            mapping_unit_bytes: 512,
            die_granularity_bytes: 512,
            over_provisioning_per_mille: 1000,
        }
        .shape()
        .expect("a consistent geometry")
    }

    #[test]
    fn an_erase_that_never_began_leaves_the_out_of_band_areas_as_they_were() {
        let mut map = Map::new(&shape());
        map.stamp(2, 7);
        map.set_own(2, true);
        map.write(2, 5);
        map.write(3, 6);
        let wiped = map.wipe(0, 8);
        assert!(!map.is_own(2) && !map.is_begun(2), "erased");
        // The block is written anew, before the power cut shows that it was never erased.
        map.stamp(0, 8);
        map.set_own(0, true);
        map.write(0, 9);
        assert_eq!(map.restore(&wiped), 0);
        assert_eq!((map.owner(0), map.owner(2), map.owner(3)), (NONE, 5, 6));
        assert_eq!((map.program_of(0), map.program_of(2)), (0, 7));
        assert!(map.is_own(2), "the file's own program unit is still marked as such");
        assert!(!map.is_own(0), "what was never programmed is not");
    }
}
