//! Mounts files that this process serves in a directory.
//!
//! **How it ends.** A request that is never answered blocks whoever made it, uninterruptibly once that is the
//! kernel itself (writeback, a loop device). So the files stay served until nobody has them open: a server
//! that is dropped first unmounts them, out of everybody's sight if they are still in use, and then serves on
//! until the last of them is closed. [`Server::abort`] waits for nobody: what is still open gets errors. If the
//! process is killed, the kernel does that, provided that the process itself has no file on a served disk open,
//! nor a device on it: closing those would wait for the process's own answers.

use crate::fuse::{Files, Node};
use crate::request::Disk;
use fuser::{BackgroundSession, Config, MountOption};
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A small file whose content is made when it is read, and whose writes are commands.
pub trait Control: Send + Sync + 'static {
    /// Its content, at the time of a read of its first byte; reads of later bytes continue that.
    ///
    /// # Errors
    /// What the read is answered with.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Takes what was written at once, wherever in the file.
    ///
    /// # Errors
    /// What the write is answered with.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;
}

/// What to serve.
pub struct Offer {
    source: String,
    in_flight: Option<u16>,
    block_bytes: u32,
    nodes: Vec<Node>,
}

impl Offer {
    /// No files; mountinfo will have `source` as the source of the mount.
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), in_flight: None, block_bytes: 512, nodes: Vec::new() }
    }

    /// Lets this many requests be in flight at once; otherwise the kernel waits for each answer of direct I/O
    /// before it sends the next request of the same call.
    #[must_use]
    pub fn in_flight(self, most: u16) -> Self {
        Self { in_flight: Some(most), ..self }
    }

    /// The block size of the file system, which is what a loop device discards at least; 512 otherwise.
    #[must_use]
    pub fn block_bytes(self, block_bytes: u32) -> Self {
        Self { block_bytes, ..self }
    }

    /// Adds a disk.
    #[must_use]
    pub fn disk(mut self, name: &str, disk: impl Disk) -> Self {
        self.nodes.push(Node::disk(name, Arc::new(disk)));
        self
    }

    /// Adds a control file, which is `bytes` bytes long for those who ask.
    #[must_use]
    pub fn control(mut self, name: &str, bytes: u64, control: impl Control) -> Self {
        self.nodes.push(Node::control(name, bytes, Arc::new(control)));
        self
    }
}

/// Files that are being served; unmounted when dropped.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl Server {
    /// Serves files in `dir`, an empty directory.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(offer: Offer, dir: &Path) -> io::Result<Self> {
        let Offer { source, in_flight, block_bytes, nodes } = offer;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(source)];
        let files = Files::new(nodes, in_flight, block_bytes);
        let session = Some(fuser::spawn_mount(files, dir, &config)?);
        Ok(Self { dir: dir.to_owned(), session })
    }

    /// Where it serves.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts the files if nobody uses them, and ends.
    ///
    /// # Errors
    /// The server, if they are in use.
    pub fn end(mut self) -> Result<(), Self> {
        if unmount(&self.dir, UnmountFlags::empty()).is_err() {
            return Err(self);
        }
        self.join();
        Ok(())
    }

    /// Ends at once: requests in flight, and all later ones of those who still use the files, get errors.
    pub fn abort(mut self) {
        // Two calls: what FORCE aborts may still be open, and the mount then stays.
        let _ = unmount(&self.dir, UnmountFlags::FORCE);
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        self.join();
    }

    fn join(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.session.is_some() {
            // A process that was just started, or a loop device that is being detached, may hold
            // the file for a moment: the session ends with the last of them.
            if unmount(&self.dir, UnmountFlags::empty()).is_err() {
                let _ = unmount(&self.dir, UnmountFlags::DETACH);
            }
            self.join();
        }
    }
}
