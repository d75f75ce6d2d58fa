//! A file as a block device.

use crate::cleanup::{self, Ticket, Undo};
use crate::holders::{self, HUNG};
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
/// How long a mount or a device may be in use.
const BUSY: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);

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
/// When it is in use for half a minute, or unmounting lasts longer than [`HUNG`], with what uses it.
pub fn unmount(node: &Path, dir: &Path) {
    try_unmount(node, dir, BUSY, HUNG).unwrap_or_else(|why| panic!("{why}"));
}

/// The same with other limits: how long it may be in use, and how long unmounting may last.
///
/// # Errors
/// What uses it, in words. It may be mounted still.
pub fn try_unmount(node: &Path, dir: &Path, busy: Duration, hung: Duration) -> Result<(), String> {
    let started = Instant::now();
    let failed = |how: String| format!("{} {how}; {}", dir.display(), holders::named(dir));
    loop {
        match holders::unmount_within(dir, UnmountFlags::NOFOLLOW, hung) {
            Some(Ok(())) => break,
            Some(Err(_)) if started.elapsed() < busy => std::thread::sleep(LOOK),
            Some(Err(e)) => return Err(failed(format!("cannot be unmounted: {e}"))),
            None => {
                return Err(failed(format!(
                    "is being unmounted for longer than {} s: its device may not answer",
                    hung.as_secs_f64()
                )));
            }
        }
    }
    let alone = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let free = || File::options().read(true).custom_flags(alone).open(node).is_ok();
    while !free() {
        if started.elapsed() > busy {
            return Err(failed(format!("is unmounted, but {} is in use", node.display())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < BUSY, "waited too long for {what}");
        std::thread::sleep(LOOK);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.detached {
            Undo::Loop(self.node.clone()).run();
        }
    }
}
