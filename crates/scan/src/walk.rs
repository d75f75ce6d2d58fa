//! The parallel walk: only directories are opened, files are known by their directory entries.
//!
//! Workers share one stack of directories, deepest first, so that few of them are open at once; where many
//! would be open all the same, those that wait are closed, and opened anew when their turn comes. Each child is
//! opened relative to its parent and never through a symlink: a tree that changes during the walk cannot lead
//! it elsewhere. A directory is read once for each mount, whatever names it has; a rewrite's journal
//! is not (`journal`). Symlinks that are given as paths are followed.

use crate::journal;
use crate::listing::{self, Capacity, Listing};
use crate::open::Opener;
use crate::tree::{self, Dir, Entry, NONE, SkippedEntry};
use crate::{Cause, FileSystem, ScanError, Tree};
use fragmend_layout::SkipReason;
use fragmend_sys::root;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The options of a walk.
#[derive(Clone, Debug, Default)]
pub struct WalkOptions {
    /// Continue into other file systems that are mounted below a given path.
    pub across: bool,
}

/// Walks `paths` (files or directories) and returns every regular file once. `found` is called with each
/// further number of files, from any thread.
///
/// Paths that cannot be scanned at all are in [`Tree::failed`], the others are walked
/// nevertheless; what could not be read below them is in [`Tree::skips`].
///
/// # Errors
/// [`ScanError::TooManyNames`].
pub fn files(
    paths: &[PathBuf],
    options: &WalkOptions,
    found: &(dyn Fn(u64) + Sync),
) -> Result<Tree, ScanError> {
    let mut state = State::default();
    for path in paths {
        if let Err(error) = add_root(&mut state, path) {
            if matches!(error, ScanError::TooManyNames) {
                return Err(error);
            }
            state.tree.failed.push(error);
        }
    }
    found(state.tree.entries.len() as u64);
    let walk =
        Walk { state: Mutex::new(state), changed: Condvar::new(), across: options.across, found };
    // Reading directories waits for the disk more than it computes, so there are more workers than cores.
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 16) * 2;
    std::thread::scope(|s| {
        let worker = || std::thread::Builder::new().spawn_scoped(s, || walk.work()).ok();
        // As many as may be started, or else this thread.
        if (0..workers).map_while(|_| worker()).count() == 0 {
            walk.work();
        }
    });
    let state = walk.state.into_inner().unwrap_or_else(|e| e.into_inner());
    if let Some(error) = state.fatal {
        return Err(error);
    }
    let mut tree = state.tree;
    tree.covered = crate::covered::files_below(paths);
    tree.settle();
    Ok(tree)
}

#[derive(Default)]
struct State {
    tree: Tree,
    stack: Vec<Task>,
    busy: usize,
    /// The directories that were read.
    seen: HashSet<Seen>,
    /// How many names were found, by file system.
    names: Vec<u64>,
    fatal: Option<ScanError>,
}

/// A directory that was read, below one given path: what two of them have in common is found twice.
#[derive(PartialEq, Eq, Hash)]
struct Seen {
    inode: u64,
    /// The number of a directory that was removed is used again.
    generation: u32,
    /// A bind mount is a directory of its own.
    mount: Option<u64>,
    fs: u16,
    top: u32,
}

/// A directory to read: already open if it is a given path, else a name in its parent.
struct Task {
    dir: u32,
    /// `None` where too many are open already.
    parent: Option<Arc<Counted>>,
    name: Option<u32>,
}

/// The most directories, approximately, that stay open while others in them wait for their turn.
const MOST_OPEN: usize = 256;
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// An open directory that is counted in [`OPEN`].
struct Counted(OwnedFd);

impl Counted {
    fn new(fd: OwnedFd) -> Arc<Self> {
        OPEN.fetch_add(1, Relaxed);
        Arc::new(Self(fd))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}

struct Walk<'a> {
    state: Mutex<State>,
    changed: Condvar,
    across: bool,
    found: &'a (dyn Fn(u64) + Sync),
}

/// What was read from one directory and is not in the tree yet.
#[derive(Default)]
struct Read {
    names: Vec<u8>,
    files: Vec<(u64, u32)>,
    dirs: Vec<(u64, u32)>,
    skips: Vec<(u32, Cause)>,
}

