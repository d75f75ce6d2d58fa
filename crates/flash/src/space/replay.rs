//! What the defrag log makes of the mapping, when that is rebuilt from the out-of-band areas.
//!
//! An entry says that `to` leads, from its version on, to what `from` led to just before; and unless it is
//! shared, that `from` leads to nothing. Which unit that was follows from the out-of-band areas and the entries
//! before it, because all versions are of one count, and a unit that other addresses lead to is moved with its
//! version. Where the unit was erased since, an older copy of `from` is found instead, or none: by then `to` has
//! a later version on the flash, or a later note of the journal, which counts.

use super::map::Map;
use crate::command::Units;
use std::collections::{BTreeMap, BTreeSet};

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
}

/// What an address leads to from a version on, by the log.
#[derive(Clone, Copy, Debug)]
struct Claim {
    version: u64,
    physical: Option<u32>,
    /// The entry that says so, by its number, and the claim that it is based on.
    entry: usize,
    basis: Option<usize>,
}

/// The outcome of a replay.
pub(crate) struct Replay {
    claims: Vec<Claim>,
    /// The latest claim of each address.
    latest: BTreeMap<u32, usize>,
}

/// The copies of the addresses that entries name, each with its version, its program, and where it is.
pub(crate) struct Copies(BTreeMap<u32, Vec<(u64, u64, u32)>>);

impl Copies {
    /// Finds the copies in the out-of-band areas.
    pub fn of(map: &Map, entries: &[LogEntry]) -> Self {
        let named: BTreeSet<u32> = entries.iter().flat_map(|entry| entry.from.each()).collect();
        let mut copies: BTreeMap<u32, Vec<(u64, u64, u32)>> = BTreeMap::new();
        if named.is_empty() {
            return Self(copies);
        }
        for physical in 0..map.units() {
            let Some(owner) = map.owner(physical).filter(|owner| named.contains(owner)) else {
                continue;
            };
            let (version, program) = map.age(physical);
            copies.entry(owner).or_default().push((version, program, physical));
        }
        Self(copies)
    }

    /// The latest copy of an address before a version.
    fn before(&self, address: u32, version: u64) -> Option<(u64, u64, u32)> {
        let copies = self.0.get(&address)?;
        copies.iter().copied().filter(|(copy, ..)| *copy < version).max()
    }
}

impl Replay {
    /// Replays those entries, in the order of their versions, for which `counts` holds.
    pub fn new(entries: &[LogEntry], copies: &Copies, counts: impl Fn(&LogEntry) -> bool) -> Self {
        let mut replay = Self { claims: Vec::new(), latest: BTreeMap::new() };
        for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| counts(entry)) {
            for (from, to) in entry.from.each().zip(entry.to..) {
                let copy = copies.before(from, entry.version);
                let basis = replay.latest.get(&from).copied().filter(|claim| {
                    copy.is_none_or(|(version, ..)| replay.claims[*claim].version > version)
                });
                let physical = match basis {
                    Some(claim) => replay.claims[claim].physical,
                    None => copy.map(|(.., physical)| physical),
                };
                let version = entry.version;
                replay.claim(to, Claim { version, physical, entry: number, basis });
                if !entry.shared {
                    let gone = Claim { version, physical: None, entry: number, basis: None };
                    replay.claim(from, gone);
                }
            }
        }
        replay
    }

    fn claim(&mut self, address: u32, claim: Claim) {
        self.latest.insert(address, self.claims.len());
        self.claims.push(claim);
    }

    /// What each address leads to by the log, since which version, and by which entry.
    pub fn claims(&self) -> impl Iterator<Item = (u32, Option<u32>, u64, usize)> + '_ {
        self.latest.iter().map(|(address, claim)| {
            let Claim { physical, version, entry, .. } = self.claims[*claim];
            (*address, physical, version, entry)
        })
    }

    /// The latest claim of an address: what it leads to, and since which version.
    pub fn claim_of(&self, address: u32) -> Option<(Option<u32>, u64)> {
        let claim = self.claims[*self.latest.get(&address)?];
        Some((claim.physical, claim.version))
    }

    /// Marks the entries by which an address leads to where it does.
    pub fn mark(&self, address: u32, needed: &mut [bool]) {
        let mut next = self.latest.get(&address).copied();
        while let Some(claim) = next {
            needed[self.claims[claim].entry] = true;
            next = self.claims[claim].basis;
        }
    }
}
