//! Opening a file by inode number and generation (`open_by_handle_at(2)`): no path walk, and a
//! reused inode number is refused by the kernel. Needs `CAP_DAC_READ_SEARCH`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

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
