//! A file system in a sparse file, mounted through a loop device.

use fragmend_sys::block::{BlockDevice, Counters};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted image; unmounted, detached and deleted when dropped.
pub struct Image {
    dir: tempfile::TempDir,
    mount: PathBuf,
    loop_device: String,
}

impl Image {
    /// A fresh ext4 of `bytes`, 4 KiB blocks, made and mounted with default options.
    pub fn ext4(bytes: u64) -> Self {
        Self::ext4_with(bytes, &[], "")
    }

    /// A fresh ext4 with further `mkfs.ext4` arguments and comma-separated mount options.
    pub fn ext4_with(bytes: u64, mkfs: &[&str], options: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("fragmend-test-")
            .tempdir()
            .expect("a temporary directory");
        let file = dir.path().join("disk.img");
        std::fs::File::create(&file).and_then(|f| f.set_len(bytes)).expect("a sparse image");
        let mut make =
            vec!["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        make.extend(mkfs);
        run("mkfs.ext4", make.iter().map(OsStr::new).chain([file.as_os_str()]));
        // Direct I/O to the backing file: what the loop device counts is what a disk would see,
        // and the image is not cached twice.
        let args = ["--find", "--show", "--direct-io=on"];
        let loop_device = run("losetup", args.iter().map(OsStr::new).chain([file.as_os_str()]));
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).expect("a mount point");
        let image = Self { dir, mount, loop_device: loop_device.trim().to_owned() };
        image.mount_with(options);
        image
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

    /// What the kernel has counted on the device so far.
    pub fn counters(&self) -> Counters {
        let dev = std::fs::metadata(&self.loop_device).expect("the loop node").rdev();
        BlockDevice::from_dev(dev).and_then(|d| d.counters()).expect("the loop device's counters")
    }

    /// Mounts with comma-separated options.
    pub fn mount_with(&self, options: &str) {
        let options = if options.is_empty() { "defaults" } else { options };
        run(
            "mount",
            [
                OsStr::new("-o"),
                OsStr::new(options),
                OsStr::new(&self.loop_device),
                self.mount.as_os_str(),
            ],
        );
    }

    /// Unmounts; the device stays attached.
    pub fn unmount(&self) {
        run("umount", [self.mount.as_os_str()]);
    }

    /// Unmounts and mounts again: nothing stays in the page cache.
    pub fn remount(&self) {
        self.unmount();
        self.mount_with("");
    }

    /// Unmounts, checks with `e2fsck -fn`, and mounts again.
    ///
    /// # Panics
    /// When the check finds anything.
    pub fn fsck(&self) {
        self.unmount();
        run("e2fsck", ["-fn", &self.loop_device].map(OsStr::new));
        self.mount_with("");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let quiet = |program: &str, args: &[&OsStr]| {
            let _ = Command::new(program)
                .args(args)
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .status();
        };
        quiet("umount", &[self.mount.as_os_str()]);
        quiet("losetup", &[OsStr::new("-d"), OsStr::new(&self.loop_device)]);
    }
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
