//! The log of one recording: every write, zeroing and flush that reached the disk, and the marks that record
//! what was durable by then, in order. It is a file, so that a run that failed can be kept and replayed.
//!
//! Each entry is a head of three little-endian 64-bit numbers (kind, offset, length) and, for
//! writes and marks, that many bytes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

const HEAD: u64 = 24;

/// One entry. Offsets and lengths on the disk are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Bytes were written; they are in the log's file at `at`.
    Write {
        /// First byte on the disk.
        offset: u64,
        /// How many.
        len: u64,
        /// Where they are in the log's file.
        at: u64,
    },
    /// A range was discarded or zeroed, and reads as zeroes.
    Zero {
        /// First byte on the disk.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Every earlier write to one of the disks is durable.
    Flush {
        /// Whether it is the second disk.
        second: bool,
    },
    /// A fact that holds from here on: see [`crate::marks`].
    Mark {
        /// Where its text is in the log's file.
        at: u64,
        /// Length of the text.
        len: u64,
    },
}

/// A log that is written or read.
#[derive(Debug)]
pub struct Log {
    file: File,
    end: u64,
    entries: Vec<Entry>,
}

impl Log {
    /// Creates an empty log in a new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Self { file, end: 0, entries: Vec::new() })
    }

    /// Reads the heads of an existing log.
    ///
    /// # Errors
    /// `InvalidData` for any other file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let (mut end, mut entries) = (0, Vec::new());
        while end < size {
            let mut head = [0; HEAD as usize];
            file.read_exact_at(&mut head, end)?;
            let number = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| head[i * 8 + b]));
            let (offset, len, at) = (number(1), number(2), end + HEAD);
            end = at;
            entries.push(match number(0) {
                0 => Entry::Flush { second: offset != 0 },
                1 => Entry::Zero { offset, len },
                2 => Entry::Write { offset, len, at },
                3 => Entry::Mark { at, len },
                kind => {
                    let what = format!("entry {} has kind {kind}", entries.len());
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
            });
            if matches!(entries.last(), Some(Entry::Write { .. } | Entry::Mark { .. })) {
                end += len;
            }
        }
        if end != size {
            return Err(io::Error::new(ErrorKind::InvalidData, "its last entry is cut short"));
        }
        Ok(Self { file, end, entries })
    }

    fn append(&mut self, kind: u64, offset: u64, len: u64, bytes: &[u8]) -> io::Result<u64> {
        let mut head = [0; HEAD as usize];
        for (field, value) in head.chunks_exact_mut(8).zip([kind, offset, len]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        let at = self.end + HEAD;
        self.file.write_all_at(&head, self.end)?;
        self.file.write_all_at(bytes, at)?;
        self.end = at + bytes.len() as u64;
        Ok(at)
    }

    /// Appends a write; returns where its bytes are in the log's file.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        let len = bytes.len() as u64;
        let at = self.append(2, offset, len, bytes)?;
        self.entries.push(Entry::Write { offset, len, at });
        Ok(at)
    }

    /// Appends a zeroed range.
    pub fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.append(1, offset, len, &[])?;
        self.entries.push(Entry::Zero { offset, len });
        Ok(())
    }

    /// Appends a flush.
    pub fn flush(&mut self, second: bool) -> io::Result<()> {
        self.append(0, second.into(), 0, &[])?;
        self.entries.push(Entry::Flush { second });
        Ok(())
    }

    /// Appends a mark.
    pub fn mark(&mut self, text: &str) -> io::Result<()> {
        let len = text.len() as u64;
        let at = self.append(3, 0, len, text.as_bytes())?;
        self.entries.push(Entry::Mark { at, len });
        Ok(())
    }

    /// All entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The file that holds the bytes of writes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of that file.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// The marks with their positions among the entries, oldest first.
    pub fn marks(&self) -> impl Iterator<Item = io::Result<(usize, String)>> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let Entry::Mark { at, len } = *entry else { return None };
            let mut text = vec![0; len as usize];
            let read = self.file.read_exact_at(&mut text, at);
            Some(read.map(|()| (index, String::from_utf8_lossy(&text).into_owned())))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::create(&path).unwrap();
        log.write(512, &[7; 1024]).unwrap();
        log.flush(false).unwrap();
        log.flush(true).unwrap();
        log.mark("known").unwrap();
        log.zero(4096, 512).unwrap();
        let again = Log::open(&path).unwrap();
        assert_eq!(again.entries(), log.entries());
        let marks: Vec<_> = again.marks().map(Result::unwrap).collect();
        assert_eq!(marks, [(3, "known".to_owned())]);
        std::fs::write(&path, [9; 100]).unwrap();
        assert!(Log::open(&path).is_err());
    }

    /// Nothing behind its end is ever taken for what was written: not in a head, nor in the bytes of an entry.
    #[test]
    fn what_is_cut_short_is_no_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::create(&path).unwrap();
        log.flush(false).unwrap();
        log.write(0, &[1; 512]).unwrap();
        let (file, bytes) = (File::options().write(true).open(&path).unwrap(), log.bytes());
        assert_eq!(Log::open(&path).unwrap().bytes(), bytes);
        for cut in [1, 511, 512, 513] {
            file.set_len(bytes - cut).unwrap();
            assert!(Log::open(&path).is_err(), "{cut} bytes are missing");
        }
    }
}
