//! A part of a file on its way to another place: places are held, data is transferred, extents are exchanged.

use super::{Kind, State};
use crate::error::Error;
use crate::extent_map::Piece;
use crate::file_system::Access;
use fragmend_flash::command::{Hint, Units};
use fragmend_layout::{FileId, Skip, SkipReason};
use std::collections::BTreeMap;
use std::ops::Range;

/// How data comes to its new place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Primitive {
    /// The host reads it and writes it there.
    #[default]
    Copy,
}

impl Primitive {
    /// Its name in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy and exchange",
        }
    }
}

/// A part of a file with its old and its new place, both in the order of the file and without overlap.
pub(super) struct Transfer {
    old: Vec<Piece>,
    new: Vec<Piece>,
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
            self.space.hold(units);
            self.donated += u64::from(units.count);
            rest -= u64::from(units.count);
            match held.last_mut().filter(|last| last.end() == units.start) {
                Some(last) => last.count += units.count,
                None => held.push(units),
            }
        }
        Ok(held)
    }

    /// Frees places that were held and not used.
    pub(super) fn release(&mut self, units: Units) {
        self.space.let_go(units);
        self.donated -= u64::from(units.count);
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
        Ok(Transfer { new: moved_to(&old, places), old })
    }

    /// Brings the data to its new place. It need not be durable: the commit's barrier comes before anything refers to it.
    pub(super) fn transfer(&self, transfer: &Transfer) -> Result<(), Error> {
        match self.primitive {
            Primitive::Copy => self.copy(transfer),
        }
    }

    fn copy(&self, transfer: &Transfer) -> Result<(), Error> {
        let written = |pieces: &[Piece]| -> Vec<Units> {
            pieces.iter().filter(|piece| !piece.unwritten).map(Piece::units).collect()
        };
        let (from, to) = (written(&transfer.old), written(&transfer.new));
        if from.is_empty() {
            return Ok(());
        }
        self.machine.read(&from, Access::Direct)?;
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
    pub(super) fn exchange(&mut self, id: FileId, transfer: &Transfer) -> Result<(), Error> {
        for piece in &transfer.new {
            self.space.hand_over(piece.units());
            self.donated -= u64::from(piece.count);
            self.changes.groups.extend(self.space.groups_of(piece.units()));
            let old = self.files.of_mut(id)?.map.insert(*piece);
            for old in old {
                self.leave(old.units())?;
            }
            self.touch(id.inode, piece.blocks());
        }
        Ok(())
    }
}

/// The same blocks of a file at these places, in their order.
fn moved_to(old: &[Piece], places: &[Units]) -> Vec<Piece> {
    let mut new: Vec<Piece> = Vec::new();
    let mut places = places.iter().copied();
    let mut at = Units::new(0, 0);
    for piece in old {
        let mut rest = *piece;
        while rest.count > 0 {
            if at.count == 0 {
                at = places.next().expect("as many places as blocks");
            }
            let count = rest.count.min(at.count);
            new.push(Piece { place: at.start, count, ..rest });
            at = Units::new(at.start + count, at.count - count);
            rest.block += u64::from(count);
            rest.count -= count;
        }
    }
    new
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
