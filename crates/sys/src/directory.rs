//! Opens a directory for output without following other users' symbolic links.
//!
//! Any user can plant a link in `/tmp` that leads anywhere: a link in the path is followed only if it belongs
//! to root or to the caller. (The kernel's `fs.protected_symlinks` is optional, and applies to sticky
//! directories only.) Each component is opened in the one before it, so that the directory that was checked
//! is the one that is used.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// Opens a directory (`O_PATH`).
///
/// # Errors
/// `PermissionDenied` for another user's link in the path, with the reason as text; else those of `open(2)`.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // An absolute path works also where the working directory may not be searched.
    let start = if path.is_absolute() { "/" } else { "." };
    let mut at = rustix::fs::open(start, directory, Mode::empty())?;
    let mut rest: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        match rustix::fs::openat(&at, &name, directory, Mode::empty()) {
            Ok(next) => at = next,
            Err(e @ (Errno::NOTDIR | Errno::LOOP)) => {
                let link = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let link = rustix::fs::openat(&at, &name, link, Mode::empty())?;
                let found = rustix::fs::fstat(&link)?;
                links += 1;
                if FileType::from_raw_mode(found.st_mode) != FileType::Symlink || links > MOST_LINKS
                {
                    return Err(e.into());
                }
                if ![0, rustix::process::geteuid().as_raw()].contains(&found.st_uid) {
                    let why = format!("{name:?} is a symbolic link of another user's");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                let to = rustix::fs::readlinkat(&link, "", Vec::new())?.into_bytes();
                let to = OsString::from_vec(to);
                parts(Path::new(&to)).rev().for_each(|part| rest.push_front(part));
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(at)
}

/// Reopens a directory from [`open`] for reading, if that is permitted; otherwise returns it unchanged.
///
/// # Errors
/// Those of `open(2)`.
pub fn readable(directory: OwnedFd) -> io::Result<OwnedFd> {
    let read = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(&directory, ".", read, Mode::empty()) {
        Err(Errno::ACCESS) => Ok(directory),
        other => Ok(other?),
    }
}

/// Creates a directory and those above it that are missing, as [`std::fs::create_dir_all`], for its owner
/// alone if `private`, and opens it.
///
/// # Errors
/// As [`open`].
pub fn create(path: &Path, private: bool) -> io::Result<OwnedFd> {
    match open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let Some(name) = path.file_name() else { return open(path) };
    let above = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => create(p, private)?,
        _ => rustix::fs::openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
    };
    let mode = Mode::from_raw_mode(if private { 0o700 } else { 0o777 });
    match rustix::fs::mkdirat(&above, name, mode) {
        Ok(()) | Err(Errno::EXIST) => open(path),
        Err(e) => Err(e.into()),
    }
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter(|c| *c != Component::CurDir).map(|c| c.as_os_str().to_owned())
}
