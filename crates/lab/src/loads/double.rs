//! The smallest file system on which loads can be tested: no metadata on the drive, no page cache; the lowest free blocks are
//! allocated. It counts calls.

use crate::presets;
use fragmend_flash::command::{Hint, Units};
use fragmend_layout::{
    ByteRange, Extent, ExtentKind, FileId, FsKind, Layout, Movable, Skip, SkipReason, Volume,
};
use fragmend_simfs::error::Error;
use fragmend_simfs::extent_map::{ExtentMap, Piece};
use fragmend_simfs::file_system::{Access, FileSystem, Token};
use fragmend_simfs::machine::Machine;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

const BLOCK: u64 = 4096;

pub struct Double {
    machine: Machine,
    state: RefCell<State>,
    calls: Cell<(u64, u64)>,
    total: u32,
}

#[derive(Default)]
struct State {
    paths: BTreeMap<PathBuf, u64>,
    files: BTreeMap<u64, (u64, ExtentMap)>,
    free: BTreeSet<u32>,
    next: u64,
}

impl Double {
    /// A file system of so many blocks, on the lab's Optane SSD.
    pub fn new(blocks: u32) -> Self {
        let setup = presets::named("optane").unwrap();
        let machine = Machine::new(setup.device(), false, setup.host);
        let state = State { free: (0..blocks).collect(), next: 1, ..State::default() };
        Self { machine, state: RefCell::new(state), calls: Cell::default(), total: blocks }
    }

    /// How many calls have read.
    pub fn reads(&self) -> u64 {
        self.calls.get().0
    }

    /// How many calls have synced.
    pub fn syncs(&self) -> u64 {
        self.calls.get().1
    }

    /// How many files there are.
    pub fn count(&self) -> usize {
        self.state.borrow().paths.len()
    }

    fn of<T>(
        &self,
        file: FileId,
        call: impl FnOnce(&mut (u64, ExtentMap)) -> T,
    ) -> Result<T, Error> {
        self.state.borrow_mut().files.get_mut(&file.inode).map(call).ok_or(Error::Gone)
    }

    /// The blocks of the drive in a range of a file.
    fn places(&self, file: FileId, range: ByteRange) -> Result<Vec<Units>, Error> {
        self.of(file, |(_, map)| map.within(blocks(range)).map(|piece| piece.units()).collect())
    }
}

fn blocks(range: ByteRange) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

fn id(inode: u64) -> FileId {
    FileId { device: 1, inode, generation: 0 }
}

impl State {
    fn release(&mut self, pieces: &[Piece]) {
        self.free.extend(pieces.iter().flat_map(|piece| piece.units().each()));
    }
}

impl FileSystem for Double {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn create(&self, path: &Path) -> Result<FileId, Error> {
        let state = &mut *self.state.borrow_mut();
        if state.paths.contains_key(path) {
            return Err(Error::Exists(path.into()));
        }
        let inode = state.next;
        state.next += 1;
        state.paths.insert(path.into(), inode);
        state.files.insert(inode, (0, ExtentMap::new(1 << 15)));
        Ok(id(inode))
    }

    fn find(&self, path: &Path) -> Result<FileId, Error> {
        let found = self.state.borrow().paths.get(path).copied();
        found.map(id).ok_or_else(|| Error::NotFound(path.into()))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        let state = &mut *self.state.borrow_mut();
        let inode = state.paths.remove(path).ok_or_else(|| Error::NotFound(path.into()))?;
        let (_, map) = state.files.remove(&inode).expect("its file");
        state.release(&map.pieces().collect::<Vec<_>>());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let _ = self.remove(to);
        let state = &mut *self.state.borrow_mut();
        let inode = state.paths.remove(from).ok_or_else(|| Error::NotFound(from.into()))?;
        state.paths.insert(to.into(), inode);
        Ok(())
    }

    fn size(&self, file: FileId) -> Result<u64, Error> {
        self.of(file, |(size, _)| *size)
    }

    fn write(&self, file: FileId, range: ByteRange, _: Access) -> Result<(), Error> {
        let holes = self.of(file, |(size, map)| {
            *size = (*size).max(range.end);
            map.holes(blocks(range))
        })?;
        for block in holes.into_iter().flatten() {
            let place = self.state.borrow_mut().free.pop_first().ok_or(Error::NoSpace)?;
            self.of(file, |(_, map)| {
                map.insert(Piece { block, place, count: 1, unwritten: false })
            })?;
        }
        Ok(self.machine.write(&self.places(file, range)?, Hint::None, &mut |_| None)?)
    }

    fn read(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        self.calls.set((self.reads() + 1, self.syncs()));
        Ok(self.machine.read(&self.places(file, range)?, access)?)
    }

    fn content(&self, _: FileId, blocks: Range<u64>) -> Result<Vec<Token>, Error> {
        Ok(blocks.map(|_| 0).collect())
    }

    fn allocate(&self, _: FileId, _: ByteRange) -> Result<(), Error> {
        Err(Error::Unsupported("no load allocates"))
    }

    fn punch(&self, _: FileId, _: ByteRange) -> Result<(), Error> {
        Err(Error::Unsupported("no load punches"))
    }

    fn truncate(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        let gone = self.of(file, |(size, map)| {
            *size = bytes;
            map.remove(bytes.div_ceil(BLOCK)..u64::MAX)
        })?;
        self.state.borrow_mut().release(&gone);
        Ok(())
    }

    fn sync_file(&self, _: FileId) -> Result<(), Error> {
        self.calls.set((self.reads(), self.syncs() + 1));
        Ok(self.machine.flush()?)
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(self.machine.flush()?)
    }

    fn drop_caches(&self) {}

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Volume for Double {
    fn label(&self) -> String {
        "double".into()
    }

    fn kind(&self) -> FsKind {
        FsKind::Other
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        Ok(self.state.borrow().free.len() as u64 * BLOCK)
    }

    fn total_bytes(&self) -> u64 {
        u64::from(self.total) * BLOCK
    }

    fn block_bytes(&self) -> u64 {
        BLOCK
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        self.state.borrow().paths.iter().for_each(|(path, inode)| visit(path, Ok(id(*inode))));
        Ok(())
    }

    fn layout(&self, file: FileId, _: &Path) -> Result<Layout, Skip> {
        self.of(file, |(size, map)| {
            let mut layout = Layout::new(file, *size);
            for piece in map.pieces() {
                layout.push(Extent {
                    logical: piece.block * BLOCK,
                    physical: u64::from(piece.place) * BLOCK,
                    length: u64::from(piece.count) * BLOCK,
                    kind: ExtentKind::Data,
                });
            }
            layout
        })
        .map_err(Skip::from)
    }

    fn open(&self, _: FileId, _: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        Err(Skip::new(SkipReason::Unsupported, "nothing moves here"))
    }
}
