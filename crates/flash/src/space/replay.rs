//! What the defrag log makes of the mapping, when that is rebuilt from the out-of-band areas.
//!
//! An entry says that `to` leads, from its version on, to what `from` led to just before; and unless it is
//! shared, that `from` leads to nothing. Which unit that was follows from the out-of-band areas and the entries
//! before it, because all versions are of one count, and a unit that other addresses lead to is moved with its
//! version. Where the unit was erased since, an older copy of `from` is found instead, or none: by then `to` has
//! a later version on the flash, or a later note of the journal, which counts.
//!
//! A log of 10 MiB has half a million entries, each of which may name thousands of units: the tables here are vectors, of eight bytes for
//! each unit that is remapped, and four for each unit of the drive.

use super::map::Map;
use crate::command::Units;
use std::iter::successors;

/// Stands for "none" in the tables.
const NONE: u32 = u32::MAX;

fn some(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number != NONE)
}

/// An entry of the defrag log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// Programs before it have smaller numbers, later ones have greater numbers.
    pub version: u64,
    pub from: Units,
    /// The first unit of the new place.
    pub to: u32,
    /// Whether `from` leads to the data as well.
    pub shared: bool,
}

impl LogEntry {
    /// Whether a discard undoes it, where the log is committed up to this version.
    pub fn is_uncommitted(&self, committed: u64) -> bool {
        !self.shared && self.version > committed
    }

    /// Which of its targets an address is; none if it is among its sources.
    fn target(&self, address: u32) -> Option<u32> {
        address.checked_sub(self.to).filter(|target| *target < self.from.count)
    }
}

/// What a target of an entry leads to from its version on.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The physical unit, or [`NONE`].
    physical: u32,
    /// The entry that the source was named by last, or [`NONE`] if the source leads to a copy of its own.
    basis: u32,
}

/// The outcome of a replay. An entry makes a claim for each of its targets; that nothing is at its sources any more follows from it.
pub(crate) struct Replay<'a> {
    log: &'a [LogEntry],
    /// The number of the first claim of each entry.
    firsts: Vec<usize>,
    claims: Vec<Claim>,
    /// The latest entry that names each address, or [`NONE`].
    latest: Vec<u32>,
}

/// The copies of each address in the out-of-band areas.
pub(crate) struct Copies {
    /// The last copy of each address, or [`NONE`].
    last: Vec<u32>,
    /// For each physical unit the copy of the same address before it, or [`NONE`].
    before: Vec<u32>,
}

impl Copies {
    /// Finds the copies.
    pub fn of(map: &Map) -> Self {
        let mut last = vec![NONE; map.len() as usize];
        let previous = |physical| {
            let owner = map.owner(physical)?;
            some(std::mem::replace(&mut last[owner as usize], physical))
        };
        let before = (0..map.units()).map(previous).map(|copy| copy.unwrap_or(NONE)).collect();
        Self { last, before }
    }

    /// The latest copy of an address before a version: its version, its program, and where it is.
    fn latest_before(&self, map: &Map, address: u32, version: u64) -> Option<(u64, u64, u32)> {
        let last = some(self.last[address as usize]);
        let copies = successors(last, |copy| some(self.before[*copy as usize]));
        let aged = copies.map(|copy| {
            let (version, program) = map.age(copy);
            (version, program, copy)
        });
        aged.filter(|(copy, ..)| *copy < version).max()
    }
}

impl<'a> Replay<'a> {
    /// Replays those entries, in the order of their versions, for which `counts` holds.
    pub fn new(
        log: &'a [LogEntry],
        map: &Map,
        copies: &Copies,
        counts: impl Fn(&LogEntry) -> bool,
    ) -> Self {
        let targets =
            log.iter().filter(|entry| counts(entry)).map(|entry| entry.from.count as usize);
        let mut replay = Self {
            log,
            firsts: Vec::with_capacity(log.len()),
            claims: Vec::with_capacity(targets.sum()),
            latest: vec![NONE; map.len() as usize],
        };
        for (number, entry) in (0..).zip(log) {
            replay.firsts.push(replay.claims.len());
            if counts(entry) {
                replay.add(number, entry, map, copies);
            }
        }
        replay
    }

