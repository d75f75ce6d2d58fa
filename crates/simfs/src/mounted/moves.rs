//! The mover: relocates ranges of a file part by part, on the drivers of the production mover.
//!
//! 1. Places for all ranges are allocated and held: they are no file's, so that a cut leaves them free.
//! 2. A part is written back, so that no program's data is in memory alone, and transferred to its new place. A cut leaves the file as it
//!    was: nothing refers to the new place.
//! 3. The file's extents are exchanged in memory. A cut leaves the old ones, whose blocks are neither free nor trimmed.
//! 4. The commit makes the exchange durable. Its barrier before the switch covers what was transferred, so a cut afterwards finds the new
//!    place with the data. What programs write between exchange and commit goes to the new place, and their sync commits.
//! 5. After the commit the old place is trimmed and free. What was not used is released.
//!
//! Where the drive remaps instead of a transfer, the argument is that of `remap.rs`.

use super::remap::{Primitive, Relocated};
use super::transfer::{Transfer, part_of};
use super::{Kind, Mounted, Omit};
use crate::error::Error;
use crate::readahead::blocks_of;
use fragmend_apply::Environment;
use fragmend_apply::drive::{self, ByPart, File, Job, Mover, Step, by_part};
use fragmend_flash::command::Units;
use fragmend_layout::{
    ByteRange, Extent, FileId, Layout, Movable, Pace, Settled, Skip, Target, Terms, Underway,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A file that is open for relocation.
pub(super) struct Open<'a, K: Kind> {
    file: Opened<'a, K>,
    mover: Exchange<'a, K>,
}

/// A file.
struct Opened<'a, K> {
    mounted: &'a Mounted<K>,
    id: FileId,
}

/// What moves it.
struct Exchange<'a, K: Kind> {
    mounted: &'a Mounted<K>,
    donors: Vec<Donor>,
    unshare: bool,
    /// What was exchanged and not transferred, where a test leaves out that order.
    late: Vec<Transfer>,
}

/// The new place of a range.
struct Donor {
    range: ByteRange,
    places: Vec<Units>,
    /// Blocks of it that belong to the file already.
    taken: u64,
}

impl<'a, K: Kind> Open<'a, K> {
    pub fn new(mounted: &'a Mounted<K>, id: FileId) -> Self {
        let mover = Exchange { mounted, donors: Vec::new(), unshare: false, late: Vec::new() };
        Self { file: Opened { mounted, id }, mover }
    }
}

impl<K: Kind> File for Opened<'_, K> {
    fn block_bytes(&self) -> u64 {
        self.mounted.0.machine.block_bytes()
    }

    fn layout(&self, range: ByteRange) -> Result<Layout, Skip> {
        let state = self.mounted.0.state.borrow();
        state.layout(self.id, blocks_of(range, state.block_bytes))
    }
}

impl<K: Kind> Mounted<K> {
    /// Reads what of a range is not in the page cache, block by block; each is asked for when the one before it has arrived. Other programs
    /// make their calls meanwhile.
    fn read_each_missing(&self, id: FileId, blocks: Range<u64>) -> Result<(), Error> {
        for block in blocks {
            self.untimed_call(|state| state.read_missing_block(id.inode, block))?;
            let _ = self.0.machine.now();
        }
        Ok(())
    }
}

impl<K: Kind> Exchange<'_, K> {
    /// Commits what was exchanged.
    fn commit(&mut self) -> Result<(), Skip> {
        let late = std::mem::take(&mut self.late);
        let done = self.mounted.call(|state| {
            state.commit()?;
            late.iter().try_for_each(|transfer| state.copy(&transfer.0))
        });
        Ok(done?)
    }

    fn relocate(&mut self, id: FileId, index: usize, part: ByteRange) -> Result<Relocated, Skip> {
        let donor = &self.donors[index];
        let unshare = self.unshare;
        let block = self.mounted.0.machine.block_bytes();
        let (first, blocks) = (donor.range.start / block, blocks_of(part, block));
        let places = part_of(&donor.places, blocks.start - first..blocks.end - first);
        if self.mounted.0.state.borrow().primitive == Primitive::CopyByBlock {
            self.mounted.read_each_missing(id, blocks.clone())?;
        }
        let mut problem = None;
        let mut late = None;
        let done = self.mounted.call(|state| {
            let transfer = match state.transfer_of(id, blocks.clone(), &places, unshare) {
                Ok(transfer) => transfer,
                Err(skip) => {
                    problem = Some(skip);
                    return Ok(Relocated::default());
                }
            };
            if state.settings.omit == Some(Omit::DonorBeforeExchange) {
                state.exchange(id.inode, &transfer.0)?;
                let done = Relocated::copied(&transfer.0);
                late = Some(transfer);
                return Ok(done);
            }
            state.relocate(id.inode, &transfer.0)
        })?;
        if let Some(skip) = problem {
            return Err(skip);
        }
        self.late.extend(late);
        self.donors[index].taken = blocks.start - first + done.blocks;
        Ok(done)
    }

    /// Releases what was not used.
    fn release_donors(&mut self) {
        let state = &mut *self.mounted.0.state.borrow_mut();
        for donor in self.donors.drain(..) {
            for units in part_of(&donor.places, donor.taken..u64::MAX) {
                state.release(units);
            }
        }
    }
}

