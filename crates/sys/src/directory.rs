//! Opens a directory for output, and resolves a path, without following other users' symbolic links.
//!
//! Any user can plant a link in `/tmp` that leads anywhere: a link in the path is followed only if it belongs
//! to root or to the caller. (The kernel's `fs.protected_symlinks` is optional, and applies to sticky
//! directories only.) Each component is opened in the one before it, so that the directory that was checked
//! is the one that is used.

use crate::held;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// Opens a directory (`O_PATH`).
///
/// # Errors
/// `PermissionDenied` for another user's link in the path, with the reason as text; else those of `open(2)`.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let why = "is a symbolic link of another user's";
    let refused = |_: &Stat, link: &Stat| (!is_trusted(link)).then_some(why);
    Ok(walk(path, Last::Directory, &refused)?.0)
}

/// The path without links of the directory or file that `path` leads to.
///
/// Unlike [`open`], this is for a path that is used again and again, so that a link is followed only where no other user can replace
/// it either.
///
/// # Errors
/// `PermissionDenied` for a link that is another user's, or is in a directory in which another user can rename it, with the
/// reason as text; else those of `open(2)`.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let why = "is a symbolic link that another user may change; name what it leads to";
    let refused = |directory: &Stat, link: &Stat| {
        (!is_trusted(link) || !held::holds_what_is_ours(directory)).then_some(why)
    };
    Ok(walk(&std::path::absolute(path)?, Last::Any, &refused)?.1)
}

/// Whether it is root's or this user's.
fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || held::is_ours(stat)
}

/// What the last component of a path may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Directory,
    Any,
}

/// Opens each component of a path in the one before it, and returns the last one, with its path without links. `refused` is
/// asked, with what is known of the directory and of the link, why a link is not followed.
fn walk(
    path: &Path,
    last: Last,
    refused: &dyn Fn(&Stat, &Stat) -> Option<&'static str>,
) -> io::Result<(OwnedFd, PathBuf)> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // An absolute path works also where the working directory may not be searched.
    let start = if path.is_absolute() { "/" } else { "." };
    let mut at = rustix::fs::open(start, directory, Mode::empty())?;
    let mut real = PathBuf::new();
    let mut rest: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let next = match rustix::fs::openat(&at, &name, directory, Mode::empty()) {
            Ok(next) => next,
            Err(e @ (Errno::NOTDIR | Errno::LOOP)) => {
                let any = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let found = rustix::fs::openat(&at, &name, any, Mode::empty())?;
                let stat = rustix::fs::fstat(&found)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(e.into());
                    }
                    if let Some(why) = refused(&rustix::fs::fstat(&at)?, &stat) {
                        let why = format!("{name:?} {why}");
                        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                    }
                    let to = rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes();
                    let to = OsString::from_vec(to);
                    parts(Path::new(&to)).rev().for_each(|part| rest.push_front(part));
                    continue;
                }
                if last == Last::Directory || !rest.is_empty() {
                    return Err(e.into());
                }
                found
            }
            Err(e) => return Err(e.into()),
        };
        at = next;
        if name == ".." {
            real.pop();
        } else {
            real.push(name);
        }
    }
    Ok((at, real))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_path_is_resolved_as_far_as_no_other_user_can_change_its_links() {
        let top = std::env::temp_dir().join(format!("fragmend-resolve-{}", std::process::id()));
        let (data, links) = (top.join("data"), top.join("links"));
        fs::create_dir_all(&data).unwrap();
        fs::create_dir(&links).unwrap();
        fs::write(data.join("file"), "").unwrap();
        symlink("../data/./file", links.join("file")).unwrap();
        symlink(&links, top.join("to-links")).unwrap();
        symlink("round", links.join("round")).unwrap();
        let to_file = top.join("to-links/../links/file");
        let mut answers = Vec::new();
        for mode in [0o755, 0o777, 0o775, 0o1777] {
            fs::set_permissions(&links, Permissions::from_mode(mode)).unwrap();
            answers.push(resolve(&to_file).map_err(|e| (e.kind(), e.to_string())));
        }
        let others = [links.join("round"), data.join("file/x"), data.join("gone")]
            .map(|path| resolve(&path).is_err());
        let (file, real) =
            (data.join("file").canonicalize().unwrap(), resolve(&top.join("to-links/..")).unwrap());
        assert_eq!(real, top.canonicalize().unwrap());
        let directory = open(&data.join("file")).unwrap_err();
        fs::remove_dir_all(&top).unwrap();
        let why = "\"file\" is a symbolic link that another user may change; name what it leads to";
        let refused = || Err((io::ErrorKind::PermissionDenied, why.to_owned()));
        assert_eq!(answers, [Ok(file.clone()), refused(), refused(), Ok(file)]);
        assert_eq!(others, [true; 3]);
        assert_eq!(directory.kind(), io::ErrorKind::NotADirectory);
    }
}
