//! A part of a file on its way to another place: places are held, data is transferred, extents are exchanged.

use super::{Kind, State};
use crate::error::Error;
use crate::extent_map::Piece;
use crate::file_system::Access;
use fragmend_flash::command::{Hint, Units};
use fragmend_layout::{FileId, Skip, SkipReason};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of a file, in runs that are contiguous both in their old and in their new place, in the order of the file.
pub(super) struct Transfer(pub Vec<Moving>);

/// A run of a file's blocks on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    /// The first block of its old place.
    pub from: u32,
    pub to: Piece,
}

impl Moving {
    pub fn old(&self) -> Units {
        Units::new(self.from, self.to.count)
    }
}

impl<K: Kind> State<K> {
    /// Allocates and holds places for so many blocks.
    pub(super) fn hold(&mut self, blocks: u64, goal: u32) -> Result<Vec<Units>, Error> {
        let mut held: Vec<Units> = Vec::new();
        let mut rest = blocks;
        while rest > 0 {
            let count = rest.min(K::LONGEST.into()) as u32;
            let goal = held.last().map_or(goal, |last| last.end());
            let Some(units) = self.space.allocate(goal, count, false) else {
                held.into_iter().for_each(|units| self.release(units));
                return Err(Error::NoSpace);
            };
            self.hold_at(units);
            rest -= u64::from(units.count);
            match held.last_mut().filter(|last| last.end() == units.start) {
                Some(last) => last.count += units.count,
                None => held.push(units),
            }
        }
        Ok(held)
    }

    /// Holds a place, which is free, for a move.
    pub(super) fn hold_at(&mut self, units: Units) {
        self.space.hold(units);
        self.donated += u64::from(units.count);
    }

    /// Frees places that were held and not used. A move that ended with an error may have used some of them: they are the file's.
    pub(super) fn release(&mut self, units: Units) {
        for part in self.space.held().within(units.start.into()..units.end().into()) {
            let count = (part.end - part.start) as u32;
            self.space.let_go(Units::new(part.start as u32, count));
            self.donated -= u64::from(count);
        }
    }

    /// The old and new places of blocks of a file, which are on the drive afterwards.
    pub(super) fn transfer_of(
        &mut self,
        id: FileId,
        blocks: Range<u64>,
        places: &[Units],
        unshare: bool,
    ) -> Result<Transfer, Skip> {
        self.write_back(id.inode, blocks.clone())?;
        let file = self.files.of(id)?;
        if !file.unwritten_out.within(blocks.clone()).is_empty() {
            return Err(Skip::new(SkipReason::Busy, "it is not written back"));
        }
        if file.size.div_ceil(self.block_bytes) < blocks.end && file.map.end() < blocks.end {
            return Err(Skip::new(SkipReason::SizeChanged, "the file ends before it now"));
        }
        if !file.map.holes(blocks.clone()).is_empty() {
            return Err(Skip::new(SkipReason::LayoutChanged, "part of it holds no data now"));
        }
        let old: Vec<Piece> = file.map.within(blocks).collect();
        if !unshare && old.iter().any(|piece| !self.owners.shared(piece.units()).is_empty()) {
            return Err(Skip::new(SkipReason::Shared, "it is shared since it was looked at"));
        }
        Ok(Transfer(moved_to(&old, places)))
    }

    /// Reads data and writes it to its new place. It need not be durable: the commit's barrier comes before anything refers to it.
    pub(super) fn copy(&self, runs: &[Moving]) -> Result<(), Error> {
        let from = continued(written(runs).map(Moving::old));
        if !from.is_empty() {
            self.machine.read(&from, Access::Direct)?;
        }
        self.write_anew(runs)
    }

    /// The same of data that [`Self::read_missing_block`] has read, unless it was evicted since.
    pub(super) fn copy_what_is_read(&mut self, inode: u64, runs: &[Moving]) -> Result<(), Error> {
        for block in written(runs).flat_map(|run| run.to.blocks()) {
            self.read_missing_block(inode, block)?;
        }
        self.write_anew(runs)
    }

