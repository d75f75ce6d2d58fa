//! The journal of metadata blocks, in the manner of JBD2: physical, with a descriptor and a commit record around the blocks of each
//! transaction, and without checksums over them, so that its barriers count.
//!
//! Its first block has the tail: the first transaction that is replayed. The others are used in a circle.
//!
//! - Descriptor and blocks are written; a cut leaves an unfinished transaction, which is not replayed.
//! - The drive is flushed, so that the commit record never survives without what it commits, data included.
//! - The commit record is written and flushed. From here on the transaction is replayed.
//! - Once the journal is full, all blocks are written to their places and flushed (checkpoint), then the tail is moved and flushed; only
//!   then is the space used again. A cut before the tail has moved replays blocks that are in their places already, which changes nothing.
//! - A block that was freed may be a file's data soon: it is not checkpointed any more, and its revoke keeps older transactions from being
//!   replayed over it.

use crate::error::Error;
use crate::file_system::Access;
use crate::machine::Machine;
use crate::mounted::Omit;
use crate::record;
use fragmend_flash::command::{Hint, Units};
use fragmend_flash::device::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x1e4f_5302;

/// A block that is about to be changed: its place, and its content where the drive keeps it.
pub(super) type Image = (u32, Bytes);

/// The journal's first block.
#[derive(Serialize, Deserialize)]
struct Tail {
    magic: u32,
    /// The first transaction that is replayed, and where it begins.
    sequence: u64,
    at: u32,
}

/// What precedes the blocks of a transaction.
#[derive(Serialize, Deserialize)]
struct Descriptor {
    magic: u32,
    sequence: u64,
    /// The places of the blocks that follow.
    places: Vec<u32>,
    /// Blocks that are no metadata any more.
    revoked: Vec<u32>,
    /// Whether it depends on remaps that the drive may undo.
    remaps: bool,
}

/// What is committed together.
#[derive(Default)]
pub(super) struct Transaction {
    pub images: Vec<Image>,
    /// Blocks that are no metadata any more.
    pub revoked: Vec<u32>,
    /// Whether it depends on remaps that the drive may undo.
    pub remaps: bool,
}

/// A transaction that fits into the journal, with its descriptor.
pub(super) struct Prepared {
    descriptor: Vec<Box<[u8]>>,
    images: Vec<Image>,
    revoked: Vec<u32>,
    remaps: bool,
}

/// What follows them.
#[derive(Serialize, Deserialize)]
struct Commit {
    magic: u32,
    committed: u64,
}

/// A journal.
#[derive(Debug)]
pub(super) struct Journal {
    place: Units,
    /// Where the next transaction begins, counted from the second block, and its number.
    head: u32,
    sequence: u64,
    /// Blocks that are not needed for a replay.
    free: u32,
    /// Blocks that are not in their places, as the last transaction has them.
    pending: BTreeMap<u32, Bytes>,
    /// Whether the last transaction is here, and depends on remaps.
    ends_with_remaps: bool,
}

impl Journal {
    /// Makes an empty one, durably.
    pub fn format(machine: &Machine, place: Units) -> Result<Self, Error> {
        let mut journal = Self::empty(place, 0, 1);
        journal.write_tail(machine)?;
        machine.flush()?;
        Ok(journal)
    }

    fn empty(place: Units, head: u32, sequence: u64) -> Self {
        let (free, pending) = (place.count - 1, BTreeMap::new());
        Self { place, head, sequence, free, pending, ends_with_remaps: false }
    }

    /// How many blocks transactions may have.
    pub fn blocks(&self) -> u32 {
        self.place.count - 1
    }

    /// The content of a block after a replay, if that differs from what is in its place.
    pub fn pending(&self, place: u32) -> Option<&Bytes> {
        self.pending.get(&place)
    }

    /// Blocks of the drive for `count` blocks of the circle from `at` on.
    fn units(&self, at: u32, count: u32) -> Vec<Units> {
        let (first, all) = (self.place.start + 1, self.blocks());
        let here = count.min(all - at);
        let parts = [Units::new(first + at, here), Units::new(first, count - here)];
        parts.into_iter().filter(|units| units.count > 0).collect()
    }

