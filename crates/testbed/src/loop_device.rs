//! A file as a block device.

use crate::cleanup::{self, Ticket, Undo};
use fragmend_sys::loop_device::is_attached;
use rustix::mount::UnmountFlags;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sectors as the kernel chooses them: with direct I/O, at least those of the disk that the file is on.
const ANY_SECTORS: u32 = 0;

/// A loop device; detached when dropped, or when a signal ends the process.
#[derive(Debug)]
pub struct LoopDevice {
    node: String,
    file: PathBuf,
    detached: bool,
    _ticket: Ticket,
}

impl LoopDevice {
    /// Attaches a loop device to `file`. With direct I/O to the file, the device's counters are those of a disk, and
    /// the file is not cached twice. In a guest, the host's files have no direct I/O.
    ///
    /// # Panics
    /// When it cannot be opened or attached.
    pub fn attach(file: &Path) -> Self {
        let open = File::options().read(true).write(true).open(file);
        let device = open.and_then(|file| Self::attach_open(&file));
        device.unwrap_or_else(|e| panic!("{} as a loop device: {e}", file.display()))
    }

    /// Attaches a loop device with direct I/O, as far as the file has it, to an open file, which need not have a name.
    ///
    /// # Errors
    /// Those of [`fragmend_sys::loop_device::attach`].
    pub fn attach_open(file: &File) -> io::Result<Self> {
        let node = fragmend_sys::loop_device::attach(file, ANY_SECTORS)?;
        let node = node.to_string_lossy().into_owned();
        let ticket = cleanup::register(Undo::Loop(node.clone()));
        // As the kernel names it, also where it has no name.
        let file = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        Ok(Self { node, file, detached: false, _ticket: ticket })
    }

    /// Its node, for example `/dev/loop3`.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Detaches it, and waits until nothing can be read or written through it any more.
    ///
    /// # Panics
    /// When that lasts longer than half a minute.
    pub fn detach(mut self) {
        // Not twice: by then the node may belong to another process.
        self.detached = true;
        let Self { node, file, .. } = &self;
        Undo::Loop(node.clone()).run();
        wait_until(&format!("{node} to be detached"), || !is_attached(Path::new(node), file));
    }
}

/// Unmounts a block device from `dir`, and waits until no mount of it is left. It may be mounted
/// elsewhere for a while: a new mount namespace gets a copy of every mount.
///
/// A child that another thread has just started holds all open files of this process until it runs
/// its own program: a busy mount is tried again.
///
/// # Panics
/// When it is in use for half a minute.
pub fn unmount(node: &Path, dir: &Path) {
    wait_until(&format!("{} to be left by all", dir.display()), || {
        rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW).is_ok()
    });
    let alone = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let free = || File::options().read(true).custom_flags(alone).open(node).is_ok();
    wait_until(&format!("{} to be free", node.display()), free);
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.detached {
            Undo::Loop(self.node.clone()).run();
        }
    }
}
