//! The volume in memory as a fixture of the conformance suite.

#![allow(dead_code)] // each test file uses its part

use fragmend_apply::{Event, Options, Summary};
use fragmend_conformance::{Fixture, Space, apply_to};
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_memory::{Change, Memory, World};
use fragmend_plan::Plan;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

pub const BLOCK: u64 = 4096;
const TOTAL: u64 = 64 << 20;
const FILLER: &str = "/memory/filler";

/// A disk of 64 MiB.
pub struct MemoryFixture {
    pub world: Rc<World>,
    pub memory: Memory,
    /// The volume that the cases see of it.
    seen_as: Box<dyn Fn(Memory) -> Box<dyn Volume>>,
}

impl MemoryFixture {
    pub fn new() -> Self {
        Self::seen_as(|memory| Box::new(memory))
    }

    /// A disk of which the cases see another volume.
    pub fn seen_as(seen_as: impl Fn(Memory) -> Box<dyn Volume> + 'static) -> Self {
        let world = Rc::new(World::new());
        let memory = Memory::new(&world, 7, BLOCK, TOTAL / BLOCK);
        Self { world, memory, seen_as: Box::new(seen_as) }
    }

    /// In how many blocks a file is.
    fn blocks(&self, path: &Path) -> u64 {
        let layout = self.memory.layout(self.identity(path), path).expect("its layout");
        layout.extents().iter().map(|e| e.length).sum::<u64>() / BLOCK
    }

    /// Every second block of the first free run that is long enough.
    fn scattered(&self, blocks: u64) -> Vec<u64> {
        let runs = self.memory.free_runs();
        let run = runs.into_iter().find(|run| run.end - run.start >= 2 * blocks).expect("space");
        run.step_by(2).take(blocks as usize).collect()
    }
}

impl Fixture for MemoryFixture {
    fn volume(&self) -> Box<dyn Volume + '_> {
        (self.seen_as)(self.memory.clone())
    }

    fn fragmented(&self, name: &str, bytes: u64) -> PathBuf {
        let path = Path::new("/memory").join(name);
        let places = self.scattered(bytes.div_ceil(BLOCK)).into_iter().map(Some);
        self.memory.add(&path, bytes, &places.collect::<Vec<_>>());
        path
    }

    fn append_far(&self, path: &Path, offset: u64, bytes: u64) {
        let places = self.scattered(bytes / BLOCK);
        self.memory.extend(self.identity(path), offset / BLOCK, &places);
    }

    fn identity(&self, path: &Path) -> FileId {
        self.memory.at(path).expect("a file")
    }

    fn change(&self, path: &Path, change: fragmend_conformance::Change) {
        use fragmend_conformance::Change as Asked;
        let (file, blocks) = (self.identity(path), self.blocks(path));
        let change = match change {
            Asked::Truncate(bytes) => Change::Truncate(bytes),
            Asked::Punch(range) => Change::Punch(range),
            Asked::Remove => Change::Remove,
            Asked::Replace => Change::Replace,
        };
        self.memory.change(file, change);
        if change == Change::Replace {
            self.memory.extend(self.identity(path), 0, &self.scattered(blocks));
        }
    }

    fn reserve(&self, path: &Path, range: ByteRange) -> bool {
        let blocks = range.start / BLOCK..range.end / BLOCK;
        self.memory.reserve(self.identity(path), blocks).expect("space");
        true
    }

    fn space(&self) -> Space {
        let runs = self.memory.free_runs().into_iter();
        let free = runs.map(|run| (run.end - run.start) * BLOCK).sum();
        Space { total: TOTAL, free }
    }

    fn slack(&self) -> u64 {
        0
    }

    fn share(&self, path: &Path) -> PathBuf {
        let other = path.with_extension("shared");
        self.memory.share(self.identity(path), &other).expect("a file");
        other
    }

    fn content(&self, path: &Path, range: ByteRange) -> Vec<u8> {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let read = self.memory.read(self.identity(path), blocks).expect("a file");
        read.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn attributes(&self, path: &Path) -> Vec<i128> {
        let file = self.identity(path);
        let size = self.memory.layout(file, path).expect("its layout").size;
        vec![size.into(), file.inode.into(), file.generation.into()]
    }

    fn fill(&self) {
        let free: Vec<_> = self.memory.free_runs().into_iter().flatten().map(Some).collect();
        self.memory.add(Path::new(FILLER), free.len() as u64 * BLOCK, &free);
    }

    fn release(&self) {
        self.memory.change(self.identity(Path::new(FILLER)), Change::Remove);
    }

    fn check(&self) {
        self.memory.check().unwrap();
        self.memory.restart(0);
        self.memory.check().unwrap();
    }

    fn run(
        &self,
        plan: &Plan,
        options: &Options,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Summary {
        apply_to((self.seen_as)(self.memory.clone()), &*self.world, plan, options, stop, tell)
    }
}
