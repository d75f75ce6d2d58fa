//! The source of each sector of a disk: the image when recording began, or the log. The disk at any instant is one such map; nothing is copied.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of a sector, which a device writes atomically.
pub const SECTOR: u64 = 512;

/// Where one sector's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the base image, at the same offset.
    Base,
    /// Nowhere: all zeroes.
    Zero,
    /// In the log's file, at this byte.
    Log(u64),
}

impl Source {
    /// Packed in one word: the kind in the low two bits, the offset above.
    fn pack(self) -> u64 {
        match self {
            Self::Base => 0,
            Self::Zero => 1,
            Self::Log(at) => at << 2 | 2,
        }
    }

    fn unpack(word: u64) -> Self {
        match word & 3 {
            0 => Self::Base,
            1 => Self::Zero,
            _ => Self::Log(word >> 2),
        }
    }

    /// The source of the next sector, if it comes from the same place.
    fn next(self) -> Self {
        match self {
            Self::Log(at) => Self::Log(at + SECTOR),
            same => same,
        }
    }
}

/// The sources of all sectors of a disk.
#[derive(Clone, Debug)]
pub struct Sectors(Vec<u64>);

/// The bytes that the sources refer to.
pub struct Origins<'a> {
    /// The image.
    pub base: &'a File,
    /// The log's file, if there is one.
    pub log: Option<&'a File>,
}

impl Sectors {
    /// A disk of `bytes` bytes, all in its base image.
    pub fn all_base(bytes: u64) -> Self {
        Self(vec![Source::Base.pack(); (bytes / SECTOR) as usize])
    }

    /// Size of the disk in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64 * SECTOR
    }

    /// From now on the `len` bytes from `offset` on come from `source` on.
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

    /// Where the sectors that begin in `len` bytes from `offset` on come from; those beyond the end are left out.
    pub fn sources(&self, offset: u64, len: u64) -> impl Iterator<Item = Source> {
        let first = (offset / SECTOR) as usize;
        let end = self.0.len().min(first + len.div_ceil(SECTOR) as usize);
        self.0[first..end].iter().map(|word| Source::unpack(*word))
    }

    /// The longest parts of the `len` bytes from `offset` on whose bytes are one after the other in one place: that place,
    /// and which bytes of the disk they are. Both must be whole sectors within the disk.
    pub fn runs(&self, offset: u64, len: u64) -> impl Iterator<Item = (Source, Range<u64>)> {
        let (mut at, end) = (offset, offset + len);
        std::iter::from_fn(move || {
            let start = at;
            let first = (start < end).then(|| self.at(start))?;
            let mut next = first;
            while at < end && self.at(at) == next {
                (at, next) = (at + SECTOR, next.next());
            }
            Some((first, start..at))
        })
    }

    fn at(&self, offset: u64) -> Source {
        Source::unpack(self.0[(offset / SECTOR) as usize])
    }

    /// Becomes a copy of `from`, without allocating.
    pub fn copy_from(&mut self, from: &Self) {
        self.0.copy_from_slice(&from.0);
    }

    /// Reads whole sectors.
    ///
    /// # Errors
    /// `InvalidInput` unless they are sectors within the disk; errors of the files.
    pub fn read(&self, offset: u64, buffer: &mut [u8], origins: &Origins) -> io::Result<()> {
        let len = buffer.len() as u64;
        let within = offset.checked_add(len).is_some_and(|end| end <= self.bytes());
        if !within || !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        for (source, range) in self.runs(offset, len) {
            let part = &mut buffer[(range.start - offset) as usize..(range.end - offset) as usize];
            match source {
                Source::Base => origins.base.read_exact_at(part, range.start)?,
                Source::Zero => part.fill(0),
                Source::Log(at) => {
                    let log = origins.log.ok_or(io::ErrorKind::NotFound)?;
                    log.read_exact_at(part, at)?;
                }
            }
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
        let mut sectors = Sectors::all_base(4096);
        sectors.set(512, 1024, Source::Log(8)).unwrap();
        sectors.set(1024, 512, Source::Zero).unwrap();
        sectors.set(2048, 1024, Source::Log(1024)).unwrap();
        let mut got = [9; 4096];
        let origins = Origins { base: &base, log: Some(&log) };
        sectors.read(0, &mut got, &origins).unwrap();
        let firsts: Vec<u8> = got.chunks(512).map(|s| s[0]).collect();
        assert_eq!(firsts, [1, 2, 0, 1, 2, 2, 1, 1]);
        assert!(got.chunks(512).all(|s| s.iter().all(|b| *b == s[0])));
        assert!(sectors.set(256, 512, Source::Zero).is_err());
        assert!(sectors.set(4096, 512, Source::Zero).is_err());
    }
}
