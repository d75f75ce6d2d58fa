//! A mounted device that is known to be unmounted when it has to be: what the check reads next
//! must be final.

use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::FileSystem;
use fragmend_testbed::loop_device::wait_until_free;
use fragmend_testbed::process::try_run;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mounted device; unmounted when dropped.
pub struct Mounted {
    node: PathBuf,
    dir: PathBuf,
    _ticket: Ticket,
}

impl Mounted {
    /// Mounts a device at a directory.
    ///
    /// # Errors
    /// What mount said.
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

    /// Unmounts it, and waits until nothing of it is left on the device.
    ///
    /// # Panics
    /// When it is in use for many seconds.
    pub fn unmount(self) {
        const TRIES: u32 = 500;
        for attempt in 1.. {
            // A process that another thread has just started holds all our files for a moment.
            match try_run("umount", [&self.dir]) {
                Ok(_) => break,
                Err(why) => assert!(attempt < TRIES, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        wait_until_free(&self.node);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mounts = fragmend_sys::mounts::all().unwrap_or_default();
        if mounts.iter().any(|m| m.point == self.dir) {
            Undo::Mount(self.dir.clone()).run();
        }
    }
}
