//! The mount of a server, made and ended by held descriptors: whoever may rename what is on the way to the directory
//! leads neither elsewhere.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A mount, by the directory that its place is in. That is held, and not the mount, which could not be unmounted then.
#[derive(Debug)]
pub(crate) struct Mounted {
    parent: OwnedFd,
    name: OsString,
}

/// The path of what a descriptor names.
fn path(of: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", of.as_raw_fd()))
}

impl Mounted {
    /// Mounts a FUSE file system on `dir`, a directory of this user and no link; returns it with the connection.
    ///
    /// # Errors
    /// Those of opening `/dev/fuse` and of mounting; `PermissionDenied` for a directory of another user.
    pub fn new(dir: &Path, source: &str) -> io::Result<(Self, OwnedFd)> {
        const NAMES: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
        let above = dir.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
        let name: &OsStr = dir.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = rustix::fs::open(above, NAMES, Mode::empty())?;
        let place = rustix::fs::openat(&parent, name, NAMES | OFlags::NOFOLLOW, Mode::empty())?;
        let found = rustix::fs::fstat(&place)?;
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if found.st_uid != user.as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let how = OFlags::RDWR | OFlags::CLOEXEC;
        let connection = rustix::fs::open("/dev/fuse", how, Mode::empty())?;
        let options = format!(
            "fd={},rootmode={:o},user_id={},group_id={}",
            connection.as_raw_fd(),
            found.st_mode,
            user.as_raw(),
            group.as_raw()
        );
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let options = CString::new(options)?;
        mount(source, path(place.as_fd()), "fuse", flags, options.as_c_str())?;
        Ok((Self { parent, name: name.to_owned() }, connection))
    }

    /// Unmounts what is mounted there.
    ///
    /// # Errors
    /// Those of `umount2(2)`: `INVAL` where nothing is mounted any more.
    pub fn unmount(&self, how: UnmountFlags) -> rustix::io::Result<()> {
        unmount(path(self.parent.as_fd()).join(&self.name), how | UnmountFlags::NOFOLLOW)
    }
}
