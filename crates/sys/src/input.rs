//! Input files: checked to be regular before they are opened.
//!
//! A path is first opened with `O_PATH`, which never blocks and starts no device; if it leads to a regular
//! file, the same inode is then opened, whatever the path leads to by then. Opening a pipe would wait for its
//! writer, opening a device can have any effect, and opening a leased file waits for up to 45 seconds (the
//! default `lease-break-time`): with `O_NONBLOCK`, `open(2)` returns an error instead.

use crate::{handle, kind};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file for reading; symbolic links are followed.
///
/// # Errors
/// `InvalidInput` for anything but a regular file, with the reason as text; `ResourceBusy` for one under a
/// write lease; else those of `open(2)`.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

/// The same, to be read past the page cache (`O_DIRECT`).
///
/// # Errors
/// As [`open`]; `InvalidInput` on a file system that has no direct I/O.
pub fn open_direct(path: &Path) -> io::Result<File> {
    // The time of access stays as it is, unless the file is another user's.
    match open_with(path, OFlags::DIRECT | OFlags::NOATIME) {
        Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            open_with(path, OFlags::DIRECT)
        }
        opened => opened,
    }
}

fn open_with(path: &Path, more: OFlags) -> io::Result<File> {
    let named = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let what = FileType::from_raw_mode(rustix::fs::fstat(&named)?.st_mode);
    if what != FileType::RegularFile {
        let why = format!("it is {}, not a regular file", kind::name(what));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    match handle::reopen(named, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | more) {
        Err(e) if e.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
            let why = "another program holds a lease on it; try again when it is free";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
        opened => opened.map(File::from),
    }
}

/// Reads a whole file of at most `most` bytes as text.
///
/// # Errors
/// As [`open`]; `FileTooLarge` when it is longer, `InvalidData` when it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let why = format!("it is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        for (path, what) in [("/dev/null", "a device"), ("/", "a directory")] {
            let error = open(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(what), "{path}: {error}");
        }
        assert!(open(Path::new("/proc/version")).is_ok());
        assert_eq!(open(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let error = read_text(Path::new("/proc/version"), 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(read_text(Path::new("/proc/version"), 1 << 20).is_ok());
    }
}