/// Adds one given path: a directory to the stack, a file directly to the tree.
fn add_root(state: &mut State, path: &Path) -> Result<(), ScanError> {
    let failed = |source| ScanError::Path { path: path.to_owned(), source };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if journal::is_in_one(path) {
        return Err(ScanError::Records { path: path.to_owned() });
    }
    if meta.is_dir() {
        let fd = open_dir(path).map_err(failed)?;
        let fs = fs_index(&mut state.tree, &fd, meta.dev()).map_err(failed)?;
        let name = state.tree.add_names(&tree::as_name(path.as_os_str()))?;
        let dir = state.tree.add_dir(Dir::new(NONE, name, fs));
        state.stack.push(Task { dir, parent: Some(Counted::new(fd)), name: None });
        return Ok(());
    }
    if !meta.is_file() {
        return Err(ScanError::NotAFile { path: path.to_owned() });
    }
    // A given symlink leads to its file, which goes by its own name.
    let is_link = path.symlink_metadata().is_ok_and(|m| m.is_symlink());
    let real = if is_link { path.canonicalize().map_err(failed)? } else { path.to_owned() };
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(ScanError::NotAFile { path: path.to_owned() });
    };
    // Only named, not opened: it may have become a pipe.
    let names = OFlags::PATH | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&real, names, Mode::empty()).map_err(|e| failed(e.into()))?;
    let meta = std::fs::File::from(fd.try_clone().map_err(failed)?).metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(ScanError::NotAFile { path: path.to_owned() });
    }
    let fs = fs_index(&mut state.tree, &fd, meta.dev()).map_err(failed)?;
    let parent = state.tree.add_names(&tree::as_name(parent.as_os_str()))?;
    let name = state.tree.add_names(&tree::as_name(name))?;
    let dir = state.tree.add_dir(Dir::new(NONE, parent, fs));
    state.tree.entries.push(Entry { inode: meta.ino(), dir, name });
    Ok(())
}

