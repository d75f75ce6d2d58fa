//! The identity of a file system, stable across reboots and renumbered devices.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_GETFSUUID` (linux/fs.h, Linux 6.9).
const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;

/// `struct fsuuid2`.
#[repr(C)]
#[derive(Default)]
struct FsUuid {
    len: u8,
    uuid: [u8; 16],
}

/// A file system's identity, as far as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsId {
    /// Its UUID; zero where the kernel does not report it.
    pub uuid: [u8; 16],
    /// `f_fsid` of statfs(2): derived from the UUID on ext4 and Btrfs, from the device number on XFS.
    pub fsid: u64,
}

impl FsId {
    /// The identity of the file system of `file`.
    ///
    /// # Errors
    /// Those of `fstatfs(2)`.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let fd = file.as_fd().as_raw_fd();
        let mut uuid = FsUuid::default();
        // SAFETY: the ioctl writes one `struct fsuuid2`, 17 bytes, which this is.
        let rc = unsafe { libc::ioctl(fd, FS_IOC_GETFSUUID, &raw mut uuid) };
        let known = rc == 0 && usize::from(uuid.len) == uuid.uuid.len();
        // SAFETY: all-zero is a valid `struct statfs`.
        let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: fstatfs writes one `struct statfs` to the live pointer.
        if unsafe { libc::fstatfs(fd, &raw mut stat) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fsid_t` is two ints, whose fields are private in libc.
        let fsid: u64 = unsafe { std::mem::transmute(stat.f_fsid) };
        Ok(Self { uuid: if known { uuid.uuid } else { [0; 16] }, fsid })
    }

    /// As text, for file names.
    pub fn name(&self) -> String {
        if self.uuid == [0; 16] {
            return format!("{:016x}", self.fsid);
        }
        self.uuid.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Whether both identify the same file system; `None` where the kernel does not report enough to be sure.
    pub fn is(&self, other: &Self) -> Option<bool> {
        let known = |id: &Self| id.uuid != [0; 16];
        match (known(self), known(other)) {
            (true, true) => Some(self.uuid == other.uuid),
            _ if self.fsid == other.fsid && self.fsid != 0 => Some(true),
            _ => None,
        }
    }
}
