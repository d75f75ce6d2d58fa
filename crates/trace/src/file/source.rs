//! A file for the parquet crate, read at offsets: the crate's own implementation for `File` moves the shared
//! file position, so parallel readers would move each other's.

use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// An open file, and its length when this was created.
#[derive(Clone)]
pub(super) struct Source {
    file: Arc<File>,
    length: u64,
}

impl Source {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), length })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Source {
    type T = BufReader<At>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let file = Arc::clone(&self.file);
        Ok(BufReader::new(At { file, at: start, ended: false }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let wanted = start.checked_add(length as u64).filter(|end| *end <= self.length);
        if wanted.is_none() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// A cursor of its own over the shared file. Behind its end the second read fails: the crate skips what a header
/// says there is, and at the end of the file it would skip billions of nothings.
pub(super) struct At {
    file: Arc<File>,
    at: u64,
    ended: bool,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buffer, self.at)?;
        self.at += n as u64;
        if n == 0 && !buffer.is_empty() && std::mem::replace(&mut self.ended, true) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(n)
    }
}