    /// Reads a block of a file that is not in the page cache, as part of a call that is being made.
    pub(super) fn read_missing_block(&mut self, inode: u64, block: u64) -> Result<(), Error> {
        for missing in self.cache.missing(inode, block..block + 1) {
            let map = &self.files.get_mut(inode).ok_or(Error::Gone)?.map;
            for piece in map.within(missing.clone()).filter(|piece| !piece.unwritten) {
                let ready = self.machine.begin_read(&[piece.units()])?;
                self.machine.end_read(ready);
            }
            self.cache.add(inode, missing);
        }
        Ok(())
    }

    /// Writes what has been read to its new place.
    fn write_anew(&self, runs: &[Moving]) -> Result<(), Error> {
        let from = continued(written(runs).map(Moving::old));
        let to = continued(written(runs).map(|run| run.to.units()));
        if from.is_empty() {
            return Ok(());
        }
        let mut contents: BTreeMap<u32, Box<[u8]>> = BTreeMap::new();
        if self.machine.keeps_content() {
            let each = |units: &[Units]| units.iter().flat_map(|units| units.each()).collect();
            let (from, to): (Vec<u32>, Vec<u32>) = (each(&from), each(&to));
            let content = |unit| self.machine.bytes(Units::new(unit, 1)).into();
            contents.extend(to.into_iter().zip(from.into_iter().map(content)));
        }
        self.machine.write(&to, Hint::None, &mut |unit| contents.remove(&unit))?;
        Ok(())
    }

    /// The file has its new place from now on, and leaves the old one.
    pub(super) fn exchange(&mut self, inode: u64, runs: &[Moving]) -> Result<(), Error> {
        for piece in runs.iter().map(|run| run.to) {
            self.space.hand_over(piece.units());
            self.donated -= u64::from(piece.count);
            self.changes.groups.extend(self.space.groups_of(piece.units()));
            let old = self.files.get_mut(inode).ok_or(Error::Gone)?.map.insert(piece);
            for old in old {
                self.leave(old.units())?;
            }
            self.touch(inode, piece.blocks());
        }
        Ok(())
    }
}

/// The runs that hold data.
fn written(runs: &[Moving]) -> impl Iterator<Item = &Moving> {
    runs.iter().filter(|run| !run.to.unwritten)
}

/// Runs of blocks in this order, those that continue the one before them as one.
fn continued(runs: impl Iterator<Item = Units>) -> Vec<Units> {
    let mut all: Vec<Units> = Vec::new();
    for run in runs {
        match all.last_mut().filter(|last| last.end() == run.start) {
            Some(last) => last.count += run.count,
            None => all.push(run),
        }
    }
    all
}

/// The same blocks of a file on their way to these places, in their order.
pub(super) fn moved_to(old: &[Piece], places: &[Units]) -> Vec<Moving> {
    let mut runs: Vec<Moving> = Vec::new();
    let mut places = places.iter().copied();
    let mut at = Units::new(0, 0);
    for piece in old {
        let mut rest = *piece;
        while rest.count > 0 {
            if at.count == 0 {
                at = places.next().expect("as many places as blocks");
            }
            let count = rest.count.min(at.count);
            runs.push(Moving { from: rest.place, to: Piece { place: at.start, count, ..rest } });
            at = Units::new(at.start + count, at.count - count);
            rest.place += count;
            rest.block += u64::from(count);
            rest.count -= count;
        }
    }
    runs
}

/// The part of these places that has the blocks `range`, counted from the first one.
pub(super) fn part_of(places: &[Units], range: Range<u64>) -> Vec<Units> {
    let mut parts = Vec::new();
    let mut at = 0;
    for units in places {
        let (start, end) = (range.start.max(at), range.end.min(at + u64::from(units.count)));
        if start < end {
            parts.push(Units::new(units.start + (start - at) as u32, (end - start) as u32));
        }
        at += u64::from(units.count);
    }
    parts
}
