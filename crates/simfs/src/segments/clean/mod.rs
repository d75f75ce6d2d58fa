//! The cleaner: valid blocks of victims are copied to the end of a log, so that the victims become free.
//!
//! **What is on the drive if power fails.** A copy changes addresses in memory alone. Before the next checkpoint is durable, the last
//! one, with what can be rolled forward from it, refers to the victims' blocks, which are held; after it, to the copies, which that
//! checkpoint has flushed. An fsync in between writes the new addresses only behind a flush of the copies (`fsync.rs`). A victim is
//! free after the checkpoint that records the move, and not before.

mod queue;
mod victims;

pub use queue::CopyOrder;
pub use victims::Victims;

use super::sections::Kind;
use super::settings::Barrier;
use super::state::{Contents, LogKind, Owner, State, add_block};
use crate::error::Error;
use crate::file_system::Access;
use fragmend_flash::command::Units;
use queue::Valid;

/// How the cleaner works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// How it chooses victims when a write needs space.
    pub foreground: Victims,
    /// The same in the background, and when it is [asked](super::LogStructured::clean).
    pub background: Victims,
    /// A write this long after the last cleaning in the background cleans a batch (F2FS's thread, whose sleep is
    /// `gc_min_sleep_time`); `u64::MAX` is never.
    pub every_ns: u64,
    /// In which order it copies.
    pub order: CopyOrder,
    /// Victims whose valid blocks are copied together, and are in that order together.
    pub batch: u32,
}

impl Default for Cleaning {
    /// F2FS's: greedy in the foreground, cost-benefit in the background, blocks in their original order, a section at a time; nothing
    /// in the background, so that a load decides about that.
    fn default() -> Self {
        let (foreground, background) = (Victims::Greedy, Victims::CostBenefit);
        let every_ns = u64::MAX;
        Self { foreground, background, every_ns, order: CopyOrder::Original, batch: 1 }
    }
}

impl Cleaning {
    /// Free sections that cleaning must find: for the copies of a batch, and for as many nodes.
    pub fn sections_needed(&self) -> u32 {
        2 * self.batch.max(1) + 2
    }
}

/// The most blocks that one call writes.
const AT_ONCE: usize = 256;

impl State {
    /// Sections that must be free before this many blocks are written. A quarter of the spare ones is kept for copies, because what is
    /// copied makes nodes dirty, whose old blocks are free only after their own sections are cleaned.
    fn sections_for(&self, blocks: u64) -> u32 {
        let blocks = blocks + self.dirty_nodes.len() as u64;
        self.reserved_sections() + blocks.div_ceil(self.geometry.section.into()) as u32
    }

    fn reserved_sections(&self) -> u32 {
        (self.geometry.spare / 4).max(self.settings.cleaning.sections_needed())
    }

