//! A file system that updates in place, in the manner of ext4.
//!
//! | module | its job |
//! |---|---|
//! | `places` | where on the drive its tables are |
//! | `allocate` | the multiblock allocator: reservation, locality group, streams |
//! | `journal` | the log of metadata blocks: commits, checkpoints, revokes, replay |
//! | `tables` | inodes, leaves and bitmaps as blocks, and back |
//! | `commit` | a transaction: which blocks it writes |
//!
//! Metadata is journalled, data is ordered: it is on the drive before the commit that refers to it. Differences from ext4: an inode has a
//! block of its own, with its file's name, because there are no directories; the leaves of extents are a chain and not a tree, as all of
//! it is in memory once it is mounted; bitmaps and inode tables are together at the beginning, as with one flexible group; a checkpoint
//! writes all that the journal holds.

mod allocate;
mod commit;
mod journal;
mod places;
mod tables;

use crate::error::Error;
use crate::extent_map::Piece;
use crate::files::{File, Files};
use crate::machine::{Machine, Program};
use crate::mounted::{Changes, Kind, Mounted, Omit, Primitive, Settings, State};
use crate::owners::Owners;
use crate::record;
use crate::space::{Rule, Space};
use fragmend_flash::command::{Command, Hint, LogAction, Refused, Units};
use fragmend_layout::FsKind;
use journal::Journal;
use places::Places;
use std::collections::BTreeMap;

/// What it is made and mounted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What all kinds have.
    pub settings: Settings,
    /// Blocks of a group; no more than a block has bits.
    pub blocks_per_group: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// How many files there can be.
    pub inodes: u32,
    /// Whether space behind what is written is reserved for what the file will grow by.
    pub reservation: bool,
    /// Whether small files are placed next to each other, in a run that is theirs (locality group).
    pub locality: bool,
    /// Whether all files count as small, at any size (`mb_stream_req` with a large number): each program, which has a processor of its
    /// own, allocates what it writes from a run that is the processor's.
    pub all_small: bool,
    /// Whether the journal is at the end of the drive, and not at its beginning. So it is on a drive of its own where the machine's drive
    /// is two [joined](fragmend_flash::joined) ones (`mke2fs -J device=`).
    pub journal_last: bool,
    /// How data is brought to a new place.
    pub primitive: Primitive,
    /// Whether files that are in fragments once they are written are brought to a place where they are in one (janusd, section 7).
    pub defrag_on_write: bool,
}

impl Options {
    /// What `mke2fs` chooses for a drive: groups of as many blocks as a block has bits, a journal of a sixty-fourth of the drive between 4
    /// and 128 MiB, an inode for 16 KiB, but at most 65,536, since each has a block here.
    pub fn of(machine: &Machine) -> Self {
        let block = machine.block_bytes() as u32;
        let blocks = machine.blocks();
        Self {
            settings: Settings::default(),
            blocks_per_group: 8 * block,
            journal_blocks: (blocks / 64).clamp((4 << 20) / block, (128 << 20) / block),
            inodes: (blocks / (16384 / block).max(1)).clamp(16, 1 << 16),
            reservation: true,
            locality: true,
            all_small: false,
            journal_last: false,
            primitive: Primitive::Copy,
            defrag_on_write: false,
        }
    }
}

/// Such a file system.
pub type InPlace = Mounted<OfInPlace>;

/// What its state has besides that of all kinds.
pub struct OfInPlace {
    places: Places,
    journal: Journal,
    reservation: bool,
    locality: bool,
    all_small: bool,
    /// Where the next large file that has no goal of its own is looked for.
    stream: u32,
    /// What is reserved for small files: for all programs together, or, if all files are small, for each program.
    small: BTreeMap<Option<Program>, Units>,
}

impl InPlace {
    /// Makes an empty file system on the machine's drive, durably, and mounts it.
    ///
    /// # Errors
    /// The drive is too small for its tables, or refuses.
    pub fn format(machine: &Machine, options: &Options) -> Result<Self, Error> {
        let places = Places::new(machine, options)?;
        let block = machine.block_bytes() as usize;
        let head = record::pack(&places, block);
        machine.write(&[Units::new(0, 1)], Hint::None, &mut |_| Some(head[0].clone()))?;
        // Inodes that are not used are zeroes.
        machine.command(&Command::Trim(places.table()))?;
        let mut space = Space::new(places.blocks, places.per_group).with(Rule::Multiblock);
        places.tables().into_iter().for_each(|units| space.take(units));
        for group in 0..places.groups() {
            let bitmap =
                tables::kept(machine, || tables::bitmap(&space, &[], &places, group, block));
            machine.write(&[places.bitmap(group)], Hint::None, &mut |_| bitmap.clone())?;
        }
        let journal = Journal::format(machine, places.journal())?;
        Ok(Self::with(machine, options, places, journal, Files::default(), space))
    }

