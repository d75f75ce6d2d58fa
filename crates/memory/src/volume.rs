//! A disk in memory as a [`Volume`].

use crate::disk::Disk;
use crate::fault::{Change, Fault};
use crate::file::Open;
use crate::world::World;
use fragmend_layout::{
    ByteRange, DeviceProfile, Extent, ExtentKind, FileId, FsKind, Layout, Movable, Skip, Volume,
};
use std::cell::{Ref, RefCell, RefMut};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// A disk in memory. All clones are the same disk.
#[derive(Clone, Debug)]
pub struct Memory(Rc<RefCell<Disk>>);

impl Memory {
    /// An empty disk of `blocks` blocks of `block_bytes` bytes, whose files have this device number.
    pub fn new(world: &Rc<World>, device: u64, block_bytes: u64, blocks: u64) -> Self {
        Self(Rc::new(RefCell::new(Disk::new(Rc::clone(world), device, block_bytes, blocks))))
    }

    /// Makes a file of `bytes` bytes whose blocks are at these places of the disk, with holes where there is
    /// none.
    ///
    /// # Panics
    /// When a place is used already, or not on the disk.
    pub fn add(&self, path: &Path, bytes: u64, places: &[Option<u64>]) -> FileId {
        self.disk_mut().add(path, bytes, places)
    }

    /// Another program writes blocks of a file, from its block `first` on, and syncs them; they are at these
    /// places.
    ///
    /// # Panics
    /// When there is no such file, or a place is used already.
    pub fn extend(&self, file: FileId, first: u64, places: &[u64]) {
        self.disk_mut().extend(file, first, places);
    }

    /// Another program makes a file at `path` that shares all blocks of this one.
    ///
    /// # Errors
    /// There is no such file.
    pub fn share(&self, file: FileId, path: &Path) -> Result<FileId, Skip> {
        self.disk_mut().share(file, path)
    }

    /// Another program allocates blocks of a file without writing to them, also behind its end; what was in them
    /// is gone.
    ///
    /// # Errors
    /// There is no such file, or not enough space.
    pub fn reserve(&self, file: FileId, blocks: Range<u64>) -> Result<(), Skip> {
        self.disk_mut().reserve(file, blocks)
    }

    /// Another program changes a file now.
    pub fn change(&self, file: FileId, change: Change) {
        self.disk_mut().change(file, change);
    }

    /// The file at a path.
    pub fn at(&self, path: &Path) -> Option<FileId> {
        let disk = self.disk();
        let (inode, file) = disk.files.iter().find(|(_, file)| file.path == path)?;
        Some(FileId { device: disk.device, inode: *inode, generation: file.generation })
    }

    /// What stands for the contents of these blocks of a file: 0 for a hole, the same number for the same
    /// content.
    ///
    /// # Errors
    /// There is no such file.
    pub fn read(&self, file: FileId, blocks: Range<u64>) -> Result<Vec<u64>, Skip> {
        self.disk().read(file, blocks)
    }

    /// The runs of free blocks, in the order of the disk.
    pub fn free_runs(&self) -> Vec<Range<u64>> {
        self.disk().free_runs()
    }

    /// Lets `fault` happen at the operation with this number; the next one has the number [`Self::operations`]
    /// + 1.
    pub fn fault(&self, at: u64, fault: Fault) {
        self.disk_mut().faults.push((at, fault));
    }

    /// The number of operations so far.
    pub fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// The least space that ever was free, in bytes.
    pub fn least_free_bytes(&self) -> u64 {
        let disk = self.disk();
        disk.least_free * disk.block
    }

    /// The power is back after a cut, or the machine was reset: of the moves that were not durable the first
    /// `survivors` are there all the same. All faults that are still set are removed.
    pub fn restart(&self, survivors: usize) {
        self.disk_mut().restart(survivors);
    }

    /// Checks that each file is what its owners have last written, that each block belongs to one file or is
    /// shared, and that no space is lost.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn check(&self) -> Result<(), String> {
        self.disk().check()
    }

    /// The time on the disk's clock.
    pub(crate) fn now(&self) -> Duration {
        fragmend_apply::Environment::now(&*self.disk().world)
    }

    pub(crate) fn disk(&self) -> Ref<'_, Disk> {
        self.0.borrow()
    }

    pub(crate) fn disk_mut(&self) -> RefMut<'_, Disk> {
        self.0.borrow_mut()
    }

    /// The layout of the blocks of a range; not counted as an operation.
    pub(crate) fn map(&self, id: FileId, range: ByteRange) -> Result<Layout, Skip> {
        let disk = self.disk();
        let file = disk.file(id)?;
        let mut layout = Layout::new(id, file.size);
        let blocks = range.start / disk.block..range.end.div_ceil(disk.block);
        for (block, place) in file.map.range(blocks) {
            let kind = if file.reserved.contains(block) {
                ExtentKind::Unwritten
            } else if disk.is_shared(*place) {
                ExtentKind::Shared
            } else {
                ExtentKind::Data
            };
            layout.push(Extent {
                logical: block * disk.block,
                physical: place * disk.block,
                length: disk.block,
                kind,
            });
        }
        Ok(layout)
    }
}

impl Volume for Memory {
    fn label(&self) -> String {
        format!("memory-{}", self.disk().device)
    }

    fn kind(&self) -> FsKind {
        FsKind::Other
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        let mut disk = self.disk_mut();
        disk.begin(0, 0)?;
        Ok(disk.free() * disk.block)
    }

    fn total_bytes(&self) -> u64 {
        let disk = self.disk();
        disk.blocks() * disk.block
    }

    fn block_bytes(&self) -> u64 {
        self.disk().block
    }

    fn profile(&self) -> Option<DeviceProfile> {
        Some(DeviceProfile { name: self.label(), ..DeviceProfile::unknown() })
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        self.disk_mut().begin(0, 0)?;
        let disk = self.disk();
        let id = |inode: u64, generation| FileId { device: disk.device, inode, generation };
        let files: Vec<_> =
            disk.files.iter().map(|(n, f)| (f.path.clone(), id(*n, f.generation))).collect();
        drop(disk);
        files.iter().for_each(|(path, file)| visit(path, Ok(*file)));
        Ok(())
    }

    fn layout(&self, file: FileId, _: &Path) -> Result<Layout, Skip> {
        self.disk_mut().begin(0, 0)?;
        self.map(file, ByteRange { start: 0, end: u64::MAX })
    }

    fn open(&self, file: FileId, _: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        let mut disk = self.disk_mut();
        disk.begin(0, 0)?;
        disk.file(file)?;
        Ok(Box::new(Open::new(self, file)))
    }
}
