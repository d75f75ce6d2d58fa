//! Which addresses lead to a physical unit, where that is not exactly the one that its out-of-band area names:
//! after remaps. Few units are in this table, so that it costs the others nothing.
//!
//! An address whose remap is not committed is *held*: the mapping does not lead from it to the unit any more,
//! but a discard restores it. A held address keeps its unit valid, as any other that leads to it does.

use std::collections::{BTreeMap, BTreeSet};

/// What the out-of-band area of a unit says: the address that it was written for, and the version of that
/// write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub owner: u32,
    pub version: u64,
}

/// A unit in the flash or in the write buffer, and the addresses that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub home: Home,
    /// At least one; [`Leads::is_held`] tells which of them are held.
    pub addresses: Vec<u32>,
}

/// The units to which other addresses lead than the one in their out-of-band area. A location is a number as
/// in the mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leads {
    groups: BTreeMap<u32, Group>,
    /// The location of each held address.
    held: BTreeMap<u32, u32>,
    /// Addresses that lead to their unit by a remap which is not committed.
    uncommitted: BTreeSet<u32>,
}

impl Leads {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.uncommitted.is_empty()
    }

    /// Whether the unit at a location is in this table.
    #[inline]
    pub fn contains(&self, location: u32) -> bool {
        self.groups.contains_key(&location)
    }

    /// The addresses that lead to the unit at a location, if it is in this table.
    pub fn group(&self, location: u32) -> Option<&Group> {
        self.groups.get(&location)
    }

    /// All units, with their locations.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &Group)> {
        self.groups.iter().map(|(location, group)| (*location, group))
    }

    /// The location of a held address.
    pub fn held_at(&self, address: u32) -> Option<u32> {
        self.held.get(&address).copied()
    }

    /// Whether an address is held.
    pub fn is_held(&self, address: u32) -> bool {
        self.held.contains_key(&address)
    }

    /// All held addresses, and where they are.
    pub fn held(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.held.iter().map(|(address, location)| (*address, *location))
    }

    /// Whether an address leads to its unit by a remap which is not committed.
    pub fn is_uncommitted(&self, address: u32) -> bool {
        self.uncommitted.contains(&address)
    }

    /// All addresses of remaps which are not committed.
    pub fn uncommitted(&self) -> impl Iterator<Item = u32> + '_ {
        self.uncommitted.iter().copied()
    }

    /// Adds an address that leads to the unit at a location, whose out-of-band area is `home`; `others` are the
    /// addresses that lead to it already, if it is not in the table.
    pub fn add(&mut self, location: u32, home: Home, others: &[u32], address: u32) {
        let new = || Group { home, addresses: others.to_vec() };
        let group = self.groups.entry(location).or_insert_with(new);
        if !group.addresses.contains(&address) {
            group.addresses.push(address);
        }
    }

    /// Notes that an address is held where it is.
    pub fn hold(&mut self, address: u32, location: u32) {
        self.held.insert(address, location);
    }

    /// Notes that an address leads to its unit by a remap which is not committed.
    pub fn set_uncommitted(&mut self, address: u32) {
        self.uncommitted.insert(address);
    }

    /// Notes that all remaps are committed; returns the addresses to which they were. Those that are held must be
    /// removed first.
    pub fn commit(&mut self) -> BTreeSet<u32> {
        debug_assert!(self.held.is_empty());
        std::mem::take(&mut self.uncommitted)
    }

    /// An address that was held leads to its unit again; returns the location of that.
    pub fn restore(&mut self, address: u32) -> Option<u32> {
        let location = self.held.remove(&address)?;
        self.simplify(location);
        Some(location)
    }

    /// Removes an address that leads to the unit at a location, or is held there; returns whether it was the
    /// last.
    pub fn remove(&mut self, location: u32, address: u32) -> bool {
        self.held.remove(&address);
        self.uncommitted.remove(&address);
        let Some(group) = self.groups.get_mut(&location) else { return true };
        group.addresses.retain(|other| *other != address);
        if group.addresses.is_empty() {
            self.groups.remove(&location);
            return true;
        }
        self.simplify(location);
        false
    }

    /// A unit to which only the address in its out-of-band area leads is as any other, once that is committed.
    pub fn simplify(&mut self, location: u32) {
        let Some(group) = self.groups.get(&location) else { return };
        if let [only] = group.addresses[..]
            && only == group.home.owner
            && !self.is_held(only)
            && !self.is_uncommitted(only)
        {
            self.groups.remove(&location);
        }
    }

    /// Removes the unit at a location, which moves.
    pub fn take(&mut self, location: u32) -> Option<Group> {
        self.groups.remove(&location)
    }

    /// Inserts a unit at its new location.
    pub fn put(&mut self, location: u32, group: Group) {
        for address in &group.addresses {
            if let Some(held) = self.held.get_mut(address) {
                *held = location;
            }
        }
        self.groups.insert(location, group);
        self.simplify(location);
    }

    /// Bytes of memory, about: a node of a tree is at least half full.
    pub fn memory_bytes(&self) -> usize {
        self.groups.len() * 2 * (size_of::<(u32, Group)>() + 8)
            + (self.held.len() + self.uncommitted.len()) * 16
    }
}
