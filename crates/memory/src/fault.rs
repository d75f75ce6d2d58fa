//! What goes wrong on a simulated disk.

use fragmend_layout::FileId;

/// Something that happens right before an operation of the disk, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power goes: what is not durable is lost, and nothing works until
    /// [`Memory::restart`](crate::Memory::restart).
    PowerCut,
    /// The operation fails with an I/O error.
    Failed,
    /// There is no space, once somebody asks for it.
    NoSpace,
    /// All is to end.
    Stop,
    /// Somebody writes to the first block of a file.
    Written(FileId),
    /// Somebody cuts a file off in its middle.
    Truncated(FileId),
    /// Somebody punches a hole over the first block of a file.
    Punched(FileId),
    /// Somebody removes a file.
    Removed(FileId),
    /// Somebody puts another file in its place, of the same number.
    Replaced(FileId),
}
