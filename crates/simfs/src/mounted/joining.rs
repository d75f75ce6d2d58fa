//! What janusd's conclusion proposes and a remap makes cheap: files that are remapped right after they were written (*defrag-on-write*), and
//! files' extents that are remapped so that free space is contiguous.
//!
//! Both are relocations as the mover's, and nothing else: the new place is held, the extents are exchanged, and the old place is free after
//! the next commit. So a cut finds what the argument of `remap.rs` says.

use super::remap::Relocated;
use super::transfer::{moved_to, part_of};
use super::{Kind, State};
use crate::error::Error;
use crate::extent_map::Piece;
use fragmend_flash::command::Units;
use fragmend_layout::Skip;

/// After so many times through all files what is left is left.
const PASSES: usize = 8;

/// What was moved to gather free space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Blocks that were moved.
    pub blocks: u64,
    /// Why it ended early, if it did.
    pub skip: Option<Skip>,
}

impl<K: Kind> State<K> {
    /// Relocates the files that have changed since the last commit and are in fragments, each to a place where it is in one, if there is
    /// one. Data has its place once it is written back, so that "right after the write" is just before the commit.
    pub(super) fn join_changed(&mut self) -> Result<(), Error> {
        if !self.defrag_on_write {
            return Ok(());
        }
        let changed = self.changes.inodes.clone();
        changed.into_iter().try_for_each(|inode| self.join(inode))
    }

    fn join(&mut self, inode: u64) -> Result<(), Error> {
        let Some(file) = self.files.get(inode) else { return Ok(()) };
        let pieces: Vec<Piece> = file.map.pieces().collect();
        let is_joined = pieces.windows(2).all(|pair| {
            pair[0].blocks().end != pair[1].block || pair[0].units().end() == pair[1].place
        });
        if is_joined || !file.unwritten_out.is_empty() {
            return Ok(());
        }
        let blocks: u64 = pieces.iter().map(|piece| u64::from(piece.count)).sum();
        let in_use = self.cache.dirty_blocks() + self.spare;
        if blocks > K::LONGEST.into() || self.space.free() < blocks + in_use {
            return Ok(());
        }
        let goal = pieces[0].place;
        let Some(place) = self.space.allocate(goal, blocks as u32, false) else { return Ok(()) };
        if u64::from(place.count) < blocks {
            self.space.release(place);
            return Ok(());
        }
        self.relocate_to(inode, &pieces, place).map(drop)
    }

    /// Moves extents to lower free runs that hold them whole, the last ones first, until none is left that fits, and commits.
    pub(super) fn gather_free_space(&mut self) -> Result<Gathered, Error> {
        let mut gathered = Gathered::default();
        self.write_back_all()?;
        self.unreserve_all();
        self.commit()?;
        for _ in 0..PASSES {
            let before = gathered.blocks;
            let mut pieces: Vec<(u64, Piece)> = self
                .files
                .each()
                .flat_map(|(inode, file)| file.map.pieces().map(move |piece| (inode, piece)))
                .collect();
            pieces.sort_unstable_by_key(|(_, piece)| std::cmp::Reverse(piece.place));
            for (inode, piece) in pieces {
                let below = self.space.free_within(Units::new(0, piece.place));
                let Some(run) = below.into_iter().find(|run| run.count >= piece.count) else {
                    continue;
                };
                let place = Units::new(run.start, piece.count);
                self.space.take(place);
                let done = self.relocate_to(inode, &[piece], place)?;
                gathered.blocks += done.blocks;
                if done.skip.is_some() {
                    gathered.skip = done.skip;
                    self.commit()?;
                    return Ok(gathered);
                }
            }
            self.commit()?;
            if gathered.blocks == before {
                break;
            }
        }
        Ok(gathered)
    }

    /// Relocates extents of a file, which are on the drive, to blocks that were taken; those that are not used are free again.
    fn relocate_to(
        &mut self,
        inode: u64,
        pieces: &[Piece],
        place: Units,
    ) -> Result<Relocated, Error> {
        self.hold_at(place);
        let done = self.relocate(inode, &moved_to(pieces, &[place]));
        let used = done.as_ref().map_or(0, |done| done.blocks);
        for unused in part_of(&[place], used..u64::MAX) {
            self.release(unused);
        }
        done
    }
}
