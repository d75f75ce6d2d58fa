//! A mounted file system that keeps its files' extents in maps: what `inplace` and `cow` have in common. They differ in where data goes
//! and in how a transaction becomes durable, which is their [`Kind`].
//!
//! Programs' calls change the state in memory. A commit makes all changes since the last one durable together:
//!
//! 1. blocks that have got a place are written there (ordered data);
//! 2. the kind writes its metadata and switches to it, behind barriers;
//! 3. what was freed is trimmed, and may be allocated again.
//!
//! A power cut before the switch leaves the last commit: nothing that it refers to was overwritten, because what it uses is freed in
//! step 3 only. One after it leaves the new state, whose data is durable because of the barrier before the switch.

mod calls;
mod check;
mod data;
mod hints;
mod joining;
mod moves;
mod reads;
mod remap;
mod transfer;
mod volume;

use crate::cache::PageCache;
use crate::error::Error;
use crate::extent_map::Piece;
use crate::files::{File, Files};
use crate::leaves::Fanout;
use crate::machine::{Machine, Program};
use crate::owners::Owners;
use crate::readahead::Readahead;
use crate::space::Space;
use fragmend_flash::command::{Command, Refused, Units};
use fragmend_flash::host::HostPath;
use fragmend_layout::FsKind;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(crate) use check::add_once;
pub use joining::Gathered;
pub use remap::{Primitive, Remap};

/// What all kinds can be mounted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The device number of its files.
    pub device: u64,
    /// Blocks that the page cache holds.
    pub cache_blocks: u64,
    /// Whether blocks get their places when they are written back, not when a program writes them.
    pub delayed_allocation: bool,
    /// Whether freed blocks are trimmed (`-o discard`).
    pub discard: bool,
    /// Whether data writes have the hints of FAST'24 (section 4, `mounted/hints.rs`).
    pub hints: bool,
    /// How long after a change the transaction is committed: 5 s on ext4, 30 s on Btrfs.
    pub commit_ns: u64,
    /// For how long written data may be in memory alone (`dirty_expire_centisecs`: 30 s).
    pub write_back_ns: u64,
    /// The barrier that is left out, by tests that must notice it.
    pub omit: Option<Omit>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: 1,
            cache_blocks: 1 << 18,
            delayed_allocation: true,
            discard: true,
            hints: false,
            commit_ns: 5_000_000_000,
            write_back_ns: 30_000_000_000,
            omit: None,
        }
    }
}

/// A step of the commit protocol that tests leave out to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Data is written before the commit that refers to it.
    OrderedData,
    /// What the commit refers to is durable before the commit itself is written.
    FlushBeforeCommit,
    /// The commit is durable before a sync returns, and before what it has freed is used.
    FlushAfterCommit,
    /// Freed blocks are allocated again only after the commit.
    FreeAfterCommit,
    /// Freed blocks are trimmed only after the commit.
    TrimAfterCommit,
    /// What a move has copied is written before the exchange; without it the old place's content stays behind.
    DonorBeforeExchange,
    /// Of ext4's journal: what was checkpointed is durable before its space is used again.
    FlushBeforeTail,
    /// Of ext4's journal: the new tail is durable before the journal's space is used again.
    FlushAfterTail,
    /// Of ext4's journal: a metadata block that was freed is not replayed.
    Revoke,
    /// Of ext4's journal: a metadata block that was freed is not checkpointed.
    Forget,
    /// Of Btrfs: the super block is written last.
    SuperLast,
    /// Of Btrfs: what another file shares is not overwritten.
    Unshare,
    /// A sync flushes although there is nothing to commit.
    FlushOfOverwrites,
    /// Of remaps: the defrag log is durable before the journal's commit.
    LogFlush,
    /// Of exclusive remaps: the completion flag is appended to the log.
    LogCommit,
    /// Of exclusive remaps: that is done after the journal's commit.
    LogCommitLast,
    /// Of exclusive remaps: a mount discards those that are not committed.
    LogDiscard,
    /// Of exclusive remaps: a mount does not replay a transaction whose remaps are not committed.
    RollBack,
    /// Of exclusive remaps: a mount makes that durable before it discards.
    RollBackFirst,
    /// Of exclusive remaps: none is made while the journal ends with a transaction that has some.
    JournalSettled,
}