fn open_dir(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The index of the file system with this device number; it is added when it is new.
fn fs_index(tree: &mut Tree, file: impl AsFd, dev: u64) -> std::io::Result<u16> {
    if let Some(at) = tree.file_systems.iter().position(|f| f.dev == dev) {
        return Ok(at as u16);
    }
    let at = u16::try_from(tree.file_systems.len())
        .map_err(|_| std::io::Error::other("more than 65536 file systems"))?;
    tree.file_systems.push(FileSystem::of(file, dev)?);
    Ok(at)
}

impl Walk<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Reads directories until none is left and no worker can add one.
    fn work(&self) {
        let mut buffer = Vec::with_capacity(64 * 1024);
        let mut opener = Opener::default();
        loop {
            let mut state = self.lock();
            let task = loop {
                if state.fatal.is_some() {
                    return;
                }
                if let Some(task) = state.stack.pop() {
                    break task;
                }
                if state.busy == 0 {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
            };
            state.busy += 1;
            let name = task.name.map(|at| state.tree.name(at).to_owned());
            let dev = {
                let fs = state.tree.dirs[task.dir as usize].fs;
                state.tree.file_systems[usize::from(fs)].dev
            };
            // Its parent directory was closed meanwhile, and is opened again from one above it.
            let again = task.name.filter(|_| task.parent.is_none()).map(|_| {
                let parent = state.tree.dirs[task.dir as usize].parent;
                opener.way(&state.tree, parent)
            });
            drop(state);
            let opened = again.map(|way| opener.dir(way)).transpose();
            let read = opened
                .map_err(|e| Cause::from(&e))
                .and_then(|again| self.directory(&task, again, name.as_deref(), dev, &mut buffer));
            let mut state = self.lock();
            if let Err(cause) = read {
                state.tree.skips.push(SkippedEntry::dir(task.dir, cause));
            }
            state.busy -= 1;
            if state.busy == 0 {
                self.changed.notify_all();
            }
        }
    }

    fn directory(
        &self,
        task: &Task,
        again: Option<&OwnedFd>,
        name: Option<&CStr>,
        dev: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let fd = match name {
            None => Arc::clone(task.parent.as_ref().ok_or(SkipReason::Vanished)?),
            Some(name) => {
                let parent = task.parent.as_ref().map(|p| &p.0).or(again);
                let parent = parent.ok_or(SkipReason::Vanished)?;
                let fd = match root::enter(parent, name, (!self.across).then_some(dev)) {
                    Err(Errno::XDEV) => return Err(SkipReason::OtherFileSystem.into()),
                    opened => opened?,
                };
                Counted::new(fd)
            }
        };
        let stat = rustix::fs::fstat(&fd.0)?;
        if stat.st_dev != dev && !self.across {
            return Err(SkipReason::OtherFileSystem.into());
        }
        let on = self.begin(task.dir, &fd.0, &stat)?;
        let mut listing = Listing::new(&fd.0, &stat, on);
        let mut read = Read::default();
        let mut entries = RawDir::new(&fd.0, buffer.spare_capacity_mut());
        loop {
            // A directory may have a million files, so what was read is handed on now and then.
            if read.names.len() > 1 << 20 {
                self.hand_on(task.dir, &fd, &mut read)?;
            }
            let entry = match entries.next() {
                None => break,
                Some(Ok(entry)) => entry,
                Some(Err(errno)) => {
                    self.hand_on(task.dir, &fd, &mut read)?;
                    return Err(errno.into());
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if let Err(errno) = listing.count(name.to_bytes()) {
                self.hand_on(task.dir, &fd, &mut read)?;
                return Err(errno.into());
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&fd.0, name),
                known => Ok(known),
            };
            let at = read.names.len() as u32;
            match kind {
                Ok(FileType::RegularFile) => read.files.push((entry.ino(), at)),
                Ok(FileType::Directory) if journal::is_name_of_one(name.to_bytes()) => continue,
                Ok(FileType::Directory) => read.dirs.push((entry.ino(), at)),
                Ok(_) => continue,
                Err(errno) => read.skips.push((at, errno.into())),
            }
            read.names.extend_from_slice(name.to_bytes_with_nul());
        }
        self.hand_on(task.dir, &fd, &mut read)
    }

    /// Notes that an open directory is read now, and returns what limits it.
    fn begin(&self, dir: u32, fd: &OwnedFd, stat: &Stat) -> Result<Capacity, Cause> {
        let mount = root::mount_id(fd);
        // 0 where it cannot be read: then a directory is skipped, with the reason, rather than read twice.
        let generation = fragmend_sys::inode::generation(fd).unwrap_or(0);
        let mut state = self.lock();
        let State { tree, seen, .. } = &mut *state;
        let fs = fs_index(tree, fd, stat.st_dev).map_err(|e| Cause::from(&e))?;
        let at = &mut tree.dirs[dir as usize];
        at.fs = fs;
        let this = Seen { inode: stat.st_ino, generation, mount, fs, top: at.top };
        let found = &tree.file_systems[usize::from(fs)];
        if found.inode_numbers_hold() && !seen.insert(this) {
            return Err(SkipReason::SeenBefore.into());
        }
        Ok(Capacity::of(found))
    }

    /// Moves what was read into the tree and wakes workers that wait for directories.
    ///
    /// # Errors
    /// `UCLEAN` if the file system has no room for so many names.
    fn hand_on(&self, dir: u32, fd: &Arc<Counted>, read: &mut Read) -> Result<(), Cause> {
        // The stack returns the last one first, so the lowest inode must be on top.
        read.dirs.sort_unstable_by(|a, b| b.cmp(a));
        let mut state = self.lock();
        let State { tree, stack, fatal, names, .. } = &mut *state;
        let fs = usize::from(tree.dirs[dir as usize].fs);
        names.resize(tree.file_systems.len(), 0);
        names[fs] += (read.files.len() + read.dirs.len() + read.skips.len()) as u64;
        if names[fs] > listing::most_names(&tree.file_systems[fs]) {
            return Err(Errno::UCLEAN.into());
        }
        match tree.add_names(&read.names) {
            Err(error) => *fatal = Some(error),
            Ok(base) => {
                let fs = tree.dirs[dir as usize].fs;
                let files = read.files.iter();
                tree.entries.extend(files.map(|(inode, at)| Entry {
                    inode: *inode,
                    dir,
                    name: base + at,
                }));
                for (_, at) in &read.dirs {
                    let child = tree.add_dir(Dir::new(dir, base + at, fs));
                    let parent = (OPEN.load(Relaxed) < MOST_OPEN).then(|| Arc::clone(fd));
                    stack.push(Task { dir: child, parent, name: Some(base + at) });
                }
                let skips = read.skips.iter();
                tree.skips.extend(skips.map(|(at, cause)| SkippedEntry {
                    dir,
                    name: base + at,
                    cause: *cause,
                }));
            }
        }
        if !read.dirs.is_empty() || fatal.is_some() {
            self.changed.notify_all();
        }
        drop(state);
        (self.found)(read.files.len() as u64);
        read.names.clear();
        read.files.clear();
        read.dirs.clear();
        read.skips.clear();
        Ok(())
    }
}

/// The type of a file, for file systems whose directories do not have it.
fn kind_of(dir: &OwnedFd, name: &CStr) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
