//! The state of a mounted file system: its tables, its logs, and the operations by which they change together.

use super::Counts;
use super::files::{File, Files, Node};
use super::node::{Capacity, HOLE, is_place};
use super::sections::{Kind, Sections};
use super::settings::{Barrier, Geometry, Settings};
use crate::cache::PageCache;
use crate::error::Error;
use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::readahead::Readahead;
use fragmend_flash::command::{Command, Hint, Units, ZoneAction};
use fragmend_flash::device::Bytes;
use fragmend_flash::host::HostPath;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The logs. Each has a section open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Data that is expected to be overwritten soon.
    Hot,
    /// Other data.
    Warm,
    /// Data that was moved, by the cleaner or the mover, or is expected to stay.
    Cold,
    /// Nodes.
    Node,
}

impl LogKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hot, Self::Warm, Self::Cold, Self::Node];

    /// What its sections hold.
    pub fn kind(self) -> Kind {
        if self == Self::Node { Kind::Node } else { Kind::Data }
    }
}

/// A log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The section that it has open, or had last.
    pub section: u32,
    /// The next block there.
    pub next: u32,
    /// Whether it has one open.
    pub is_open: bool,
}

/// What a block of the drive belongs to: a block of a file, or one of its nodes, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The file.
    pub inode: u32,
    /// The number of the block, or of the node.
    pub number: u32,
}

/// The contents of blocks that are written, by place; empty where the drive keeps none.
pub type Contents = BTreeMap<u32, Box<[u8]>>;

/// The state.
pub struct State {
    pub machine: Machine,
    pub settings: Settings,
    pub geometry: Geometry,
    pub capacity: Capacity,
    pub files: Files,
    pub sections: Sections,
    pub logs: [Log; 4],
    /// What each block of the main area belongs to, if it is valid (F2FS's summary area).
    pub owners: Vec<Owner>,
    pub cache: PageCache,
    /// The host's path, and the readahead of each file that was read through the page cache.
    pub path: HostPath,
    pub readahead: BTreeMap<u32, Readahead>,
    /// Blocks that are valid, or promised: to what is in memory only, and to nodes that were never written.
    pub used: u64,
    /// Nodes that differ from their blocks.
    pub dirty_nodes: BTreeSet<(u32, u32)>,
    /// Nodes whose places differ from those that the last checkpoint has.
    pub moved_nodes: BTreeSet<(u32, u32)>,
    /// Names that files had at the last checkpoint, or since, and have no more.
    pub retired: BTreeSet<PathBuf>,
    /// Files to which something has happened since that a roll-forward cannot repeat.
    pub unrepeatable: BTreeSet<u32>,
    /// The last checkpoint.
    pub version: u64,
    pub checkpointed_ns: u64,
    /// Node sections that were cleaned since: their nodes are written by the next one.
    pub cleaned_nodes: BTreeSet<u32>,
    /// When the cleaner last worked in the background.
    pub cleaned_ns: u64,
    /// The area of the last checkpoint pack, and the block of it at which the next one begins; none until the first pack after a
    /// mount, which begins the other area.
    pub area: u32,
    pub area_next: Option<u32>,
    /// The next inode, and the next generation.
    pub next_inode: u32,
    pub next_generation: u32,
    /// Writes so far, and how many of them are durable.
    pub writes: u64,
    pub flushed: u64,
    /// When the drive has completed the copies that it was asked for.
    pub copies_end_ns: u64,
    pub counts: Counts,
    pub monitor: Option<Monitor>,
}

