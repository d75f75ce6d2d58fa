//! One row of a trace: who accessed which bytes of which file, how and when.

use crate::Op;
use fragmend_layout::FileId;

/// An access, with all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds from the start of the recording to the end of the access; of the first one where `count`
    /// is more than one.
    pub time_ns: u64,
    /// Which file.
    pub file: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes of the file that it covers: those transferred, the whole readahead windows where it is
    /// `windowed`, or, in a folded trace, the whole aligned 128 KiB where it was coarsened.
    pub length: u32,
    /// Bytes transferred by all `count` accesses together.
    pub bytes: u64,
    /// Number of accesses; more than one only in folded traces, and where it stands for others that were not recorded.
    pub count: u32,
    /// Process (thread group); 0 in folded traces.
    pub pid: u32,
    /// Thread; 0 in folded traces.
    pub thread: u32,
    /// Real user of the thread; 0 in folded traces.
    pub uid: u32,
    /// Command name, padded with zero bytes; empty in folded traces.
    pub comm: [u8; 16],
    /// The operation.
    pub op: Op,
    /// Whether it bypassed the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Whether the recorder widened it to readahead windows (folded traces only).
    pub windowed: bool,
}

/// Whether a file can have these bytes. The recorder drops an impossible access, and the reader skips it;
/// both count it.
pub(crate) fn is_possible(offset: u64, length: u32) -> bool {
    let end = offset.checked_add(length.into());
    length > 0 && end.is_some_and(|end| i64::try_from(end).is_ok())
}
