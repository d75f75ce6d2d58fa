//! `XFS_IOC_BULKSTAT` (xfs_fs.h of the kernel, Linux 5.3): inodes of an XFS by their numbers, many in one
//! call, without opening a file. Needs `CAP_SYS_ADMIN`.

use crate::xfs::ioctl;
use std::io;
use std::os::fd::AsFd;

const XFS_IOC_BULKSTAT: libc::c_ulong = 0x8040_587F;

/// Inodes per call.
const MANY: usize = 256;

/// `struct xfs_bulk_ireq`, and the inodes behind it.
#[repr(C)]
struct Request<const N: usize> {
    inode: u64,
    flags: u32,
    room: u32,
    given: u32,
    group: u32,
    reserved: [u64; 5],
    inodes: [Inode; N],
}

/// `struct xfs_bulkstat`: sizes are bytes, times seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Inode {
    /// Its number.
    pub number: u64,
    /// Size of the file.
    pub size: u64,
    blocks: u64,
    flags: u64,
    times: [i64; 4],
    /// Generation of the number (`FS_IOC_GETVERSION`).
    pub generation: u32,
    owner: [u32; 3],
    nanoseconds: [u32; 4],
    block_size: u32,
    device: u32,
    hints: [u32; 2],
    links: u32,
    extents: u32,
    attribute_extents: u32,
    version: u16,
    /// Bytes of the inode that hold extents; 0 where none are set aside for extended attributes.
    pub extent_room: u16,
    health: [u16; 2],
    /// Type and permissions, as in `stat`.
    pub mode: u16,
    pad: u16,
    more: [u64; 7],
}

const _: () = assert!(size_of::<Inode>() == 192 && size_of::<Request<0>>() == 64);

impl Inode {
    /// Whether its data is on the realtime device.
    pub fn is_realtime(&self) -> bool {
        self.flags & u64::from(crate::xfs::FS_XFLAG_REALTIME) != 0
    }
}

fn request<const N: usize>(file: impl AsFd, from: u64) -> io::Result<Box<Request<N>>> {
    let mut request = Box::new(Request {
        inode: from,
        flags: 0,
        room: N as u32,
        given: 0,
        group: 0,
        reserved: [0; 5],
        inodes: [Inode::default(); N],
    });
    // SAFETY: XFS_IOC_BULKSTAT reads and writes the 64 bytes of a request, and writes at most
    // `room` inodes of 192 bytes behind it.
    unsafe { ioctl(file.as_fd(), XFS_IOC_BULKSTAT, &raw mut *request) }?;
    Ok(request)
}

/// One inode of the XFS of `file`.
///
/// # Errors
/// `EPERM` without the capability, `ENOENT` when nothing is linked to it, `ENOTTY` on other file systems.
pub fn inode(file: impl AsFd, number: u64) -> io::Result<Inode> {
    let found = request::<1>(file, number)?;
    match found.inodes {
        [inode] if found.given == 1 && inode.number == number => Ok(inode),
        _ => Err(io::Error::from_raw_os_error(libc::ENOENT)),
    }
}

/// Calls `visit` with every linked inode, from number `from` on in ascending order, as long as it
/// returns true.
///
/// # Errors
/// As [`inode`].
pub fn each(
    file: impl AsFd,
    mut from: u64,
    mut visit: impl FnMut(&Inode) -> bool,
) -> io::Result<()> {
    loop {
        let found = request::<MANY>(&file, from)?;
        let inodes = &found.inodes[..(found.given as usize).min(MANY)];
        if inodes.is_empty() || !inodes.iter().all(&mut visit) {
            return Ok(());
        }
        if found.inode <= from {
            return Err(crate::no_progress());
        }
        from = found.inode;
    }
}