/// What has changed since the last commit.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Inodes of which something differs from the drive; some of them are gone.
    pub(crate) inodes: BTreeSet<u64>,
    /// Runs that files, or their leaves, have left.
    pub(crate) freed: Vec<Units>,
    /// Freed blocks that had metadata.
    pub(crate) leaves: Vec<u32>,
    /// Groups of which blocks were allocated or freed.
    pub(crate) groups: BTreeSet<u32>,
    /// Whether extents were remapped, and whether one of the remaps was exclusive.
    pub(crate) remapped: bool,
    pub(crate) exclusively: bool,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }
}

/// A kind of file system: where data goes, and how a transaction becomes durable.
pub trait Kind: Sized + 'static {
    /// Which file system it imitates.
    const IMITATES: FsKind;
    /// Its name.
    const NAME: &'static str;
    /// How many blocks an extent can have.
    const LONGEST: u32;
    /// Whether files can share blocks.
    const SHARES: bool;
    /// Whether what a commit frees that one file's sync has asked for is allocated again only after the next other commit.
    const PINS: bool = false;
    /// How many files there can be.
    fn most_files(&self) -> u64;
    /// The longest path, in bytes.
    fn longest_path(&self) -> usize;
    /// Whether a write to blocks that have this place overwrites them there; no other file has them.
    fn overwrites(&self, piece: &Piece) -> bool;
    /// Allocates at most `count` blocks for a file, from `block` on, for a program.
    fn place(
        &mut self,
        space: &mut Space,
        file: &mut File,
        block: u64,
        count: u32,
        program: Program,
    ) -> Option<Units>;
    /// Lets go of what is reserved for a file.
    fn unreserve(&mut self, space: &mut Space, file: &mut File);
    /// Lets go of what is reserved for all files together.
    fn unreserve_all(&mut self, _: &mut Space) {}
    /// Whether so many changes should be committed before others come.
    fn is_full(&self, _: &Changes) -> bool {
        false
    }
    /// A leaf has left its place.
    fn leave_metadata(state: &mut State<Self>, place: u32) -> Result<(), Error> {
        state.changes.leaves.push(place);
        state.leave(Units::new(place, 1))
    }
    /// Writes the metadata of all changes, and switches to it.
    fn commit(state: &mut State<Self>) -> Result<(), Error>;
    /// Sees to it that an exclusive remap may be made: if it is undone, nothing that is committed goes with it.
    fn prepare_remap(_: &mut State<Self>) -> Result<(), Error> {
        Ok(())
    }
    /// Compares what the last commit has put on the drive with the tables in memory.
    fn check(state: &State<Self>) -> Result<(), String>;
}

/// A mounted file system. All clones are the same one.
pub struct Mounted<K>(Rc<Shared<K>>);

impl<K> Clone for Mounted<K> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

struct Shared<K> {
    machine: Machine,
    state: RefCell<State<K>>,
}

/// Its state in memory.
pub struct State<K> {
    pub(crate) machine: Machine,
    pub(crate) path: HostPath,
    pub(crate) settings: Settings,
    pub(crate) fanout: Fanout,
    pub(crate) block_bytes: u64,
    pub(crate) cache: PageCache,
    pub(crate) readahead: BTreeMap<u64, Readahead>,
    pub(crate) files: Files,
    pub(crate) space: Space,
    pub(crate) owners: Owners,
    pub(crate) changes: Changes,
    /// Blocks that are held for moves.
    pub(crate) donated: u64,
    /// Blocks that stay free for metadata.
    pub(crate) spare: u64,
    /// Runs that are free on the drive, and held here until the next commit that no file's sync has asked for.
    pinned: Vec<Units>,
    pinned_ns: Option<u64>,
    /// Since when there is something to commit, and to write back.
    changed_ns: Option<u64>,
    dirty_ns: Option<u64>,
    /// Whether a command has failed, after which memory and drive may differ.
    failed: Option<Error>,
    pub(crate) primitive: Primitive,
    /// Whether files in fragments that have changed are relocated at once.
    defrag_on_write: bool,
    pub(crate) kind: K,
}

