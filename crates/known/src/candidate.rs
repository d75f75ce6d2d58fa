//! The file that is looked at: its name, its first bytes, and what else of it is asked for.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// A regular file.
pub struct Candidate<'a> {
    file: &'a File,
    /// Where it was opened.
    pub path: &'a Path,
    /// Its first bytes, at most 4 KiB.
    pub head: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that are allocated to it.
    pub allocated: u64,
}

impl<'a> Candidate<'a> {
    const HEAD: u64 = 4096;

    /// Reads the first bytes of a file that was opened at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(file: &'a File, path: &'a Path) -> io::Result<Self> {
        let about = file.metadata()?;
        let (size, allocated) = (about.len(), about.blocks().saturating_mul(512));
        let mut head = vec![0; size.min(Self::HEAD) as usize];
        let mut filled = 0;
        // It may have become shorter.
        while filled < head.len() {
            match file.read_at(&mut head[filled..], filled as u64)? {
                0 => break,
                many => filled += many,
            }
        }
        head.truncate(filled);
        Ok(Self { file, path, head, size, allocated })
    }

    /// The bytes from `at` on that fill `buffer`; false where it has not as many.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> bool {
        self.file.read_exact_at(buffer, at).is_ok()
    }

    /// An extended attribute of at most 4 KiB, if it is text.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let mut value = [0; 4096];
        let length = rustix::fs::fgetxattr(self.file, name, &mut value).ok()?;
        Some(std::str::from_utf8(value.get(..length)?).ok()?.to_owned())
    }

    /// The name of the file, or of the directory that is so many levels above it.
    pub fn name(&self, above: usize) -> Option<&OsStr> {
        self.path.ancestors().nth(above)?.file_name()
    }
}

/// Reads a whole regular file of at most `most` bytes; no component of its path may be a link.
pub(crate) fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata().ok().map(|about| about.len()).filter(|length| *length <= most)?;
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens a regular file; no component of its path may be a link.
pub(crate) fn open(path: &Path) -> Option<File> {
    // A name may have become a pipe, or be leased: neither is waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |flags| rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), how);
    // Only the owner, or root, may leave the time of access as it is.
    let file = open(flags | OFlags::NOATIME).or_else(|_| open(flags)).ok()?;
    Some(File::from(file)).filter(|file| file.metadata().is_ok_and(|about| about.is_file()))
}