    fn after(&self, at: u32, count: u32) -> u32 {
        (at + count) % self.blocks()
    }

    /// Commits an empty transaction if the last one depends on remaps, so that it is not the last one any more.
    pub fn settle(&mut self, machine: &Machine, omit: Option<Omit>) -> Result<(), Error> {
        if self.ends_with_remaps && omit != Some(Omit::JournalSettled) {
            let empty = self.prepare(machine, Transaction::default(), omit)?;
            self.commit(machine, empty, omit)?;
        }
        Ok(())
    }

    /// A transaction as the journal will hold it. Nothing is written yet.
    ///
    /// # Errors
    /// The transaction is longer than the journal.
    pub fn prepare(
        &self,
        machine: &Machine,
        transaction: Transaction,
        omit: Option<Omit>,
    ) -> Result<Prepared, Error> {
        let Transaction { images, revoked, remaps } = transaction;
        let block = machine.block_bytes() as usize;
        let places = images.iter().map(|(place, _)| *place).collect();
        let kept = if omit == Some(Omit::Revoke) { Vec::new() } else { revoked.clone() };
        let (magic, sequence) = (MAGIC, self.sequence);
        let descriptor =
            record::pack(&Descriptor { magic, sequence, places, revoked: kept, remaps }, block);
        if descriptor.len() + images.len() + 1 > self.blocks() as usize {
            return Err(Error::NoSpace);
        }
        Ok(Prepared { descriptor, images, revoked, remaps })
    }

