//! Claims a file system for this process across all mount namespaces, by a lock on a byte of its block
//! device's node that is never read or written (fcntl(2), `F_OFD_SETLK`). devtmpfs is shared by the whole
//! machine, so the node is the same inode wherever it is mounted; in any other `/dev` the nodes differ, and
//! claims are not visible.
//!
//! The node is opened read-only: opening a mounted device for writing may be refused, and triggers udev. Read
//! locks do not exclude each other, so each process takes one and then tests whether a write lock would
//! conflict with another process's. If two do so at once, both fail. `flock(2)`, which udev, mkfs and others
//! use on devices, is a separate kind of lock and does not interfere.

use crate::block::BlockDevice;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// The byte that is locked, behind the end of every device.
const BYTE: i64 = 0x6672_6167_6d65_6e64;

/// A claim, held until it is dropped.
#[derive(Debug)]
pub struct Claim {
    _node: File,
}

/// Claims this device; `None` if another process has claimed it.
///
/// # Errors
/// `NotFound` where the device has no node; `PermissionDenied` where users other than root and the node's
/// group may open it, who could hold a lock without limit; those of `open(2)` and `fcntl(2)`.
pub fn take(device: &BlockDevice) -> io::Result<Option<Claim>> {
    let node = open(device)?;
    claim(&node).map(|alone| alone.then_some(Claim { _node: node }))
}

/// The node in `/dev`, as root made it.
fn open(device: &BlockDevice) -> io::Result<File> {
    let told = std::fs::read_to_string(device.node().join("uevent"))?;
    let value = |name: &str| told.lines().find_map(|line| line.strip_prefix(name));
    let number = |name: &str| value(name).and_then(|n| n.parse::<u32>().ok());
    let (Some(name), Some(major), Some(minor)) =
        (value("DEVNAME="), number("MAJOR="), number("MINOR="))
    else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::open(Path::new("/dev").join(name), flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&node)?;
    let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
        && stat.st_rdev == libc::makedev(major, minor);
    if !is_it {
        return Err(io::ErrorKind::NotFound.into());
    }
    let listed = rustix::fs::fgetxattr(&node, c"system.posix_acl_access", &mut [0; 0]);
    if stat.st_uid != 0 || stat.st_mode & 0o007 != 0 || listed.is_ok_and(|length| length > 0) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(node.into())
}

/// Claims a file of any kind, and returns whether that succeeded.
fn claim(file: &File) -> io::Result<bool> {
    lock(file, libc::F_OFD_SETLK, libc::F_RDLCK)?;
    let alone = lock(file, libc::F_OFD_GETLK, libc::F_WRLCK)? == libc::F_UNLCK;
    if !alone {
        lock(file, libc::F_OFD_SETLK, libc::F_UNLCK)?;
    }
    Ok(alone)
}

/// Returns the kind of lock that the kernel has written to the structure.
fn lock(file: &File, how: i32, kind: i32) -> io::Result<i32> {
    // SAFETY: all of it may be zero.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (BYTE, 1);
    loop {
        // SAFETY: these commands read and write one `struct flock`.
        let rc = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), how, &raw mut lock) };
        match rc {
            0 => return Ok(lock.l_type.into()),
            _ if Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::INTR) => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_claimed_by_one_at_a_time() {
        let path = std::env::temp_dir().join(format!("fragmend-claim-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let open = || File::open(&path).unwrap();
        let (first, second) = (open(), open());
        assert!(claim(&first).unwrap() && claim(&first).unwrap(), "one's own does not count");
        assert!(!claim(&second).unwrap());
        // A failed claim leaves no lock.
        assert!(claim(&first).unwrap());
        drop(first);
        assert!(claim(&second).unwrap());
        // The locks of udev and mkfs do not interfere.
        let udev = open();
        rustix::fs::flock(&udev, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(claim(&second).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
