//! A file that was seen before, opened again. [`Root::find`](crate::root::Root::find) finds what has its
//! device and inode number now; whether that is still the same file depends on its generation, which can be
//! read only from an open file.

use crate::inode;
use rustix::fs::{FileType, Stat};
use std::io;
use std::os::fd::OwnedFd;

/// Why a file was not opened. `E` is the error of opening it.
#[derive(Debug)]
pub enum Lost<E> {
    /// Not a regular file: the inode number was reused.
    NotRegular,
    /// Another regular file: the inode number was reused.
    Reused,
    /// Its type or its generation cannot be read.
    Unread(io::Error),
    /// It cannot be opened, or not now.
    Closed(E),
}

/// Opens what `named` (`O_PATH`) names with `open`, and returns it with its `stat` if it is a regular file of
/// this generation. `open` gets the `stat` too, and is called for regular files only: opening a device can
/// have any effect.
///
/// # Errors
/// [`Lost`].
pub fn open<E>(
    named: &OwnedFd,
    generation: u32,
    open: impl FnOnce(&OwnedFd, &Stat) -> Result<OwnedFd, E>,
) -> Result<(OwnedFd, Stat), Lost<E>> {
    let stat = rustix::fs::fstat(named).map_err(|e| Lost::Unread(e.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Lost::NotRegular);
    }
    let opened = open(named, &stat).map_err(Lost::Closed)?;
    match inode::generation_or_zero(&opened) {
        Ok(found) if found == generation => Ok((opened, stat)),
        Ok(_) => Err(Lost::Reused),
        Err(e) => Err(Lost::Unread(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle;
    use rustix::fs::{Mode, OFlags};
    use std::path::Path;

    fn named(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn reader(named: &OwnedFd, _: &Stat) -> io::Result<OwnedFd> {
        handle::reopen(named, OFlags::RDONLY)
    }

    #[test]
    fn only_the_same_regular_file_is_opened() {
        let this = std::env::current_exe().unwrap();
        let generation = inode::generation_or_zero(std::fs::File::open(&this).unwrap()).unwrap();
        let found = named(&this);
        let (opened, stat) = open(&found, generation, reader).unwrap();
        assert_eq!(rustix::fs::fstat(&opened).unwrap().st_ino, stat.st_ino);
        let another = open(&found, generation ^ 1, reader);
        assert!(matches!(another, Err(Lost::Reused)), "{another:?}");
        let closed = open(&found, generation, |_, _| Err("closed"));
        assert!(matches!(closed, Err(Lost::Closed("closed"))), "{closed:?}");
        // Opening this device would not block, but it is not attempted.
        let device = open(&named(Path::new("/dev/null")), 0, |_, _| -> io::Result<OwnedFd> {
            panic!("opened")
        });
        assert!(matches!(device, Err(Lost::NotRegular)), "{device:?}");
    }

    #[test]
    fn where_there_are_no_generations_it_is_zero() {
        assert_eq!(
            inode::generation_or_zero(std::fs::File::open("/proc/version").unwrap()).unwrap(),
            0
        );
    }
}