impl State {
    /// An empty file system.
    ///
    /// # Errors
    /// The parameters do not fit the drive.
    pub fn new(machine: &Machine, settings: &Settings) -> Result<Self, Error> {
        let geometry = Geometry::new(machine.blocks(), machine.block_bytes(), settings)?;
        let blocks = geometry.sections as usize * geometry.section as usize;
        Ok(Self {
            machine: machine.clone(),
            settings: settings.clone(),
            geometry,
            capacity: Capacity::new(geometry.block_bytes, settings.node_addresses),
            files: Files::default(),
            sections: Sections::new(geometry.sections, geometry.section),
            logs: [Log::default(); 4],
            owners: vec![Owner::default(); blocks],
            cache: PageCache::new(settings.cache_blocks),
            path: machine.path(),
            readahead: BTreeMap::new(),
            used: 0,
            dirty_nodes: BTreeSet::new(),
            moved_nodes: BTreeSet::new(),
            retired: BTreeSet::new(),
            unrepeatable: BTreeSet::new(),
            version: 0,
            checkpointed_ns: machine.now_ns(),
            cleaned_nodes: BTreeSet::new(),
            cleaned_ns: machine.now_ns(),
            area: 1,
            area_next: None,
            next_inode: 1,
            next_generation: 1,
            writes: 0,
            flushed: 0,
            copies_end_ns: 0,
            counts: Counts::default(),
            monitor: None,
        })
    }

    /// Whether a barrier is kept.
    pub fn keeps(&self, barrier: Barrier) -> bool {
        self.settings.omit != Some(barrier)
    }

    /// The section of a block, and its offset there.
    pub fn locate(&self, place: u32) -> (u32, u32) {
        self.geometry.locate(place)
    }

    /// What a valid block belongs to.
    pub fn owner(&self, place: u32) -> Owner {
        self.owners[self.owner_index(place)]
    }

    pub fn set_owner(&mut self, place: u32, owner: Owner) {
        let index = self.owner_index(place);
        self.owners[index] = owner;
    }

    fn owner_index(&self, place: u32) -> usize {
        (place - self.geometry.place(0, 0)) as usize
    }

    /// Whether a block is valid.
    pub fn is_valid(&self, place: u32) -> bool {
        let (section, offset) = self.locate(place);
        self.sections.is_valid(section, offset)
    }

    /// The place of a log's next block; opens a section if it has none open.
    ///
    /// # Errors
    /// No section is free.
    pub fn next_place(&mut self, kind: LogKind) -> Result<u32, Error> {
        if !self.logs[kind as usize].is_open {
            self.open_run(kind, 1)?;
        }
        let Log { section, next, .. } = self.logs[kind as usize];
        Ok(self.geometry.place(section, next))
    }

    /// Allocates the next block of a log.
    ///
    /// # Errors
    /// No section is free.
    pub fn allocate(&mut self, kind: LogKind, owner: Owner) -> Result<u32, Error> {
        let place = self.next_place(kind)?;
        let (section, offset) = self.locate(place);
        self.sections.add(section, offset, self.machine.now_ns());
        self.set_owner(place, owner);
        let log = &mut self.logs[kind as usize];
        log.next += 1;
        if log.next == self.geometry.section {
            log.is_open = false;
            self.sections.close(section);
        }
        Ok(place)
    }

    /// A log that has no section open begins with the first of so many adjacent free ones.
    ///
    /// # Errors
    /// There are no such sections.
    pub fn open_run(&mut self, kind: LogKind, count: u32) -> Result<(), Error> {
        let log = &mut self.logs[kind as usize];
        let opened = self.sections.open(log.section, count, kind.kind()).ok_or(Error::NoSpace)?;
        *log = Log { section: opened, next: 0, is_open: true };
        Ok(())
    }

    /// A block is not valid any more.
    pub fn invalidate(&mut self, place: u32) {
        let (section, offset) = self.locate(place);
        self.sections.remove(section, offset, self.machine.now_ns());
        if !self.keeps(Barrier::HeldUntilCheckpoint) && self.sections.free_too_early(section) {
            // A refusal is found by the next command.
            let _ = self.discard_section(section);
        }
    }

