//! A disk with less space than its size (thin provisioning): a sparse file in a file system that can be filled.

use crate::aging;
use crate::cleanup::{self, Ticket, Undo};
use crate::file_system::FileSystem;
use crate::image::{Image, run};
use crate::loop_device::{LoopDevice, unmount};
use rustix::fs::{FallocateFlags, fallocate, syncfs};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The size that the disk reports, in bytes.
const SIZE: u64 = 320 << 20;

/// A mounted file system on a thin disk; unmounted when dropped, or when a signal ends the process.
pub struct ThinDisk {
    file_system: &'static FileSystem,
    point: PathBuf,
    _mounted: Ticket,
    device: LoopDevice,
    pool: Image,
}

impl ThinDisk {
    /// A fresh file system on such a disk, mounted.
    pub fn new(file_system: &'static FileSystem) -> Self {
        let pool = Image::ext4(400 << 20);
        let disk = disk(&pool);
        File::create(&disk).and_then(|f| f.set_len(SIZE)).expect("a sparse disk");
        let device = LoopDevice::attach(&disk);
        file_system.make(Path::new(device.node()), &[]);
        let point = pool.scratch().join("thin");
        std::fs::create_dir(&point).expect("a mount point");
        let mounted = cleanup::register(Undo::Mount(point.clone()));
        let thin = Self { file_system, point, _mounted: mounted, device, pool };
        thin.mount();
        thin
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The file system that has the disk's blocks.
    pub fn pool(&self) -> &Image {
        &self.pool
    }

    /// Mounts it with default options.
    ///
    /// # Panics
    /// When that fails.
    pub fn mount(&self) {
        let mounted = self.file_system.mount(Path::new(self.device.node()), &self.point, "");
        mounted.unwrap_or_else(|e| panic!("{e}"));
    }

    /// Unmounts it; the device stays attached.
    pub fn unmount(&self) {
        unmount(Path::new(self.device.node()), &self.point);
    }

    /// Allocates the disk except for the file system's free space: its metadata can be written.
    ///
    /// # Panics
    /// When the pool has too little space.
    pub fn allocate_used(&self) {
        let disk = File::options().write(true).open(disk(&self.pool)).expect("the disk");
        fallocate(&disk, FallocateFlags::empty(), 0, SIZE).expect("space in the pool");
        syncfs(File::open(&self.point).expect("the mount's root")).expect("it can be synced");
        run("fstrim", [&self.point]);
    }

    /// Allocates all free space of the pool, and returns the path of the file that has it.
    pub fn fill(&self) -> PathBuf {
        let path = self.pool.path().join("filler");
        aging::fill_up(&path);
        path
    }
}

impl Drop for ThinDisk {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn disk(pool: &Image) -> PathBuf {
    pool.path().join("disk.img")
}
