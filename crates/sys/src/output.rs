//! Output files: under its name a file is complete, or absent.
//!
//! The directory is opened once, and everything happens in it: the bytes are written to a file without a name
//! (`O_TMPFILE`), or, where the file system supports none, to one with a new random name
//! (`O_EXCL | O_NOFOLLOW`). Once it is durable, it replaces the target by `rename(2)`, which follows no link;
//! in the path of the directory, other users' links are not followed ([`directory`]). So whatever another
//! user with access to the directory plants at either name is replaced or causes an error, and is never
//! written through.
//!
//! An existing target must be a regular file: a link, a pipe, a device or a directory is refused. `-` and
//! `/dev/stdout` mean the standard output, to which the bytes are written directly.

use crate::{directory, kind, mounts};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// The users that may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Its owner alone (mode 0600), whatever the mode of the file that it replaces: for output that
    /// names other users' files and processes.
    Owner,
    /// Those that the umask permits, or the mode of the caller's own file that it replaces.
    Anybody,
    /// All users (mode 0644), whatever the umask and the mode of the file that it replaces: for output that another service
    /// reads.
    Everybody,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Output {
    file: File,
    /// `None` for the standard output, and for a file without a name.
    place: Option<Place>,
}

/// Where a file will be.
#[derive(Debug)]
struct Place {
    directory: OwnedFd,
    /// Its last component.
    name: OsString,
    /// Its temporary name, if it has one.
    temporary: Option<OsString>,
    /// The mode that it gets before it has its name, if it is not that of its creation.
    mode: Option<Mode>,
}

/// Whether `target` stands for the standard output.
pub fn is_stdout(target: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]
        .iter()
        .any(|name| target == Path::new(name))
}

