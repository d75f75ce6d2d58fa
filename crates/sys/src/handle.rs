//! Finds a file by its identity: at the path where it was seen, or by inode number and generation
//! (`open_by_handle_at(2)`), which needs `CAP_DAC_READ_SEARCH` instead of a path walk; the kernel refuses a
//! reused inode number.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// Which file to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device number of its file system, as `stat` returns it.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode number (`FS_IOC_GETVERSION`).
    pub generation: u32,
}

/// Why a file was not found.
#[derive(Debug)]
pub struct Missing {
    /// The error at the path; `None` when another file is there now.
    pub at_path: Option<io::Error>,
    /// The error by inode number, as of [`open_by_inode`].
    pub by_inode: io::Error,
}

/// Opens the inode that `named` (`O_PATH`) names for reading or writing, whatever its path is now.
///
/// # Errors
/// Those of `open(2)`.
pub fn reopen(named: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    let name = format!("/proc/self/fd/{}", named.as_fd().as_raw_fd());
    Ok(rustix::fs::open(name, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// `MAX_HANDLE_SZ` (linux/exportfs.h).
const LONGEST_HANDLE: usize = 128;

/// `struct file_handle` with space for the longest handle.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    id: [u8; LONGEST_HANDLE],
}

/// Kinds of handles (linux/exportfs.h): that of ext4, F2FS and most others, inode number and
/// generation in 32 bits each; XFS's with 64 bits for the number; and Btrfs's, which names the
/// subvolume between them.
const FILEID_INO32_GEN: i32 = 1;
const FILEID_INO64_GEN_XFS: i32 = 0x81;
const FILEID_BTRFS_WITHOUT_PARENT: i32 = 0x4d;

impl RawHandle {
    /// The handle of an open file or directory (`name_to_handle_at(2)`).
    fn of(file: impl AsFd) -> io::Result<Self> {
        let mut handle = Self { bytes: LONGEST_HANDLE as u32, kind: 0, id: [0; LONGEST_HANDLE] };
        let mut mount = 0i32;
        // SAFETY: the path is an empty C string; the kernel writes a handle of at most `bytes`
        // into `handle`, and an int.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_fd().as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(handle) }
    }

    /// The handle of another inode on the same file system, or in the same subvolume, as `self`.
    fn with_inode(mut self, inode: u64, generation: u32) -> io::Result<Self> {
        match self.kind {
            FILEID_BTRFS_WITHOUT_PARENT => {
                self.id[..8].copy_from_slice(&inode.to_ne_bytes());
                self.id[16..20].copy_from_slice(&generation.to_ne_bytes());
            }
            FILEID_INO64_GEN_XFS => {
                self.bytes = 12;
                self.id[..8].copy_from_slice(&inode.to_ne_bytes());
                self.id[8..12].copy_from_slice(&generation.to_ne_bytes());
            }
            _ => {
                let too_large = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
                let inode = u32::try_from(inode).map_err(too_large)?;
                (self.bytes, self.kind) = (8, FILEID_INO32_GEN);
                self.id[..4].copy_from_slice(&inode.to_ne_bytes());
                self.id[4..8].copy_from_slice(&generation.to_ne_bytes());
            }
        }
        Ok(self)
    }

    /// Opens the file of this handle, on the file system of `mount` (`open_by_handle_at(2)`).
    fn open(mut self, mount: impl AsFd, flags: i32) -> io::Result<OwnedFd> {
        // SAFETY: `self` is a `struct file_handle` header, followed by at least the number of bytes in its
        // `bytes` field; the kernel only reads it.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_fd().as_raw_fd(),
                &raw mut self,
                flags | libc::O_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Opens the inode on the file system of `mount` (any open file or directory on it); on Btrfs, in its
/// subvolume.
///
/// `flags` are those of `open(2)`.
///
/// # Errors
/// `ESTALE` when no such inode exists any more, `EPERM` without the capability, `EOVERFLOW` when the inode
/// number needs more than the 32 bits of the file system's handles.
pub fn open_by_inode(
    mount: impl AsFd,
    inode: u64,
    generation: u32,
    flags: i32,
) -> io::Result<OwnedFd> {
    // On a file system without handles the first call returns `EOPNOTSUPP`.
    RawHandle::of(&mount)?.with_inode(inode, generation)?.open(mount, flags)
}

/// Opens the root directory of a subvolume of the Btrfs of `mount`.
///
/// # Errors
/// `ESTALE` when there is no such subvolume, `EPERM` without the capability, `EINVAL` on other file systems.
pub fn open_subvolume(mount: impl AsFd, subvolume: u64) -> io::Result<OwnedFd> {
    /// `BTRFS_FIRST_FREE_OBJECTID`: the inode number of every subvolume's root.
    const ROOT: u64 = 256;
    let mut handle = RawHandle::of(&mount)?;
    if handle.kind != FILEID_BTRFS_WITHOUT_PARENT {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    handle.id[8..16].copy_from_slice(&subvolume.to_ne_bytes());
    // With generation 0 the kernel does not compare generations.
    handle.with_inode(ROOT, 0)?.open(mount, libc::O_RDONLY | libc::O_DIRECTORY)
}

/// The file system's handle of a file (`name_to_handle_at(2)`): it stays valid across renames, reboots
/// and remounts, and no other file ever has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The file system's kind of handle.
    pub kind: i32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Handle {
    /// The handle of an open file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no handles.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let RawHandle { bytes, kind, id } = RawHandle::of(file)?;
        let length = (bytes as usize).min(LONGEST_HANDLE);
        Ok(Self { kind, bytes: id[..length].to_vec() })
    }

    /// Returns a descriptor that only names the file (`O_PATH`), on the file system of `mount`. Needs
    /// `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` when the file no longer exists, `EINVAL` for a handle that is too long.
    pub fn open(&self, mount: impl AsFd) -> io::Result<OwnedFd> {
        let mut id = [0; LONGEST_HANDLE];
        let Some(room) = id.get_mut(..self.bytes.len()) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        room.copy_from_slice(&self.bytes);
        RawHandle { bytes: self.bytes.len() as u32, kind: self.kind, id }.open(mount, libc::O_PATH)
    }
}

/// The path of an open file, according to the kernel; `None` once it is deleted or out of reach, or while its
/// directory is unknown, as after it was opened by inode number or handle.
pub fn path_of(file: impl AsFd) -> Option<PathBuf> {
    let path = link_of(&file)?;
    // The kernel appends " (deleted)"; a name may end so too, so the file at the path is compared.
    crate::root::leads_to(&path, file).is_ok_and(|it_does| it_does).then_some(path)
}

/// The kernel's path of an open file, valid or not.
pub(crate) fn link_of(file: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).ok()
}
