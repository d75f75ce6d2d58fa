//! A file that is used by all methods at once: through the page cache, past it, and mapped.

use super::LARGEST;
use super::operation::Kind;
use crate::replay::Aligned;
use fragmend_sys::{cache, clone, mapping::Mapping};
use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// An open file of the exerciser.
pub struct Opened {
    pub file: File,
    direct: File,
    mapping: Mapping,
    buffer: Aligned,
}

impl Opened {
    /// Opens a file, and creates it if it does not exist.
    pub fn new(path: &Path) -> io::Result<Self> {
        let mut how = File::options();
        how.create(true).truncate(false).read(true).write(true);
        let file = how.open(path)?;
        let direct = how.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?;
        // The mapping extends beyond the file's end, where it is not accessed.
        let mapping = Mapping::new(&file, LARGEST as usize)?;
        Ok(Self { file, direct, mapping, buffer: Aligned::new(LARGEST as usize) })
    }

    /// Writes by the method of `kind`.
    pub fn write(&mut self, kind: Kind, at: u64, bytes: &[u8]) -> io::Result<()> {
        match kind {
            Kind::WriteDirect => {
                let buffer = &mut self.buffer.bytes()[..bytes.len()];
                buffer.copy_from_slice(bytes);
                self.direct.write_all_at(buffer, at)
            }
            Kind::Store => {
                self.mapping.write(at as usize, bytes);
                Ok(())
            }
            _ => self.file.write_all_at(bytes, at),
        }
    }

    /// Reads by the method of `kind`; fewer bytes than requested where the file ends.
    pub fn read(&mut self, kind: Kind, at: u64, len: u64) -> io::Result<&[u8]> {
        let buffer = &mut self.buffer.bytes()[..len as usize];
        let file = match kind {
            Kind::Load => {
                self.mapping.read(at as usize, buffer);
                return Ok(buffer);
            }
            Kind::ReadDirect => &self.direct,
            _ => &self.file,
        };
        let mut done = 0;
        while done < buffer.len() {
            let n = file.read_at(&mut buffer[done..], at + done as u64)?;
            done += n;
            // Past the cache a file may end inside a block, where no further read may begin.
            if n == 0 || kind == Kind::ReadDirect && !n.is_multiple_of(512) {
                break;
            }
        }
        Ok(&buffer[..done])
    }

    /// `fallocate` in the mode that `kind` stands for.
    pub fn allocate(&self, kind: Kind, at: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, mode(kind), at, len)?)
    }

    /// Syncs by the method of `kind`.
    pub fn sync(&self, kind: Kind) -> io::Result<()> {
        match kind {
            Kind::SyncData => self.file.sync_data(),
            Kind::SyncMapping => self.mapping.sync(),
            _ => self.file.sync_all(),
        }
    }

    /// Writes back dirty pages, and drops the cached pages of the first `size` bytes.
    pub fn forget(&self, size: u64) -> io::Result<()> {
        self.file.sync_all()?;
        cache::drop_clean(&self.file, 0..size)
    }

    /// Copies or clones a range to another file.
    pub fn copy(&self, kind: Kind, at: u64, len: u64, other: &Self, to: u64) -> io::Result<()> {
        if kind == Kind::Clone {
            return clone::clone_range(&self.file, at, &other.file, to, len);
        }
        let (mut from, mut into, mut left) = (at, to, len as usize);
        while left > 0 {
            let n =
                copy_file_range(&self.file, Some(&mut from), &other.file, Some(&mut into), left)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= n;
        }
        Ok(())
    }
}

fn mode(kind: Kind) -> FallocateFlags {
    match kind {
        Kind::AllocateKeepSize => FallocateFlags::KEEP_SIZE,
        Kind::Zero => FallocateFlags::ZERO_RANGE,
        Kind::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        Kind::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Kind::Collapse => FallocateFlags::COLLAPSE_RANGE,
        Kind::Insert => FallocateFlags::INSERT_RANGE,
        _ => FallocateFlags::empty(),
    }
}

/// Tries which kinds of operations the file system at `dir` supports; returns them with their
/// weights. The files used for that are removed.
pub fn kinds_at(dir: &Path, block: u64) -> io::Result<Vec<(Kind, u64)>> {
    use rustix::io::Errno;
    let paths = ["a", "b"].map(|name| dir.join(format!("tried-{name}")));
    let tried = || -> io::Result<Vec<(Kind, u64)>> {
        let (a, b) = (Opened::new(&paths[0])?, Opened::new(&paths[1])?);
        a.file.write_all_at(&vec![1; 16 * block as usize], 0)?;
        let mut there = Vec::new();
        for (kind, weight) in Kind::ALL {
            let done = match kind {
                Kind::Clone => a.copy(kind, 0, block, &b, 0),
                _ if mode(kind).is_empty() => Ok(()),
                _ => a.allocate(kind, block, block),
            };
            let lacks = |e: &io::Error| {
                let code = e.raw_os_error().map(Errno::from_raw_os_error);
                matches!(code, Some(Errno::OPNOTSUPP | Errno::NOTTY))
            };
            match done {
                Ok(()) => there.push((kind, weight)),
                Err(e) if lacks(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(there)
    };
    let there = tried();
    paths.iter().try_for_each(std::fs::remove_file)?;
    there
}
