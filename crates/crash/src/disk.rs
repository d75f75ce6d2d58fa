//! The disk under test: an image that, from some moment on, stays as it is while everything that
//! happens to it goes into a log.

use crate::log::Log;
use crate::sectors::{Origins, Sectors, Source};
use crate::serve::Store;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A disk.
pub struct Disk {
    base: File,
    sectors: Sectors,
    log: Option<Log>,
}

impl Disk {
    /// An empty one in a new, sparse file.
    pub fn create(base: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(base)?;
        file.set_len(bytes)?;
        Ok(Self { base: file, sectors: Sectors::all_base(bytes), log: None })
    }

    /// From now on the image stays as it is, and this new file records.
    pub fn record(&mut self, log: &Path) -> io::Result<()> {
        self.log = Some(Log::create(log)?);
        Ok(())
    }

    /// How many entries the log has so far.
    pub fn position(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.entries().len())
    }

    /// Notes something between what was written before and what will be written after.
    pub fn mark(&mut self, text: &str) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.mark(text))
    }
}

impl Store for Disk {
    fn bytes(&self) -> u64 {
        self.sectors.bytes()
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let log = self.log.as_ref().map(Log::file);
        self.sectors.read(offset, buffer, &Origins { base: &self.base, log, scratch: &[] })
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

    fn flush(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::flush)
    }
}
