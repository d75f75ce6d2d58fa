//! Faults of a simulated disk, and what other programs do to its files.

use fragmend_layout::{ByteRange, FileId};

/// Something that happens right before an operation of the disk, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power fails: what is not durable is lost, and every operation fails until
    /// [`Memory::restart`](crate::Memory::restart).
    PowerCut,
    /// The operation fails with an I/O error.
    Failed,
    /// There is no space at the next allocation.
    NoSpace,
    /// The run is told to stop.
    Stop,
    /// Another program changes a file and syncs it.
    Changed(FileId, Change),
}

/// How another program changes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It writes to the first block that is no hole.
    Write,
    /// It truncates the file to so many bytes.
    Truncate(u64),
    /// It punches a hole; blocks that are only partly in the range stay.
    Punch(ByteRange),
    /// It removes the file.
    Remove,
    /// It removes the file, and makes an empty one that gets the same path and inode number.
    Replace,
}
