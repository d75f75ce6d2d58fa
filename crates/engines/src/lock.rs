//! One process at a time that moves data on a file system: two would undo each other's choices and move the
//! same data twice.
//!
//! The lock is a file in a directory of root's own, by the file system's number: a lock on anything that others
//! can open (the root of the file system, which any user with read access may lock) would let any of them keep
//! root from moving data for as long as they like. It ends with the process. `/run` may be another one in
//! another mount namespace, so root claims the block device's node besides, which most of them share
//! (`fragmend_sys::claim`); where it cannot be claimed the lock in `/run` must do. A user other than root moves
//! only files of their own, and has no such directory: there the root of the file system is locked, as far as
//! others permit that.

use fragmend_sys::block::BlockDevice;
use fragmend_sys::claim::{self, Claim};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Where root's locks are.
const DIRECTORY: &str = "/run/fragmend";

/// How often a device is claimed that another process has claimed: for half a second.
const CLAIMS: u32 = 10;

/// A lock, held until it is dropped.
#[derive(Debug, Default)]
pub struct Lock {
    _file: Option<File>,
    _claim: Option<Claim>,
}

/// Why there is no lock.
#[derive(Debug)]
pub enum Unlocked {
    /// Another process has it.
    AtWork,
    /// It cannot be taken, with the reason; nothing may be moved then.
    Impossible(io::Error),
}

/// Locks the file system of the directory `root`, which is at `path`. `number` is the file system's own device
/// number, where subvolumes have others; those in `ours` this process has locked already.
///
/// # Errors
/// [`Unlocked`].
pub fn take(
    root: BorrowedFd<'_>,
    path: &Path,
    number: u64,
    ours: &mut HashSet<u64>,
) -> Result<Lock, Unlocked> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Opened once more: a lock belongs to one open file description.
    let Ok(root) = rustix::fs::openat(root, ".", flags, Mode::empty()).map(File::from) else {
        return Ok(Lock::default());
    };
    if rustix::process::geteuid().is_root() {
        if !ours.insert(number) {
            return Ok(Lock::default());
        }
        let claim = claimed(path, number)?;
        match by_number(Path::new(DIRECTORY), number) {
            Ok(file) => {
                return held(&file).map(|()| Lock { _file: Some(file), _claim: claim });
            }
            // No /run, or one that nothing can be written to: no other user can cause that, and no other
            // process of root can have a lock there.
            Err(e)
                if [io::ErrorKind::NotFound, io::ErrorKind::ReadOnlyFilesystem]
                    .contains(&e.kind()) => {}
            Err(e) => return Err(Unlocked::Impossible(e)),
        }
        return on_root(root, claim);
    }
    on_root(root, None)
}

/// The lock on the root of the file system.
fn on_root(root: File, claim: Option<Claim>) -> Result<Lock, Unlocked> {
    match held(&root) {
        Ok(()) => Ok(Lock { _file: Some(root), _claim: claim }),
        Err(Unlocked::AtWork) => Err(Unlocked::AtWork),
        // A file system without locks is no reason not to mend it.
        Err(Unlocked::Impossible(_)) => Ok(Lock { _file: None, _claim: claim }),
    }
}

/// Claims the device of the file system at `path`, as far as it has a node that is root's.
fn claimed(path: &Path, number: u64) -> Result<Option<Claim>, Unlocked> {
    let Ok(device) = BlockDevice::under(path, number) else { return Ok(None) };
    // Two processes that begin at once both give way, and not for the same time.
    let wait = Duration::from_millis(30 + u64::from(std::process::id() % 50));
    for tries in 0..CLAIMS {
        match claim::take(&device) {
            Ok(Some(claim)) => return Ok(Some(claim)),
            Ok(None) if tries + 1 == CLAIMS => break,
            Ok(None) => std::thread::sleep(wait),
            // No such node, or one that others may open: best effort.
            Err(_) => return Ok(None),
        }
    }
    Err(Unlocked::AtWork)
}

fn held(file: impl AsFd) -> Result<(), Unlocked> {
    // The lock of a process that has just ended may be held for a moment by a child that it started.
    let mut tries = 0..10;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if tries.next().is_none() => return Err(Unlocked::AtWork),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(20)),
            Err(e) => return Err(Unlocked::Impossible(e.into())),
        }
    }
}

/// The file to lock for a device, in a directory that only this user may enter.
fn by_number(directory: &Path, device: u64) -> io::Result<File> {
    let directory = private(directory)?;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let flags = OFlags::RDWR
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let name = format!("{major}:{minor}.lock");
    let file = rustix::fs::openat(&directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

/// Opens `path`, and makes it if it is missing: a directory, not a link to one, this user's and closed to
/// others.
fn private(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags | OFlags::RDONLY, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || !ours {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not root's directory"));
    }
    if stat.st_mode & 0o077 != 0 {
        rustix::fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_second_of_two_is_told_so_and_devices_do_not_matter_to_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("locks");
        let first = by_number(&place, 7).unwrap();
        held(&first).unwrap();
        let second = by_number(&place, 7).unwrap();
        assert!(matches!(held(&second), Err(Unlocked::AtWork)));
        held(by_number(&place, 8).unwrap()).unwrap();
        drop(first);
        held(&second).unwrap();
    }

    #[test]
    fn the_directory_is_ours_alone_and_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (place, link) = (dir.path().join("open"), dir.path().join("link"));
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
        by_number(&place, 7).unwrap();
        assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        symlink(&place, &link).unwrap();
        assert!(by_number(&link, 7).is_err());
        // Nor is a link in it followed.
        let victim = dir.path().join("victim");
        symlink(&victim, place.join("0:9.lock")).unwrap();
        assert!(by_number(&place, 9).is_err());
        assert!(!victim.exists());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&place, Some(4711), None).unwrap();
            let error = by_number(&place, 7).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
