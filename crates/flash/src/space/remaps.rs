//! Remaps on the flash space: their mapping, its rebuilding after a power cut, and which entries of the defrag
//! log are needed for that.

use super::replay::{Copies, LogEntry, Replay};
use super::{FlashSpace, Location};
use crate::command::Units;
use std::collections::BTreeMap;

impl FlashSpace {
    /// Remaps units in the flash to `to`, which is unmapped; returns the entry of the defrag log.
    pub fn remap(&mut self, from: Units, to: u32, shared: bool) -> LogEntry {
        self.programs += 1;
        for (from, to) in from.each().zip(to..) {
            self.map.remap(from, to, shared);
        }
        LogEntry { version: self.programs, from, to, shared }
    }

    /// Commits all remaps, and gives up the units that were held for a discard; returns where they are, and
    /// whether nothing leads there any more. The blocks of those in the flash must not be erased before
    /// [`Self::set_succeeded`].
    pub fn commit_remaps(&mut self) -> Vec<(Location, bool)> {
        let released = self.map.commit_remaps();
        for (location, last) in &released {
            match location {
                Location::Flash(physical) if *last => self.vacate(*physical),
                Location::Flash(physical) => self.await_successor(*physical),
                _ => {}
            }
        }
        released
    }

    /// Restores the mapping of all addresses whose remaps are not committed.
    pub fn restore_held(&mut self) {
        self.map.restore_held();
    }

    /// Which entries of the defrag log are needed to rebuild the mapping, where nothing is in the write buffer.
    pub fn needed_entries(&self, log: &[LogEntry], committed: u64) -> Vec<bool> {
        let mut needed: Vec<bool> =
            log.iter().map(|entry| entry.is_uncommitted(committed)).collect();
        let copies = Copies::of(&self.map);
        let all = Replay::new(log, &self.map, &copies, |_| true);
        for (address, physical, ..) in all.claims() {
            if physical.is_some() && self.map.in_flash(address) == physical {
                all.mark(address, &mut needed);
            }
        }
        drop(all);
        let is_durable = |entry: &LogEntry| !entry.is_uncommitted(committed);
        let durable = Replay::new(log, &self.map, &copies, is_durable);
        for (address, _) in self.map.leads().held() {
            durable.mark(address, &mut needed);
        }
        needed
    }

    /// Applies the defrag log and the journal's notes to a mapping that was rebuilt from the out-of-band areas.
    pub(super) fn rebuild_by_log(
        &mut self,
        unmapped: &[(Units, u64)],
        log: &[LogEntry],
        committed: u64,
    ) {
        let copies = Copies::of(&self.map);
        let mut held = self.held_candidates(unmapped, log, committed, &copies);
        let all = Replay::new(log, &self.map, &copies, |_| true);
        let mut by_log: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
        for (address, physical, version, entry) in all.claims() {
            let written = self.map.in_flash(address).map(|unit| self.map.version_of(unit));
            if written.is_none_or(|written| written < version) {
                self.map.set_by_log(address, physical);
                by_log.insert(address, (version, entry));
            }
        }
        for (units, program) in unmapped {
            // An address that leads somewhere by the log does so since the version of its entry.
            let mut start = units.start;
            let named: Vec<(u32, u64)> =
                by_log.range(units.each()).map(|(unit, (version, _))| (*unit, *version)).collect();
            for (unit, version) in named {
                self.map.unmap_if_older(Units::new(start, unit - start), *program);
                if version <= *program {
                    self.map.set_by_log(unit, None);
                }
                start = unit + 1;
            }
            self.map.unmap_if_older(Units::new(start, units.end() - start), *program);
        }
        held.retain(|(address, _)| self.map.locate(*address) == Location::Unmapped);
        let is_uncommitted = |entry: usize| log[entry].is_uncommitted(committed);
        let remapped: Vec<(u32, bool)> = by_log
            .into_iter()
            .map(|(address, (_, entry))| (address, is_uncommitted(entry)))
            .collect();
        self.map.rebuild_leads(&remapped, &held);
    }

    /// The addresses from which data was remapped without a commit, and the physical unit to which each leads
    /// if that is discarded.
    fn held_candidates(
        &self,
        unmapped: &[(Units, u64)],
        log: &[LogEntry],
        committed: u64,
        copies: &Copies,
    ) -> Vec<(u32, u32)> {
        let uncommitted = log.iter().filter(|entry| entry.is_uncommitted(committed));
        let is_durable = |entry: &LogEntry| !entry.is_uncommitted(committed);
        let durable = Replay::new(log, &self.map, copies, is_durable);
        let mut held: BTreeMap<u32, (u64, Option<u32>)> = BTreeMap::new();
        for address in uncommitted.flat_map(|entry| entry.from.each()) {
            let written = self.map.in_flash(address);
            let written = written.map(|unit| (self.map.version_of(unit), Some(unit)));
            let by_log = durable.claim_of(address).map(|(physical, version)| (version, physical));
            if let Some(latest) = written.max(by_log) {
                held.insert(address, latest);
            }
        }
        for (units, program) in unmapped {
            for (_, (version, physical)) in held.range_mut(units.each()) {
                if *version <= *program {
                    *physical = None;
                }
            }
        }
        held.into_iter().filter_map(|(address, (_, at))| Some((address, at?))).collect()
    }
}
