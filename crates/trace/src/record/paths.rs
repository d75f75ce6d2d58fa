//! From an inode back to a path: `open_by_handle_at` needs no walk and refuses a reused inode.
//!
//! The mount point is opened for each question and closed again, so that a recording does not
//! keep a file system from being unmounted.

use fragmend_layout::FileId;
use fragmend_sys::handle;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The watched file systems: the kernel's device number, `st_dev`, and where each is mounted.
#[derive(Clone, Default)]
pub(super) struct Mounts {
    by_kernel: BTreeMap<u32, u64>,
    points: BTreeMap<u64, PathBuf>,
}

impl Mounts {
    pub fn add(&mut self, kernel_device: u32, st_dev: u64, point: PathBuf) {
        let st_dev = *self.by_kernel.entry(kernel_device).or_insert(st_dev);
        self.points.entry(st_dev).or_insert(point);
    }

    /// `st_dev` of the file system that the kernel numbers so.
    pub fn st_dev(&self, kernel_device: u32) -> u64 {
        let plain = || u64::from(kernel_device);
        self.by_kernel.get(&kernel_device).copied().unwrap_or_else(plain)
    }

    /// Where a file is now; `None` when it is deleted or its file system does not tell.
    pub fn path_of(&self, file: FileId) -> Option<PathBuf> {
        let mount = std::fs::File::open(self.points.get(&file.device)?).ok()?;
        let opened =
            handle::open_by_inode(mount, file.inode, file.generation, libc::O_PATH).ok()?;
        handle::path_of(opened)
    }
}
