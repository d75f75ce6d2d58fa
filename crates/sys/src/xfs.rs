//! XFS's own interfaces (xfs_fs.h of the kernel): a file system's features, and exchanging the mapping
//! of a range between two files.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const XFS_IOC_FSGEOMETRY: libc::c_ulong = 0x8100_587E;
const XFS_IOC_FD_TO_HANDLE: libc::c_ulong = 0xC038_586A;
const XFS_IOC_OPEN_BY_HANDLE: libc::c_ulong = 0xC038_586B;
const XFS_IOC_START_COMMIT: libc::c_ulong = 0x8058_5882;
const XFS_IOC_COMMIT_RANGE: libc::c_ulong = 0x4058_5883;
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801C_581F;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401C_5820;

const GEOM_FLAGS_V5SB: u32 = 1 << 15;
const GEOM_FLAGS_RMAPBT: u32 = 1 << 19;
const GEOM_FLAGS_REFLINK: u32 = 1 << 20;
const GEOM_FLAGS_EXCHANGE_RANGE: u32 = 1 << 24;

pub(crate) const FS_XFLAG_REALTIME: u32 = 0x1;
const FS_XFLAG_NODEFRAG: u32 = 0x2000;
const FS_XFLAG_EXTSIZE: u32 = 0x800;
const FS_XFLAG_COWEXTSIZE: u32 = 0x1_0000;

/// `struct xfs_fsop_geom`: the fields that are used, and padding.
#[repr(C)]
struct Geometry {
    before: [u8; 92],
    flags: u32,
    after: [u8; 160],
}

const _: () = assert!(size_of::<Geometry>() == 256);

/// What an XFS was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `rmapbt=1`: every block's owner is known.
    pub rmap: bool,
    /// `reflink=1`: files may share blocks.
    pub reflink: bool,
    /// `exchange=1`: ranges may be exchanged.
    pub exchange: bool,
    /// `crc=1`: metadata has checksums, and names its owner.
    pub checksums: bool,
}

/// The features of the XFS of `file`.
///
/// # Errors
/// `ENOTTY` on any other file system.
pub fn features(file: impl AsFd) -> io::Result<Features> {
    let mut geometry = Geometry { before: [0; 92], flags: 0, after: [0; 160] };
    // SAFETY: XFS_IOC_FSGEOMETRY writes exactly this 256-byte structure.
    unsafe { ioctl(file.as_fd(), XFS_IOC_FSGEOMETRY, &raw mut geometry) }?;
    let has = |flag| geometry.flags & flag != 0;
    Ok(Features {
        rmap: has(GEOM_FLAGS_RMAPBT),
        reflink: has(GEOM_FLAGS_REFLINK),
        exchange: has(GEOM_FLAGS_EXCHANGE_RANGE),
        checksums: has(GEOM_FLAGS_V5SB),
    })
}

/// Attributes that only `FS_IOC_FSGETXATTR` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its data is on the realtime device.
    pub realtime: bool,
    /// It is not to be defragmented (`xfs_io -c 'chattr +f'`).
    pub no_defrag: bool,
    /// Extents of its data, as XFS keeps them.
    pub extents: u32,
}

/// The attributes of an open file.
///
/// # Errors
/// `ENOTTY` where the file system has none.
pub fn attributes(file: impl AsFd) -> io::Result<Attributes> {
    let mut fsxattr = [0u32; 7];
    // SAFETY: FS_IOC_FSGETXATTR writes a `struct fsxattr` of 28 bytes, whose first u32 are the
    // flags.
    unsafe { ioctl(file.as_fd(), FS_IOC_FSGETXATTR, &raw mut fsxattr) }?;
    let has = |flag| fsxattr[0] & flag != 0;
    Ok(Attributes {
        realtime: has(FS_XFLAG_REALTIME),
        no_defrag: has(FS_XFLAG_NODEFRAG),
        extents: fsxattr[2],
    })
}

/// Clears an open, empty file's extent size hint, which it may have inherited from its directory, so
/// that space is allocated as requested and not in larger units.
///
/// # Errors
/// `ENOTTY` where the file system has no such attributes.
pub fn clear_extent_size_hint(file: impl AsFd) -> io::Result<()> {
    let mut fsxattr = [0u32; 7];
    // SAFETY: FS_IOC_FSGETXATTR writes a `struct fsxattr` of 28 bytes: flags, extent size, number of
    // extents, project, extent size of copies, padding.
    unsafe { ioctl(file.as_fd(), FS_IOC_FSGETXATTR, &raw mut fsxattr) }?;
    if fsxattr[0] & (FS_XFLAG_EXTSIZE | FS_XFLAG_COWEXTSIZE) == 0 {
        return Ok(());
    }
    fsxattr[0] &= !(FS_XFLAG_EXTSIZE | FS_XFLAG_COWEXTSIZE);
    (fsxattr[1], fsxattr[4]) = (0, 0);
    // SAFETY: FS_IOC_FSSETXATTR reads the same structure.
    unsafe { ioctl(file.as_fd(), FS_IOC_FSSETXATTR, &raw mut fsxattr) }
}

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct HandleRequest {
    fd: u32,
    path: *mut libc::c_void,
    open_flags: u32,
    in_handle: *mut libc::c_void,
    in_length: u32,
    out_handle: *mut libc::c_void,
    out_length: *mut u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<HandleRequest>() == 56);

