//! A mount that is known to be gone after `unmount`: the file system's check reads the device next.

use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::FileSystem;
use fragmend_testbed::loop_device::unmount;
use fragmend_testbed::process::run;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A mounted device; unmounted when dropped.
pub struct Mount {
    node: PathBuf,
    dir: PathBuf,
    _ticket: Ticket,
}

impl Mount {
    /// Mounts a device at a directory.
    ///
    /// # Errors
    /// What `mount` printed.
    pub fn new(
        file_system: &FileSystem,
        node: &Path,
        dir: &Path,
        options: &str,
    ) -> Result<Self, String> {
        file_system.mount(node, dir, options)?;
        let _ticket = cleanup::register(Undo::Mount(dir.to_owned()));
        Ok(Self { node: node.to_owned(), dir: dir.to_owned(), _ticket })
    }

    /// Unmounts it, and waits until the kernel has released the device.
    ///
    /// # Panics
    /// When it stays in use for many seconds.
    pub fn unmount(self) {
        unmount(&self.node, &self.dir);
    }
}

/// Freezes the file system at `root` and thaws it at once, which empties its journal.
///
/// # Panics
/// When it cannot be frozen.
pub fn freeze(root: &Path) {
    // One child does both: while it is frozen, a thread of this process that stores to a mapping
    // waits with the memory map locked, and no second child could be started to thaw it.
    let both = "fsfreeze --freeze \"$1\" && fsfreeze --unfreeze \"$1\"";
    run("sh", [OsStr::new("-c"), OsStr::new(both), OsStr::new("sh"), root.as_os_str()]);
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mounts = fragmend_sys::mounts::all().unwrap_or_default();
        if mounts.iter().any(|m| m.point == self.dir) {
            Undo::Mount(self.dir.clone()).run();
        }
    }
}
