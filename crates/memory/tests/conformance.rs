//! The volume in memory through the conformance suite.

use fragmend_apply::{Options, Receipt, Summary};
use fragmend_conformance::{Fixture, apply_to, cases};
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_memory::{Change, Memory, World};
use fragmend_plan::Plan;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const BLOCK: u64 = 4096;
const FILLER: &str = "/memory/filler";

struct MemoryFixture {
    world: Rc<World>,
    memory: Memory,
}

impl MemoryFixture {
    fn new() -> Self {
        let world = Rc::new(World::new());
        let memory = Memory::new(&world, 7, BLOCK, (64 << 20) / BLOCK);
        Self { world, memory }
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
        Box::new(self.memory.clone())
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
        let change = match change {
            Asked::Truncate(bytes) => Change::Truncate(bytes),
            Asked::Punch(range) => Change::Punch(range),
            Asked::Remove => Change::Remove,
            Asked::Replace => Change::Replace,
        };
        self.memory.change(self.identity(path), change);
    }

    /// The volume in memory has no unwritten extents.
    fn reserve(&self, _: &Path, _: ByteRange) -> bool {
        false
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

    fn apply(&self, plan: &Plan, options: &Options) -> (Summary, Vec<Receipt>) {
        apply_to(Box::new(self.memory.clone()), &*self.world, plan, options)
    }
}

macro_rules! conforms {
    ($($case:ident)*) => {
        $(#[test] fn $case() { cases::$case(&MemoryFixture::new()) })*
    };
}

conforms! {
    fragments_are_joined
    a_part_moves_and_the_rest_stays
    holes_unwritten_space_and_the_end_stay
    five_gibibytes_and_mostly_holes
    what_changed_since_the_plan_is_left_alone
    a_dry_run_moves_nothing
    a_full_disk_is_left_alone
}
