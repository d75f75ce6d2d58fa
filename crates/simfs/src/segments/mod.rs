//! A log-structured file system in the manner of F2FS (Lee et al., FAST'15), for drives with zones and without.
//!
//! | module | its job |
//! |---|---|
//! | `settings` | parameters; how the drive is divided into areas, segments, sections |
//! | `sections` | the segment information table (SIT): what is valid, and what is held until the next checkpoint |
//! | `node`, `files` | node blocks; files with their nodes and names in memory |
//! | `state` | all tables, the open logs, and the operations by which they change together |
//! | `io` | reads, writes, writeback |
//! | `fsync` | one file durable, by marked nodes |
//! | `checkpoint`, `pack` | all durable, by a pack of NAT and SIT in one of two areas |
//! | `mount`, `recovery` | the newest checkpoint, and what is rolled forward from it |
//! | `clean` | the cleaner: victims, and the order of their blocks |
//! | `mover`, `in_device` | a file that is open for relocation; copies that the drive makes |
//! | `check` | what `fsck` compares |
//!
//! What it has of F2FS: logs for hot, warm and cold data and for nodes; the node address table (NAT), through which a node moves
//! without its parent; the SIT; checkpoints in two alternating places, whose last block is written behind a flush; roll-forward after
//! an fsync; in-place updates as a switch; discards after a checkpoint. What it has not: directories (a file's path is in its inode),
//! indirect nodes, inline data, compression, threaded logging (SSR) where no section is free.
//!
//! The argument why a power cut loses nothing is at the head of `checkpoint`, `fsync`, `mount`, `clean` and `mover`; each step of it
//! is a [`Barrier`] that a test leaves out.

mod check;
mod checkpoint;
mod clean;
mod files;
mod fsync;
mod in_device;
mod io;
mod mount;
mod mover;
mod node;
mod pack;
mod recovery;
mod sections;
mod settings;
mod state;
mod volume;

pub use clean::{Cleaning, CopyOrder, Victims};
pub use settings::{Barrier, Discard, Settings};

