//! Data on its way to the drive: blocks get places, are written there, and leave them.

use super::{Kind, Omit, State};
use crate::error::Error;
use crate::extent_map::Piece;
use crate::file_system::Token;
use crate::machine::block_of_token;
use fragmend_flash::command::{Hint, Units};
use std::collections::BTreeMap;
use std::ops::Range;

impl<K: Kind> State<K> {
    /// Gives blocks of a file, which are about to be written, the places where they go. Blocks that have got one and are not
    /// written yet keep it.
    pub fn assign(&mut self, inode: u64, range: Range<u64>) -> Result<(), Error> {
        let Some(file) = self.files.get(inode) else { return Err(Error::Gone) };
        for part in file.unwritten_out.gaps(range) {
            self.assign_anew(inode, part)?;
        }
        Ok(())
    }

    fn assign_anew(&mut self, inode: u64, range: Range<u64>) -> Result<(), Error> {
        let Some(file) = self.files.get_mut(inode) else { return Err(Error::Gone) };
        let mut anew = file.map.holes(range.clone());
        let mut written: Vec<Piece> = Vec::new();
        for piece in file.map.within(range.clone()).collect::<Vec<_>>() {
            let shared = !self.owners.shared(piece.units()).is_empty();
            let shared = shared && self.settings.omit != Some(Omit::Unshare);
            if shared || !self.kind.overwrites(&piece) {
                anew.push(piece.blocks());
            } else if piece.unwritten {
                written.push(Piece { unwritten: false, ..piece });
            }
        }
        if anew.is_empty() && written.is_empty() {
            return Ok(());
        }
        for piece in &written {
            file.map.insert(*piece);
            file.unwritten_out.insert(piece.blocks());
        }
        anew.sort_by_key(|part| part.start);
        anew.dedup_by(|next, last| {
            let follows = last.end == next.start;
            if follows {
                last.end = next.end;
            }
            follows
        });
        for part in anew {
            self.place(inode, part, false)?;
        }
        self.touch(inode, range);
        Ok(())
    }

    /// Allocates new places for a range, whose old ones the file leaves.
    pub fn place(&mut self, inode: u64, range: Range<u64>, unwritten: bool) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            let Some(file) = self.files.get_mut(inode) else { return Err(Error::Gone) };
            let count = (range.end - at).min(K::LONGEST.into()) as u32;
            let program = self.machine.present();
            let units = self.kind.place(&mut self.space, file, at, count, program);
            let Some(units) = units else { return Err(Error::NoSpace) };
            let piece = Piece { block: at, place: units.start, count: units.count, unwritten };
            let old = file.map.insert(piece);
            if !unwritten {
                file.unwritten_out.insert(piece.blocks());
            }
            self.changes.groups.extend(self.space.groups_of(units));
            for old in old {
                self.leave(old.units())?;
            }
            at += u64::from(units.count);
        }
        Ok(())
    }

    /// The extents of a range have changed.
    pub fn touch(&mut self, inode: u64, range: Range<u64>) {
        if let Some(file) = self.files.get_mut(inode) {
            file.leaves.touch(range);
        }
        self.change(inode);
    }

    /// Writes blocks of a file, all of which have places, to the drive, with one call.
    pub fn write_out(
        &mut self,
        inode: u64,
        range: Range<u64>,
        token: impl Fn(u64) -> Option<Token>,
    ) -> Result<(), Error> {
        let Some(file) = self.files.get_mut(inode) else { return Err(Error::Gone) };
        let pieces: Vec<Piece> = file.map.within(range.clone()).collect();
        let bios: Vec<(Units, Hint)> = if self.settings.hints {
            file.bios(range.clone())
        } else {
            pieces.iter().map(|piece| (piece.units(), Hint::None)).collect()
        };
        let mut blocks: BTreeMap<u32, u64> = BTreeMap::new();
        if self.machine.keeps_content() {
            blocks.extend(pieces.iter().flat_map(|piece| piece.units().each().zip(piece.blocks())));
        }
        let bytes = self.block_bytes;
        self.machine.write_each(&bios, &mut |unit| {
            let token = blocks.get(&unit).and_then(|block| token(*block));
            token.and_then(|token| block_of_token(token, bytes))
        })?;
        file.unwritten_out.remove(range.clone());
        let stored = file.size.min(range.end * bytes);
        if stored > file.stored_size {
            file.stored_size = stored;
            self.change(inode);
        }
        Ok(())
    }

    /// Writes the dirty blocks of a range where they are assigned to.
    fn write_dirty(&mut self, inode: u64, range: Range<u64>) -> Result<(), Error> {
        for part in self.cache.dirty(inode, range) {
            let tokens: BTreeMap<u64, Token> = if self.machine.keeps_content() {
                let token = |block| Some((block, self.cache.token(inode, block)?));
                part.clone().filter_map(token).collect()
            } else {
                BTreeMap::new()
            };
            self.write_out(inode, part.clone(), |block| tokens.get(&block).copied())?;
            self.cache.clean(inode, part);
        }
        Ok(())
    }

    /// Writes the dirty blocks of a range to the drive; it may be in the drive's cache alone.
    pub fn write_back(&mut self, inode: u64, range: Range<u64>) -> Result<(), Error> {
        for part in self.cache.dirty(inode, range.clone()) {
            self.assign(inode, part)?;
        }
        if self.settings.omit == Some(Omit::OrderedData) {
            let file = self.files.get_mut(inode).ok_or(Error::Gone)?;
            for part in file.unwritten_out.gaps(range) {
                self.write_dirty(inode, part)?;
            }
            let file = self.files.get_mut(inode).ok_or(Error::Gone)?;
            file.stored_size = file.size;
            return Ok(());
        }
        self.write_dirty(inode, range)
    }

    /// The same for all files.
    pub fn write_back_all(&mut self) -> Result<(), Error> {
        for inode in self.cache.dirty_files() {
            self.write_back(inode, 0..u64::MAX)?;
            if self.kind.is_full(&self.changes) {
                self.commit_early()?;
            }
        }
        self.dirty_ns = None;
        Ok(())
    }

    /// Writes what has got a place, so that the commit may refer to it.
    pub fn write_placed(&mut self) -> Result<(), Error> {
        let changed: Vec<u64> = self.changes.inodes.iter().copied().collect();
        for inode in changed {
            let Some(file) = self.files.get(inode) else { continue };
            for part in file.unwritten_out.ranges().collect::<Vec<_>>() {
                self.write_dirty(inode, part)?;
            }
        }
        Ok(())
    }

    /// A range of a file is gone, in memory and on the drive.
    pub fn cut(&mut self, inode: u64, range: Range<u64>) -> Result<(), Error> {
        self.cache.forget(inode, range.clone());
        let Some(file) = self.files.get_mut(inode) else { return Ok(()) };
        file.unwritten_out.remove(range.clone());
        let removed = file.map.remove(range.clone());
        for piece in &removed {
            self.leave(piece.units())?;
        }
        if let (Some(first), Some(last)) = (removed.first(), removed.last()) {
            self.touch(inode, first.block..last.blocks().end);
        }
        Ok(())
    }

    /// The blocks of a file were written by a program.
    pub fn is_dirty(&mut self) {
        self.dirty_ns.get_or_insert(self.machine.now_ns());
    }
}
