//! Limits of what a probe reads: no read is issued that would exceed them.

use super::reader::{Failed, Read, Reader};
use std::time::{Duration, Instant};

/// How much may be read, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
    /// From the beginning to the end, pauses included.
    pub time: Duration,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes.
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
}

/// A reader within limits.
pub struct Meter<'a> {
    reader: &'a mut dyn Reader,
    stop: &'a dyn Fn() -> bool,
    limits: Limits,
    begun: Instant,
    /// When the present stage must end.
    deadline: Instant,
    /// What the present stage may have spent at its end.
    most: Spent,
    spent: Spent,
}

impl<'a> Meter<'a> {
    /// Limits the reads of `reader`, from now on. Once `stop` returns `true`, no read is issued.
    pub fn new(reader: &'a mut dyn Reader, limits: Limits, stop: &'a dyn Fn() -> bool) -> Self {
        let begun = Instant::now();
        let most = Spent { bytes: limits.bytes, requests: limits.requests };
        let deadline = begun + limits.time;
        Self { reader, stop, limits, begun, deadline, most, spent: Spent::default() }
    }

    /// Begins a stage, which may use so much of what is left.
    pub fn stage(&mut self, limits: Limits) {
        let end = self.begun + self.limits.time;
        self.deadline = end.min(Instant::now() + limits.time);
        let least = |all: u64, so_far: u64, more: u64| all.min(so_far.saturating_add(more));
        self.most = Spent {
            bytes: least(self.limits.bytes, self.spent.bytes, limits.bytes),
            requests: least(self.limits.requests, self.spent.requests, limits.requests),
        };
    }

    /// The reader, to ask what it can do.
    pub fn reader(&self) -> &dyn Reader {
        self.reader
    }

    /// What was read so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// How long it has lasted so far.
    pub fn lasted(&self) -> Duration {
        self.begun.elapsed()
    }

    /// As [`Reader::elapsed`], but no read is issued after the end of all time, or once it is to stop.
    ///
    /// # Errors
    /// [`Failed::Spent`] where the reads would exceed the limits, and [`Failed::Stopped`].
    pub fn elapsed(&mut self, reads: &[Read], depth: u32) -> Result<u64, Failed> {
        self.charge(reads.len() as u64, reads.iter().map(|read| u64::from(read.bytes)).sum())?;
        let (stop, end) = (self.stop, self.begun + self.limits.time);
        let ended = || stop() || Instant::now() >= end;
        match self.reader.elapsed(reads, depth, &ended) {
            // A clock may be too coarse for a short time.
            Ok(ns) => Ok(ns.max(1)),
            Err(Failed::Stopped) if !stop() => Err(Failed::Spent),
            Err(why) => Err(why),
        }
    }

    /// The same for reads that are issued together, as far as they can be.
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    pub fn burst(&mut self, reads: &[Read]) -> Result<u64, Failed> {
        self.elapsed(reads, reads.len() as u32)
    }

    /// As [`Reader::holds_data`].
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    pub fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        self.charge(1, self.reader.unit_bytes().into())?;
        self.reader.holds_data(at)
    }

    fn charge(&mut self, requests: u64, bytes: u64) -> Result<(), Failed> {
        if (self.stop)() {
            return Err(Failed::Stopped);
        }
        let after =
            Spent { bytes: self.spent.bytes + bytes, requests: self.spent.requests + requests };
        if after.bytes > self.most.bytes
            || after.requests > self.most.requests
            || Instant::now() >= self.deadline
        {
            return Err(Failed::Spent);
        }
        self.spent = after;
        Ok(())
    }
}
