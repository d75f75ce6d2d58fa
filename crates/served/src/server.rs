//! Mounts files that this process serves in a directory.
//!
//! **How it ends.** A request that is never answered blocks whoever made it, uninterruptibly once that is the
//! kernel itself (writeback, a loop device). So the files stay served until nobody has them open: a server
//! that is dropped first unmounts them, out of everybody's sight if they are still in use, and then serves on
//! until the last of them is closed. [`Server::abort`] waits for nobody: what is still open gets errors. If the
//! process is killed, the kernel does that, provided that the process itself has no file on a served disk open,
//! nor a device on it: closing those would wait for the process's own answers.

use crate::fuse::{Files, Node};
use crate::mount::Mounted;
use crate::request::Disk;
use fuser::{Config, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long serving may go on after the files were unmounted, or are found not to be mounted any more.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is called when serving has panicked.
pub(crate) type OnPanic = Arc<dyn Fn() + Send + Sync>;

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
    on_panic: OnPanic,
}

impl Offer {
    /// No files; mountinfo will have `source` as the source of the mount.
    pub fn new(source: &str) -> Self {
        let (source, on_panic) = (source.to_owned(), Arc::new(|| {}));
        Self { source, in_flight: None, block_bytes: 512, nodes: Vec::new(), on_panic }
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

    /// What is called whenever a request has panicked, which is answered with an error (`EIO`) then, or the thread
    /// that answers the kernel has, which ends serving.
    #[must_use]
    pub fn on_panic(self, call: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_panic: Arc::new(call), ..self }
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

/// Why serving has not ended as it should.
#[derive(Debug)]
pub enum Unended {
    /// Programs have the files open: they are served on.
    InUse(Server),
    /// The files are not mounted where they were, and yet somebody may use them: until the process ends.
    Elsewhere,
    /// The thread that answers the kernel has failed.
    Failed(io::Error),
}

impl std::fmt::Display for Unended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(server) => write!(f, "files in {} are open", server.dir.display()),
            Self::Elsewhere => f.write_str(
                "its files are still mounted somewhere: in another mount namespace, or moved",
            ),
            Self::Failed(e) => write!(f, "the thread that serves its files has failed: {e}"),
        }
    }
}

/// Files that are being served; unmounted when dropped.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    mounted: Mounted,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Serves files in `dir`, an empty directory of this user, and no link.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(offer: Offer, dir: &Path) -> io::Result<Self> {
        let Offer { source, in_flight, block_bytes, nodes, on_panic } = offer;
        let files = Files::new(nodes, in_flight, block_bytes, Arc::clone(&on_panic));
        let (mounted, connection) = Mounted::new(dir, &source)?;
        let serve = || {
            let config = Config::default();
            let session = Session::from_fd(files, connection, SessionACL::Owner, config)?;
            std::thread::Builder::new().name("fuse".into()).spawn(move || {
                let served = catch_unwind(AssertUnwindSafe(|| session.run()));
                let served = served.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
                if served.is_err() {
                    on_panic();
                }
                served
            })
        };
        match serve() {
            Ok(session) => Ok(Self { dir: dir.to_owned(), mounted, session: Some(session) }),
            Err(e) => {
                let _ = mounted.unmount(UnmountFlags::DETACH);
                Err(e)
            }
        }
    }

    /// Where it serves.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts the files if nobody uses them, and ends.
    ///
    /// # Errors
    /// [`Unended::InUse`] has the server, if they are in use.
    pub fn end(mut self) -> Result<(), Unended> {
        match self.mounted.unmount(UnmountFlags::empty()) {
            Err(Errno::BUSY) => Err(Unended::InUse(self)),
            // Nothing may be mounted there any more.
            Ok(()) | Err(_) => self.join_soon(),
        }
    }

    /// Ends at once: requests in flight, and all later ones of those who still use the files, get errors.
    ///
    /// # Errors
    /// Why it has not ended.
    pub fn abort(mut self) -> Result<(), Unended> {
        // Two calls: what FORCE aborts may still be open, and the mount then stays.
        let _ = self.mounted.unmount(UnmountFlags::FORCE);
        let _ = self.mounted.unmount(UnmountFlags::DETACH);
        self.join_soon()
    }

    /// Waits for the end of the thread, but not for ever.
    fn join_soon(&mut self) -> Result<(), Unended> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let started = Instant::now();
        while !session.is_finished() {
            if started.elapsed() > PATIENCE {
                return Err(Unended::Elsewhere);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let panicked = || Err(io::Error::other("it panicked"));
        session.join().unwrap_or_else(|_| panicked()).map_err(Unended::Failed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        // A process that was just started, or a loop device that is being detached, may hold
        // the file for a moment: the session ends with the last of them.
        let unmounted = self.mounted.unmount(UnmountFlags::empty());
        let detached = unmounted.or_else(|_| self.mounted.unmount(UnmountFlags::DETACH));
        if detached.is_err() {
            let _ = self.join_soon();
        } else if let Some(session) = self.session.take() {
            let _ = session.join();
        }
    }
}