/// Whether there is a regular file at `target` that [`Output`] would replace.
///
/// # Errors
/// As [`Output::create`] for what it refuses.
pub fn replaces(target: &Path) -> io::Result<bool> {
    if is_stdout(target) {
        return Ok(false);
    }
    match rustix::fs::lstat(target) {
        Ok(there) => replaceable(&there).map(|()| true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Checks that a directory is on a file system that is mounted for writing, here at least.
///
/// # Errors
/// `EROFS`, or another system error.
pub fn is_mounted_writable(directory: &Path) -> io::Result<()> {
    mounts::is_for_writing(&rustix::fs::statvfs(directory)?)
}

/// Whether two outputs would be one file: one name in one directory, whatever the spelling of its path.
///
/// # Errors
/// A directory that does not exist, or that [`Output::create`] refuses.
pub fn are_same(a: &Path, b: &Path) -> io::Result<bool> {
    if is_stdout(a) || is_stdout(b) {
        return Ok(is_stdout(a) && is_stdout(b));
    }
    if a.file_name() != b.file_name() {
        return Ok(false);
    }
    let identity = |path| -> io::Result<_> {
        let stat = rustix::fs::fstat(directory::open(parent_of(path))?)?;
        Ok((stat.st_dev, stat.st_ino))
    };
    Ok(identity(a)? == identity(b)?)
}

impl Output {
    /// Begins a file that is to be named `target`. Whatever has that name keeps it until [`Output::commit`].
    ///
    /// # Errors
    /// `InvalidInput` when `target` is a link, a pipe, a device or a directory, with the reason as
    /// text; else those of `open(2)`.
    pub fn create(target: &Path, audience: Audience) -> io::Result<Self> {
        if is_stdout(target) {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self { file, place: None });
        }
        let Some(name) = target.file_name() else {
            return Err(refused("it is a directory, not a file"));
        };
        let directory = directory_of(target)?;
        let replaced = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => {
                replaceable(&there)?;
                Some(there)
            }
            Err(Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        let (created, mode) = match audience {
            Audience::Owner => (0o600, None),
            // The mode of another user's file is not kept.
            Audience::Anybody => {
                let ours = replaced.filter(|f| f.st_uid == rustix::process::geteuid().as_raw());
                (0o666, ours.map(|file| file.st_mode & 0o666))
            }
            Audience::Everybody => (0o644, Some(0o644)),
        };
        let (created, mode) = (Mode::from_raw_mode(created), mode.map(Mode::from_raw_mode));
        let (file, temporary) = temporary(&directory, created)?;
        let place = Place { directory, name: name.to_owned(), temporary, mode };
        Ok(Self { file, place: Some(place) })
    }

    /// Writes to a file that is already open, and does not name it: [`Output::commit`] does nothing.
    pub fn unnamed(file: File) -> Self {
        Self { file, place: None }
    }

    /// The file itself, for callers that write at offsets or keep a descriptor of their own.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file durable and renames it to its target. Returns its size in bytes; 0 for the standard
    /// output and for a file without a name.
    ///
    /// # Errors
    /// Those of `fsync(2)` and `rename(2)`, with the target unchanged; or, after the rename, that the
    /// directory cannot be synced, or that another file has the name.
    pub fn commit(mut self) -> io::Result<u64> {
        let Some(place) = &mut self.place else { return Ok(0) };
        if let Some(mode) = place.mode {
            rustix::fs::fchmod(&self.file, mode)?;
        }
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        let temporary = match &place.temporary {
            Some(name) => name,
            None => {
                let name = link_somewhere(&self.file, &place.directory)?;
                place.temporary.insert(name)
            }
        };
        rustix::fs::renameat(&place.directory, temporary, &place.directory, &place.name)?;
        place.temporary = None;
        // A directory that may be written but not read cannot be synced: the name becomes durable later.
        match rustix::fs::fsync(&place.directory) {
            Ok(()) | Err(Errno::BADF | Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
        // In another user's directory the file may have been replaced meanwhile.
        let (here, there) = (
            rustix::fs::fstat(&self.file)?,
            rustix::fs::statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW)?,
        );
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
            return Err(io::Error::other("another file was put in its place"));
        }
        Ok(bytes)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(Place { directory, temporary: Some(name), .. }) = &self.place {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}

/// Writes `bytes` to `target`, all or nothing.
///
/// # Errors
/// As [`Output::create`] and [`Output::commit`].
pub fn write(target: &Path, audience: Audience, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::create(target, audience)?;
    output.write_all(bytes)?;
    output.commit().map(drop)
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

/// Whether the file at a target may be replaced: only a regular file may.
fn replaceable(there: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => {
            Err(refused("it is a symbolic link; give the name of the file itself"))
        }
        other => Err(refused(format!("it is {}, not a file", kind::name(other)))),
    }
}

/// The directory of `target`.
fn directory_of(target: &Path) -> io::Result<OwnedFd> {
    directory::readable(directory::open(parent_of(target))?)
}

fn parent_of(target: &Path) -> &Path {
    match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// Creates a file in `directory`, without a name if possible; returns it and its name.
fn temporary(directory: &OwnedFd, mode: Mode) -> io::Result<(File, Option<OsString>)> {
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, ".", unnamed, mode) {
        Ok(fd) => return Ok((fd.into(), None)),
        // Not every file system supports unnamed files, and a kernel that does not know the flag opens a
        // directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    named(directory, mode).map(|(file, name)| (file, Some(name)))
}

/// Creates a file with a random name.
fn named(directory: &OwnedFd, mode: Mode) -> io::Result<(File, OsString)> {
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let (fd, name) = under_a_new_name(|name| rustix::fs::openat(directory, name, new, mode))?;
    Ok((fd.into(), name))
}

/// Links an unnamed file under a random name.
fn link_somewhere(file: &File, directory: &OwnedFd) -> io::Result<OsString> {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |name: &OsStr| {
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, &itself, directory, name, follow)
    };
    under_a_new_name(link).map(|((), name)| name)
}

/// Tries random names until one is free.
fn under_a_new_name<T>(
    make: impl Fn(&OsStr) -> rustix::io::Result<T>,
) -> io::Result<(T, OsString)> {
    loop {
        let name = OsString::from(format!(".fragmend-{:016x}.tmp", random()?));
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, name)),
        }
    }
}

fn random() -> io::Result<u64> {
    let mut value = 0u64;
    // SAFETY: the kernel writes at most the eight bytes of a live u64.
    let got = unsafe { libc::getrandom((&raw mut value).cast(), size_of::<u64>(), 0) };
    if got == size_of::<u64>() as isize { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
