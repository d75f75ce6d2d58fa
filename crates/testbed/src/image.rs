//! A file system in a sparse file, mounted through a loop device.

use crate::cleanup::{self, Ticket, Undo};
use crate::file_system::{EXT4, FileSystem};
use fragmend_sys::block::{BlockDevice, Counters};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A mounted image; unmounted, detached and deleted when dropped, or when a signal ends the
/// process.
pub struct Image {
    file_system: &'static FileSystem,
    mount: PathBuf,
    loop_device: String,
    /// Queue settings that were changed, as they were.
    queue: RefCell<Vec<(Undo, Ticket)>>,
    /// In the order in which a signal undoes them backwards.
    _tickets: [Ticket; 3],
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

    /// A fresh file system of `bytes` (XFS wants 300 MiB), mounted.
    pub fn of(file_system: &'static FileSystem, bytes: u64) -> Self {
        Self::made(file_system, bytes, &[], "")
    }

    fn made(file_system: &'static FileSystem, bytes: u64, mkfs: &[&str], options: &str) -> Self {
        let dir = directory();
        let file = disk(&dir);
        std::fs::File::create(&file).and_then(|f| f.set_len(bytes)).expect("a sparse image");
        file_system.make(&file, mkfs);
        let image = Self::attach(file_system, dir);
        image.mount_with(options);
        image
    }

    /// Another image with the very same content and layout, on a device of its own. This one is
    /// unmounted while it is copied, and both end up mounted with default options.
    pub fn copy(&self) -> Self {
        let dir = directory();
        self.unmount();
        let args = ["--sparse=always", "--reflink=auto"].map(OsString::from);
        run("cp", args.into_iter().chain([disk(&self.dir).into(), disk(&dir).into()]));
        self.mount_with("");
        let copy = Self::attach(self.file_system, dir);
        copy.mount_with("");
        // The copy itself must not disturb what is measured next.
        rustix::fs::sync();
        copy
    }

    /// Puts the disk in `dir` behind a loop device; not mounted yet.
    fn attach(file_system: &'static FileSystem, dir: tempfile::TempDir) -> Self {
        let tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        // Direct I/O to the backing file: what the loop device counts is what a disk would see,
        // and the image is not cached twice.
        let args = ["--find", "--show", "--direct-io=on"].map(OsString::from);
        let node = run("losetup", args.into_iter().chain([disk(&dir).into()])).trim().to_owned();
        let device = cleanup::register(Undo::Loop(node.clone()));
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).expect("a mount point");
        let mounted = cleanup::register(Undo::Mount(mount.clone()));
        let queue = RefCell::default();
        Self {
            file_system,
            mount,
            loop_device: node,
            queue,
            _tickets: [tree, device, mounted],
            dir,
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The loop device's node, for example `/dev/loop3`.
    pub fn device(&self) -> &str {
        &self.loop_device
    }

    /// A directory beside the mount, outside the file system under test.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// The device's queue and counters.
    pub fn block_device(&self) -> BlockDevice {
        let dev = std::fs::metadata(&self.loop_device).expect("the loop node").rdev();
        BlockDevice::from_dev(dev).expect("the loop device in sysfs")
    }

    /// What the kernel has counted on the device so far.
    pub fn counters(&self) -> Counters {
        self.block_device().counters().expect("the loop device's counters")
    }

    /// Changes a setting of the device's queue, for example `read_ahead_kb`; the old value comes
    /// back when the image is dropped.
    pub fn set_queue(&self, setting: &str, value: &str) {
        let path =
            Path::new("/sys/block").join(self.block_device().name()).join("queue").join(setting);
        let old = std::fs::read_to_string(&path).expect("the queue's setting can be read");
        let undo = Undo::Setting(path.clone(), old);
        let ticket = cleanup::register(undo.clone());
        self.queue.borrow_mut().push((undo, ticket));
        std::fs::write(&path, value).expect("the queue's setting can be changed");
    }

    /// Writes everything dirty of this file system, and commits its journal (`syncfs(2)`).
    pub fn sync(&self) {
        let root = std::fs::File::open(&self.mount).expect("the mount's root");
        rustix::fs::syncfs(root).expect("the file system can be synced");
    }

    /// Mounts with comma-separated options, besides those of the kind of file system.
    pub fn mount_with(&self, options: &str) {
        let options = ["defaults", self.file_system.options, options].map(str::to_owned);
        let options = options.into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",");
        run(
            "mount",
            [
                OsStr::new("-o"),
                OsStr::new(&options),
                OsStr::new(&self.loop_device),
                self.mount.as_os_str(),
            ],
        );
    }

    /// Unmounts; the device stays attached. A program that another test is starting has our open
    /// files for as long as that takes, so it may be busy for a moment.
    pub fn unmount(&self) {
        for _ in 0..50 {
            let how = rustix::mount::UnmountFlags::empty();
            match rustix::mount::unmount(&self.mount, how) {
                Ok(()) => return,
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(Duration::from_millis(20)),
                Err(_) => break,
            }
        }
        run("umount", [self.mount.as_os_str()]);
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
        self.file_system.check(Path::new(&self.loop_device));
        self.mount_with("");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        Undo::Mount(self.mount.clone()).run();
        for (undo, _) in self.queue.take().into_iter().rev() {
            undo.run();
        }
        Undo::Loop(self.loop_device.clone()).run();
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("fragmend-test-").tempdir().expect("a temporary directory")
}

fn disk(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("disk.img")
}

/// Runs a tool to its end and gives its standard output.
///
/// # Panics
/// When it cannot be started or fails, with what it said.
pub fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> String {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap_or_else(|e| {
        panic!("{program} cannot be started ({e}): is it installed, are we root?")
    });
    assert!(
        out.status.success(),
        "{program} failed: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}
