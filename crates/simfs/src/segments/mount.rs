//! Making a file system, and mounting what is on a drive: the newest checkpoint, what is rolled forward from it, and a checkpoint of
//! that.
//!
//! A mount that is cut off is repeated: until its checkpoint is durable nothing is written to what the last one refers to, or to what
//! was rolled forward.

use super::files::{File, Node};
use super::node::{HOLE, NodeBlock, is_place};
use super::pack::{Packs, division, packs};
use super::sections::State as Use;
use super::settings::{Barrier, Settings};
use super::state::{Contents, Log, LogKind, Owner, State};
use crate::error::Error;
use crate::machine::Machine;
use fragmend_flash::command::Units;
use std::collections::BTreeMap;

/// Makes an empty file system, durably.
///
/// # Errors
/// The parameters do not fit the drive, or the drive refuses.
pub fn format(machine: &Machine, settings: &Settings) -> Result<State, Error> {
    let mut state = State::new(machine, settings)?;
    let sections = 2 * state.geometry.area_sections + state.geometry.sections;
    for section in 0..sections {
        state.reset_zone(section * state.geometry.section)?;
    }
    if settings.zone_blocks.is_none() {
        // What was there before has no first pack any more.
        for area in 0..2 {
            let first = Units::new(state.geometry.area_start(area), 1);
            state.put(&[first], &mut Contents::new())?;
        }
        state.flush()?;
    }
    state.checkpoint()?;
    Ok(state)
}

/// Mounts what is on a drive.
///
/// # Errors
/// It is no such file system, or damaged; or the drive refuses.
pub fn mount(machine: &Machine, settings: &Settings) -> Result<State, Error> {
    let mut state = State::new(machine, settings)?;
    let [first, second] = [0, 1].map(|area| packs(machine, &state.geometry, area));
    let newest = if second.version() > first.version() { second } else { first };
    state.read_packs(&newest)?;
    let nat = load_tables(&mut state, newest)?;
    state.load_files(nat)?;
    let has_rolled = state.roll_forward()?;
    state.count_used();
    let starts_anew = has_rolled && state.keeps(Barrier::NewLogsAfterRecovery);
    if starts_anew || settings.zone_blocks.is_some() {
        LogKind::ALL.into_iter().try_for_each(|kind| state.leave_section(kind))?;
    }
    state.close_zones()?;
    state.checkpoint()?;
    Ok(state)
}

/// Takes over the tables of a checkpoint; returns its NAT.
fn load_tables(state: &mut State, packs: Packs) -> Result<BTreeMap<(u32, u32), u32>, Error> {
    let mut nat = BTreeMap::new();
    let last = packs.tables.last().ok_or_else(|| damaged("it has no checkpoint"))?.clone();
    if last.division != division(&state.geometry) {
        return Err(damaged("it was made with other parameters"));
    }
    for tables in packs.tables {
        for (inode, number, place) in tables.nat {
            match place {
                Some(place) => _ = nat.insert((inode, number), place),
                None => _ = nat.remove(&(inode, number)),
            }
        }
        if !tables.sit.iter().all(|entry| state.sections.load(entry)) {
            return Err(damaged("an entry of its segment information table"));
        }
    }
    (state.version, state.area, state.area_next) = (last.version, packs.area, None);
    (state.next_inode, state.next_generation) = (last.next_inode, last.next_generation);
    for (kind, (section, next, is_open)) in LogKind::ALL.into_iter().zip(last.logs) {
        if section >= state.geometry.sections || next > state.geometry.section {
            return Err(damaged("a log is outside the main area"));
        }
        state.logs[kind as usize] = Log { section, next, is_open };
        if is_open {
            state.sections.occupy(section, Use::Open, kind.kind());
        }
    }
    Ok(nat)
}

impl State {
    /// Lets the machine read the packs that were found.
    fn read_packs(&self, packs: &Packs) -> Result<(), Error> {
        let first = self.geometry.area_start(packs.area);
        let block = self.geometry.block_bytes;
        let blocks: usize =
            packs.tables.iter().map(|tables| crate::record::pack(tables, block).len() + 1).sum();
        if blocks > 0 {
            let units = Units::new(first, blocks as u32);
            self.machine.read(&[units], crate::file_system::Access::Direct)?;
        }
        Ok(())
    }

    /// Empties the zones that are free, and lets no other one be open: a zone may have been written to behind the place that the
    /// checkpoint has, or be open since.
    fn close_zones(&self) -> Result<(), Error> {
        if self.settings.zone_blocks.is_none() {
            return Ok(());
        }
        self.sections.iter().try_for_each(|(number, section)| {
            let first = self.geometry.place(number, 0);
            if section.state == Use::Free {
                self.reset_zone(first)
            } else {
                self.finish_zone(first)
            }
        })
    }

    /// Reads all nodes. A real one reads each when it is first used; so no time is counted here.
    fn load_files(&mut self, nat: BTreeMap<(u32, u32), u32>) -> Result<(), Error> {
        let mut of_file: BTreeMap<u32, Vec<(NodeBlock, u32)>> = BTreeMap::new();
        for ((inode, number), place) in nat {
            let block = self
                .node_at(place)
                .filter(|block| (block.inode, block.number) == (inode, number))
                .ok_or_else(|| {
                    damaged(format!("node {number} of inode {inode} is not at {place}"))
                })?;
            of_file.entry(inode).or_default().push((block, place));
        }
        of_file.into_iter().try_for_each(|(inode, blocks)| self.load_file(inode, blocks))
    }

    fn load_file(&mut self, inode: u32, blocks: Vec<(NodeBlock, u32)>) -> Result<(), Error> {
        let attributes = blocks.first().and_then(|(first, _)| first.attributes.clone());
        let attributes = attributes.ok_or_else(|| damaged(format!("inode {inode} is missing")))?;
        let mut nodes = BTreeMap::new();
        for (block, place) in blocks {
            self.set_owner(place, Owner { inode, number: block.number });
            let first = self.capacity.first(block.number);
            for (number, address) in (first..).zip(&block.addresses) {
                self.own(inode, number, *address)?;
            }
            nodes.insert(block.number, Node::read(place, block.addresses));
        }
        let path = attributes.path.clone();
        if self.files.add(inode, File { attributes, nodes, written: 0 }) {
            Ok(())
        } else {
            Err(damaged(format!("two files are {}", path.display())))
        }
    }

    /// A block of a file is at an address.
    pub fn own(&mut self, inode: u32, block: u64, address: u32) -> Result<(), Error> {
        if is_place(address) {
            if !self.geometry.is_main(address) {
                return Err(damaged(format!("a block of inode {inode} is at {address}")));
            }
            self.set_owner(address, Owner { inode, number: block as u32 });
        }
        Ok(())
    }

    /// The node in a block of the main area.
    pub fn node_at(&self, place: u32) -> Option<NodeBlock> {
        if !self.geometry.is_main(place) {
            return None;
        }
        NodeBlock::decode(&self.machine.bytes(Units::new(place, 1)), self.capacity)
    }

    fn count_used(&mut self) {
        let of_node =
            |node: &Node| 1 + node.addresses.iter().filter(|a| **a != HOLE).count() as u64;
        let used = self.files.iter().flat_map(|(_, file)| file.nodes.values().map(of_node)).sum();
        self.used = used;
    }
}

/// What is on the drive is not what it should be.
pub fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged(what.into())
}