impl<K: Kind> Mounted<K> {
    pub(crate) fn new(
        machine: &Machine,
        settings: &Settings,
        files: Files,
        space: Space,
        owners: Owners,
        kind: K,
    ) -> Self {
        let block_bytes = machine.block_bytes();
        let state = State {
            machine: machine.clone(),
            path: machine.path(),
            settings: settings.clone(),
            fanout: Fanout::new(block_bytes),
            block_bytes,
            cache: PageCache::new(settings.cache_blocks),
            readahead: BTreeMap::new(),
            files,
            // As ext4's `s_resv_clusters`: a fiftieth, and no more than 4096.
            spare: (u64::from(machine.blocks()) / 50).min(4096),
            space,
            owners,
            changes: Changes::default(),
            donated: 0,
            pinned: Vec::new(),
            pinned_ns: None,
            changed_ns: None,
            dirty_ns: None,
            failed: None,
            primitive: Primitive::Copy,
            defrag_on_write: false,
            kind,
        };
        Self(Rc::new(Shared { machine: machine.clone(), state: RefCell::new(state) }))
    }

    /// From now on data is brought to a new place by this primitive; of files that are written at once if they are in fragments then.
    pub(crate) fn move_by(&self, primitive: Primitive, defrag_on_write: bool) {
        let state = &mut *self.0.state.borrow_mut();
        (state.primitive, state.defrag_on_write) = (primitive, defrag_on_write);
    }

    /// The free runs of blocks, within groups.
    pub fn free_runs(&self) -> Vec<Units> {
        let state = self.0.state.borrow();
        state.space.free_within(Units::new(0, self.0.machine.blocks()))
    }

    /// Makes a call: nothing is done after the power was cut, and what is overdue is committed or written back before it.
    fn call<T>(&self, call: impl FnOnce(&mut State<K>) -> Result<T, Error>) -> Result<T, Error> {
        self.0.machine.spend(self.0.state.borrow().path.system_call_ns);
        self.untimed_call(call)
    }

    /// The same for a call whose system call the machine counts.
    fn untimed_call<T>(
        &self,
        call: impl FnOnce(&mut State<K>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let state = &mut *self.0.state.borrow_mut();
        state.guard(|state| {
            state.catch_up()?;
            call(state)
        })
    }
}

impl<K: Kind> State<K> {
    /// Runs something that may fail. Once a command has failed, nothing is done any more.
    fn guard<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.machine.is_on() {
            return Err(Error::Drive(Refused::NoPower));
        }
        let done = run(self);
        if let Err(error @ Error::Drive(_)) = &done {
            self.failed = Some(error.clone());
        }
        done
    }

    /// Commits and writes back what is overdue.
    fn catch_up(&mut self) -> Result<(), Error> {
        let now = self.machine.now_ns();
        let is_due = |since: Option<u64>, after| since.is_some_and(|since| now >= since + after);
        if is_due(self.dirty_ns, self.settings.write_back_ns) {
            self.write_back_all()?;
        }
        let since = self.pinned_ns.or(self.changed_ns);
        if is_due(since, self.settings.commit_ns) || self.kind.is_full(&self.changes) {
            self.commit_early()?;
        }
        Ok(())
    }

    /// Commits though nobody has asked for it. Where there is no space for the metadata all of it stays in memory, and the next sync reports
    /// that: calls that need no space go on, so that files can be removed.
    pub fn commit_early(&mut self) -> Result<(), Error> {
        match self.commit() {
            Err(Error::NoSpace) => Ok(()),
            done => done,
        }
    }

    /// An inode differs from the drive.
    pub fn change(&mut self, inode: u64) {
        self.changes.inodes.insert(inode);
        self.changed_ns.get_or_insert(self.machine.now_ns());
    }