    fn add(&mut self, number: u32, entry: &LogEntry, map: &Map, copies: &Copies) {
        for (from, to) in entry.from.each().zip(entry.to..) {
            let copy = copies.latest_before(map, from, entry.version);
            let is_later = |basis: &u32| {
                copy.is_none_or(|(version, ..)| self.log[*basis as usize].version > version)
            };
            let claim = match some(self.latest[from as usize]).filter(is_later) {
                Some(basis) => {
                    Claim { physical: self.physical(from, basis).unwrap_or(NONE), basis }
                }
                None => Claim { physical: copy.map_or(NONE, |(.., copy)| copy), basis: NONE },
            };
            self.claims.push(claim);
            self.latest[to as usize] = number;
            if !entry.shared {
                self.latest[from as usize] = number;
            }
        }
    }

    /// The claim of an entry for one of its targets; none for a source.
    fn claim(&self, address: u32, entry: u32) -> Option<Claim> {
        let target = self.log[entry as usize].target(address)?;
        Some(self.claims[self.firsts[entry as usize] + target as usize])
    }

    /// What an address leads to after an entry that names it.
    fn physical(&self, address: u32, entry: u32) -> Option<u32> {
        self.claim(address, entry).and_then(|claim| some(claim.physical))
    }

    /// What each address that is named leads to by the log, since which version, and by which entry.
    pub fn claims(&self) -> impl Iterator<Item = (u32, Option<u32>, u64, usize)> + '_ {
        let named =
            (0..).zip(&self.latest).filter_map(|(address, entry)| Some((address, some(*entry)?)));
        named.map(|(address, entry)| {
            let version = self.log[entry as usize].version;
            (address, self.physical(address, entry), version, entry as usize)
        })
    }

    /// What an address leads to by the log, and since which version, if it is named.
    pub fn claim_of(&self, address: u32) -> Option<(Option<u32>, u64)> {
        let entry = some(self.latest[address as usize])?;
        Some((self.physical(address, entry), self.log[entry as usize].version))
    }

    /// Marks the entries by which an address leads to where it does.
    pub fn mark(&self, mut address: u32, needed: &mut [bool]) {
        let mut next = some(self.latest[address as usize]);
        while let Some(number) = next {
            needed[number as usize] = true;
            let entry = &self.log[number as usize];
            let Some(claim) = self.claim(address, number) else { return };
            address = entry.from.start + (address - entry.to);
            next = some(claim.basis);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::small;

    /// A few thousand remaps of the same units back and forth: all tables together need eight bytes for each unit and for each entry, and
    /// four for each address and each physical unit.
    #[test]
    fn tables_are_small_however_often_units_are_remapped() {
        let shape = small().shape().expect("a consistent geometry");
        let mut map = Map::new(&shape);
        map.set_program(0, 1, false);
        (0..8).for_each(|unit| map.set_programmed(unit, unit));
        let places = [Units::new(0, 8), Units::new(32, 8)];
        let entry = |n: usize| LogEntry {
            version: n as u64 + 2,
            from: places[n % 2],
            to: places[1 - n % 2].start,
            shared: false,
        };
        let log: Vec<LogEntry> = (0..4001).map(entry).collect();
        let copies = Copies::of(&map);
        let replay = Replay::new(&log, &map, &copies, |_| true);
        let bytes = size_of_val(&replay.claims[..]) + size_of_val(&replay.firsts[..]);
        assert_eq!(bytes, 8 * 8 * log.len() + 8 * log.len());
        assert!(replay.claims.capacity() == replay.claims.len());
        let dense = replay.latest.len() + copies.last.len() + copies.before.len();
        assert_eq!(dense as u32, 2 * shape.logical_units + shape.units());
        // An odd number of remaps ends at the other place, by all of them.
        assert_eq!(replay.claim_of(35), Some((Some(3), 4002)));
        assert_eq!(replay.claim_of(3), Some((None, 4002)));
        assert_eq!(replay.claim_of(8), None);
        let mut needed = vec![false; log.len()];
        replay.mark(35, &mut needed);
        assert!(needed.iter().all(|needed| *needed));
    }
}
