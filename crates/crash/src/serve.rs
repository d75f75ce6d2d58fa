//! Serves a disk to the kernel as a file ([`fragmend_served`]), with a second disk beside it if there is one, and
//! a file for marks: what is written to that goes to [`Marked::mark`].
//!
//! Each request is carried out and answered before the next, unless it waits at a [`Gate`]: see
//! [`crate::slow`].

use crate::marks::{MARK_BYTES, text_in};
use fragmend_served::gate::{Gate, Keeper, MOST_IN_FLIGHT};
use fragmend_served::server::{Control, Offer, Server};
use fragmend_served::store::{Part, Shared, Store};
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// The content of a disk, or of two, that takes marks.
pub trait Marked: Store {
    /// Where the second disk begins, if there is one.
    fn second(&self) -> Option<u64>;
    /// Logs a mark of a user of the disk: see [`crate::marks`].
    ///
    /// # Errors
    /// What the write of the mark is answered with.
    fn mark(&mut self, text: &str) -> io::Result<()>;
}

/// The number of the second disk, as a part of its store.
pub(crate) const SECOND: usize = 1;

/// A store that is being served; unmounted when dropped.
pub struct Served<S> {
    server: Option<Server>,
    dir: PathBuf,
    keeper: Option<Keeper>,
    _ticket: Ticket,
    _of: PhantomData<S>,
}

/// The file for marks.
struct MarkFile<S>(Shared<S>);

impl<S: Marked> Control for MarkFile<S> {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(vec![0; MARK_BYTES])
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().mark(&text_in(bytes))
    }
}

impl<S: Marked> Served<S> {
    /// Serves a store as a file in `dir`, an empty directory.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(store: S, dir: &Path) -> io::Result<Self> {
        Self::start_at(store, dir, None)
    }

    /// The same behind a gate.
    pub(crate) fn start_slow(store: S, dir: &Path, gate: Gate) -> io::Result<Self> {
        Self::start_at(store, dir, Some(gate))
    }

    fn start_at(store: S, dir: &Path, gate: Option<Gate>) -> io::Result<Self> {
        let all = store.bytes();
        let second = store.second();
        let first = second.unwrap_or(all);
        let store = Shared::new(store);
        let mut offer = Offer::new("fragmend-crash")
            .disk("disk", Part::new(&store, 0, 0..first, gate.clone()))
            .control("marks", MARK_BYTES as u64, MarkFile(store.clone()));
        if second.is_some() {
            offer = offer.disk("second", Part::new(&store, SECOND, first..all, gate.clone()));
        }
        if gate.is_some() {
            offer = offer.in_flight(MOST_IN_FLIGHT);
        }
        let ticket = cleanup::register(Undo::Served(dir.to_owned()));
        let server = Some(Server::start(offer, dir)?);
        let keeper = gate.map(|gate| gate.keeper());
        Ok(Self { server, dir: dir.to_owned(), keeper, _ticket: ticket, _of: PhantomData })
    }
}

impl<S> Served<S> {
    /// The disk.
    pub fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// The second disk, if there is one.
    pub fn second(&self) -> PathBuf {
        self.dir.join("second")
    }

    /// Where marks are written to.
    pub fn marks(&self) -> PathBuf {
        self.dir.join("marks")
    }
}

impl<S> Drop for Served<S> {
    fn drop(&mut self) {
        // What waits at the gate is answered first: the server ends when nobody has its files open any more.
        drop(self.keeper.take());
        drop(self.server.take());
    }
}
