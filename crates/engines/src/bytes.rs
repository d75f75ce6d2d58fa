//! Reads and writes that complete: all bytes that were requested.

use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// Reads until the buffer is full or the file ends; returns how many bytes were read.
pub(crate) fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// Writes the whole buffer.
pub(crate) fn write_at(file: impl AsFd, buffer: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pwrite(&file, &buffer[done..], offset + done as u64) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
