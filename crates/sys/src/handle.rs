//! Finding a file again by its identity: at the path where it was seen, or by inode number and
//! generation (`open_by_handle_at(2)`), which needs no path walk but `CAP_DAC_READ_SEARCH`; a
//! reused inode number is refused by the kernel.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Which file to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device number of its file system, as `stat` tells.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode number (`FS_IOC_GETVERSION`).
    pub generation: u32,
}

/// Why a file was not found.
#[derive(Debug)]
pub struct Missing {
    /// What happened at the path; `None` when another file is there now.
    pub at_path: Option<io::Error>,
    /// What happened by inode number: as of [`open_by_inode`].
    pub by_inode: io::Error,
}

/// A descriptor that only names the file (`O_PATH`), found at `path` or else by its inode number
/// on the file system of the directory `root`. At the path the generation is not compared.
///
/// # Errors
/// [`Missing`] says what happened on both ways.
pub fn find(root: &Path, path: &Path, file: Identity) -> Result<OwnedFd, Missing> {
    let names = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_it = |fd: &OwnedFd| {
        rustix::fs::fstat(fd).is_ok_and(|s| s.st_dev == file.device && s.st_ino == file.inode)
    };
    let at_path = match rustix::fs::open(path, names, Mode::empty()) {
        Ok(fd) if is_it(&fd) => return Ok(fd),
        Ok(_) => None,
        Err(e) => Some(e.into()),
    };
    rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|root| open_by_inode(root, file.inode, file.generation, names.bits() as i32))
        .and_then(|fd| match is_it(&fd) {
            true => Ok(fd),
            false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        })
        .map_err(|by_inode| Missing { at_path, by_inode })
}

/// Opens for reading or writing what `named` names: that very inode, whatever its path is now.
///
/// # Errors
/// Those of `open(2)`.
pub fn reopen(named: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    let name = format!("/proc/self/fd/{}", named.as_fd().as_raw_fd());
    Ok(rustix::fs::open(name, flags | OFlags::CLOEXEC, Mode::empty())?)
}

#[repr(C)]
struct InoGenHandle {
    handle_bytes: u32,
    handle_type: i32,
    inode: u32,
    generation: u32,
}

/// `FILEID_INO32_GEN` (linux/exportfs.h): the handle of ext4, and of most others with 32-bit
/// inode numbers.
const FILEID_INO32_GEN: i32 = 1;

/// Opens the inode on the file system that `mount` (any open file or directory on it) lives on.
///
/// `flags` are those of `open(2)`.
///
/// # Errors
/// `ESTALE` when no such inode exists any more, `EPERM` without the capability, `EOVERFLOW` when
/// the inode number needs more than 32 bits.
pub fn open_by_inode(
    mount: impl AsFd,
    inode: u64,
    generation: u32,
    flags: i32,
) -> io::Result<OwnedFd> {
    let inode = u32::try_from(inode).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let mut handle =
        InoGenHandle { handle_bytes: 8, handle_type: FILEID_INO32_GEN, inode, generation };
    // SAFETY: `handle` is a `struct file_handle` header followed by the `handle_bytes` = 8 bytes
    // it announces; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut handle,
            flags | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The path by which the kernel knows an open file; `None` once it is deleted or out of reach.
pub fn path_of(file: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = std::fs::read_link(link).ok()?;
    // The kernel appends " (deleted)"; a name may end so too, so ask whether it still resolves.
    path.symlink_metadata().is_ok().then_some(path)
}
