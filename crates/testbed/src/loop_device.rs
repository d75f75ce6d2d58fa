//! A file as a block device.

use crate::cleanup::{self, Ticket, Undo};
use crate::process::run;
use std::ffi::OsString;
use std::path::Path;

/// A loop device; detached when dropped, or when a signal ends the process.
#[derive(Debug)]
pub struct LoopDevice {
    node: String,
    _ticket: Ticket,
}

impl LoopDevice {
    /// Puts `file` behind a loop device.
    ///
    /// # Panics
    /// When losetup fails.
    pub fn attach(file: &Path) -> Self {
        // Direct I/O to the file: what the loop device counts is what a disk would see, and the
        // file is not cached twice.
        let args = ["--find", "--show", "--direct-io=on"].map(OsString::from);
        let node = run("losetup", args.into_iter().chain([file.into()])).trim().to_owned();
        let ticket = cleanup::register(Undo::Loop(node.clone()));
        Self { node, _ticket: ticket }
    }

    /// Its node, for example `/dev/loop3`.
    pub fn node(&self) -> &str {
        &self.node
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        Undo::Loop(self.node.clone()).run();
    }
}
