//! Any simulated file system as a fixture of the conformance suite.

use super::{Kind, Seen};
use fragmend_apply::{Event, Options, Summary};
use fragmend_conformance::{Change, Fixture, Space, apply_to};
use fragmend_layout::{ByteRange, FileId, Layout, Volume};
use fragmend_plan::Plan;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::machine::Machine;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

const FILLER: &str = "/filler";

/// A fresh file system on a machine, which is mounted.
pub struct SimFixture<K> {
    kind: K,
    machine: Machine,
    mounted: RefCell<Rc<dyn FileSystem>>,
    /// Bytes that were free in the beginning.
    free: u64,
    slack: u64,
}

impl<K: Kind> SimFixture<K> {
    /// Metadata of a case's files has at most `slack` bytes.
    pub fn new(kind: K, machine: Machine, slack: u64) -> Self {
        kind.format(&machine).expect("it is made");
        let mounted = kind.mount(&machine).expect("it is mounted");
        let free = mounted.free_bytes().expect("its free space");
        Self { kind, machine, mounted: RefCell::new(mounted), free, slack }
    }

    /// The file system as it is mounted now.
    pub fn mounted(&self) -> Rc<dyn FileSystem> {
        Rc::clone(&self.mounted.borrow())
    }

    /// Writes a range of a file in blocks, the last one first, so that none continues the one before it on the drive, and syncs it.
    fn write_scattered(&self, file: FileId, range: ByteRange) {
        let fs = self.mounted();
        let steps: Vec<ByteRange> = range.steps(fs.block_bytes()).collect();
        for step in steps.into_iter().rev() {
            let whole = step.len() == fs.block_bytes();
            let access = if whole { Access::Direct } else { Access::Buffered };
            fs.write(file, step, access).expect("space");
            // What is delayed gets its place now.
            if !whole {
                fs.sync_file(file).expect("it is durable");
            }
        }
        fs.sync_file(file).expect("it is durable");
    }

    fn layout(&self, file: FileId) -> Layout {
        self.mounted().layout(file, Path::new("")).expect("its layout")
    }
}

impl<K: Kind> Fixture for SimFixture<K> {
    fn volume(&self) -> Box<dyn Volume + '_> {
        Box::new(Seen(self.mounted()))
    }

    fn fragmented(&self, name: &str, bytes: u64) -> PathBuf {
        let path = Path::new("/").join(name);
        let file = self.mounted().create(&path).expect("a new file");
        self.write_scattered(file, ByteRange { start: 0, end: bytes });
        path
    }

    fn append_far(&self, path: &Path, offset: u64, bytes: u64) {
        self.write_scattered(self.identity(path), ByteRange::at(offset, bytes));
    }

    fn space(&self) -> Space {
        let fs = self.mounted();
        let block = fs.block_bytes();
        let mut used: BTreeSet<u64> = BTreeSet::new();
        fs.files(&mut |_, file| {
            let layout = self.layout(file.expect("a file"));
            let blocks =
                layout.extents().iter().map(|e| e.physical / block..e.physical_end() / block);
            used.extend(blocks.flatten());
        })
        .expect("all files");
        let free = self.free.saturating_sub(used.len() as u64 * block);
        Space { total: u64::from(self.machine.blocks()) * block, free }
    }

    fn slack(&self) -> u64 {
        self.slack
    }

    fn share(&self, path: &Path) -> PathBuf {
        let other = path.with_extension("shared");
        let fs = self.mounted();
        fs.share(self.identity(path), &other).expect("it shares");
        fs.sync().expect("it is durable");
        other
    }

    fn identity(&self, path: &Path) -> FileId {
        self.mounted().find(path).expect("a file")
    }

    fn change(&self, path: &Path, change: Change) {
        let (fs, file) = (self.mounted(), self.identity(path));
        let done = match change {
            Change::Truncate(bytes) => fs.truncate(file, bytes),
            Change::Punch(range) => fs.punch(file, range),
            Change::Remove => fs.remove(path),
            Change::Replace => {
                let bytes = fs.size(file).expect("its size");
                fs.remove(path).expect("it was there");
                let other = fs.create(path).expect("a new file");
                self.write_scattered(other, ByteRange { start: 0, end: bytes });
                Ok(())
            }
        };
        done.expect("it can be changed");
        fs.sync().expect("it is durable");
    }

    fn reserve(&self, path: &Path, range: ByteRange) -> bool {
        let (fs, file) = (self.mounted(), self.identity(path));
        if range.start < fs.size(file).expect("its size") {
            fs.punch(file, range).expect("a hole");
        }
        match fs.allocate(file, range) {
            Err(Error::Unsupported(_)) => false,
            done => {
                done.and_then(|()| fs.sync()).expect("space");
                true
            }
        }
    }

    fn content(&self, path: &Path, range: ByteRange) -> Vec<u8> {
        let fs = self.mounted();
        let block = fs.block_bytes();
        let blocks = range.start / block..range.end.div_ceil(block);
        let tokens = fs.content(self.identity(path), blocks).expect("a file");
        tokens.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn attributes(&self, path: &Path) -> Vec<i128> {
        let file = self.identity(path);
        let size = self.mounted().size(file).expect("its size");
        vec![size.into(), file.inode.into(), file.generation.into()]
    }

    fn fill(&self) {
        let fs = self.mounted();
        let file = fs.create(Path::new(FILLER)).expect("a new file");
        let (mut at, mut step) = (0, 1 << 24);
        while step >= fs.block_bytes() {
            match fs.write(file, ByteRange::at(at, step), Access::Direct) {
                Ok(()) => at += step,
                Err(Error::NoSpace) => step /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        fs.sync().expect("it is durable");
    }

    fn release(&self) {
        let fs = self.mounted();
        fs.remove(Path::new(FILLER)).expect("it was there");
        fs.sync().expect("it is durable");
    }

    /// Cuts the power and mounts: all that the cases do is said to be durable when they check.
    fn check(&self) {
        self.mounted().check().unwrap();
        self.machine.restart(0);
        let mounted = self.kind.mount(&self.machine).expect("it is mounted");
        mounted.check().unwrap();
        *self.mounted.borrow_mut() = mounted;
    }

    fn run(
        &self,
        plan: &Plan,
        options: &Options,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Summary {
        apply_to(Box::new(Seen(self.mounted())), &self.machine, plan, options, stop, tell)
    }
}
