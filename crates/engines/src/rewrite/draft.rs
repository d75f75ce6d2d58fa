//! A copy that is being made, and the record that it becomes.

use super::journal::Journal;
use super::note::{Doubt, Noted, Noting, Session};
use super::record::{Record, data_checksum};
use crate::bytes::{read_at, write_at};
use fragmend_sys::cache;
use rustix::fs::AtFlags;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A copy that is being made; its file is removed if it is dropped unfinished.
#[derive(Debug)]
pub struct Draft {
    journal: Rc<Journal>,
    record: Record,
    file: OwnedFd,
    part: OsString,
    sealed: OsString,
    data: Vec<u8>,
}

impl Draft {
    pub(super) fn new(
        journal: Rc<Journal>,
        record: Record,
        file: OwnedFd,
        part: OsString,
        sealed: OsString,
    ) -> Self {
        Self { journal, record, file, part, sealed, data: Vec::new() }
    }

    /// The range that is to be copied.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The bytes that were copied so far.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// This boot and these mounts, for notes on files below `root`, from the descriptors that are open already.
    ///
    /// # Errors
    /// When the kernel does not report the boot.
    pub(crate) fn session(&self, root: &OwnedFd) -> io::Result<Session> {
        Session::of(&self.journal.dir, root)
    }

    /// Bytes of the range that are not copied yet.
    pub fn rest(&self) -> u64 {
        self.record.data_len() - self.data.len() as u64
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_at(&self.file, bytes, self.record.data_start() + self.data.len() as u64)?;
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes the bytes durable and reads them back. This is the slow part, and it is done before others have to
    /// wait.
    ///
    /// # Errors
    /// When the device does not hold the bytes that were written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.record.data_checksum = data_checksum(&self.data);
        rustix::fs::fdatasync(&self.file)?;
        let (start, length) = (self.record.data_start(), self.record.data_len());
        cache::forget(&self.file, 0..start + length, || true)?;
        match read_data(&self.file, &self.record)? {
            Some(data) if data == self.data => Ok(()),
            _ => Err(other_than_written()),
        }
    }

    /// Makes a finished copy a record: writes its header and a note that `file` is as it was, makes both
    /// durable, and reads the header back.
    ///
    /// # Errors
    /// When one of these steps fails: then the copy is no record.
    pub(crate) fn seal(mut self, file: &OwnedFd, session: Session) -> io::Result<Sealed> {
        let start = self.record.data_start();
        write_at(&self.file, &self.record.encode(), 0)?;
        let own = (&self.file, &self.record);
        Noting::of(own, file, session).note(Noted::Settled, Doubt::Nothing, self.record.mtime)?;
        rustix::fs::fsync(&self.file)?;
        cache::forget(&self.file, 0..start, || true)?;
        let mut head = vec![0; start as usize];
        read_at(&self.file, &mut head, 0)?;
        if Record::decode(&head).as_ref() != Ok(&self.record) {
            return Err(other_than_written());
        }
        let (journal, own) = (Rc::clone(&self.journal), self.file.try_clone()?);
        rustix::fs::renameat(&journal.dir, &self.part, &journal.dir, &self.sealed)?;
        let (record, data) = (self.record.clone(), std::mem::take(&mut self.data));
        let sealed = Sealed { journal, file: own, record, name: self.sealed.clone(), data };
        if let Err(e) = rustix::fs::fsync(&sealed.journal.dir) {
            // The file itself has not been touched yet.
            let _ = sealed.remove();
            return Err(e.into());
        }
        Ok(sealed)
    }
}

fn other_than_written() -> io::Error {
    io::Error::other("the copy is not as it was written")
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After sealing, no file has this name.
        let _ = rustix::fs::unlinkat(&self.journal.dir, &self.part, AtFlags::empty());
    }
}

/// A record of this process; stays unless it is removed.
#[derive(Debug)]
pub struct Sealed {
    journal: Rc<Journal>,
    /// The record's own file.
    pub file: OwnedFd,
    name: OsString,
    /// Its contents but for the bytes.
    pub record: Record,
    /// The bytes of its range.
    pub data: Vec<u8>,
}

impl Sealed {
    /// Removes the record, and makes that durable.
    ///
    /// # Errors
    /// As [`Journal::remove`].
    pub fn remove(self) -> io::Result<()> {
        self.journal.remove(&self.name)
    }
}

/// The bytes of a record's range; `None` when they are not the bytes that were written, or when the file has
/// another length.
///
/// # Errors
/// When the file cannot be read.
pub fn read_data(file: &OwnedFd, record: &Record) -> io::Result<Option<Vec<u8>>> {
    let length = rustix::fs::fstat(file)?.st_size as u64;
    // Checked before that much memory is allocated.
    if record.data_start().checked_add(record.data_len()) != Some(length) {
        return Ok(None);
    }
    let mut data = vec![0; record.data_len() as usize];
    let read = read_at(file, &mut data, record.data_start())?;
    let whole = read == data.len() && data_checksum(&data) == record.data_checksum;
    Ok(whole.then_some(data))
}
