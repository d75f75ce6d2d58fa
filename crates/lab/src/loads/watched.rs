//! A file system whose reads are recorded where programs ask for them, as FragPicker does (section 4.1.1): what the page cache
//! serves is among them.

use fragmend_layout::{Access as Seen, Layout, Movable, Op, Skip, Volume};
use fragmend_layout::{ByteRange, DeviceProfile, FileAccesses, FileId, FsKind};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem, Token};
use fragmend_simfs::machine::Machine;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// A file system that is watched. All clones are the same one.
#[derive(Clone)]
pub struct Watched {
    files: Rc<dyn FileSystem>,
    /// By inode.
    seen: Rc<RefCell<BTreeMap<u64, FileAccesses>>>,
}

impl Watched {
    /// Of which nothing was seen yet.
    pub fn new(files: &Rc<dyn FileSystem>) -> Self {
        Self { files: Rc::clone(files), seen: Rc::default() }
    }

    /// What was seen, of each file in the order of inodes; it is forgotten.
    pub fn take(&self) -> Vec<FileAccesses> {
        self.seen.take().into_values().collect()
    }
}

impl FileSystem for Watched {
    fn machine(&self) -> &Machine {
        self.files.machine()
    }

    fn create(&self, path: &Path) -> Result<FileId, Error> {
        self.files.create(path)
    }

    fn find(&self, path: &Path) -> Result<FileId, Error> {
        self.files.find(path)
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.files.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.files.rename(from, to)
    }

    fn size(&self, file: FileId) -> Result<u64, Error> {
        self.files.size(file)
    }

    fn write(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        self.files.write(file, range, access)
    }

    fn read(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        self.files.read(file, range, access)?;
        let range = range.intersect(ByteRange::at(0, self.files.size(file)?));
        let seen = Seen {
            offset: range.start,
            // A call transfers less than 2 GiB (`MAX_RW_COUNT`).
            length: u32::try_from(range.len()).unwrap_or(u32::MAX),
            count: 1,
            thread: self.machine().present().number(),
            op: Op::Read,
            direct: access == Access::Direct,
            windowed: false,
        };
        let mut files = self.seen.borrow_mut();
        // An inode number may have another file by now.
        let of_file = files.entry(file.inode).or_insert_with(|| FileAccesses::of(file));
        if of_file.file != file {
            *of_file = FileAccesses::of(file);
        }
        of_file.accesses.push(seen);
        Ok(())
    }

    fn content(&self, file: FileId, blocks: Range<u64>) -> Result<Vec<Token>, Error> {
        self.files.content(file, blocks)
    }

    fn allocate(&self, file: FileId, range: ByteRange) -> Result<(), Error> {
        self.files.allocate(file, range)
    }

    fn punch(&self, file: FileId, range: ByteRange) -> Result<(), Error> {
        self.files.punch(file, range)
    }

    fn truncate(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        self.files.truncate(file, bytes)
    }

    fn share(&self, file: FileId, path: &Path) -> Result<FileId, Error> {
        self.files.share(file, path)
    }

    fn sync_file(&self, file: FileId) -> Result<(), Error> {
        self.files.sync_file(file)
    }

    fn sync(&self) -> Result<(), Error> {
        self.files.sync()
    }

    fn drop_caches(&self) {
        self.files.drop_caches();
    }

    fn check(&self) -> Result<(), String> {
        self.files.check()
    }
}

impl Volume for Watched {
    fn label(&self) -> String {
        self.files.label()
    }

    fn kind(&self) -> FsKind {
        self.files.kind()
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        self.files.free_bytes()
    }

    fn total_bytes(&self) -> u64 {
        self.files.total_bytes()
    }

    fn block_bytes(&self) -> u64 {
        self.files.block_bytes()
    }

    fn profile(&self) -> Option<DeviceProfile> {
        self.files.profile()
    }

    fn free_segments(&self) -> Option<u64> {
        self.files.free_segments()
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        self.files.files(visit)
    }

    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip> {
        self.files.layout(file, hint)
    }

    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        self.files.open(file, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;

    #[test]
    fn reads_are_seen_as_far_as_there_is_a_file() {
        let files: Rc<dyn FileSystem> = Rc::new(Double::new(1000));
        let watched = Watched::new(&files);
        let file = watched.create(Path::new("a")).unwrap();
        watched.write(file, ByteRange::at(0, 5000), Access::Direct).unwrap();
        watched.read(file, ByteRange::at(4096, 4096), Access::Buffered).unwrap();
        watched.read(file, ByteRange::at(0, 4096), Access::Direct).unwrap();
        let seen = watched.take();
        assert_eq!((seen.len(), seen[0].file), (1, file));
        let of = |access: &Seen| (access.offset, access.length, access.direct);
        let ranges: Vec<_> = seen[0].accesses.iter().map(of).collect();
        assert_eq!(ranges, [(4096, 904, false), (0, 4096, true)]);
        assert!(watched.take().is_empty(), "it is forgotten");
    }
}