    /// Makes all changes durable, in one transaction. Files that have changed are joined before, if that is asked for. What is free then
    /// may be allocated again.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.join_unless_late()?;
        self.commit_in_place()
    }

    /// The same, but nothing is relocated: what is just being moved is where it was.
    fn commit_in_place(&mut self) -> Result<(), Error> {
        self.transaction(false)?;
        self.pinned_ns = None;
        for run in joined(std::mem::take(&mut self.pinned)) {
            self.trim(run)?;
            self.space.let_go(run);
        }
        Ok(())
    }

    /// The same as [`Self::commit`] because a program syncs one file.
    pub fn commit_for_file(&mut self) -> Result<(), Error> {
        self.join_unless_late()?;
        self.transaction(true)
    }

    fn join_unless_late(&mut self) -> Result<(), Error> {
        if self.settings.omit == Some(Omit::OrderedData) {
            return Ok(());
        }
        self.write_placed()?;
        self.join_changed()
    }

    fn transaction(&mut self, one_file: bool) -> Result<(), Error> {
        let late = self.settings.omit == Some(Omit::OrderedData);
        if !late {
            self.write_placed()?;
        }
        if self.changes.is_empty() {
            return self.flush_unless(Omit::FlushOfOverwrites);
        }
        K::commit(self)?;
        self.changed_ns = None;
        // A cut from here on finds the commit: nothing refers to what it has freed.
        let freed = std::mem::take(&mut self.changes).freed;
        for run in joined(freed) {
            if one_file && K::PINS {
                self.space.hold(run);
                self.pinned.push(run);
                self.pinned_ns.get_or_insert(self.machine.now_ns());
                continue;
            }
            if self.settings.omit != Some(Omit::TrimAfterCommit) {
                self.trim(run)?;
            }
            self.space.release(run);
        }
        if late { self.write_placed() } else { Ok(()) }
    }

    pub(crate) fn trim(&self, run: Units) -> Result<(), Error> {
        if self.settings.discard {
            self.machine.command(&Command::Trim(run))?;
        }
        Ok(())
    }

    /// Flushes the drive, unless a test leaves out this barrier.
    pub fn flush_unless(&self, omitted: Omit) -> Result<(), Error> {
        if self.settings.omit != Some(omitted) {
            self.machine.flush()?;
        }
        Ok(())
    }

    /// A file has left blocks, which are free after the next commit unless other files have them.
    pub fn leave(&mut self, units: Units) -> Result<(), Error> {
        for run in self.owners.remove(units) {
            self.changes.groups.extend(self.space.groups_of(run));
            if self.settings.omit == Some(Omit::FreeAfterCommit) {
                self.space.release(run);
                continue;
            }
            if self.settings.omit == Some(Omit::TrimAfterCommit) {
                self.trim(run)?;
            }
            self.changes.freed.push(run);
        }
        Ok(())
    }

    /// Sees to it that so many blocks can be allocated for data.
    pub fn ensure(&mut self, blocks: u64) -> Result<(), Error> {
        let fits =
            |state: &Self| state.space.free() >= blocks + state.cache.dirty_blocks() + state.spare;
        if fits(self) {
            return Ok(());
        }
        // What is reserved, dirty, or freed and not committed, may be enough.
        self.unreserve_all();
        self.write_back_all()?;
        self.commit()?;
        self.unreserve_all();
        if fits(self) { Ok(()) } else { Err(Error::NoSpace) }
    }

    fn unreserve_all(&mut self) {
        let inodes: Vec<u64> = self.files.each().map(|(inode, _)| inode).collect();
        for inode in inodes {
            if let Some(file) = self.files.get_mut(inode) {
                self.kind.unreserve(&mut self.space, file);
            }
        }
        self.kind.unreserve_all(&mut self.space);
    }

    /// Allocates a block for metadata, near the goal.
    pub fn place_metadata(&mut self, goal: u32) -> Result<u32, Error> {
        if self.space.free() == 0 {
            self.unreserve_all();
        }
        let units = self.space.allocate(goal, 1, true).ok_or(Error::NoSpace)?;
        self.changes.groups.extend(self.space.groups_of(units));
        Ok(units.start)
    }
}

/// Runs of blocks, those that follow each other as one.
fn joined(mut runs: Vec<Units>) -> Vec<Units> {
    runs.sort_unstable();
    let mut all: Vec<Units> = Vec::with_capacity(runs.len());
    for run in runs {
        match all.last_mut().filter(|last| last.end() == run.start) {
            Some(last) => last.count += run.count,
            None => all.push(run),
        }
    }
    all
}
