//! Inode attributes that `stat` does not return: generation and attribute flags (linux/fs.h).

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Attribute flags as `lsattr` shows them (`FS_*_FL` of linux/fs.h).
pub mod flags {
    /// `i`: may not be modified.
    pub const IMMUTABLE: u32 = 0x10;
    /// `a`: may only be appended to.
    pub const APPEND: u32 = 0x20;
    /// `c`: compressed.
    pub const COMPRESSED: u32 = 0x4;
    /// `m`: not to be compressed.
    pub const NO_COMPRESSION: u32 = 0x400;
    /// `E`: encrypted.
    pub const ENCRYPTED: u32 = 0x800;
    /// `j`: data goes through the journal.
    pub const JOURNAL_DATA: u32 = 0x4000;
    /// `e`: mapped by extents.
    pub const EXTENTS: u32 = 0x8_0000;
    /// `V`: fs-verity.
    pub const VERITY: u32 = 0x10_0000;
    /// `C`: no copy on write (Btrfs).
    pub const NOCOW: u32 = 0x80_0000;
    /// `x`: direct access to persistent memory.
    pub const DAX: u32 = 0x200_0000;
    /// `N`: data is stored in the inode.
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;
const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;
const FS_IOC_GETVERSION: libc::c_ulong = 0x8008_7601;

/// The inode's generation: with device and inode number it identifies a file permanently.
pub fn generation(file: impl AsFd) -> io::Result<u32> {
    get_u32(file, FS_IOC_GETVERSION)
}

/// The generation, as traces, plans and records have it: 0 where the file system has no generations.
///
/// # Errors
/// The file system has generations, and this one cannot be read.
pub fn generation_or_zero(file: impl AsFd) -> io::Result<u32> {
    match generation(file) {
        Err(e) if is_unknown_request(&e) => Ok(0),
        read => read,
    }
}

/// Whether an ioctl failed because the file system does not support it.
pub fn is_unknown_request(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// The inode's attribute flags; see [`flags`].
pub fn attributes(file: impl AsFd) -> io::Result<u32> {
    get_u32(file, FS_IOC_GETFLAGS)
}

/// Whether a file's data is accessed on its device directly, without the page cache (`STATX_ATTR_DAX`): by its
/// flag or because of how it is mounted.
///
/// # Errors
/// An error of `statx(2)`.
pub fn is_dax(file: impl AsFd) -> io::Result<bool> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(stat.stx_attributes.contains(StatxAttributes::DAX))
}

/// Sets the inode's attribute flags.
///
/// # Errors
/// `EPERM` for flags that the caller may not set, `EINVAL` or `EOPNOTSUPP` for those that this file cannot
/// have.
pub fn set_attributes(file: impl AsFd, attributes: u32) -> io::Result<()> {
    // The request number encodes a long, but the kernel reads an int.
    let value = u64::from(attributes);
    // SAFETY: FS_IOC_SETFLAGS reads at most eight bytes from the pointer, which is a live u64.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_SETFLAGS, &raw const value) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn get_u32(file: impl AsFd, request: libc::c_ulong) -> io::Result<u32> {
    // The request number encodes a long, but the kernel writes an int: there is space for either.
    let mut value: u64 = 0;
    // SAFETY: both requests write at most eight bytes to the pointer, which is a live u64.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request, &raw mut value) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(value as u32) }
}
