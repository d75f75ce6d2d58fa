//! Checkpoint packs: what they hold, and how they are found again.
//!
//! A pack is the tables, as a record, and behind them the checkpoint block with the same version. The first pack of an area has all
//! of NAT and SIT, each further one what has changed since the one before it (F2FS's journals of both); their versions follow each
//! other. When an area is full, or after a mount, the next pack begins the other area, with all tables. So the newest checkpoint is
//! the last whole pack of the area whose packs have the higher versions, on drives with zones as well: a pack is never overwritten,
//! and an area is emptied only while the other one has the newest.

use super::sections::Entry;
use super::settings::Geometry;
use super::state::Log;
use crate::machine::Machine;
use crate::record;
use fragmend_flash::command::Units;
use serde::{Deserialize, Serialize};

/// Where a node is: its file, its number there, and its place; none if it is gone.
pub type NatEntry = (u32, u32, Option<u32>);

/// The tables of a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tables {
    /// The checkpoint's number.
    pub version: u64,
    /// Whether all of NAT and SIT is in it.
    pub is_full: bool,
    /// Blocks of a section, sections of an area and of the main area.
    pub division: (u32, u32, u32),
    pub nat: Vec<NatEntry>,
    pub sit: Vec<Entry>,
    /// The logs: the section, the next block there, and whether it is open.
    pub logs: [(u32, u32, bool); 4],
    pub next_inode: u32,
    pub next_generation: u32,
}

/// The block that makes a pack a checkpoint.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckpointBlock {
    /// The version of the tables before it.
    pub version: u64,
}

/// The packs of an area, from its start to the last whole one.
pub struct Packs {
    /// The area.
    pub area: u32,
    /// The tables, the first one full.
    pub tables: Vec<Tables>,
}

impl Packs {
    /// The version of the last one; 0 if there is none.
    pub fn version(&self) -> u64 {
        self.tables.last().map_or(0, |tables| tables.version)
    }
}

/// How the drive is divided, as tables have it.
pub fn division(geometry: &Geometry) -> (u32, u32, u32) {
    (geometry.section, geometry.area_sections, geometry.sections)
}

/// The logs, as tables have them.
pub fn packed_logs(logs: &[Log; 4]) -> [(u32, u32, bool); 4] {
    logs.map(|log| (log.section, log.next, log.is_open))
}

/// Reads the packs of an area.
pub fn packs(machine: &Machine, geometry: &Geometry, area: u32) -> Packs {
    let (start, end) = (geometry.area_start(area), geometry.area_start(area + 1));
    let mut packs = Packs { area, tables: Vec::new() };
    let mut at = start;
    while let Some((tables, blocks)) = pack_at(machine, at, end) {
        let follows = match packs.tables.last() {
            None => tables.is_full,
            Some(last) => !tables.is_full && tables.version == last.version + 1,
        };
        if !follows {
            break;
        }
        packs.tables.push(tables);
        at += blocks;
    }
    packs
}

/// The pack that begins at this block, and its blocks.
fn pack_at(machine: &Machine, at: u32, end: u32) -> Option<(Tables, u32)> {
    let block = machine.block_bytes() as usize;
    if at >= end {
        return None;
    }
    let count = record::blocks(&machine.bytes(Units::new(at, 1)), block)?;
    let count = u32::try_from(count).ok().filter(|count| *count < end - at)?;
    let tables: Tables = record::unpack(&machine.bytes(Units::new(at, count)))?;
    let checkpoint: CheckpointBlock = record::unpack(&machine.bytes(Units::new(at + count, 1)))?;
    (checkpoint.version == tables.version).then_some((tables, count + 1))
}
