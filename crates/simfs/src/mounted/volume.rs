//! A mounted file system as a [`Volume`].

use super::moves::Open;
use super::{Kind, Mounted, State};
use crate::extent_map::Piece;
use fragmend_layout::{
    DeviceProfile, Extent, ExtentKind, FileId, FsKind, Layout, Movable, Skip, Volume,
};
use std::ops::Range;
use std::path::Path;

impl<K: Kind> State<K> {
    /// The layout of blocks of a file as their extents are now; what has no place yet is not in it.
    pub fn layout(&self, id: FileId, blocks: Range<u64>) -> Result<Layout, Skip> {
        let file = self.files.of(id)?;
        let mut layout = Layout::new(id, file.size);
        for piece in file.map.within(blocks) {
            self.push(&mut layout, piece);
        }
        Ok(layout)
    }

    /// Adds a piece, whose shared parts are extents of their own.
    fn push(&self, layout: &mut Layout, piece: Piece) {
        let mut push = |part: Piece, kind| {
            layout.push(Extent {
                logical: part.block * self.block_bytes,
                physical: u64::from(part.place) * self.block_bytes,
                length: u64::from(part.count) * self.block_bytes,
                kind,
            });
        };
        let kind = if piece.unwritten { ExtentKind::Unwritten } else { ExtentKind::Data };
        let mut at = piece.block;
        for shared in self.owners.shared(piece.units()) {
            let start = piece.block + u64::from(shared.start - piece.place);
            let end = start + u64::from(shared.count);
            if let Some(part) = piece.within(&(at..start)) {
                push(part, kind);
            }
            if let Some(part) = piece.within(&(start..end)) {
                push(part, ExtentKind::Shared);
            }
            at = end;
        }
        if let Some(part) = piece.within(&(at..piece.blocks().end)) {
            push(part, kind);
        }
    }
}

impl<K: Kind> Volume for Mounted<K> {
    fn label(&self) -> String {
        format!("{}-{}", K::NAME, self.0.state.borrow().settings.device)
    }

    fn kind(&self) -> FsKind {
        K::IMITATES
    }

    /// What is reserved, or freed and not committed, may be allocated; what stays free for metadata may not.
    fn free_bytes(&self) -> Result<u64, Skip> {
        let state = self.0.state.borrow();
        let freed: u64 = state.changes.freed.iter().map(|run| u64::from(run.count)).sum();
        let reserved = state.space.held().len() - state.donated;
        let free = state.space.free() + reserved + freed;
        Ok(free.saturating_sub(state.cache.dirty_blocks() + state.spare) * state.block_bytes)
    }

    fn total_bytes(&self) -> u64 {
        u64::from(self.0.machine.blocks()) * self.0.machine.block_bytes()
    }

    fn block_bytes(&self) -> u64 {
        self.0.machine.block_bytes()
    }

    fn profile(&self) -> Option<DeviceProfile> {
        self.0.machine.profile()
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        let state = self.0.state.borrow();
        let device = state.settings.device;
        let id = |inode, generation| FileId { device, inode, generation };
        let files: Vec<_> = state
            .files
            .each()
            .map(|(inode, file)| (file.path.clone(), id(inode, file.generation)))
            .collect();
        drop(state);
        files.iter().for_each(|(path, file)| visit(path, Ok(*file)));
        Ok(())
    }

    fn layout(&self, file: FileId, _: &Path) -> Result<Layout, Skip> {
        self.0.state.borrow().layout(file, 0..u64::MAX)
    }

    fn open(&self, file: FileId, _: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        self.0.state.borrow().files.of(file)?;
        Ok(Box::new(Open::new(self, file)))
    }
}
