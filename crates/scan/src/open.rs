//! Opens the files of a [`Tree`] relative to their directories, some of which stay open: files come in inode
//! order, so neighbours mostly share a directory, and no path is ever too long.
//!
//! A directory is opened from the nearest open one above it, and on the way down every [`STRIDE`]th directory
//! stays open too: so each directory of a chain, however deep, costs at most that many opens, and never the
//! whole way from the top. The number of open descriptors is limited for all workers together.

use crate::Tree;
use crate::tree::{Entry, NONE};
use fragmend_sys::root;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

/// How many directories apart those are that stay open on a long way down.
const STRIDE: usize = 64;
/// The most descriptors that all workers together keep open.
const KEPT_BY_ALL: usize = 384;

/// Opens files for one worker.
pub struct Opener {
    /// Open directories, each with the time of its last use.
    dirs: HashMap<u32, (u64, OwnedFd)>,
    now: u64,
    most: usize,
}

impl Default for Opener {
    fn default() -> Self {
        let most = (KEPT_BY_ALL / rayon::current_num_threads().max(1)).clamp(4, 96);
        Self { dirs: HashMap::new(), now: 0, most }
    }
}

/// The way to a directory: the open directory where it begins, and the names below it. `from` is [`NONE`] if it
/// begins at a given path.
pub(crate) struct Way {
    from: u32,
    down: Vec<(u32, CString)>,
}

impl Opener {
    /// Opens a file for reading, if it is still a regular file. Returns its `stat` too.
    ///
    /// # Errors
    /// Those of `open(2)`: `NOENT` for anything but a regular file, `AGAIN` for one under a write lease.
    pub fn open(&mut self, tree: &Tree, entry: &Entry) -> io::Result<(OwnedFd, rustix::fs::Stat)> {
        let dir = self.dir(self.way(tree, entry.dir))?;
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
    pub(crate) fn is_on_mount_of(&self, file: &OwnedFd, dir: u32) -> bool {
        let dir = self.dirs.get(&dir).map(|(_, fd)| fd);
        match (root::mount_id(file), dir.and_then(root::mount_id)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }

    /// The way to a directory from the nearest open one above it, or from the given path.
    pub(crate) fn way(&self, tree: &Tree, dir: u32) -> Way {
        let (mut from, mut down) = (dir, Vec::new());
        while from != NONE && !self.dirs.contains_key(&from) {
            let d = &tree.dirs[from as usize];
            down.push((from, tree.name(d.name).to_owned()));
            from = d.parent;
        }
        Way { from, down }
    }

    /// Follows a way, and returns the directory at its end (`O_PATH`).
    pub(crate) fn dir(&mut self, mut way: Way) -> io::Result<&OwnedFd> {
        self.now += 1;
        let mut at = way.from;
        let mut steps = 0;
        let mut fd: Option<OwnedFd> = None;
        while let Some((dir, name)) = way.down.pop() {
            let next = match (&fd, self.dirs.get_mut(&at)) {
                (Some(fd), _) => open_below(fd, &name)?,
                (None, Some((used, from))) => {
                    *used = self.now;
                    open_below(from, &name)?
                }
                (None, None) => open_given(&name)?,
            };
            at = dir;
            steps += 1;
            if steps % STRIDE == 0 || way.down.is_empty() {
                self.keep(at, next);
                fd = None;
            } else {
                fd = Some(next);
            }
        }
        let (used, fd) = self.dirs.get_mut(&at).ok_or(Errno::NOENT)?;
        *used = self.now;
        Ok(fd)
    }

    /// Keeps a directory open, in place of the least recently used one.
    fn keep(&mut self, dir: u32, fd: OwnedFd) {
        if self.dirs.len() >= self.most {
            let oldest = self.dirs.iter().min_by_key(|(_, (used, _))| *used).map(|(dir, _)| *dir);
            oldest.map(|dir| self.dirs.remove(&dir));
        }
        self.dirs.insert(dir, (self.now, fd));
    }
}

const NAMES: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory by a given path.
fn open_given(path: &CString) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { c"." } else { path };
    Ok(rustix::fs::openat(rustix::fs::CWD, path, NAMES, Mode::empty())?)
}

fn open_below(dir: &OwnedFd, name: &CString) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, NAMES | OFlags::NOFOLLOW, Mode::empty())?)
}
