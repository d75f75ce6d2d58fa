//! A request to a served disk, and its answer.
//!
//! A disk may answer a request before it returns from [`Disk::carry_out`], or keep the answer and give it later,
//! from any thread and in any order: a request that waits blocks no other.

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use std::io;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// The range is not needed any more, and reads as zeroes (a punched hole).
    Discard,
    /// The range reads as zeroes, and stays allocated (a zeroed range).
    Zero,
    /// A flush of the volatile cache.
    Flush,
}

/// A request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its kind.
    pub kind: Kind,
    /// First byte on the disk; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// The data of a write.
    pub bytes: &'a [u8],
}

impl Arrived<'_> {
    /// Whether it is a write of which some sector begins with these bytes.
    pub fn carries(&self, bytes: &[u8]) -> bool {
        self.bytes.chunks(512).any(|sector| sector.starts_with(bytes))
    }
}

/// A disk: it carries out the requests to its file.
pub trait Disk: Send + Sync + 'static {
    /// Its size in bytes.
    fn bytes(&self) -> u64;

    /// Carries out a request that is within the disk, and answers it, now or later. If this panics, the
    /// request is answered with an error (`EIO`).
    fn carry_out(&self, arrived: &Arrived<'_>, answer: Answer);
}

/// The answer to a request. One that is dropped is an error (`EIO`).
#[derive(Debug)]
pub struct Answer(Reply);

#[derive(Debug)]
pub(crate) enum Reply {
    Data(ReplyData),
    Written(ReplyWrite, u32),
    Done(ReplyEmpty),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self(reply)
    }
}

impl Answer {
    /// Gives the answer: the data of a read, nothing for other requests, or an error.
    pub fn give(self, result: io::Result<&[u8]>) {
        match (self.0, result) {
            (Reply::Data(reply), Ok(data)) => reply.data(data),
            (Reply::Written(reply, len), Ok(_)) => reply.written(len),
            (Reply::Done(reply), Ok(_)) => reply.ok(),
            (Reply::Data(reply), Err(e)) => reply.error(e.into()),
            (Reply::Written(reply, _), Err(e)) => reply.error(e.into()),
            (Reply::Done(reply), Err(e)) => reply.error(e.into()),
        }
    }
}