    /// Mounts what is on the machine's drive: what the journal has is written to its places, and the tables are read.
    ///
    /// # Errors
    /// There is no such file system, or the drive refuses.
    pub fn mount(machine: &Machine, options: &Options) -> Result<Self, Error> {
        let head = machine.bytes(Units::new(0, 1));
        let places: Places = record::unpack(&head)
            .filter(|places: &Places| places.is_of(machine))
            .ok_or_else(|| Error::Damaged("its first block is no super block".into()))?;
        let journal = recover(machine, places.journal(), options.settings.omit)?;
        let read = |units: Units| machine.bytes(units);
        let tables = tables::read(&places, &read).map_err(Error::Damaged)?;
        let mut files = Files::default();
        for (inode, file) in tables.files {
            files.add(inode, file);
        }
        Ok(Self::with(machine, options, places, journal, files, tables.space))
    }

    fn with(
        machine: &Machine,
        options: &Options,
        places: Places,
        journal: Journal,
        files: Files,
        space: Space,
    ) -> Self {
        let kind = OfInPlace {
            stream: places.first_data(),
            places,
            journal,
            reservation: options.reservation,
            locality: options.locality,
            all_small: options.all_small,
            small: BTreeMap::new(),
        };
        let mounted = Self::new(machine, &options.settings, files, space, Owners::default(), kind);
        mounted.move_by(options.primitive, options.defrag_on_write);
        mounted
    }
}

/// Replays the journal, and undoes remaps that are not committed: janusd's modified `fsck`. The order: `mounted/remap.rs`.
fn recover(machine: &Machine, place: Units, omit: Option<Omit>) -> Result<Journal, Error> {
    let is_committed = match machine.command(&Command::DefragLog(LogAction::Check)) {
        Ok(checked) => checked.committed,
        // A drive without remaps.
        Err(Refused::Unsupported) => true,
        Err(refused) => return Err(refused.into()),
    };
    let discard = || match omit {
        Some(Omit::LogDiscard) => Ok(()),
        _ if is_committed => Ok(()),
        _ => machine.command(&Command::DefragLog(LogAction::Discard)).map(drop),
    };
    if omit == Some(Omit::RollBackFirst) {
        discard()?;
    }
    let undoes_remaps = !is_committed && omit != Some(Omit::RollBack);
    let journal = Journal::replay(machine, place, undoes_remaps)?;
    if omit != Some(Omit::RollBackFirst) {
        discard()?;
    }
    Ok(journal)
}

impl Kind for OfInPlace {
    const IMITATES: FsKind = FsKind::Ext4;
    const NAME: &'static str = "inplace";
    const LONGEST: u32 = 32768;
    const SHARES: bool = false;

    fn most_files(&self) -> u64 {
        self.places.inodes.into()
    }

    fn longest_path(&self) -> usize {
        self.places.longest_path()
    }

    fn overwrites(&self, _: &Piece) -> bool {
        true
    }

    fn place(
        &mut self,
        space: &mut Space,
        file: &mut File,
        block: u64,
        count: u32,
        program: Program,
    ) -> Option<Units> {
        allocate::place(self, space, file, block..block + u64::from(count), program)
    }

    fn unreserve(&mut self, space: &mut Space, file: &mut File) {
        if let Some((_, units)) = file.reserved.take() {
            space.let_go(units);
        }
    }

    fn unreserve_all(&mut self, space: &mut Space) {
        for units in std::mem::take(&mut self.small).into_values() {
            space.let_go(units);
        }
    }

    /// A transaction must fit into the journal: an inode with a leaf or two, and the bitmaps. JBD2 commits at a quarter.
    fn is_full(&self, changes: &Changes) -> bool {
        let blocks = changes.inodes.len() * 3 + changes.groups.len() + changes.leaves.len() / 16;
        blocks as u32 > self.journal.blocks() / 4
    }

    fn commit(state: &mut State<Self>) -> Result<(), Error> {
        commit::commit(state)
    }

    fn prepare_remap(state: &mut State<Self>) -> Result<(), Error> {
        let (machine, omit) = (state.machine.clone(), state.settings.omit);
        state.kind.journal.settle(&machine, omit)
    }

    fn check(state: &State<Self>) -> Result<(), String> {
        commit::check(state)
    }
}
