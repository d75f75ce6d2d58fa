//! A file system that copies on write, in the manner of Btrfs.
//!
//! | module | its job |
//! |---|---|
//! | `tables` | super blocks, the map of inodes, inodes and leaves as blocks, and back |
//! | `commit` | a transaction: new blocks for all metadata that has changed, then the super block |
//!
//! Neither data nor metadata that the last commit refers to is overwritten: what changes gets a new place, and the old one is free after
//! the next commit. A super block is written last, behind a flush, to the one of its two places that has the older one. Files can share
//! blocks (reflink); how many files have a block is counted in memory from the extents of all files when it is mounted.
//!
//! Differences from Btrfs: the tree is a map of inodes with one level of blocks between super block and inodes, and the extents of each
//! file in leaves of their own; there is no extent tree on the drive; `fsync` commits the transaction, because there is no log tree. What
//! it frees is held until the next transaction that no `fsync` has asked for, as on Btrfs, whose log tree leaves it pinned until then.
//! Metadata has a part of the drive of its own, as Btrfs has chunks for it. Space that was allocated and never written is written in
//! place once, as on Btrfs.

mod commit;
mod tables;

use crate::error::Error;
use crate::extent_map::Piece;
use crate::files::{File, Files};
use crate::machine::{Machine, Program};
use crate::mounted::{Kind, Mounted, Settings, State};
use crate::owners::Owners;
use crate::space::Space;
use fragmend_flash::command::Units;
use fragmend_layout::FsKind;
use std::collections::BTreeMap;
use tables::Super;

/// Bytes of a group, in which allocation looks for space in turn: a chunk of data of Btrfs.
const GROUP_BYTES: u64 = 1 << 30;

/// What it is made and mounted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What all kinds have.
    pub settings: Settings,
    /// Blocks for metadata.
    pub metadata_blocks: u32,
    /// Whether data that no other file shares is overwritten in place (`nodatacow`).
    pub nocow: bool,
}

impl Options {
    /// A thirty-second of the drive for metadata, and commits every 30 s, as Btrfs does.
    pub fn of(machine: &Machine) -> Self {
        Self {
            settings: Settings { commit_ns: 30_000_000_000, ..Settings::default() },
            metadata_blocks: (machine.blocks() / 32).max(128),
            nocow: false,
        }
    }
}

/// Such a file system.
pub type Cow = Mounted<OfCow>;

/// What its state has besides that of all kinds.
pub struct OfCow {
    head: Super,
    /// The free blocks for metadata; all others of the drive are taken there.
    metadata: Space,
    /// Blocks of metadata that are free after the next commit.
    left: Vec<Units>,
    /// Where each inode is.
    inodes: BTreeMap<u64, Units>,
    nocow: bool,
}

impl Cow {
    /// Makes an empty file system on the machine's drive, durably, and mounts it.
    ///
    /// # Errors
    /// The drive is too small, or refuses.
    pub fn format(machine: &Machine, options: &Options) -> Result<Self, Error> {
        if machine.blocks() <= tables::FIRST + options.metadata_blocks {
            return Err(Error::NoSpace);
        }
        // What another one has left there must not be newer.
        for n in 0..tables::FIRST {
            machine.command(&fragmend_flash::command::Command::Trim(Units::new(n, 1)))?;
        }
        let head = Super::new(machine, options.metadata_blocks);
        head.write(machine)?;
        machine.flush()?;
        let (data, metadata) = spaces(machine, options.metadata_blocks);
        let kind = OfCow {
            head,
            metadata,
            left: Vec::new(),
            inodes: BTreeMap::new(),
            nocow: options.nocow,
        };
        let (files, owners) = (Files::default(), Owners::default());
        Ok(Self::new(machine, &options.settings, files, data, owners, kind))
    }

    /// Mounts what the newer super block on the machine's drive refers to.
    ///
    /// # Errors
    /// There is no such file system, or the drive refuses.
    pub fn mount(machine: &Machine, options: &Options) -> Result<Self, Error> {
        let head = Super::read(machine)?;
        let tables = tables::read(&head, machine).map_err(Error::Damaged)?;
        let (mut data, mut metadata) = spaces(machine, head.metadata_blocks);
        let taken = |space: &mut Space, part: std::ops::Range<u64>| {
            space.take(Units::new(part.start as u32, (part.end - part.start) as u32));
        };
        tables.data.ranges().for_each(|part| taken(&mut data, part));
        tables.metadata.ranges().for_each(|part| taken(&mut metadata, part));
        let mut files = Files::default();
        for (inode, file) in tables.files {
            files.add(inode, file);
        }
        let (left, inodes, nocow) = (Vec::new(), tables.inodes, options.nocow);
        let kind = OfCow { head, metadata, left, inodes, nocow };
        Ok(Self::new(machine, &options.settings, files, data, tables.owners, kind))
    }
}

/// The free blocks for data and for metadata.
fn spaces(machine: &Machine, metadata_blocks: u32) -> (Space, Space) {
    let (blocks, end) = (machine.blocks(), tables::FIRST + metadata_blocks);
    let per_group = (GROUP_BYTES / machine.block_bytes()) as u32;
    let mut data = Space::new(blocks, per_group);
    data.take(Units::new(0, end));
    let mut metadata = Space::new(end, per_group);
    metadata.take(Units::new(0, tables::FIRST));
    (data, metadata)
}

impl Kind for OfCow {
    const IMITATES: FsKind = FsKind::Btrfs;
    const NAME: &'static str = "cow";
    /// 128 MiB of blocks of 4 KiB (`BTRFS_MAX_EXTENT_SIZE`).
    const LONGEST: u32 = 32768;
    const SHARES: bool = true;
    const PINS: bool = true;

    fn most_files(&self) -> u64 {
        self.head.most_files()
    }

    fn longest_path(&self) -> usize {
        self.head.longest_path()
    }

    fn overwrites(&self, piece: &Piece) -> bool {
        self.nocow || piece.unwritten
    }

    /// In the first run that is long enough from where the file has these blocks on, or those before them
    /// (`get_extent_allocation_hint` in fs/btrfs/inode.c); for a file without blocks from the first one on.
    fn place(
        &mut self,
        space: &mut Space,
        file: &mut File,
        block: u64,
        count: u32,
        _: Program,
    ) -> Option<Units> {
        let near = file.map.at(block).or_else(|| file.map.before(block));
        space.allocate_behind(near.map_or(0, |piece| piece.place), count)
    }

    fn unreserve(&mut self, _: &mut Space, _: &mut File) {}

    fn leave_metadata(state: &mut State<Self>, place: u32) -> Result<(), Error> {
        state.kind.left.push(Units::new(place, 1));
        Ok(())
    }

    fn commit(state: &mut State<Self>) -> Result<(), Error> {
        commit::commit(state)
    }

    fn check(state: &State<Self>) -> Result<(), String> {
        commit::check(state)
    }
}