    /// A log leaves its section, which may not be full.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn leave_section(&mut self, kind: LogKind) -> Result<(), Error> {
        let log = &mut self.logs[kind as usize];
        if !std::mem::take(&mut log.is_open) {
            return Ok(());
        }
        let section = log.section;
        self.sections.close(section);
        self.finish_zone(self.geometry.place(section, 0))
    }

    /// Tells the drive that no more is written to the zone with this block, so that another may be open.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn finish_zone(&self, place: u32) -> Result<(), Error> {
        self.zone_command(place, ZoneAction::Finish)
    }

    /// The zone of this block is empty afterwards. Nothing on a drive without zones.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn reset_zone(&self, place: u32) -> Result<(), Error> {
        self.zone_command(place, ZoneAction::Reset)
    }

    fn zone_command(&self, place: u32, action: ZoneAction) -> Result<(), Error> {
        if let Some(blocks) = self.settings.zone_blocks {
            self.machine.command(&Command::Zone { zone: place / blocks, action })?;
        }
        Ok(())
    }

    /// Writes runs of blocks.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn put(&mut self, units: &[Units], contents: &mut Contents) -> Result<(), Error> {
        let mut content = |unit| -> Bytes { contents.remove(&unit) };
        self.machine.write(units, Hint::None, &mut content)?;
        self.writes += 1;
        Ok(())
    }

    /// Waits for the copies that the drive was asked for: a flush is for what is complete.
    pub fn wait_for_copies(&self) {
        if self.copies_end_ns > self.machine.now_ns() && self.keeps(Barrier::CopiesBeforeFlush) {
            self.machine.end_read(self.copies_end_ns);
        }
    }

    /// Makes all writes so far durable.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.wait_for_copies();
        self.machine.flush()?;
        self.flushed = self.writes;
        Ok(())
    }

    /// What users may still allocate, in blocks.
    pub fn free_blocks(&self) -> u64 {
        self.geometry.usable().saturating_sub(self.used)
    }

    /// Promises blocks.
    ///
    /// # Errors
    /// There are not so many.
    pub fn promise(&mut self, blocks: u64) -> Result<(), Error> {
        if blocks > self.free_blocks() {
            return Err(Error::NoSpace);
        }
        self.used += blocks;
        Ok(())
    }

    /// The node changes.
    pub fn dirty(&mut self, inode: u32, number: u32) {
        if let Ok(file) = self.files.get_mut(inode)
            && let Some(node) = file.nodes.get_mut(&number)
            && !std::mem::replace(&mut node.dirty, true)
        {
            self.dirty_nodes.insert((inode, number));
        }
    }

    /// Changes the address of a block of a file, whose node is there; the block that it had becomes invalid. What is promised, or
    /// used, is the caller's.
    ///
    /// # Errors
    /// The file is gone, or the node.
    pub fn set_address(&mut self, inode: u32, block: u64, address: u32) -> Result<(), Error> {
        let (number, slot) = self.capacity.slot(block);
        let file = self.files.get_mut(inode)?;
        let node = file.nodes.get_mut(&number).ok_or(Error::Gone)?;
        let before = std::mem::replace(&mut node.addresses[slot], address);
        node.used = node.used + u32::from(address != HOLE) - u32::from(before != HOLE);
        if !std::mem::replace(&mut node.dirty, true) {
            self.dirty_nodes.insert((inode, number));
        }
        if is_place(before) && before != address {
            self.invalidate(before);
        }
        Ok(())
    }

    /// Removes a node that no block needs any more.
    pub fn remove_node(&mut self, inode: u32, number: u32) {
        let Ok(file) = self.files.get_mut(inode) else { return };
        let Some(node) = file.nodes.remove(&number) else { return };
        // A roll-forward has no record of nodes that are gone.
        self.unrepeatable.insert(inode);
        self.forget_node(inode, number, &node);
    }

    /// A node is gone.
    pub fn forget_node(&mut self, inode: u32, number: u32, node: &Node) {
        self.used -= 1;
        self.dirty_nodes.remove(&(inode, number));
        if is_place(node.place) {
            self.moved_nodes.insert((inode, number));
            self.invalidate(node.place);
        }
    }

    /// All of a file is gone.
    pub fn forget_file(&mut self, inode: u32, file: &File) {
        self.cache.forget(inode.into(), 0..u64::MAX);
        self.readahead.remove(&inode);
        for (number, node) in &file.nodes {
            for address in node.addresses.iter().filter(|address| **address != HOLE) {
                self.used -= 1;
                if is_place(*address) {
                    self.invalidate(*address);
                }
            }
            self.forget_node(inode, *number, node);
        }
    }
}

/// Adds a block to runs of blocks.
pub fn add_block(runs: &mut Vec<Units>, place: u32) {
    match runs.last_mut().filter(|run| run.end() == place) {
        Some(run) => run.count += 1,
        None => runs.push(Units::new(place, 1)),
    }
}
