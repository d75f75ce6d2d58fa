//! The mapping of logical to physical units, and the out-of-band areas: for each physical unit the logical
//! unit that it was written for, and for each program unit the number of its program. A physical unit is
//! valid if the mapping leads to it; no other table records that, so none can disagree. After remaps other
//! addresses than the one in the out-of-band area may lead to it ([`super::leads`]).

use super::leads::{Group, Home, Leads};
use crate::command::Units;
use crate::geometry::Shape;
use std::collections::BTreeMap;
use std::ops::Range;

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

/// What an entry of the mapping means.
#[inline]
fn decode(place: u32) -> Location {
    match place {
        NONE => Location::Unmapped,
        place if place >= BUFFERED => Location::Buffered(place & !BUFFERED),
        physical => Location::Flash(physical),
    }
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
    /// Out-of-band: the version of what a unit holds, if that is older than its program: the unit is a copy of
    /// one to which other addresses lead, too, and the entries of the defrag log refer to that version.
    versions: BTreeMap<u32, u64>,
    leads: Leads,
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
            versions: BTreeMap::new(),
            leads: Leads::default(),
            units_per_program: shape.units_per_program,
        }
    }

    /// Where a logical unit is.
    #[inline]
    pub fn locate(&self, logical: u32) -> Location {
        decode(self.forward[logical as usize])
    }

    /// Where a location of the table of leads is.
    pub fn decoded(&self, location: u32) -> Location {
        decode(location)
    }

    /// The physical unit of a logical one, if it is in the flash.
    #[inline]
    pub fn in_flash(&self, logical: u32) -> Option<u32> {
        Some(self.forward[logical as usize]).filter(|place| *place < BUFFERED)
    }

    /// Unmaps a logical unit, and gives up its unit if it is held; returns where it was, and whether nothing
    /// leads there any more.
    #[inline]
    pub fn unmap(&mut self, logical: u32) -> (Location, bool) {
        let mut place = std::mem::replace(&mut self.forward[logical as usize], NONE);
        let mut last = true;
        if !self.leads.is_empty() {
            place = self.leads.held_at(logical).unwrap_or(place);
            last = self.leads.remove(place, logical);
        }
        (decode(place), last)
    }

    /// The addresses that lead to units by remaps.
    pub fn leads(&self) -> &Leads {
        &self.leads
    }

    /// An address at which a physical unit can be read, if there is one.
    pub fn address(&self, physical: u32) -> Option<u32> {
        let leads_here = |address: &u32| self.forward[*address as usize] == physical;
        let by_remap = || {
            let group = self.leads.group(physical)?;
            group.addresses.iter().copied().find(leads_here)
        };
        self.owner(physical).filter(leads_here).or_else(by_remap)
    }

    /// Lets `to`, which is unmapped, lead to the unit in the flash to which `from` leads; unless they share it,
    /// `from` is held from now on.
    pub fn remap(&mut self, from: u32, to: u32, shared: bool) {
        let place = self.forward[from as usize];
        debug_assert!(place < BUFFERED && self.forward[to as usize] == NONE);
        self.leads.add(place, self.home(place), &[from], to);
        self.forward[to as usize] = place;
        if !shared {
            self.forward[from as usize] = NONE;
            self.leads.hold(from, place);
            self.leads.set_uncommitted(to);
        }
    }

    /// Gives up the units of all held addresses; returns where they are, and whether nothing leads there any
    /// more.
    pub fn commit_remaps(&mut self) -> Vec<(Location, bool)> {
        let held: Vec<(u32, u32)> = self.leads.held().collect();
        let release = |(address, place)| (decode(place), self.leads.remove(place, address));
        let released = held.into_iter().map(release).collect();
        for address in self.leads.commit() {
            self.leads.simplify(self.forward[address as usize]);
        }
        released
    }

    /// Restores the mapping of all held addresses.
    pub fn restore_held(&mut self) {
        let held: Vec<u32> = self.leads.held().map(|(address, _)| address).collect();
        for address in held {
            if let Some(place) = self.leads.restore(address) {
                self.forward[address as usize] = place;
            }
        }
    }

    /// What the out-of-band area of a physical unit says.
    fn home(&self, physical: u32) -> Home {
        Home { owner: self.owners[physical as usize], version: self.version_of(physical) }
    }

    /// The version of what a physical unit holds.
    pub fn version_of(&self, physical: u32) -> u64 {
        let older = || self.versions.get(&physical).copied();
        let copied = if self.versions.is_empty() { None } else { older() };
        copied.unwrap_or_else(|| self.program_of(physical))
    }

    /// Lets the addresses that lead to a physical unit, which is in the table of leads, lead to a place in the
    /// write buffer.
    pub fn move_to_buffer(&mut self, physical: u32, place: u32) {
        if let Some(group) = self.leads.take(physical) {
            self.put_group(BUFFERED | place, group);
        }
    }

    /// Whether a place in the write buffer is that of a unit in the table of leads.
    pub fn is_led_to(&self, place: u32) -> bool {
        self.leads.contains(BUFFERED | place)
    }

    /// Lets the addresses that lead to a place in the write buffer lead to the physical unit that is programmed
    /// with it.
    pub fn move_to_flash(&mut self, place: u32, physical: u32) {
        if let Some(group) = self.leads.take(BUFFERED | place) {
            self.put_in_flash(physical, group);
        }
    }

    /// The same from one physical unit to another.
    pub fn move_in_flash(&mut self, from: u32, to: u32) {
        match self.leads.take(from) {
            Some(group) => self.put_in_flash(to, group),
            None => self.set_programmed(to, self.owners[from as usize]),
        }
    }

    /// Writes the out-of-band area of a unit that was moved. If one address is left, the area names that, with
    /// the version of its own program, and the entries of the defrag log are not needed any more. Otherwise the
    /// area is a copy, to which the entries of the defrag log refer as to the unit that was moved.
    fn put_in_flash(&mut self, physical: u32, group: Group) {
        if let [only] = group.addresses[..]
            && !self.leads.is_held(only)
        {
            self.owners[physical as usize] = only;
            self.versions.remove(&physical);
            let home = self.home(physical);
            return self.put_group(physical, Group { home, ..group });
        }
        self.owners[physical as usize] = group.home.owner;
        self.versions.insert(physical, group.home.version);
        self.put_group(physical, group);
    }

    fn put_group(&mut self, place: u32, group: Group) {
        for address in &group.addresses {
            if !self.leads.is_held(*address) {
                self.forward[*address as usize] = place;
            }
        }
        self.leads.put(place, group);
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

    /// Whether a physical unit is valid: the mapping leads to it, by its owner's address or by others.
    #[inline]
    pub fn is_valid(&self, physical: u32) -> bool {
        self.owner_leads_to(physical) || self.leads.contains(physical)
    }

    /// Whether the address in the out-of-band area of a physical unit leads to it.
    #[inline]
    fn owner_leads_to(&self, physical: u32) -> bool {
        let owner = self.owners[physical as usize];
        owner != NONE && self.forward[owner as usize] == physical
    }

    /// How many of these physical units are valid. The owners' entries are scattered over the mapping: in one pass
    /// over them, without anything else, their cache misses overlap.
    pub fn count_valid(&self, units: Range<u32>) -> u32 {
        let by_owner = |sum, unit| sum + u32::from(self.owner_leads_to(unit));
        let by_owners = units.clone().fold(0, by_owner);
        if self.leads.is_empty() {
            return by_owners;
        }
        let by_others = |unit: &u32| self.leads.contains(*unit) && !self.owner_leads_to(*unit);
        by_owners + units.filter(by_others).count() as u32
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

    /// The oldest version of a unit that can still be read.
    pub fn oldest_version(&self) -> u64 {
        let readable = self.programs.iter().filter(|program| !matches!(**program, 0 | TORN));
        readable.chain(self.versions.values()).min().copied().unwrap_or(u64::MAX)
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
            versions: self.take_versions(first..first + count),
        };
        self.owners[units].fill(NONE);
        self.programs[program_units.clone()].fill(0);
        self.single_file[program_units].fill(false);
        erased
    }

    fn take_versions(&mut self, units: Range<u32>) -> Vec<(u32, u64)> {
        let taken: Vec<(u32, u64)> =
            self.versions.range(units).map(|(unit, version)| (*unit, *version)).collect();
        for (unit, _) in &taken {
            self.versions.remove(unit);
        }
        taken
    }

    /// Restores the out-of-band areas as they were before an erase.
    pub fn undo_erase(&mut self, erased: &ErasedAreas) {
        let (unit, at) = (erased.first as usize, self.program_unit(erased.first));
        self.owners[unit..unit + erased.owners.len()].copy_from_slice(&erased.owners);
        self.programs[at..at + erased.programs.len()].copy_from_slice(&erased.programs);
        self.single_file[at..at + erased.single_file.len()].copy_from_slice(&erased.single_file);
        self.take_versions(erased.first..erased.first + erased.owners.len() as u32);
        self.versions.extend(erased.versions.iter().copied());
    }

    /// Marks a program unit whose program was cut off: it cannot be read, nor programmed again before an
    /// erase.
    pub fn tear(&mut self, first_unit: u32) {
        self.erase(first_unit, self.units_per_program);
        self.set_program(first_unit, TORN, false);
    }

    /// Rebuilds the mapping from the out-of-band areas: of several copies of a logical unit, that of the
    /// latest version counts, and of several copies of that the one of the latest program. Returns the number of
    /// flash pages whose first unit has an owner.
    pub fn rebuild(&mut self, units_per_page: u32) -> u64 {
        self.forward.fill(NONE);
        self.leads = Leads::default();
        let mut pages = 0;
        for physical in 0..self.owners.len() as u32 {
            let Some(owner) = self.owner(physical) else { continue };
            pages += u64::from(physical.is_multiple_of(units_per_page));
            let known = self.in_flash(owner);
            if known.is_none_or(|known| self.age(known) < self.age(physical)) {
                self.forward[owner as usize] = physical;
            }
        }
        pages
    }

    /// The version of a physical unit, and its program: of the copies of an address the one with the greatest
    /// counts.
    pub fn age(&self, physical: u32) -> (u64, u64) {
        (self.version_of(physical), self.program_of(physical))
    }

    /// Unmaps those of these logical units that no program after `program` wrote.
    pub fn unmap_if_older(&mut self, units: Units, program: u64) {
        for unit in units.each() {
            if self.in_flash(unit).is_some_and(|physical| self.version_of(physical) <= program) {
                self.forward[unit as usize] = NONE;
            }
        }
    }

    /// Maps a logical unit to a physical one, or to none, as recovery found it in the defrag log.
    pub fn set_by_log(&mut self, logical: u32, physical: Option<u32>) {
        self.forward[logical as usize] = physical.unwrap_or(NONE);
    }

    /// Rebuilds the table of leads: `remapped` are addresses that lead to their unit by the defrag log, and
    /// whether that is uncommitted; `held` are addresses that may be restored, and where they would lead.
    pub fn rebuild_leads(&mut self, remapped: &[(u32, bool)], held: &[(u32, u32)]) {
        for (address, uncommitted) in remapped {
            if let Some(physical) = self.in_flash(*address) {
                self.leads.add(physical, self.home(physical), &[], *address);
                if *uncommitted {
                    self.leads.set_uncommitted(*address);
                }
            }
        }
        for (address, physical) in held {
            self.leads.add(*physical, self.home(*physical), &[], *address);
            self.leads.hold(*address, *physical);
        }
        let places: Vec<(u32, u32)> =
            self.leads.groups().map(|(place, group)| (place, group.home.owner)).collect();
        for (place, owner) in places {
            if owner != NONE && self.forward[owner as usize] == place {
                self.leads.add(place, self.home(place), &[], owner);
            }
            self.leads.simplify(place);
        }
    }

    /// Logical units.
    pub fn len(&self) -> u32 {
        self.forward.len() as u32
    }

    /// Physical units.
    pub fn units(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Bytes of memory that the tables use.
    pub fn memory_bytes(&self) -> usize {
        (self.forward.len() + self.owners.len()) * 4
            + self.programs.len() * 9
            + self.versions.len() * 32
            + self.leads.memory_bytes()
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
    versions: Vec<(u32, u64)>,
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
    fn a_copy_of_a_unit_that_several_addresses_lead_to_has_its_version() {
        let mut map = Map::new(&small().shape().expect("a consistent geometry"));
        map.set_program(0, 3, false);
        map.set_programmed(0, 1);
        map.remap(1, 7, true);
        for (from, to, program) in [(0, 8, 5), (8, 16, 6)] {
            map.set_program(to, program, false);
            map.move_in_flash(from, to);
            assert_eq!((map.age(to), map.owner(to)), ((3, program), Some(1)));
            assert!(map.is_valid(to) && !map.is_valid(from));
        }
        map.erase(0, 8);
        assert_eq!(map.oldest_version(), 3, "notes from before the remap are needed still");
        // With one address left, the next copy names it.
        assert_eq!(map.unmap(1), (Location::Flash(16), false));
        map.set_program(24, 9, false);
        map.move_in_flash(16, 24);
        assert_eq!((map.age(24), map.owner(24)), ((9, 9), Some(7)));
        assert!(map.leads().is_empty());
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
        assert_eq!(map.oldest_version(), 3);
    }
}
