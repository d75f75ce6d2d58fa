//! The requests of the kernel to the files of a server: a FUSE file system with one directory.

use crate::request::{Answer, Arrived, Disk, Kind, Reply};
use crate::server::{Control, OnPanic};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, WriteFlags,
};
use rustix::fs::FallocateFlags;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

const TTL: Duration = Duration::from_secs(3600);
const ROOT: INodeNo = INodeNo(1);
/// The inode number of the first file.
const FIRST: u64 = 2;

/// A file by its name.
pub(crate) struct Node {
    name: String,
    file: File,
}

#[derive(Clone)]
enum File {
    Disk(Arc<dyn Disk>),
    Control { bytes: u64, control: Arc<dyn Control> },
}

impl Node {
    pub fn disk(name: &str, disk: Arc<dyn Disk>) -> Self {
        Self { name: name.to_owned(), file: File::Disk(disk) }
    }

    pub fn control(name: &str, bytes: u64, control: Arc<dyn Control>) -> Self {
        Self { name: name.to_owned(), file: File::Control { bytes, control } }
    }
}

/// The files, and what was read of control files.
pub(crate) struct Files {
    nodes: Vec<Node>,
    in_flight: Option<u16>,
    block_bytes: u32,
    next_handle: AtomicU64,
    /// By handle, the content of a control file as it was when its first byte was read.
    contents: Mutex<HashMap<u64, Vec<u8>>>,
    on_panic: OnPanic,
}

impl Files {
    pub fn new(
        nodes: Vec<Node>,
        in_flight: Option<u16>,
        block_bytes: u32,
        on_panic: OnPanic,
    ) -> Self {
        let (next_handle, contents) = (AtomicU64::new(1), Mutex::default());
        Self { nodes, in_flight, block_bytes, next_handle, contents, on_panic }
    }

    fn file(&self, inode: INodeNo) -> Option<&File> {
        let number = inode.0.checked_sub(FIRST)?;
        self.nodes.get(usize::try_from(number).ok()?).map(|node| &node.file)
    }

    fn disk(&self, inode: INodeNo) -> Option<&Arc<dyn Disk>> {
        if let File::Disk(disk) = self.file(inode)? { Some(disk) } else { None }
    }

    fn contents(&self) -> MutexGuard<'_, HashMap<u64, Vec<u8>>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read of a control file.
    fn content(&self, at: Read, control: &dyn Control, reply: ReplyData) {
        let mut contents = self.contents();
        if at.offset == 0 {
            match self.caught(|| control.read()).unwrap_or_else(|| Err(broken())) {
                Ok(content) => contents.insert(at.handle, content),
                Err(e) => return reply.error(e.into()),
            };
        }
        let content = contents.get(&at.handle).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(at.offset).unwrap_or(usize::MAX).min(content.len());
        reply.data(&content[from..content.len().min(from + at.size as usize)]);
    }

    /// Carries out a request. A panic there must not end the thread that answers the kernel: it is reported, and
    /// `None` returned.
    fn caught<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work));
        done.map_err(|_| (self.on_panic)()).ok()
    }

    /// Has a disk carry out a request. If that panics, its answer is dropped, which is an error.
    fn carry_out(&self, disk: &dyn Disk, arrived: &Arrived<'_>, reply: Reply) {
        let _ = self.caught(|| disk.carry_out(arrived, Answer::from(reply)));
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, size) = match self.file(inode) {
            Some(File::Disk(disk)) => (FileType::RegularFile, disk.bytes()),
            Some(File::Control { bytes, .. }) => (FileType::RegularFile, *bytes),
            None => (FileType::Directory, 0),
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

/// A read of a control file.
struct Read {
    handle: u64,
    offset: u64,
    size: u32,
}

/// What a request is answered with that has panicked.
fn broken() -> io::Error {
    rustix::io::Errno::IO.into()
}

fn answer(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if let Some(most) = self.in_flight {
            let too_old = || io::Error::from(io::ErrorKind::Unsupported);
            config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| too_old())?;
            config.set_max_background(most).map_err(|_| too_old())?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match (FIRST..).zip(&self.nodes).find(|(_, node)| name == node.name.as_str()) {
            Some((inode, _)) => {
                reply.entry(&TTL, &self.attributes(INodeNo(inode)), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    /// A shell's `>` truncates first: nothing happens to a control file then. A disk keeps its size.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.file(inode) {
            Some(File::Control { .. }) if size.is_some() => {
                reply.attr(&TTL, &self.attributes(inode));
            }
            _ => reply.error(Errno::EPERM),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let dots = [".", ".."].map(|name| (ROOT, FileType::Directory, name));
        let files = (FIRST..).zip(&self.nodes);
        let files = files.map(|(n, node)| (INodeNo(n), FileType::RegularFile, node.name.as_str()));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (inode, kind, name)) in (1..).zip(dots.into_iter().chain(files)).skip(from) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, self.block_bytes, 255, 0);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without a page cache for the file, every request of the block layer arrives here.
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.contents().remove(&handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.file(inode) {
            Some(File::Control { control, .. }) => {
                self.content(Read { handle: handle.0, offset, size }, control.as_ref(), reply);
            }
            Some(File::Disk(disk)) => {
                let len = u64::from(size).min(disk.bytes().saturating_sub(offset));
                let arrived = Arrived { kind: Kind::Read, offset, len, bytes: &[] };
                self.carry_out(disk.as_ref(), &arrived, Reply::Data(reply));
            }
            None => reply.error(Errno::EISDIR),
        }
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
        let len = data.len() as u32;
        match self.file(inode) {
            Some(File::Control { control, .. }) => {
                match self.caught(|| control.write(data)).unwrap_or_else(|| Err(broken())) {
                    Ok(()) => reply.written(len),
                    Err(e) => reply.error(e.into()),
                }
            }
            Some(File::Disk(disk)) => {
                if offset.saturating_add(u64::from(len)) > disk.bytes() {
                    return reply.error(Errno::ENOSPC);
                }
                let arrived =
                    Arrived { kind: Kind::Write, offset, len: u64::from(len), bytes: data };
                self.carry_out(disk.as_ref(), &arrived, Reply::Written(reply, len));
            }
            None => reply.error(Errno::EISDIR),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok(); // a descriptor was closed; nothing is cached
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let Some(disk) = self.disk(inode) else { return reply.ok() };
        let arrived = Arrived { kind: Kind::Flush, offset: 0, len: 0, bytes: &[] };
        self.carry_out(disk.as_ref(), &arrived, Reply::Done(reply));
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
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let kind = if mode.contains(FallocateFlags::PUNCH_HOLE) {
            Kind::Discard
        } else if mode.contains(FallocateFlags::ZERO_RANGE) {
            Kind::Zero
        } else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::EOPNOTSUPP) };
        let len = length.min(disk.bytes().saturating_sub(offset));
        if len == 0 {
            return answer(reply, Ok(()));
        }
        self.carry_out(
            disk.as_ref(),
            &Arrived { kind, offset, len, bytes: &[] },
            Reply::Done(reply),
        );
    }
}
