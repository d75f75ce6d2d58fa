//! Serves a [`Store`] to the kernel as a file: a FUSE file system of a few files, served by a thread of this
//! process. With `losetup --direct-io=on`, the disk's file becomes a block device with a volatile cache; what
//! is written to `marks` goes to [`Store::mark`].
//!
//! Each request is carried out and answered before the next: what a store has received before a flush was
//! answered before it. A write that was in flight when the flush was sent counts as flushed if it arrived
//! first; a real disk might lose it, but no program can rely on either. Behind a [`Gate`], requests may wait,
//! and others overtake them: see [`crate::slow`].

use crate::marks::{MARK_BYTES, text_in};
use crate::slow::{Arrived, Gate, Kind};
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

/// The content of a disk.
pub trait Store: Send + 'static {
    /// Its size in bytes.
    fn bytes(&self) -> u64;
    /// Reads whole sectors.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes whole sectors.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Zeroes `len` bytes from `offset` on.
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()>;
    /// Where a second disk begins, if there is one.
    fn second(&self) -> Option<u64>;
    /// Makes all earlier writes to the first or the second disk durable.
    fn flush(&mut self, second: bool) -> io::Result<()>;
    /// Logs a mark of a user of the disk: see [`crate::marks`].
    fn mark(&mut self, text: &str) -> io::Result<()>;
}

/// A store that is being served; unmounted when dropped.
pub struct Served<S> {
    dir: PathBuf,
    session: Option<BackgroundSession>,
    gate: Option<(Gate, JoinHandle<()>)>,
    _ticket: Ticket,
    _of: PhantomData<S>,
}

const DISK: INodeNo = INodeNo(2);
const MARKS: INodeNo = INodeNo(3);
const SECOND: INodeNo = INodeNo(4);
const FILES: [(&str, INodeNo); 3] = [("disk", DISK), ("marks", MARKS), ("second", SECOND)];
const TTL: Duration = Duration::from_secs(3600);
/// Requests that may be in flight at a gate.
const AT_A_GATE: u16 = 1024;

impl<S: Store> Served<S> {
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
        let store = Arc::new(Mutex::new(store));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("fragmend-crash".into())];
        let ticket = cleanup::register(Undo::Served(dir.to_owned()));
        let files = Files { store, gate: gate.clone() };
        let session = Some(fuser::spawn_mount(files, dir, &config)?);
        let gate = gate.map(|gate| {
            let at_work = gate.clone();
            (gate, std::thread::spawn(move || at_work.work()))
        });
        let dir = dir.to_owned();
        Ok(Self { dir, session, gate, _ticket: ticket, _of: PhantomData })
    }

    /// The disk.
    pub fn disk(&self) -> PathBuf {
        self.dir.join(FILES[0].0)
    }

    /// The second disk, if there is one.
    pub fn second(&self) -> PathBuf {
        self.dir.join(FILES[2].0)
    }

    /// Where marks are written to.
    pub fn marks(&self) -> PathBuf {
        self.dir.join(FILES[1].0)
    }
}

impl<S> Drop for Served<S> {
    fn drop(&mut self) {
        if let Some((gate, worker)) = self.gate.take() {
            gate.open_for_good();
            let _ = worker.join();
        }
        if let Some(session) = self.session.take() {
            // A process that was just started, or a loop device that is being detached, may hold
            // the file for a moment: the session ends with the last of them.
            Undo::Mount(self.dir.clone()).run();
            let _ = session.join();
        }
    }
}

struct Files<S> {
    store: Arc<Mutex<S>>,
    gate: Option<Gate>,
}

/// Locks the store, also after a thread has panicked with it: the panic is reported elsewhere.
fn lock<S>(store: &Mutex<S>) -> MutexGuard<'_, S> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store> Files<S> {
    fn store(&self) -> MutexGuard<'_, S> {
        lock(&self.store)
    }

    /// The bytes of the store that belong to this disk.
    fn extent(&self, inode: INodeNo) -> Range<u64> {
        let store = self.store();
        let all = store.bytes();
        let first = store.second().unwrap_or(all);
        if inode == DISK { 0..first } else { first..all }
    }

    /// Carries out a request to the disk, now or when its gate lets it pass.
    fn carry_out(&self, arrived: &Arrived, work: impl FnOnce(&mut S, &[u8]) + Send + 'static) {
        let Some(gate) = &self.gate else { return work(&mut self.store(), arrived.bytes) };
        gate.pass(arrived, |later| {
            if !later {
                work(&mut self.store(), arrived.bytes);
                return None;
            }
            let (store, bytes) = (Arc::clone(&self.store), arrived.bytes.to_vec());
            Some(Box::new(move || work(&mut lock(&store), &bytes)))
        });
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, size) = match inode {
            DISK | SECOND => {
                let extent = self.extent(inode);
                (FileType::RegularFile, extent.end - extent.start)
            }
            MARKS => (FileType::RegularFile, MARK_BYTES as u64),
            _ => (FileType::Directory, 0),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn answer(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

impl<S: Store> Filesystem for Files<S> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.gate.is_some() {
            let too_old = || io::Error::from(io::ErrorKind::Unsupported);
            config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| too_old())?;
            config.set_max_background(AT_A_GATE).map_err(|_| too_old())?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match FILES.iter().find(|(known, _)| name == *known) {
            Some((_, inode)) => reply.entry(&TTL, &self.attributes(*inode), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without a page cache for the file, every request of the block layer arrives here.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode == MARKS {
            return reply.data(&[0; MARK_BYTES]);
        }
        let Range { start, end } = self.extent(inode);
        let offset = start + offset;
        let len = u64::from(size).min(end.saturating_sub(offset));
        let arrived = Arrived { kind: Kind::Read, offset, len, bytes: &[] };
        self.carry_out(&arrived, move |store, _| {
            let mut buffer = vec![0; len as usize];
            match store.read(offset, &mut buffer) {
                Ok(()) => reply.data(&buffer),
                Err(e) => reply.error(e.into()),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if inode == MARKS {
            return match self.store().mark(&text_in(data)) {
                Ok(()) => reply.written(data.len() as u32),
                Err(e) => reply.error(e.into()),
            };
        }
        let offset = self.extent(inode).start + offset;
        let arrived = Arrived { kind: Kind::Write, offset, len: data.len() as u64, bytes: data };
        if self.gate.as_ref().is_some_and(|gate| gate.refuses(&arrived)) {
            return reply.error(Errno::EIO);
        }
        self.carry_out(&arrived, move |store, bytes| match store.write(offset, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(e) => reply.error(e.into()),
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok(); // a descriptor was closed; nothing is cached
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if inode != DISK && inode != SECOND {
            return reply.ok();
        }
        let arrived = Arrived { kind: Kind::Flush, offset: 0, len: 0, bytes: &[] };
        self.carry_out(&arrived, move |store, _| answer(reply, store.flush(inode == SECOND)));
    }

    /// Discards and zeroing arrive as punched holes and zeroed ranges.
    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        use rustix::fs::FallocateFlags as Flags;
        let mode = Flags::from_bits_retain(mode.cast_unsigned());
        if inode == MARKS || !mode.intersects(Flags::PUNCH_HOLE | Flags::ZERO_RANGE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let offset = self.extent(inode).start + offset;
        let arrived = Arrived { kind: Kind::Zero, offset, len: length, bytes: &[] };
        self.carry_out(&arrived, move |store, _| answer(reply, store.zero(offset, length)));
    }
}
