//! Faults of a simulated disk.

use fragmend_layout::FileId;

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
    /// Another program writes to the first block of a file.
    Written(FileId),
    /// Another program truncates a file to half its size.
    Truncated(FileId),
    /// Another program punches a hole over the first block of a file.
    Punched(FileId),
    /// Another program removes a file.
    Removed(FileId),
    /// Another program puts another file with the same inode number in its place.
    Replaced(FileId),
}
