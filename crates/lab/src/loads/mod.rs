//! Loads: what programs do with the files of a simulated file system, to measure it or to age it. A load knows files and
//! calls alone, so that it is the same on every file system and every drive.
//!
//! | module | its job |
//! |---|---|
//! | [`schedule`] | several programs at once: the one that is behind goes next; what each has transferred |
//! | [`beside`] | programs that run beside a mover |
//! | [`writers`] | synchronous writers that interleave (IOzone) |
//! | [`filebench`] | Filebench's `fileserver` and `varmail` |
//! | [`ycsb`], [`lsm`] | YCSB on a store with levelled compaction |
//! | [`sqlite`] | SQLite: inserts and selects |
//! | [`mobile`] | six months of apps on a phone |
//! | [`grep`] | reads every file whole |
//! | [`replica`] | files fragmented as a scan of a real file system found them |
//! | [`watched`] | records what programs read |
//! | [`distribution`] | gamma and zipfian numbers |
//!
//! All random numbers come from a seed. Sizes scale by one parameter, [`Scale`].

pub mod beside;
pub mod distribution;
pub mod filebench;
pub mod grep;
pub mod lsm;
pub mod mobile;
pub mod replica;
pub mod schedule;
pub mod sqlite;
pub mod watched;
pub mod writers;
pub mod ycsb;

#[cfg(test)]
mod double;

use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};

/// A program that makes one operation after the other.
pub trait Load {
    /// Makes the next operation, as the machine's present program; returns what it has transferred, or `None` when there is
    /// no further one.
    ///
    /// # Errors
    /// The file system has refused a call: it is full, or the power is cut.
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error>;

    /// Makes all operations, as the machine's present program.
    ///
    /// # Errors
    /// As [`Self::next`].
    fn finish(&mut self, files: &dyn FileSystem) -> Result<Done, Error> {
        let mut all = Done::default();
        while let Some(done) = self.next(files)? {
            all = all + done;
        }
        Ok(all)
    }
}

/// What an operation has transferred between program and file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes that it has read.
    pub read_bytes: u64,
    /// Bytes that it has written.
    pub written_bytes: u64,
}

impl std::ops::Add for Done {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// The size of a load: one part in so many of that of its source. Numbers of files, rows, records and apps scale, and what is
/// sized by them; sizes of files and of calls stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(u64);

impl Scale {
    /// The size of the source.
    pub const WHOLE: Self = Self(1);

    /// One part in `parts` of it.
    pub const fn one_in(parts: u64) -> Self {
        Self(if parts == 0 { 1 } else { parts })
    }

    /// This number of things, scaled; at least one.
    pub fn of(self, number: u64) -> u64 {
        (number / self.0).max(1)
    }
}

/// Writes a range of a file.
fn write(
    files: &dyn FileSystem,
    file: FileId,
    range: ByteRange,
    access: Access,
) -> Result<Done, Error> {
    files.write(file, range, access)?;
    Ok(Done { written_bytes: range.len(), ..Done::default() })
}

/// Reads a file from its start to its end, with calls of `call` bytes.
pub(crate) fn read_whole(
    files: &dyn FileSystem,
    file: FileId,
    call: u64,
    access: Access,
) -> Result<Done, Error> {
    let size = files.size(file)?;
    for part in ByteRange::at(0, size).steps(call) {
        files.read(file, part, access)?;
    }
    Ok(Done { read_bytes: size, ..Done::default() })
}

/// Writes a file of `bytes` bytes from its start to its end, with calls of `call` bytes.
pub(crate) fn write_whole(
    files: &dyn FileSystem,
    file: FileId,
    bytes: u64,
    call: u64,
    access: Access,
) -> Result<Done, Error> {
    for part in ByteRange::at(0, bytes).steps(call) {
        files.write(file, part, access)?;
    }
    Ok(Done { written_bytes: bytes, ..Done::default() })
}
