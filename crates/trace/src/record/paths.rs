//! From an inode back to a path: `open_by_handle_at` needs no walk and refuses a reused inode.
//!
//! The mount point is opened for each question and closed again, so that a recording does not
//! keep a file system from being unmounted.

use fragmend_layout::FileId;
use fragmend_sys::{btrfs, handle};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The watched file systems, by `st_dev`.
#[derive(Clone, Default)]
pub(super) struct Mounts {
    places: BTreeMap<u64, Place>,
}

/// What stands for a file system, opened: a directory, or a file that is mounted by itself. Nothing
/// else is opened, whatever took its place meanwhile.
fn opened(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok();
    directory.or_else(|| Some(fragmend_sys::input::open(path).ok()?.into()))
}

/// Where files are found by inode number.
#[derive(Clone)]
enum Place {
    /// On the file system of this directory.
    Directory(PathBuf),
    /// In this subvolume of the Btrfs of that directory.
    Subvolume(PathBuf, u64),
}

impl Mounts {
    /// The file system, or subvolume, `st_dev` of which `directory` is some directory.
    pub fn add(&mut self, st_dev: u64, directory: PathBuf) {
        self.places.entry(st_dev).or_insert(Place::Directory(directory));
    }

    /// All subvolumes of the Btrfs that `directory` lies on. Where they cannot be listed, their
    /// files are recorded without paths.
    pub fn add_subvolumes(&mut self, directory: &Path) {
        let Some(mount) = opened(directory) else { return };
        for number in btrfs::subvolumes(&mount).unwrap_or_default() {
            let root = handle::open_subvolume(&mount, number);
            if let Ok(stat) = root.and_then(|root| Ok(rustix::fs::fstat(root)?)) {
                let place = Place::Subvolume(directory.to_owned(), number);
                self.places.entry(stat.st_dev).or_insert(place);
            }
        }
    }

    /// `st_dev` of what the kernel numbers so.
    pub fn st_dev(kernel_device: u32) -> u64 {
        rustix::fs::makedev(kernel_device >> 20, kernel_device & 0xF_FFFF)
    }

    /// Where a file is now; `None` when it is deleted or its file system does not tell.
    pub fn path_of(&self, file: FileId) -> Option<PathBuf> {
        let root: OwnedFd = match self.places.get(&file.device)? {
            Place::Directory(path) => opened(path)?,
            Place::Subvolume(path, number) => {
                handle::open_subvolume(opened(path)?, *number).ok()?
            }
        };
        // Another file system may be there by now, where the same number names another file.
        if rustix::fs::fstat(&root).ok()?.st_dev != file.device {
            return None;
        }
        let flags = libc::O_PATH;
        let opened = handle::open_by_inode(root, file.inode, file.generation, flags).ok()?;
        handle::path_of(opened)
    }
}
