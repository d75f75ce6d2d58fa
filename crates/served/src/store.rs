//! The content of disks that carry out each request at once, one after the other: what a store has received
//! before a flush was answered before it. A write that was in flight when the flush was sent counts as flushed
//! if it arrived first; a real disk might lose it, but no program can rely on either. Behind a [`Gate`],
//! requests may wait, and others overtake them.

use crate::gate::Gate;
use crate::request::{Answer, Arrived, Disk, Kind};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The content of one disk, or of several one after the other.
pub trait Store: Send + 'static {
    /// Its size in bytes.
    fn bytes(&self) -> u64;
    /// Reads whole sectors.
    ///
    /// # Errors
    /// What the request is answered with; so for all others.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes whole sectors.
    ///
    /// # Errors
    /// As for a read.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Zeroes `len` bytes from `offset` on.
    ///
    /// # Errors
    /// As for a read.
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()>;
    /// Makes all earlier writes to the part of this number durable.
    ///
    /// # Errors
    /// As for a read.
    fn flush(&mut self, part: usize) -> io::Result<()>;
}

/// A store that several files share.
#[derive(Debug)]
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Shared<S> {
    /// Shares a store.
    pub fn new(store: S) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    /// Locks the store, also after a thread has panicked with it: the panic is reported elsewhere.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a store as a disk.
#[derive(Debug)]
pub struct Part<S> {
    store: Shared<S>,
    number: usize,
    range: Range<u64>,
    gate: Option<Gate>,
}

impl<S: Store> Part<S> {
    /// The part of this number, which is these bytes of the store; with a gate, its requests pass that.
    pub fn new(store: &Shared<S>, number: usize, range: Range<u64>, gate: Option<Gate>) -> Self {
        Self { store: store.clone(), number, range, gate }
    }

    /// Carries out a request, now or when the gate lets it pass.
    fn pass(&self, arrived: &Arrived, work: impl FnOnce(&mut S, &[u8]) + Send + 'static) {
        let Some(gate) = &self.gate else { return work(&mut self.store.lock(), arrived.bytes) };
        gate.pass(arrived, |later| {
            if !later {
                work(&mut self.store.lock(), arrived.bytes);
                return None;
            }
            let (store, bytes) = (self.store.clone(), arrived.bytes.to_vec());
            Some(Box::new(move || work(&mut store.lock(), &bytes)))
        });
    }
}

impl<S: Store> Disk for Part<S> {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn carry_out(&self, arrived: &Arrived<'_>, answer: Answer) {
        // A gate sees places in the store.
        let at = if arrived.kind == Kind::Flush { 0 } else { self.range.start + arrived.offset };
        let arrived = Arrived { offset: at, ..*arrived };
        let refuses = |gate: &Gate| arrived.kind == Kind::Write && gate.refuses(&arrived);
        if self.gate.as_ref().is_some_and(refuses) {
            return answer.give(Err(rustix::io::Errno::IO.into()));
        }
        let (kind, len, part) = (arrived.kind, arrived.len, self.number);
        self.pass(&arrived, move |store, bytes| {
            let mut buffer = vec![0; if kind == Kind::Read { len as usize } else { 0 }];
            let done = match kind {
                Kind::Read => store.read(at, &mut buffer),
                Kind::Write => store.write(at, bytes),
                Kind::Discard | Kind::Zero => store.zero(at, len),
                Kind::Flush => store.flush(part),
            };
            answer.give(done.map(|()| &buffer[..]));
        });
    }
}
