//! Where each sector of a disk comes from: the image as recording found it, the log, or what was
//! written to a view of it. A disk at any instant is one such map; nothing is copied.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What a device writes as a whole or not at all, in bytes.
pub const SECTOR: u64 = 512;

/// Where one sector's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the base image, at their own place.
    Base,
    /// Nowhere: they are zero.
    Zero,
    /// In the log's file, at this byte.
    Log(u64),
    /// In a view's scratch space, at this byte.
    Scratch(u64),
}

impl Source {
    /// In one word: 0 and 1 for those without a place, then the place and two bits for which.
    fn pack(self) -> u64 {
        match self {
            Self::Base => 0,
            Self::Zero => 1,
            Self::Log(at) => at << 2 | 2,
            Self::Scratch(at) => at << 2 | 3,
        }
    }

    fn unpack(word: u64) -> Self {
        match word & 3 {
            0 => Self::Base,
            1 => Self::Zero,
            2 => Self::Log(word >> 2),
            _ => Self::Scratch(word >> 2),
        }
    }

    /// The source of the sector that follows in the same place.
    fn next(self) -> Self {
        match self {
            Self::Log(at) => Self::Log(at + SECTOR),
            Self::Scratch(at) => Self::Scratch(at + SECTOR),
            same => same,
        }
    }
}

/// The sources of all sectors of a disk.
#[derive(Clone, Debug)]
pub struct Sectors(Vec<u64>);

/// The bytes that the sources speak of.
pub struct Origins<'a> {
    /// The image.
    pub base: &'a File,
    /// The log's file; what a disk without one reads is never there.
    pub log: Option<&'a File>,
    /// What was written to a view.
    pub scratch: &'a [u8],
}

impl Sectors {
    /// A disk of so many bytes, all in its base image.
    pub fn all_base(bytes: u64) -> Self {
        Self(vec![Source::Base.pack(); (bytes / SECTOR) as usize])
    }

    /// So many bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64 * SECTOR
    }

    /// The stretch of `len` bytes from `offset` on comes from `source` on.
    ///
    /// # Errors
    /// `InvalidInput` unless both are sectors within the disk.
    pub fn set(&mut self, offset: u64, len: u64, source: Source) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes());
        let aligned = offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR);
        let Some(end) = end.filter(|_| aligned) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let mut source = source;
        for sector in &mut self.0[(offset / SECTOR) as usize..(end / SECTOR) as usize] {
            *sector = source.pack();
            source = source.next();
        }
        Ok(())
    }

    /// As `from` has it.
    pub fn copy_from(&mut self, from: &Self) {
        self.0.copy_from_slice(&from.0);
    }

    /// Reads whole sectors.
    ///
    /// # Errors
    /// `InvalidInput` unless they are sectors within the disk; whatever the files say.
    pub fn read(&self, offset: u64, buffer: &mut [u8], origins: &Origins) -> io::Result<()> {
        let len = buffer.len() as u64;
        let within = offset.checked_add(len).is_some_and(|end| end <= self.bytes());
        if !within || !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut done = 0;
        while done < len {
            let first = ((offset + done) / SECTOR) as usize;
            let source = Source::unpack(self.0[first]);
            let (mut run, mut next) = (1, source.next());
            while done + run * SECTOR < len && self.0[first + run as usize] == next.pack() {
                (run, next) = (run + 1, next.next());
            }
            let part = &mut buffer[done as usize..(done + run * SECTOR) as usize];
            match source {
                Source::Base => origins.base.read_exact_at(part, offset + done)?,
                Source::Zero => part.fill(0),
                Source::Log(at) => {
                    let log = origins.log.ok_or(io::ErrorKind::NotFound)?;
                    log.read_exact_at(part, at)?;
                }
                Source::Scratch(at) => {
                    part.copy_from_slice(&origins.scratch[at as usize..][..part.len()]);
                }
            }
            done += run * SECTOR;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_read_from_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, byte: u8| {
            let path = dir.path().join(name);
            std::fs::write(&path, vec![byte; 4096]).unwrap();
            File::open(path).unwrap()
        };
        let (base, log) = (file("base", 1), file("log", 2));
        let scratch = [3; 1024];
        let mut sectors = Sectors::all_base(4096);
        sectors.set(512, 1024, Source::Log(8)).unwrap();
        sectors.set(1024, 512, Source::Zero).unwrap();
        sectors.set(2048, 1024, Source::Scratch(0)).unwrap();
        let mut got = [9; 4096];
        let origins = Origins { base: &base, log: Some(&log), scratch: &scratch };
        sectors.read(0, &mut got, &origins).unwrap();
        let firsts: Vec<u8> = got.chunks(512).map(|s| s[0]).collect();
        assert_eq!(firsts, [1, 2, 0, 1, 3, 3, 1, 1]);
        assert!(got.chunks(512).all(|s| s.iter().all(|b| *b == s[0])));
        assert!(sectors.set(256, 512, Source::Zero).is_err());
        assert!(sectors.set(4096, 512, Source::Zero).is_err());
    }
}
