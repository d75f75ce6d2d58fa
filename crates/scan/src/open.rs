//! Opens the files of a [`Tree`] relative to their directories, a few of which stay open: files
//! come in inode order, so neighbours mostly share a directory, and no path is ever too long.

use crate::Tree;
use crate::tree::Entry;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

const KEPT: usize = 8;

/// One per worker.
#[derive(Default)]
pub(crate) struct Opener {
    dirs: Vec<(u32, OwnedFd)>,
    oldest: usize,
}

impl Opener {
    /// Opens a file for reading, if it is still a regular file. Gives its `stat` too.
    pub fn open(&mut self, tree: &Tree, entry: &Entry) -> io::Result<(OwnedFd, rustix::fs::Stat)> {
        let dir = self.dir(tree, entry.dir)?;
        // NONBLOCK: the name may have become a pipe since it was seen.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, tree.name(entry.name), flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NOENT.into());
        }
        Ok((file, stat))
    }

    /// Whether a file that was just opened is on the mount of its directory; also true where the
    /// kernel cannot tell (before 5.8).
    pub fn is_on_mount_of(&self, file: &OwnedFd, dir: u32) -> bool {
        let dir = self.dirs.iter().find(|(d, _)| *d == dir).map(|(_, fd)| fd);
        match (mount_id(file), dir.and_then(mount_id)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }

    fn dir(&mut self, tree: &Tree, dir: u32) -> io::Result<&OwnedFd> {
        if let Some(at) = self.dirs.iter().position(|(d, _)| *d == dir) {
            return Ok(&self.dirs[at].1);
        }
        let fd = open_dir(tree, dir)?;
        let at = if self.dirs.len() < KEPT {
            self.dirs.push((dir, fd));
            self.dirs.len() - 1
        } else {
            let at = self.oldest;
            self.dirs[at] = (dir, fd);
            self.oldest = (at + 1) % KEPT;
            at
        };
        Ok(&self.dirs[at].1)
    }
}

/// Opens a directory component by component from the path that was given.
fn open_dir(tree: &Tree, dir: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let components = tree.components(dir);
    let Some((root, below)) = components.split_first() else {
        return Err(Errno::NOENT.into());
    };
    let root = tree.name(*root);
    let root = if root.is_empty() { c"." } else { root };
    let mut fd = rustix::fs::openat(rustix::fs::CWD, root, flags, Mode::empty())?;
    for name in below {
        fd = rustix::fs::openat(&fd, tree.name(*name), flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(fd)
}

fn mount_id(file: &OwnedFd) -> Option<u64> {
    let wanted = StatxFlags::MNT_ID;
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    (found.stx_mask & wanted.bits() != 0).then_some(found.stx_mnt_id)
}
