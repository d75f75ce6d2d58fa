//! What programs do with the files of a simulated file system: what a load, or the ageing of an image, is made of. The
//! kernel's counterparts are the system calls of the same names.

use crate::error::Error;
use crate::machine::Machine;
use crate::mounted::Gathered;
use fragmend_layout::{ByteRange, FileId, Volume};
use std::ops::Range;
use std::path::Path;

/// How a program reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past it (`O_DIRECT`): whole blocks.
    Direct,
}

/// What stands for the content of a block: the same number for the same content, 0 for a hole and for what was never
/// written.
pub type Token = u64;

/// A mounted simulated file system. Paths are names: there are no directories.
///
/// Each call is made by the machine's [present program](Machine::switch_to), whose time it takes. After a power cut every call
/// fails until the file system is mounted anew.
pub trait FileSystem: Volume {
    /// The machine on whose drive it is.
    fn machine(&self) -> &Machine;

    /// Makes an empty file.
    ///
    /// # Errors
    /// There is such a file, or no inode is left.
    fn create(&self, path: &Path) -> Result<FileId, Error>;

    /// The file at a path.
    ///
    /// # Errors
    /// There is none.
    fn find(&self, path: &Path) -> Result<FileId, Error>;

    /// Removes the file at a path.
    ///
    /// # Errors
    /// There is none.
    fn remove(&self, path: &Path) -> Result<(), Error>;

    /// Gives the file at a path another one. A file that was there is removed: both or neither.
    ///
    /// # Errors
    /// There is no such file.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Size of a file in bytes.
    ///
    /// # Errors
    /// It is gone.
    fn size(&self, file: FileId) -> Result<u64, Error>;

    /// Writes a range of a file, which grows if the range ends behind its end. The content is new in each block that it touches:
    /// a call takes [fresh tokens](Machine::fresh_tokens) for all its blocks, in their order, and no others.
    ///
    /// # Errors
    /// There is no space, or the drive refuses.
    fn write(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error>;

    /// Reads a range of a file with one call, and waits for it.
    ///
    /// # Errors
    /// The drive refuses.
    fn read(&self, file: FileId, range: ByteRange, access: Access) -> Result<(), Error>;

    /// What the blocks of a file hold as programs see it, without a clock: from the page cache, or off the drive. Where the
    /// drive keeps no content, what it holds is 0.
    ///
    /// # Errors
    /// It is gone.
    fn content(&self, file: FileId, blocks: Range<u64>) -> Result<Vec<Token>, Error>;

    /// Allocates space for a range without writing to it, also behind the end of the file, whose size stays
    /// (`FALLOC_FL_KEEP_SIZE`).
    ///
    /// # Errors
    /// There is no space.
    fn allocate(&self, file: FileId, range: ByteRange) -> Result<(), Error>;

    /// Punches a hole: whole blocks only.
    ///
    /// # Errors
    /// It is gone.
    fn punch(&self, file: FileId, range: ByteRange) -> Result<(), Error>;

    /// Changes the size of a file.
    ///
    /// # Errors
    /// It is gone.
    fn truncate(&self, file: FileId, bytes: u64) -> Result<(), Error>;

    /// Makes another file that shares all blocks of this one (reflink).
    ///
    /// # Errors
    /// The file system cannot, or there is such a file.
    fn share(&self, _: FileId, _: &Path) -> Result<FileId, Error> {
        Err(Error::Unsupported("its files cannot share blocks"))
    }

    /// Moves files' extents so that free space is contiguous, durably.
    ///
    /// # Errors
    /// The file system cannot, or the drive refuses.
    fn gather_free_space(&self) -> Result<Gathered, Error> {
        Err(Error::Unsupported("it does not move extents to gather free space"))
    }

    /// The last program that could write to a file closes it: what is reserved for it to grow is free again.
    ///
    /// # Errors
    /// It is gone.
    fn close(&self, _: FileId) -> Result<(), Error> {
        Ok(())
    }

    /// Makes a file durable (`fsync`).
    ///
    /// # Errors
    /// There is no space for it, or the drive refuses.
    fn sync_file(&self, file: FileId) -> Result<(), Error>;

    /// Makes all durable (`sync`).
    ///
    /// # Errors
    /// There is no space for it, or the drive refuses.
    fn sync(&self) -> Result<(), Error>;

    /// Forgets what is in the page cache and not dirty.
    fn drop_caches(&self);

    /// Compares its tables with each other and with the drive (`fsck`); with a clock that stands still.
    ///
    /// # Errors
    /// What is wrong, for people.
    fn check(&self) -> Result<(), String>;
}
