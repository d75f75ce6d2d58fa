//! The disk under test: an image that no longer changes once recording has begun, because every
//! write from then on goes to a log.

use crate::log::Log;
use crate::marks::Mark;
use crate::sectors::{Origins, Sectors, Source};
use crate::serve::SECOND;
use fragmend_served::store::Store;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The image of a disk, in its directory.
pub const IMAGE: &str = "base.img";
/// The log of a disk, in its directory.
pub const LOG: &str = "log";

/// The disk under test.
pub struct Disk {
    dir: PathBuf,
    base: File,
    sectors: Sectors,
    /// Where a second disk begins.
    second: Option<u64>,
    log: Option<Log>,
}

impl Disk {
    /// Creates an empty disk, in new files in `dir`. It records from [`Mark::Recording`] on.
    pub fn create(dir: &Path, bytes: u64) -> io::Result<Self> {
        Self::two(dir, bytes, None)
    }

    /// Two disks in one image: the second begins at byte `second`.
    pub fn two(dir: &Path, bytes: u64, second: Option<u64>) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(dir.join(IMAGE))?;
        file.set_len(bytes)?;
        let (dir, sectors) = (dir.to_owned(), Sectors::all_base(bytes));
        Ok(Self { dir, base: file, sectors, second, log: None })
    }

    /// Where the second disk begins, if there is one.
    pub fn second(&self) -> Option<u64> {
        self.second
    }

    /// Logs a mark of a user of the disk: see [`crate::marks`].
    ///
    /// # Errors
    /// What the write of the mark is answered with.
    pub fn mark(&mut self, text: &str) -> io::Result<()> {
        if let Some(log) = &mut self.log {
            return log.mark(text);
        }
        if serde_json::from_str::<Mark>(text)? == Mark::Recording {
            self.log = Some(Log::create(&self.dir.join(LOG))?);
        }
        Ok(())
    }
}

impl Store for Disk {
    fn bytes(&self) -> u64 {
        self.sectors.bytes()
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let log = self.log.as_ref().map(Log::file);
        self.sectors.read(offset, buffer, &Origins { base: &self.base, log })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(log) = &mut self.log else { return self.base.write_all_at(bytes, offset) };
        let at = log.write(offset, bytes)?;
        self.sectors.set(offset, bytes.len() as u64, Source::Log(at))
    }

    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags as Flags;
        let Some(log) = &mut self.log else {
            let how = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
            return Ok(rustix::fs::fallocate(&self.base, how, offset, len)?);
        };
        log.zero(offset, len)?;
        self.sectors.set(offset, len, Source::Zero)
    }

    fn flush(&mut self, part: usize) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.flush(part == SECOND))
    }
}
