//! One observed access, and the accesses of one file: what planning starts from.

use crate::{ByteRange, FileId};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// read, pread64, readv, preadv, preadv2, sendfile and their kin, libaio, io_uring.
    Read = 0,
    /// write, pwrite64, writev, pwritev, pwritev2, libaio, io_uring.
    Write = 1,
    /// A page fault on a mapping of the file.
    Fault = 2,
    /// Pages that missed the cache and were read from the device.
    Miss = 3,
}

impl Op {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Fault, Self::Miss];

    /// The name in the trace file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fault => "fault",
            Self::Miss => "miss",
        }
    }

    /// The operation with this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name().as_bytes() == name)
    }

    /// The operation with this number, as the kernel side writes it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == number)
    }
}

/// One access, or many equal ones folded into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes that it covers: those really transferred, or whole readahead windows if `windowed`.
    pub length: u32,
    /// How many times it was seen; more than one only in folded traces.
    pub count: u32,
    /// The thread that did it: sequential streams are distinguished by it.
    pub thread: u32,
    /// What was done.
    pub op: Op,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Already widened to the readahead window by the recorder, which saw the order (folded
    /// traces only).
    pub windowed: bool,
}

// Millions of them are in memory at a time: what is known of some traces only is beside them (`FileAccesses`).
const _: () = assert!(size_of::<Access>() == 24);

impl Access {
    /// The file bytes that it touched.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, u64::from(self.length))
    }

    /// Whether a device reads for it: what missed the page cache, and what is read past it.
    pub fn is_read_by_device(&self) -> bool {
        self.op == Op::Miss || self.op == Op::Read && self.direct
    }
}

/// How an access was recorded, where a part of all places was recorded at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The turn in which it was, or [`MANY`](Self::MANY).
    pub turn: u32,
    /// How many were, if equal ones are counted once: its count is how many they stand for.
    pub times: u32,
    /// The most that those of one turn stand for; the count, where it is one turn.
    pub most: u32,
}

impl Recorded {
    /// Not one turn: there were several.
    pub const MANY: u32 = u32::MAX;
}

/// Everything seen on one file, in the order it was seen.
#[derive(Clone, Debug)]
pub struct FileAccesses {
    /// Which file.
    pub file: FileId,
    /// Where it was when it was seen; a hint, the identity counts. `None` once deleted.
    pub path: Option<std::path::PathBuf>,
    /// In order of completion.
    pub accesses: Vec<Access>,
    /// The rank of each of them among those that have reached its disk, in the order in which they were done, from 1 on: of two
    /// with neighbouring ranks, one began where the other had left the head of a disk. 0 of what did not reach it, or at a time
    /// that is not known; empty if the order was not asked for, or not kept.
    pub ranks: Vec<u32>,
    /// How each of them was recorded; empty if that was asked for of none, or everything was recorded. What is in its order was,
    /// so that `ranks` is empty where this is not.
    pub recorded: Vec<Recorded>,
}

impl FileAccesses {
    /// Nothing seen yet on a file.
    pub fn of(file: FileId) -> Self {
        let (accesses, ranks, recorded) = Default::default();
        Self { file, path: None, accesses, ranks, recorded }
    }
}
