//! `FS_IOC_GETFSMAP` (linux/fsmap.h): the owners of a file system's blocks, as records in the order of the
//! devices. XFS made with `rmapbt=1` records the owner of every block, and reports it to `CAP_SYS_ADMIN` alone. Others,
//! and ext4, report free space and where ext4 keeps its metadata.

use crate::xfs::ioctl;
use std::io;
use std::os::fd::AsFd;

const FS_IOC_GETFSMAP: libc::c_ulong = 0xC0C0_583B;

/// Flags of a record.
pub mod flags {
    /// Allocated, never written.
    pub const UNWRITTEN: u32 = 0x1;
    /// Holds extended attributes of its owner.
    pub const ATTRIBUTES: u32 = 0x2;
    /// Holds blocks of its owner's extent tree.
    pub const EXTENT_MAP: u32 = 0x4;
    /// Part of it is shared with other owners.
    pub const SHARED: u32 = 0x8;
    /// The owner is no inode: free space, a log, metadata.
    pub const SPECIAL_OWNER: u32 = 0x10;
    pub(super) const LAST: u32 = 0x20;
}

/// `struct fsmap`: a range of a device and its owner. Offsets and lengths are bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The device number, as in user space.
    pub device: u32,
    /// See [`flags`].
    pub flags: u32,
    /// Offset on the device.
    pub physical: u64,
    /// Inode number, unless the owner is special.
    pub owner: u64,
    /// Offset in the owner.
    pub offset: u64,
    /// Length.
    pub length: u64,
    reserved: [u64; 3],
}

/// What the blocks of a record are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Nothing.
    Free,
    /// The file system's own metadata, extended attributes and extent trees of files included.
    Metadata,
    /// Data of files or directories, copies that are being written, or what is not reported.
    Other,
}

impl Record {
    /// What its blocks are used for.
    pub fn usage(&self) -> Usage {
        /// `FMR_OWN_FREE`, `FMR_OWN_METADATA`.
        const FREE: u64 = 1;
        const METADATA: u64 = 3;
        /// `XFS_FMR_OWN_*` of xfs_fs.h from the super block to the tree of reference counts, which ext4 uses as well;
        /// and its own `EXT4_FMR_OWN_*` (fs/ext4/fsmap.h).
        const XFS: [u64; 2] = [(b'X' as u64) << 32 | 1, (b'X' as u64) << 32 | 6];
        const EXT4: [u64; 2] = [(b'f' as u64) << 32 | 1, (b'f' as u64) << 32 | 4];
        let is_in = |[first, last]: [u64; 2]| (first..=last).contains(&self.owner);
        if self.flags & flags::SPECIAL_OWNER == 0 {
            let of_file = self.flags & (flags::ATTRIBUTES | flags::EXTENT_MAP) != 0;
            return if of_file { Usage::Metadata } else { Usage::Other };
        }
        match self.owner {
            FREE => Usage::Free,
            METADATA => Usage::Metadata,
            _ if is_in(XFS) || is_in(EXT4) => Usage::Metadata,
            _ => Usage::Other,
        }
    }
}

/// Records per call.
const MANY: usize = 1024;

/// `struct fsmap_head`, and the records behind it.
#[repr(C)]
struct Request {
    in_flags: u32,
    out_flags: u32,
    room: u32,
    given: u32,
    reserved: [u64; 6],
    from: Record,
    to: Record,
    records: [Record; MANY],
}

const _: () = assert!(size_of::<Record>() == 64 && size_of::<Request>() == 192 + MANY * 64);

/// Calls `visit` with every record of the file system of `file`.
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` where the file system has no such map, `EPERM` without the capability.
pub fn each(file: impl AsFd, mut visit: impl FnMut(&Record)) -> io::Result<()> {
    let everything = Record {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        length: 0,
        reserved: [0; 3],
    };
    let mut request = Box::new(Request {
        in_flags: 0,
        out_flags: 0,
        room: MANY as u32,
        given: 0,
        reserved: [0; 6],
        from: Record::default(),
        to: everything,
        records: [Record::default(); MANY],
    });
    loop {
        // SAFETY: FS_IOC_GETFSMAP reads and writes the 192 bytes of a request, and writes at most
        // `room` records of 64 bytes behind it.
        unsafe { ioctl(file.as_fd(), FS_IOC_GETFSMAP, &raw mut *request) }?;
        let found = &request.records[..(request.given as usize).min(MANY)];
        found.iter().for_each(&mut visit);
        let goes_on = |before: &Record, last: &Record| {
            let place = |r: &Record| (r.device, r.physical);
            // A shared range has one record for each owner.
            let same = (before.owner, before.offset, before.flags)
                == (last.owner, last.offset, last.flags);
            place(last) > place(before) || place(last) == place(before) && !same
        };
        match found.last() {
            Some(last) if !goes_on(&request.from, last) => return Err(crate::no_progress()),
            // The kernel continues after this record.
            Some(last) if last.flags & flags::LAST == 0 => request.from = *last,
            _ => return Ok(()),
        }
    }
}
