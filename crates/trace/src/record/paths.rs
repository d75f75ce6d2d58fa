//! Finds the path of an inode: `open_by_handle_at` needs no path walk and refuses a reused inode number.
//!
//! The mount point is opened for each look-up and then closed, so that a recording does not keep a file
//! system from being unmounted. That lasts longer than the look-up itself, so at the end they stay open.

use fragmend_layout::FileId;
use fragmend_sys::root::{self, Root};
use fragmend_sys::{btrfs, handle};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The watched file systems, by `st_dev`.
#[derive(Clone, Default)]
pub(super) struct Mounts {
    places: BTreeMap<u64, Place>,
    /// The open directories of [`Place::Directory`]; `None` if each is closed after its look-up.
    open: RefCell<Option<BTreeMap<u64, Rc<Root>>>>,
}

/// Opens a directory of a file system, or a file that is a mount point itself. Fails if another file system
/// has been mounted there meanwhile.
fn opened(path: &Path, st_dev: u64) -> Option<OwnedFd> {
    match Root::open(path, st_dev) {
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            Some(fragmend_sys::input::open(path).ok()?.into())
        }
        root => Some(root.ok()?.into()),
    }
}

/// Where files are found by inode number.
#[derive(Clone)]
enum Place {
    /// The file system of this directory.
    Directory(PathBuf),
    /// A subvolume, by its number, of the Btrfs of the directory with this `st_dev`.
    Subvolume(PathBuf, u64, u64),
}

impl Mounts {
    /// Adds the file system, or subvolume, `st_dev`, of which `directory` is any directory.
    pub fn add(&mut self, st_dev: u64, directory: PathBuf) {
        self.places.entry(st_dev).or_insert(Place::Directory(directory));
    }

    /// Adds all subvolumes of the Btrfs that `directory` is on. If they cannot be listed, their files are
    /// recorded without paths.
    pub fn add_subvolumes(&mut self, directory: &Path) {
        let Ok(st_dev) = root::device_at(directory) else { return };
        let Some(mount) = opened(directory, st_dev) else { return };
        for number in btrfs::subvolumes(&mount).unwrap_or_default() {
            let root = handle::open_subvolume(&mount, number);
            if let Ok(stat) = root.and_then(|root| Ok(rustix::fs::fstat(root)?)) {
                let place = Place::Subvolume(directory.to_owned(), st_dev, number);
                self.places.entry(stat.st_dev).or_insert(place);
            }
        }
    }

    /// Converts the kernel's device number to `st_dev`.
    pub fn st_dev(kernel_device: u32) -> u64 {
        rustix::fs::makedev(kernel_device >> 20, kernel_device & 0xF_FFFF)
    }

    /// From now on, and until this is dropped, directories stay open.
    pub fn keep_open(&self) {
        self.open.borrow_mut().get_or_insert_default();
    }

    /// The directory of a file system that is kept open, or that is to be.
    fn kept(&self, st_dev: u64) -> Option<Rc<Root>> {
        let mut open = self.open.borrow_mut();
        let open = open.as_mut()?;
        if let Some(root) = open.get(&st_dev) {
            return Some(Rc::clone(root));
        }
        let Some(Place::Directory(path)) = self.places.get(&st_dev) else { return None };
        let root = Rc::new(Root::open(path, st_dev).ok()?);
        if rustix::fs::fstat(&*root).ok()?.st_dev != st_dev {
            return None;
        }
        Some(Rc::clone(open.entry(st_dev).or_insert(root)))
    }

    /// The current path of a file; `None` when it is deleted or cannot be found by its number.
    pub fn path_of(&self, file: FileId) -> Option<PathBuf> {
        if let Some(root) = self.kept(file.device) {
            return root.path_of(linked(&*root, file)?);
        }
        let root: OwnedFd = match self.places.get(&file.device)? {
            Place::Directory(path) => opened(path, file.device)?,
            Place::Subvolume(path, st_dev, number) => {
                handle::open_subvolume(opened(path, *st_dev)?, *number).ok()?
            }
        };
        // Another file system may be there by now, where the same number names another file.
        if rustix::fs::fstat(&root).ok()?.st_dev != file.device {
            return None;
        }
        handle::path_of(linked(root, file)?)
    }
}

/// Names a file of this file system (`O_PATH`), if it is not deleted.
fn linked(root: impl AsFd, file: FileId) -> Option<OwnedFd> {
    let opened = handle::open_by_inode(root, file.inode, file.generation, libc::O_PATH).ok()?;
    (rustix::fs::fstat(&opened).ok()?.st_nlink > 0).then_some(opened)
}
