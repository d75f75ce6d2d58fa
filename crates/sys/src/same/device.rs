//! How the device is read past the page cache, and how to be sure that it was.
//!
//! Btrfs does not report that it reads from the page cache instead: where data that was written through it is
//! not in the tree yet (`lock_extent_direct()`, fs/btrfs/direct-io.c), which is later than its pages are clean.
//! With `RWF_NOWAIT` the kernel returns `EAGAIN` there, since Linux 5.19.

use crate::btrfs;
use crate::cache;
use crate::priority::Prompt;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The smallest block of any device.
const SECTOR: usize = 512;

/// Whether the kernel may serve direct reads of a file from the page cache without reporting it.
pub(crate) fn may_deceive(file: BorrowedFd) -> io::Result<bool> {
    btrfs::holds(file)
}

/// Reads a run surely from the device; returns its place in `buffer`. `None` while the run is being written
/// to, or where the kernel does not support such a read.
pub(super) fn read_surely(
    file: BorrowedFd,
    run: Range<u64>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Range<usize>>> {
    // A kernel that counts pages (Linux 6.5) also returns `EAGAIN`.
    if cache::dirty_pages(file, run.clone()).map_or(true, |pages| pages > 0) {
        return Ok(None);
    }
    let page = rustix::param::page_size() as u64;
    let start = aligned(buffer, (run.end - run.start) as usize);
    let _prompt = Prompt::begin();
    let _direct = Direct::begin(file)?;
    // It also returns `EAGAIN` where more than one extent is read at once.
    let (mut left, mut end) = (vec![run.clone()], run.start);
    while let Some(part) = left.pop() {
        let at = |offset: u64| start + (offset - run.start) as usize;
        let into = &mut buffer[at(part.start)..at(part.end)];
        match rustix::io::preadv2(
            file,
            &mut [IoSliceMut::new(into)],
            part.start,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(got) => {
                end = part.start + got as u64;
                // The file ends there.
                if end < part.end {
                    break;
                }
            }
            Err(Errno::INTR) => left.push(part),
            Err(Errno::AGAIN) if part.end - part.start > page => {
                let pages = (part.end - part.start) / page;
                let middle = part.start + pages / 2 * page;
                left.extend([middle..part.end, part.start..middle]);
            }
            Err(Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Some(start..start + (end - run.start) as usize))
}

/// The result of [`ask`].
pub(super) enum Asked {
    /// The place in the buffer, and the kernel's error of a refused write, which it reports once: a second read
    /// succeeds. `EINVAL` means that there are no direct reads.
    Read(Range<usize>, Option<io::Error>),
    /// The read failed with `cause` while the run has dirty pages; the error of a refused write, if the kernel
    /// reported one before.
    Beside { cause: io::Error, told: Option<io::Error> },
}

/// Reads a run from the device. While the run is being written to, the kernel fails a direct read (`EIO`) where
/// a page was dirtied through a mapping before it was allocated (`IOMAP_DELALLOC` in fs/iomap/direct-io.c). A
/// failing device, or a file system that was shut down, leaves pages dirty as well.
pub(super) fn ask(file: BorrowedFd, run: Range<u64>, buffer: &mut Vec<u8>) -> io::Result<Asked> {
    let len = (run.end - run.start) as usize;
    let collides = || cache::dirty_pages(file, run.clone()).is_ok_and(|pages| pages > 0);
    match direct(file, run.start, len, buffer) {
        Ok(read) => Ok(Asked::Read(read, None)),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(Asked::Read(0..0, Some(e))),
        Err(cause) if collides() => Ok(Asked::Beside { cause, told: None }),
        Err(told) => match direct(file, run.start, len, buffer) {
            Ok(read) => Ok(Asked::Read(read, Some(told))),
            Err(cause) if collides() => Ok(Asked::Beside { cause, told: Some(told) }),
            Err(e) => Err(e),
        },
    }
}

/// Reads `len` bytes from the device; returns where in `buffer` they are.
fn direct(file: BorrowedFd, at: u64, len: usize, buffer: &mut Vec<u8>) -> io::Result<Range<usize>> {
    let start = aligned(buffer, len);
    // It holds a lock of the file while it waits for the disk.
    let _prompt = Prompt::begin();
    let _direct = Direct::begin(file)?;
    let got = read_full(file, at, &mut buffer[start..start + len])?;
    Ok(start..start + got)
}

/// Makes the buffer large enough for `len` bytes; returns where they begin, aligned as a direct read needs it.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> usize {
    let page = rustix::param::page_size();
    buffer.resize(len + page, 0);
    buffer.as_ptr().align_offset(page).min(page)
}

/// While it lives, reads of an open file description are direct.
struct Direct<'a> {
    file: BorrowedFd<'a>,
    before: OFlags,
}

impl<'a> Direct<'a> {
    fn begin(file: BorrowedFd<'a>) -> io::Result<Self> {
        let before = rustix::fs::fcntl_getfl(file)?;
        rustix::fs::fcntl_setfl(file, before | OFlags::DIRECT)?;
        Ok(Self { file, before })
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::fcntl_setfl(self.file, self.before);
    }
}

/// Reads until the buffer is full or the file ends. A direct read that ends there does not end on a block
/// boundary, and cannot be continued.
pub(super) fn read_full(file: BorrowedFd, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() && done % SECTOR == 0 {
        match rustix::io::pread(file, &mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}
