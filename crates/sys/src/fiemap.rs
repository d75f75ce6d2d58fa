//! `FS_IOC_FIEMAP` (linux/fiemap.h): the extents of a file on its device.
//!
//! A debugging interface, and racy: use it to choose work and to report, never for correctness.
//! Results are paged, so there is no limit on the number of extents but what a caller sets.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Flags of one mapped extent, as in linux/fiemap.h.
pub mod flags {
    /// Last extent of the file.
    pub const LAST: u32 = 0x1;
    /// The location is not known, or not yet.
    pub const UNKNOWN: u32 = 0x2;
    /// Delayed allocation: no blocks yet.
    pub const DELALLOC: u32 = 0x4;
    /// The bytes on disk are not the file's bytes (compressed).
    pub const ENCODED: u32 = 0x8;
    /// The bytes on disk are encrypted.
    pub const DATA_ENCRYPTED: u32 = 0x80;
    /// Extent offsets may not be block aligned.
    pub const NOT_ALIGNED: u32 = 0x100;
    /// Data sits among metadata (inline data).
    pub const DATA_INLINE: u32 = 0x200;
    /// The block also holds the tails of other files.
    pub const DATA_TAIL: u32 = 0x400;
    /// Allocated and not yet written: reads as zeroes.
    pub const UNWRITTEN: u32 = 0x800;
    /// Adjacent blocks on a file system without extents, merged into one.
    pub const MERGED: u32 = 0x1000;
    /// Other files share these blocks.
    pub const SHARED: u32 = 0x2000;
}

/// One extent, as the file system reports it. All figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the file system's device (virtual on Btrfs).
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// See [`flags`].
    pub flags: u32,
}

const PAGE_EXTENTS: usize = 292; // header and extents fill 16 KiB
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
const FLAG_SYNC: u32 = 0x1;

#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; PAGE_EXTENTS],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<Request>() == 32 + 56 * 292);

/// A reusable buffer for queries; with one per thread a scan does not allocate.
pub struct Fiemap {
    request: Box<Request>,
}

impl Default for Fiemap {
    fn default() -> Self {
        let extent = RawExtent {
            logical: 0,
            physical: 0,
            length: 0,
            reserved64: [0; 2],
            flags: 0,
            reserved: [0; 3],
        };
        let request = Request {
            start: 0,
            length: 0,
            flags: 0,
            mapped: 0,
            count: 0,
            reserved: 0,
            extents: [extent; PAGE_EXTENTS],
        };
        Self { request: Box::new(request) }
    }
}

impl Fiemap {
    /// Calls `visit` for every extent that overlaps `range` (bytes), in file order.
    ///
    /// With `sync`, delayed allocation is flushed first (`FIEMAP_FLAG_SYNC`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` or `ENOTTY` where the file system has no FIEMAP; any I/O error.
    pub fn for_each(
        &mut self,
        file: impl AsFd,
        range: Range<u64>,
        sync: bool,
        mut visit: impl FnMut(Mapped),
    ) -> io::Result<()> {
        self.try_for_each(file, range, sync, |mapped| {
            visit(mapped);
            Ok(())
        })
    }

    /// The same until `visit` fails: the metadata of a file may be forged, and have extents without end.
    ///
    /// # Errors
    /// As [`for_each`](Self::for_each), and those of `visit`.
    pub fn try_for_each(
        &mut self,
        file: impl AsFd,
        range: Range<u64>,
        sync: bool,
        mut visit: impl FnMut(Mapped) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut start = range.start;
        let mut sync = sync;
        while start < range.end {
            let request = &mut *self.request;
            request.start = start;
            request.length = range.end - start;
            request.flags = if sync { FLAG_SYNC } else { 0 };
            request.mapped = 0;
            request.count = PAGE_EXTENTS as u32;
            request.reserved = 0;
            // SAFETY: FS_IOC_FIEMAP reads the 32-byte header and writes at most `count` extents behind it;
            // `Request` is repr(C) with space for exactly that many, and is borrowed mutably for the call.
            let rc =
                unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FIEMAP, &raw mut *request) };
            if rc < 0 {
                return Err(io::Error::last_os_error());
            }
            sync = false;
            let asked = start;
            let got = (request.mapped as usize).min(PAGE_EXTENTS);
            let mut last = got == 0;
            for e in &request.extents[..got] {
                last |= e.flags & flags::LAST != 0;
                let end = e.logical.saturating_add(e.length);
                // The extents of a file that changes meanwhile may repeat or go back: `start` must always
                // advance.
                if end <= start {
                    continue;
                }
                start = end;
                visit(Mapped {
                    logical: e.logical,
                    physical: e.physical,
                    length: e.length,
                    flags: e.flags,
                })?;
            }
            if last || got < PAGE_EXTENTS {
                break;
            }
            if start == asked {
                return Err(crate::no_progress());
            }
        }
        Ok(())
    }
}