    /// Makes a checkpoint if one is due, and cleans until there is space to write this many blocks, and all nodes that are dirty.
    ///
    /// # Errors
    /// Cleaning frees nothing more, or the drive refuses.
    pub fn make_space(&mut self, blocks: u64) -> Result<(), Error> {
        let age = self.machine.now_ns().saturating_sub(self.checkpointed_ns);
        if age >= self.settings.checkpoint_every_ns {
            self.checkpoint()?;
        }
        self.clean_in_background()?;
        let mut rounds = 0;
        while self.sections.free() < self.sections_for(blocks) {
            rounds += 1;
            if rounds > self.geometry.sections {
                return Err(Error::NoSpace);
            }
            let waits = self.sections.emptied() > 0
                || self.dirty_nodes.len() as u64 > self.geometry.section.into();
            if !waits && self.clean_in_foreground()? == 0 {
                let least = 1 + blocks.div_ceil(self.geometry.section.into()) as u32;
                return if self.sections.free() > least { Ok(()) } else { Err(Error::NoSpace) };
            }
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Cleans a batch if that is due, and there is space for its copies.
    fn clean_in_background(&mut self) -> Result<(), Error> {
        let cleaning = self.settings.cleaning;
        let age = self.machine.now_ns().saturating_sub(self.cleaned_ns);
        if age < cleaning.every_ns || self.sections.free() < self.reserved_sections() {
            return Ok(());
        }
        self.cleaned_ns = self.machine.now_ns();
        self.clean(cleaning.background).map(drop)
    }

    /// Cleans before one checkpoint: while the copies, and the nodes that become dirty, need less than half of what is free; one batch
    /// at least, if there is space for it. Returns how many victims there were.
    fn clean_in_foreground(&mut self) -> Result<u32, Error> {
        let (policy, batch) =
            (self.settings.cleaning.foreground, self.settings.cleaning.batch.max(1));
        let most = (self.reserved_sections() / 4).max(batch);
        let (free, mut cleaned) = (self.sections.free(), 0);
        while cleaned < most {
            let victims = self.victims(policy, batch as usize);
            let valid = victims.iter().map(|victim| u64::from(self.sections.get(*victim).valid));
            let needed = self.sections_to_copy(valid.sum());
            let used = free - self.sections.free();
            let is_enough = if cleaned == 0 { needed <= free } else { used + needed <= free / 2 };
            if victims.is_empty() || !is_enough {
                break;
            }
            cleaned += self.clean_victims(&victims)?;
        }
        Ok(cleaned)
    }

    /// The most sections that are opened for this many copies, and for all nodes that are dirty then.
    fn sections_to_copy(&self, blocks: u64) -> u32 {
        let opened = |blocks: u64, log: LogKind| {
            let log = self.logs[log as usize];
            let left = if log.is_open { self.geometry.section - log.next } else { 0 };
            blocks.saturating_sub(left.into()).div_ceil(self.geometry.section.into()) as u32
        };
        let nodes = self.dirty_nodes.len() as u64 + blocks + 1;
        opened(blocks, LogKind::Cold) + opened(nodes, LogKind::Node)
    }

    /// Copies the valid blocks of one batch of victims; returns how many victims there were. They are free after a checkpoint.
    ///
    /// # Errors
    /// No section is free, or the drive refuses.
    pub fn clean(&mut self, policy: Victims) -> Result<u32, Error> {
        let victims = self.victims(policy, self.settings.cleaning.batch.max(1) as usize);
        self.clean_victims(&victims)
    }

    fn clean_victims(&mut self, victims: &[u32]) -> Result<u32, Error> {
        let mut queue: Vec<Valid> = Vec::new();
        for victim in victims {
            self.load_queue(*victim, &mut queue);
        }
        self.read_queue(&queue)?;
        self.counts.fragments_before += queue::fragments(&queue);
        self.settings.cleaning.order.arrange(&mut queue);
        self.copy_queue(&queue)?;
        let segments = self.geometry.section / self.geometry.segment;
        self.counts.segments_cleaned += (victims.len() as u32 * segments) as u64;
        Ok(victims.len() as u32)
    }

    /// Adds the valid blocks of a victim to the queue. Its nodes are written by the next checkpoint instead.
    fn load_queue(&mut self, victim: u32, queue: &mut Vec<Valid>) {
        let offsets: Vec<u32> = self.sections.valid_in(victim).collect();
        let kind = self.sections.get(victim).kind;
        if kind == Kind::Node {
            self.cleaned_nodes.insert(victim);
        }
        for offset in offsets {
            let place = self.geometry.place(victim, offset);
            let Owner { inode, number } = self.owner(place);
            if kind == Kind::Node {
                self.dirty(inode, number);
                self.counts.nodes_copied += 1;
            } else {
                queue.push(Valid { inode, block: number.into(), place });
            }
        }
    }

    /// Reads what of the queue is not clean in the page cache.
    fn read_queue(&mut self, queue: &[Valid]) -> Result<(), Error> {
        let mut units: Vec<Units> = Vec::new();
        for Valid { inode, block, place } in queue {
            let (inode, range) = (u64::from(*inode), *block..*block + 1);
            let is_clean = self.cache.missing(inode, range.clone()).is_empty()
                && self.cache.dirty(inode, range).is_empty();
            if !is_clean {
                add_block(&mut units, *place);
            }
        }
        if units.is_empty() {
            return Ok(());
        }
        Ok(self.machine.read(&units, Access::Direct)?)
    }

    /// Writes the blocks of the queue to the cold log.
    fn copy_queue(&mut self, queue: &[Valid]) -> Result<(), Error> {
        let mut copied: Vec<Valid> = Vec::with_capacity(queue.len());
        while copied.len() < queue.len() {
            let rest = &queue[copied.len()..];
            let log = self.logs[LogKind::Cold as usize];
            let left =
                if log.is_open { self.geometry.section - log.next } else { self.geometry.section };
            let these = &rest[..rest.len().min(left as usize).min(AT_ONCE)];
            copied.extend(self.copy_some(these)?);
        }
        self.counts.blocks_copied += copied.len() as u64;
        self.counts.fragments_after += queue::fragments(&copied);
        Ok(())
    }

    /// Writes blocks that the section of the cold log has space for; returns where they are.
    fn copy_some(&mut self, queue: &[Valid]) -> Result<Vec<Valid>, Error> {
        let (mut units, mut contents) = (Vec::<Units>::new(), Contents::new());
        let mut copied = Vec::with_capacity(queue.len());
        for Valid { inode, block, place } in queue.iter().copied() {
            let to = self.allocate(LogKind::Cold, Owner { inode, number: block as u32 })?;
            add_block(&mut units, to);
            if self.machine.keeps_content() {
                contents.insert(to, self.machine.bytes(Units::new(place, 1)).into());
            }
            copied.push(Valid { inode, block, place: to });
        }
        self.put(&units, &mut contents)?;
        let writes = self.writes;
        for Valid { inode, block, place } in &copied {
            self.set_address(*inode, *block, *place)?;
            if self.keeps(Barrier::CopiesBeforeNodes) {
                self.files.get_mut(*inode)?.written = writes;
            }
        }
        Ok(copied)
    }
}
