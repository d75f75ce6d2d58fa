//! The content of a served drive: a sparse file without a name, which is gone when the process ends, however it
//! ends. The model of the drive keeps no content; it decides when a request is done, and this what it does.
//!
//! A flush has nothing to do here: what the process has written survives until the process ends, and nothing
//! survives that.

use fragmend_served::request::{Arrived, Kind};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The content of a drive.
#[derive(Debug)]
pub struct Data(File);

impl Data {
    /// An empty drive of this size, in an unnamed file in `dir`.
    ///
    /// # Errors
    /// When there can be no such file, or it cannot have holes.
    pub fn create(dir: &Path, bytes: u64) -> io::Result<Self> {
        let data = Self(tempfile::tempfile_in(dir)?);
        data.0.set_len(bytes)?;
        // What is trimmed must become free.
        data.punch(0, bytes.min(4096))?;
        Ok(data)
    }

    /// Carries out a request; returns what a read reads.
    ///
    /// # Errors
    /// Those of the file: no space left, for one.
    pub fn carry_out(&self, arrived: &Arrived<'_>) -> io::Result<Vec<u8>> {
        let Arrived { kind, offset, len, bytes } = *arrived;
        match kind {
            Kind::Read => {
                let mut read = vec![0; len as usize];
                self.0.read_exact_at(&mut read, offset)?;
                return Ok(read);
            }
            Kind::Write => self.0.write_all_at(bytes, offset)?,
            Kind::Discard | Kind::Zero if len > 0 => self.punch(offset, len)?,
            Kind::Discard | Kind::Zero | Kind::Flush => {}
        }
        Ok(Vec::new())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, how, offset, len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_discarded_reads_as_zeroes_and_is_free() {
        let data = Data::create(&std::env::temp_dir(), 1 << 30).unwrap();
        let ask = |kind, offset, len, bytes: &[u8]| {
            data.carry_out(&Arrived { kind, offset, len, bytes }).unwrap()
        };
        let blocks = || data.0.metadata().unwrap().blocks();
        assert_eq!(blocks(), 0);
        ask(Kind::Write, 1 << 20, 1 << 20, &vec![7; 1 << 20]);
        ask(Kind::Flush, 0, 0, &[]);
        assert!(blocks() >= 2048, "{}", blocks());
        ask(Kind::Discard, (1 << 20) + 512, 1 << 19, &[]);
        assert!(blocks() < 1536, "{}", blocks());
        let read = ask(Kind::Read, 1 << 20, 1 << 20, &[]);
        let (kept, zeroed) = (&read[..512], &read[512..512 + (1 << 19)]);
        assert!(kept.iter().all(|b| *b == 7) && zeroed.iter().all(|b| *b == 0));
        assert!(read[512 + (1 << 19)..].iter().all(|b| *b == 7));
        ask(Kind::Zero, 1 << 20, 512, &[]);
        assert_eq!(ask(Kind::Read, 1 << 20, 512, &[]), [0; 512]);
    }
}
