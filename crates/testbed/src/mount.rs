//! Mounts that a test makes beside those of its images.

use crate::cleanup::{self, Ticket, Undo};
use crate::process::run;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A directory, or a file, at which something is mounted; unmounted when dropped, or when a signal ends the
/// process.
#[derive(Debug)]
pub struct MountGuard {
    at: PathBuf,
    _ticket: Ticket,
}

impl MountGuard {
    /// Runs mount(8) with these arguments and `at`.
    ///
    /// # Panics
    /// When it fails.
    pub fn mount<S: AsRef<OsStr>>(args: &[S], at: &Path) -> Self {
        run("mount", args.iter().map(AsRef::as_ref).chain([at.as_os_str()]));
        Self { at: at.to_owned(), _ticket: cleanup::register(Undo::Mount(at.to_owned())) }
    }

    /// Mounts `from` at `at` as well.
    ///
    /// # Panics
    /// When mount(8) fails.
    pub fn bind(from: &Path, at: &Path) -> Self {
        Self::mount(&[OsStr::new("--bind"), from.as_os_str()], at)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        Undo::Mount(self.at.clone()).run();
    }
}
