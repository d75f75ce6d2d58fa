//! Serves a disk to the kernel as a file ([`fragmend_served`]), with a second disk beside it if there is one, and
//! a file for marks: what is written to that goes to [`Disk::mark`].
//!
//! Each request is carried out and answered before the next, unless it waits at a [`Gate`]: see
//! [`crate::slow`].

use crate::disk::Disk;
use crate::marks::{MARK_BYTES, text_in};
use fragmend_served::gate::{Gate, Keeper, MOST_IN_FLIGHT};
use fragmend_served::server::{Control, Offer, Server};
use fragmend_served::store::{Part, Shared, Store};
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use std::io;
use std::path::{Path, PathBuf};

/// The number of the second disk, as a part of its store.
pub(crate) const SECOND: usize = 1;

/// A disk that is being served; unmounted when dropped.
pub struct Served {
    server: Option<Server>,
    dir: PathBuf,
    keeper: Option<Keeper>,
    _ticket: Ticket,
}

/// The file for marks.
struct MarkFile(Shared<Disk>);

impl Control for MarkFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(vec![0; MARK_BYTES])
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().mark(&text_in(bytes))
    }
}

impl Served {
    /// Serves a disk as a file in `dir`, an empty directory.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(disk: Disk, dir: &Path) -> io::Result<Self> {
        Self::start_at(disk, dir, None)
    }

    /// The same behind a gate.
    pub(crate) fn start_slow(disk: Disk, dir: &Path, gate: Gate) -> io::Result<Self> {
        Self::start_at(disk, dir, Some(gate))
    }

    fn start_at(disk: Disk, dir: &Path, gate: Option<Gate>) -> io::Result<Self> {
        let all = disk.bytes();
        let second = disk.second();
        let first = second.unwrap_or(all);
        let store = Shared::new(disk);
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
        Ok(Self { server, dir: dir.to_owned(), keeper, _ticket: ticket })
    }

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

impl Drop for Served {
    fn drop(&mut self) {
        // What waits at the gate is answered first: the server ends when nobody has its files open any more.
        drop(self.keeper.take());
        drop(self.server.take());
    }
}