impl<K: Kind> Drop for Exchange<'_, K> {
    fn drop(&mut self) {
        self.release_donors();
    }
}

impl<'a, K: Kind> Mover for Exchange<'a, K> {
    type File = Opened<'a, K>;

    /// Shared data is moved, too, if it may: the other files keep the old place.
    fn accepts(&self, _: &[Extent]) -> Result<(), Skip> {
        Ok(())
    }

    /// Holds places for all ranges, or for none.
    fn stage(&mut self, file: &Self::File, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.release_donors();
        let mut donors: Vec<Donor> = Vec::new();
        let held = self.mounted.call(|state| {
            state.files.of(file.id)?;
            let block = state.block_bytes;
            let blocks = |range: &ByteRange| {
                let blocks = blocks_of(*range, block);
                blocks.end - blocks.start
            };
            state.ensure(ranges.iter().map(blocks).sum())?;
            for range in ranges {
                let goal = donors.last().and_then(|donor| donor.places.last());
                let goal = goal.map_or(0, |last| last.end());
                let places = state.hold(blocks(range), goal)?;
                donors.push(Donor { range: *range, places, taken: 0 });
            }
            Ok(())
        });
        self.donors = donors;
        if let Err(error) = held {
            self.release_donors();
            return Err(error.into());
        }
        Ok(self.donors.iter().map(|donor| donor.places.len() as u64).collect())
    }

    fn drive(&mut self, job: &Job<'_, Self::File>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    fn let_others_in(&mut self, _: &Self::File) -> Result<(), Skip> {
        self.commit()
    }

    fn settle(&mut self, _: &Self::File) -> Result<(), Skip> {
        let done = self.commit();
        self.release_donors();
        done
    }
}

impl<K: Kind> ByPart for Exchange<'_, K> {
    fn relocate(
        &mut self,
        file: &Self::File,
        index: usize,
        part: ByteRange,
        _: &AtomicBool,
    ) -> Step {
        let machine = &self.mounted.0.machine;
        let began = machine.now_ns();
        let done = match self.relocate(file.id, index, part) {
            Ok(done) => done,
            Err(skip) => return Step::none(skip),
        };
        let held = Duration::from_nanos(machine.now_ns() - began);
        let moved = part.len().min(done.blocks * machine.block_bytes());
        let Relocated { by, fallback, skip, .. } = done;
        Step { moved, by, fallback, skip, held, ..Step::default() }
    }
}

impl<K: Kind> Underway for Open<'_, K> {
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        self.file.layout(range)
    }

    fn let_others_in(&mut self) -> Result<(), Skip> {
        self.mover.commit()
    }
}

impl<K: Kind> Movable for Open<'_, K> {
    fn path(&self) -> Option<PathBuf> {
        let state = self.file.mounted.0.state.borrow();
        Some(state.files.of(self.file.id).ok()?.path.clone())
    }

    fn size(&self) -> Result<u64, Skip> {
        Ok(self.file.mounted.0.state.borrow().files.of(self.file.id)?.size)
    }

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        self.mover.accepts(parts)
    }

    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip> {
        self.mover.need(&self.file, ranges)
    }

    fn is_dirty(&self, range: ByteRange) -> Option<bool> {
        let state = self.file.mounted.0.state.borrow();
        let blocks = blocks_of(range, state.block_bytes);
        Some(!state.cache.dirty(self.file.id.inode, blocks).is_empty())
    }

    fn write_back(&self, range: ByteRange, _: &AtomicBool) {
        let written = self.file.mounted.call(|state| {
            let blocks = blocks_of(range, state.block_bytes);
            state.write_back(self.file.id.inode, blocks)
        });
        // Nothing is promised: a part that is still dirty is written back when it moves.
        drop(written);
    }

    fn relocate(
        &mut self,
        targets: &[Target],
        terms: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip> {
        self.mover.unshare = terms.unshare;
        drive::relocate(&mut self.mover, &self.file, targets, pace, |_| ())
    }
}