    /// Commits a transaction that was prepared, and nothing since.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn commit(
        &mut self,
        machine: &Machine,
        prepared: Prepared,
        omit: Option<Omit>,
    ) -> Result<(), Error> {
        let Prepared { descriptor, images, revoked, remaps } = prepared;
        let (block, sequence) = (machine.block_bytes() as usize, self.sequence);
        let mut contents: Vec<Bytes> = descriptor.into_iter().map(Some).collect();
        contents.extend(images.iter().map(|(_, bytes)| bytes.clone()));
        let count = contents.len() as u32 + 1;
        if count > self.free {
            self.checkpoint(machine, omit)?;
        }
        self.write(machine, self.head, contents)?;
        if omit != Some(Omit::FlushBeforeCommit) {
            machine.flush()?;
        }
        let commit = record::pack(&Commit { magic: MAGIC, committed: sequence }, block);
        self.write(
            machine,
            self.after(self.head, count - 1),
            commit.into_iter().map(Some).collect(),
        )?;
        if omit != Some(Omit::FlushAfterCommit) {
            machine.flush()?;
        }
        (self.head, self.sequence) = (self.after(self.head, count), sequence + 1);
        self.free -= count;
        self.ends_with_remaps = remaps;
        self.pending.extend(images);
        if omit != Some(Omit::Forget) {
            revoked.iter().for_each(|place| _ = self.pending.remove(place));
        }
        Ok(())
    }

    /// Writes blocks into the circle.
    fn write(&self, machine: &Machine, at: u32, contents: Vec<Bytes>) -> Result<(), Error> {
        let units = self.units(at, contents.len() as u32);
        let mut contents = contents.into_iter();
        machine.write(&units, Hint::None, &mut |_| contents.next().flatten())?;
        Ok(())
    }

    /// Writes all blocks to their places, so that the journal is empty.
    fn checkpoint(&mut self, machine: &Machine, omit: Option<Omit>) -> Result<(), Error> {
        machine.write_blocks(&std::mem::take(&mut self.pending))?;
        if omit != Some(Omit::FlushBeforeTail) {
            machine.flush()?;
        }
        self.write_tail(machine)?;
        if omit != Some(Omit::FlushAfterTail) {
            machine.flush()?;
        }
        self.free = self.blocks();
        Ok(())
    }

    /// Nothing before the head is replayed.
    fn write_tail(&mut self, machine: &Machine) -> Result<(), Error> {
        let tail = Tail { magic: MAGIC, sequence: self.sequence, at: self.head };
        let block = record::pack(&tail, machine.block_bytes() as usize);
        let first = Units::new(self.place.start, 1);
        machine.write(&[first], Hint::None, &mut |_| block.first().cloned())?;
        Ok(())
    }

    /// Writes what has been committed to its place, durably, and returns the journal, which is empty then. A cut meanwhile leaves the old
    /// tail, so that the next mount does the same. If remaps are undone, a last transaction that depends on them is left out.
    pub fn replay(machine: &Machine, place: Units, undoes_remaps: bool) -> Result<Self, Error> {
        let block = machine.block_bytes() as usize;
        let first = Units::new(place.start, 1);
        machine.read(&[first], Access::Direct)?;
        let tail: Tail = record::unpack(&machine.bytes(first))
            .filter(|tail: &Tail| tail.magic == MAGIC && tail.at < place.count - 1)
            .ok_or_else(|| Error::Damaged("the journal has no tail".into()))?;
        let mut journal = Self::empty(place, tail.at, tail.sequence);
        let mut found: Vec<(Descriptor, Vec<Bytes>)> = Vec::new();
        while let Some((descriptor, images, count)) = journal.read_transaction(machine, block)? {
            journal.head = journal.after(journal.head, count);
            journal.sequence += 1;
            found.push((descriptor, images));
        }
        found.pop_if(|(last, _)| undoes_remaps && last.remaps);
        let mut revoked: BTreeMap<u32, u64> = BTreeMap::new();
        for (descriptor, _) in &found {
            revoked.extend(descriptor.revoked.iter().map(|place| (*place, descriptor.sequence)));
        }
        let mut home: BTreeMap<u32, Bytes> = BTreeMap::new();
        for (descriptor, images) in found {
            let is_valid = |place: &u32| {
                revoked.get(place).is_none_or(|sequence| *sequence < descriptor.sequence)
            };
            let blocks = descriptor.places.iter().copied().zip(images);
            home.extend(blocks.filter(|(place, _)| is_valid(place)));
        }
        machine.write_blocks(&home)?;
        machine.flush()?;
        journal.write_tail(machine)?;
        machine.flush()?;
        Ok(journal)
    }

    /// The transaction at the head, if it was committed, with its blocks and how many blocks it has in the journal.
    fn read_transaction(
        &self,
        machine: &Machine,
        block: usize,
    ) -> Result<Option<(Descriptor, Vec<Bytes>, u32)>, Error> {
        let read = |at: u32, count: u32| -> Result<Vec<u8>, Error> {
            let units = self.units(at, count);
            machine.read(&units, Access::Direct)?;
            Ok(units.into_iter().map(|units| machine.bytes(units)).collect::<Vec<_>>().concat())
        };
        let first = read(self.head, 1)?;
        let blocks = record::blocks(&first, block).filter(|n| *n < self.blocks() as usize);
        let Some(blocks) = blocks.map(|blocks| blocks as u32) else { return Ok(None) };
        let descriptor = record::unpack::<Descriptor>(&read(self.head, blocks)?)
            .filter(|found| (found.magic, found.sequence) == (MAGIC, self.sequence));
        let Some(descriptor) = descriptor else { return Ok(None) };
        let (images, count) =
            (descriptor.places.len() as u32, blocks + descriptor.places.len() as u32 + 1);
        if count > self.blocks() {
            return Ok(None);
        }
        let commit = record::unpack::<Commit>(&read(self.after(self.head, count - 1), 1)?);
        let sequence = descriptor.sequence;
        if commit.is_none_or(|found| (found.magic, found.committed) != (MAGIC, sequence)) {
            return Ok(None);
        }
        let images = if images == 0 {
            Vec::new()
        } else {
            let bytes = read(self.after(self.head, blocks), images)?;
            bytes.chunks(block).map(|image| Some(image.into())).collect()
        };
        Ok(Some((descriptor, images, count)))
    }
}