use crate::error::Error;
use crate::machine::Machine;
use crate::monitor::Monitor;
use fragmend_layout::FileId;
use state::State;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How long the data of a file is expected to stay as it is, which decides to which log it is written (`F_SET_RW_HINT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temperature {
    /// Not long.
    Hot,
    /// Not known.
    #[default]
    Warm,
    /// Long.
    Cold,
}

impl Temperature {
    /// The one with this number.
    fn from_number(number: u32) -> Option<Self> {
        [Self::Hot, Self::Warm, Self::Cold].into_iter().find(|own| *own as u32 == number)
    }
}

/// What moves data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Primitive {
    /// The host reads it, and writes it to the log.
    #[default]
    ThroughHost,
    /// The same as F2FS's own ioctl does it (`f2fs_defragment_range` in fs/f2fs/file.c of Linux 4.10): it waits for each block that is not
    /// in the page cache before it asks for the next one, and writes when it has all of the range.
    BlockByBlock,
    /// The drive copies it between its zones (InDeF's `In_Device_Defragment`), except for what is dirty in memory.
    InDevice,
}

impl Primitive {
    /// Its name in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThroughHost => "ThroughHost",
            Self::BlockByBlock => "BlockByBlock",
            Self::InDevice => "InDevice",
        }
    }
}

/// What was done since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Segments whose valid blocks the cleaner has copied; a checkpoint frees them.
    pub segments_cleaned: u64,
    /// Blocks of files that it has copied.
    pub blocks_copied: u64,
    /// Nodes that it has had written anew.
    pub nodes_copied: u64,
    /// Blocks of files that the drive has copied itself, for the mover.
    pub copied_in_device: u64,
    /// In how many fragments the cleaner's blocks of files were, and are: runs that are contiguous in their file and on the drive.
    pub fragments_before: u64,
    /// See `fragments_before`.
    pub fragments_after: u64,
}

/// A mounted file system. All clones are the same one.
#[derive(Clone)]
pub struct LogStructured {
    machine: Machine,
    state: Rc<RefCell<State>>,
    primitive: Rc<Cell<Primitive>>,
}

impl LogStructured {
    /// Makes an empty file system on the machine's drive, durably, and mounts it.
    ///
    /// # Errors
    /// The parameters do not fit the drive, or the drive refuses.
    pub fn format(machine: &Machine, settings: &Settings) -> Result<Self, Error> {
        mount::format(machine, settings).map(|state| Self::of(machine, state))
    }

    /// Mounts what is on the machine's drive, which keeps content.
    ///
    /// # Errors
    /// It is no such file system, or damaged; or the drive refuses.
    pub fn mount(machine: &Machine, settings: &Settings) -> Result<Self, Error> {
        mount::mount(machine, settings).map(|state| Self::of(machine, state))
    }

    fn of(machine: &Machine, state: State) -> Self {
        let (machine, primitive) = (machine.clone(), Rc::default());
        Self { machine, state: Rc::new(RefCell::new(state)), primitive }
    }

    /// From now on this moves the data of files that are opened for relocation.
    ///
    /// # Errors
    /// Only drives with zones copy by themselves.
    pub fn set_primitive(&self, primitive: Primitive) -> Result<(), Error> {
        if primitive == Primitive::InDevice && self.state.borrow().settings.zone_blocks.is_none() {
            return Err(Error::Unsupported("only drives with zones copy by themselves"));
        }
        self.primitive.set(primitive);
        Ok(())
    }

    /// From now on reads that reach the drive are seen by this monitor, or by none; returns the one that was there.
    pub fn set_monitor(&self, monitor: Option<Monitor>) -> Option<Monitor> {
        std::mem::replace(&mut self.state.borrow_mut().monitor, monitor)
    }

    /// Bytes of the page cache that are in use.
    pub fn cached_bytes(&self) -> u64 {
        self.state.borrow().cache.blocks() * self.machine.block_bytes()
    }

    /// Sets how long the data of a file is expected to stay as it is.
    ///
    /// # Errors
    /// It is gone.
    pub fn set_temperature(&self, file: FileId, temperature: Temperature) -> Result<(), Error> {
        let inode = self.inode(file)?;
        let mut state = self.state.borrow_mut();
        state.files.get_mut(inode)?.attributes.temperature = temperature;
        state.dirty(inode, 0);
        Ok(())
    }

    /// Cleans in the background: up to this many batches, and a checkpoint that frees their victims. Returns how many victims there
    /// were.
    ///
    /// # Errors
    /// No section is free, or the drive refuses.
    pub fn clean(&self, batches: u32) -> Result<u32, Error> {
        let mut state = self.state.borrow_mut();
        let mut victims = 0;
        for _ in 0..batches {
            state.make_space(0)?;
            let policy = state.settings.cleaning.background;
            match state.clean(policy)? {
                0 => break,
                count => victims += count,
            }
        }
        if victims > 0 {
            state.checkpoint()?;
        }
        Ok(victims)
    }

    /// Changes how the cleaner works, except for its batch, which the spare space is made for.
    pub fn set_cleaning(&self, cleaning: Cleaning) {
        let mut state = self.state.borrow_mut();
        let batch = state.settings.cleaning.batch;
        state.settings.cleaning = Cleaning { batch, ..cleaning };
    }

    /// What was done since it was mounted.
    pub fn counts(&self) -> Counts {
        self.state.borrow().counts
    }

    /// Sections that are free.
    pub fn free_sections(&self) -> u32 {
        self.state.borrow().sections.free()
    }

    /// The degree of fragmentation of each section (APSys'16, algorithm 1), in the order of the drive.
    pub fn degrees(&self) -> Vec<u64> {
        let state = self.state.borrow();
        (0..state.geometry.sections).map(|section| state.degree(section)).collect()
    }
}
