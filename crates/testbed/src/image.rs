//! A file system in a sparse file, mounted through a loop device.

use crate::cleanup::{self, Ticket, Undo};
use crate::file_system::{EXT4, FileSystem};
use crate::loop_device::{LoopDevice, unmount};
pub use crate::process::run;
use crate::scratch;
use fragmend_sys::block::{BlockDevice, Counters};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mounted image; unmounted, detached and deleted when dropped, or when a signal ends the
/// process.
pub struct Image {
    file_system: &'static FileSystem,
    mount: PathBuf,
    readahead_kib: Cell<Option<u32>>,
    /// Changed queue settings, with their old values.
    queue: RefCell<Vec<(Undo, Ticket)>>,
    // A signal undoes these in reverse order; so does dropping.
    _mounted: Ticket,
    loop_device: LoopDevice,
    _trees: [Ticket; 2],
    disks: tempfile::TempDir,
    dir: tempfile::TempDir,
}

impl Image {
    /// A fresh ext4 of `bytes`, 4 KiB blocks, made and mounted with default options.
    pub fn ext4(bytes: u64) -> Self {
        Self::ext4_with(bytes, &[], "")
    }

    /// A fresh ext4 with further `mkfs.ext4` arguments and comma-separated mount options.
    pub fn ext4_with(bytes: u64, mkfs: &[&str], options: &str) -> Self {
        Self::made(&EXT4, bytes, mkfs, options)
    }

    /// A fresh file system of `bytes` (XFS needs 300 MiB), mounted.
    pub fn of(file_system: &'static FileSystem, bytes: u64) -> Self {
        Self::made(file_system, bytes, &[], "")
    }

    fn made(file_system: &'static FileSystem, bytes: u64, mkfs: &[&str], options: &str) -> Self {
        let disks = scratch::for_disks();
        let file = disk(&disks);
        std::fs::File::create(&file).and_then(|f| f.set_len(bytes)).expect("a sparse image");
        file_system.make(&file, mkfs);
        let image = Self::attach(file_system, disks);
        image.mount_with(options);
        image
    }

    /// Another image with the same content and layout, on a device of its own. This one is
    /// unmounted while it is copied, and both are then mounted with default options.
    pub fn copy(&self) -> Self {
        self.unmount();
        let disks = self.copied();
        self.mount_with("");
        self.mounted_copy(disks)
    }

    /// The same of the disk as it is, with the file system mounted: what was not synced is not in the copy.
    pub fn copy_while_mounted(&self) -> Self {
        self.sync();
        self.mounted_copy(self.copied())
    }

    fn copied(&self) -> tempfile::TempDir {
        let disks = scratch::for_disks();
        let args = ["--sparse=always", "--reflink=auto"].map(OsString::from);
        run("cp", args.into_iter().chain([disk(&self.disks).into(), disk(&disks).into()]));
        disks
    }

    fn mounted_copy(&self, disks: tempfile::TempDir) -> Self {
        let copy = Self::attach(self.file_system, disks);
        copy.mount_with("");
        // The copy itself must not disturb what is measured next.
        copy.sync();
        let below = std::fs::File::open(copy.disks.path()).expect("the image's directory");
        rustix::fs::syncfs(below).expect("it can be synced");
        copy
    }

    /// Puts the disk in `disks` behind a loop device; not mounted yet.
    fn attach(file_system: &'static FileSystem, disks: tempfile::TempDir) -> Self {
        let dir = scratch::directory("test");
        let trees = [&disks, &dir].map(|d| cleanup::register(Undo::Tree(d.path().to_owned())));
        let loop_device = LoopDevice::attach(&disk(&disks));
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).expect("a mount point");
        let mounted = cleanup::register(Undo::Mount(mount.clone()));
        let (readahead_kib, queue) = Default::default();
        Self {
            file_system,
            mount,
            readahead_kib,
            queue,
            _mounted: mounted,
            loop_device,
            _trees: trees,
            disks,
            dir,
        }
    }

    /// Whether it has this file system.
    pub fn is(&self, file_system: &FileSystem) -> bool {
        self.file_system.name == file_system.name
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The loop device's node, for example `/dev/loop3`.
    pub fn device(&self) -> &str {
        self.loop_device.node()
    }

    /// A directory beside the mount, outside the file system under test.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// The device's queue and counters.
    pub fn block_device(&self) -> BlockDevice {
        let dev = std::fs::metadata(self.device()).expect("the loop node").rdev();
        BlockDevice::from_dev(dev).expect("the loop device in sysfs")
    }

    /// What the kernel has counted on the device so far.
    pub fn counters(&self) -> Counters {
        self.block_device().counters().expect("the loop device's counters")
    }

    /// Changes a setting of the device's queue; the old value is restored when the image is dropped.
    pub fn set_queue(&self, setting: &str, value: &str) {
        let name = self.block_device().name();
        self.set(Path::new("/sys/block").join(name).join("queue").join(setting), value);
    }

    /// Changes how far the kernel reads ahead on this file system, in KiB.
    pub fn set_readahead(&self, kib: u32) {
        self.readahead_kib.set(Some(kib));
        let dev = std::fs::metadata(&self.mount).expect("the mount's root").dev();
        let device = BlockDevice::under(&self.mount, dev).expect("the device below");
        self.set(device.readahead_setting(), &kib.to_string());
    }

    fn set(&self, path: PathBuf, value: &str) {
        let old = std::fs::read_to_string(&path).expect("the queue's setting can be read");
        if old.trim() == value {
            return;
        }
        let undo = Undo::Setting(path.clone(), old);
        let ticket = cleanup::register(undo.clone());
        self.queue.borrow_mut().push((undo, ticket));
        std::fs::write(&path, value).expect("the queue's setting can be changed");
    }

    /// Writes back all dirty pages of this file system, and commits its journal (`syncfs(2)`).
    pub fn sync(&self) {
        let root = std::fs::File::open(&self.mount).expect("the mount's root");
        rustix::fs::syncfs(root).expect("the file system can be synced");
    }

    /// Mounts with comma-separated options, besides those of the kind of file system.
    pub fn mount_with(&self, options: &str) {
        // A copy of it may be mounted as well.
        let options = [self.file_system.beside_copy.unwrap_or_default(), options].join(",");
        let options = options.trim_matches(',');
        let mounted = self.file_system.mount(Path::new(self.device()), &self.mount, options);
        mounted.unwrap_or_else(|e| panic!("{e}"));
        // Btrfs has a setting of its own, which goes with the mount.
        self.readahead_kib.get().inspect(|kib| self.set_readahead(*kib));
    }

    /// Unmounts; the device stays attached.
    pub fn unmount(&self) {
        unmount(Path::new(self.device()), &self.mount);
    }

    /// Unmounts and mounts again: nothing stays in the page cache.
    pub fn remount(&self) {
        self.unmount();
        self.mount_with("");
    }

    /// Unmounts, checks with the file system's own tool, and mounts again.
    ///
    /// # Panics
    /// When the check finds anything.
    pub fn fsck(&self) {
        self.unmount();
        self.file_system.check(Path::new(self.device())).unwrap_or_else(|e| panic!("{e}"));
        self.mount_with("");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        Undo::Mount(self.mount.clone()).run();
        for (undo, _) in self.queue.take().into_iter().rev() {
            undo.run();
        }
    }
}

fn disk(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("disk.img")
}
