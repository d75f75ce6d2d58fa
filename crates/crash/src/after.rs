//! The file system that a power cut leaves of a recorded disk, mounted.

use crate::cut::{Cut, View};
use crate::cut_disk::CutDisk;
use crate::log::Log;
use crate::mount::Mount;
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::FileSystem;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system as a cut left it; unmounted and removed when dropped. Where a file system cannot
/// be mounted beside its copy ([`FileSystem::beside_copy`]), the recorded one must be unmounted.
pub struct AfterCut {
    mounted: Option<Mount>,
    disk: Option<CutDisk>,
    dir: tempfile::TempDir,
    _tree: Ticket,
}

impl AfterCut {
    /// Cuts a recording (see [`crate::slow::SlowMount::recorded`]), and mounts the result.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn new(
        file_system: &'static FileSystem,
        (base, log): (&File, &Arc<Log>),
        atom: u64,
        cut: Cut,
    ) -> Self {
        let dir = fragmend_testbed::scratch::directory("after");
        let tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let mnt = dir.path().join("mnt");
        fs::create_dir(&mnt).expect("a directory");
        let base = base.try_clone().expect("the image");
        let view = View::new(base, Arc::clone(log), atom).expect("a view");
        let mut disk = CutDisk::new(view).expect("a disk in memory");
        disk.set(cut).expect("the log fits the disk");
        let mounted = Mount::new(file_system, disk.node(), &mnt, "");
        let mounted = mounted.unwrap_or_else(|why| panic!("{cut:?}: {why}"));
        Self { mounted: Some(mounted), disk: Some(disk), dir, _tree: tree }
    }

    /// Where it is mounted.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Unmounts it, so that the file system's check can run.
    pub fn unmount(&mut self) {
        self.mounted.take().into_iter().for_each(Mount::unmount);
    }

    /// The path of the block device.
    pub fn node(&self) -> &Path {
        self.disk.as_ref().expect("there until it is dropped").node()
    }
}

impl Drop for AfterCut {
    fn drop(&mut self) {
        drop(self.mounted.take());
        let disk = self.disk.take();
        if !std::thread::panicking() {
            disk.into_iter().for_each(CutDisk::detach);
        }
    }
}