/// Opens a file by handle, so that exchanging its ranges does not change its times (as `xfs_fsr(8)`
/// does). `flags` are those of `open(2)`; `directory` is any directory of the same file system, in the
/// mount in which the file is to be open: ranges are exchanged within one mount only. Needs
/// `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENOTDIR` where `directory` is none.
pub fn open_without_times(
    directory: impl AsFd,
    file: impl AsFd,
    flags: rustix::fs::OFlags,
) -> io::Result<OwnedFd> {
    let mut handle = [0u8; 64];
    let mut length = 0u32;
    let file = file.as_fd();
    let none = std::ptr::null_mut();
    let mut request = HandleRequest {
        fd: file.as_raw_fd() as u32,
        path: none,
        open_flags: flags.bits(),
        in_handle: none,
        in_length: 0,
        out_handle: handle.as_mut_ptr().cast(),
        out_length: &raw mut length,
    };
    // SAFETY: XFS_IOC_FD_TO_HANDLE reads the request and writes a handle of 24 bytes, which fits
    // in `handle`, and its length.
    unsafe { ioctl(file, XFS_IOC_FD_TO_HANDLE, &raw mut request) }?;
    request.in_handle = request.out_handle;
    request.in_length = length;
    let directory = directory.as_fd().as_raw_fd();
    // SAFETY: XFS_IOC_OPEN_BY_HANDLE reads the request and `in_length` bytes of the handle.
    let fd = unsafe { libc::ioctl(directory, XFS_IOC_OPEN_BY_HANDLE, &raw mut request) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // The request accepts no `O_CLOEXEC`.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)?;
    Ok(file)
}

/// `struct xfs_commit_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct CommitRange {
    file1_fd: i32,
    pad: u32,
    file1_offset: u64,
    file2_offset: u64,
    length: u64,
    flags: u64,
    file2_freshness: [u64; 6],
}

const _: () = assert!(size_of::<CommitRange>() == 88);

/// The state of a file when it was sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sample([u64; 6]);

/// Samples a file, so that [`commit_range`] can tell whether it has changed since. It succeeds
/// also where ranges cannot be exchanged: ask [`features`].
///
/// # Errors
/// `ENOTTY` on kernels before 6.12 and on other file systems.
pub fn start_commit(file: impl AsFd) -> io::Result<Sample> {
    let mut arg = CommitRange::default();
    // SAFETY: XFS_IOC_START_COMMIT reads and writes exactly this 88-byte structure.
    unsafe { ioctl(file.as_fd(), XFS_IOC_START_COMMIT, &raw mut arg) }?;
    Ok(Sample(arg.file2_freshness))
}

/// Exchanges the mapping of `length` bytes of `file` at `offset` with that of `donor` at
/// `donor_offset`, unless `file` has changed since `sample`. Atomic, also across a crash; durable
/// after the next `fsync`.
///
/// # Errors
/// `EBUSY` when the file has changed, `EOPNOTSUPP` without the feature, `ETXTBSY` for a swap
/// file, `EINVAL` for what is not aligned to blocks.
pub fn commit_range(
    file: impl AsFd,
    offset: u64,
    donor: impl AsFd,
    donor_offset: u64,
    length: u64,
    sample: Sample,
) -> io::Result<()> {
    commit(file.as_fd(), offset, donor.as_fd(), donor_offset, length, sample, 0)
}

/// Does what [`commit_range`] does before it exchanges anything: locks both files for a moment, waits
/// for direct I/O in flight, and checks whether `file` has changed since `sample`.
///
/// # Errors
/// Those of [`commit_range`].
pub fn would_commit(
    file: impl AsFd,
    offset: u64,
    donor: impl AsFd,
    donor_offset: u64,
    length: u64,
    sample: Sample,
) -> io::Result<()> {
    const XFS_EXCHANGE_RANGE_DRY_RUN: u64 = 1 << 2;
    let flags = XFS_EXCHANGE_RANGE_DRY_RUN;
    commit(file.as_fd(), offset, donor.as_fd(), donor_offset, length, sample, flags)
}

fn commit(
    file: BorrowedFd,
    offset: u64,
    donor: BorrowedFd,
    donor_offset: u64,
    length: u64,
    sample: Sample,
    flags: u64,
) -> io::Result<()> {
    let mut arg = CommitRange {
        file1_fd: donor.as_raw_fd(),
        pad: 0,
        file1_offset: donor_offset,
        file2_offset: offset,
        length,
        flags,
        file2_freshness: sample.0,
    };
    // SAFETY: XFS_IOC_COMMIT_RANGE reads exactly this 88-byte structure.
    unsafe { ioctl(file, XFS_IOC_COMMIT_RANGE, &raw mut arg) }
}

/// # Safety
/// `arg` points to what `request` reads and writes.
pub(crate) unsafe fn ioctl<T>(
    file: BorrowedFd,
    request: libc::c_ulong,
    arg: *mut T,
) -> io::Result<()> {
    // SAFETY: as the caller promises.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), request, arg) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
