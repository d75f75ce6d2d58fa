//! What a power cut leaves of a recorded disk, mounted.

use crate::cut::{Cut, View};
use crate::log::Log;
use crate::mounted::Mounted;
use crate::slow::SlowDisk;
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::FileSystem;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system as a cut left it; all of it goes when it is dropped. Where copies get into each other's
/// way ([`FileSystem::beside_copy`]), the recorded one must be unmounted.
pub struct AfterCut {
    mounted: Option<Mounted>,
    disk: SlowDisk<View>,
    dir: tempfile::TempDir,
    _tree: Ticket,
}

impl AfterCut {
    /// Cuts a recording (see [`crate::slow::SlowBed::recorded`]), and mounts what is left.
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
        let (served, mnt) = (dir.path().join("served"), dir.path().join("mnt"));
        fs::create_dir(&served).and_then(|()| fs::create_dir(&mnt)).expect("directories");
        let base = base.try_clone().expect("the image");
        let mut view = View::new(base, Arc::clone(log), atom).expect("a view");
        view.set(cut).expect("the log fits the disk");
        let disk = SlowDisk::start(view, &served).expect("a disk through FUSE");
        let mounted = Mounted::new(file_system, disk.node(), &mnt, "");
        let mounted = mounted.unwrap_or_else(|why| panic!("{cut:?}: {why}"));
        Self { mounted: Some(mounted), disk, dir, _tree: tree }
    }

    /// Where it is mounted.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Unmounts it, for its file system's check.
    pub fn unmount(&mut self) {
        self.mounted.take().into_iter().for_each(Mounted::unmount);
    }

    /// The block device's node.
    pub fn node(&self) -> &Path {
        self.disk.node()
    }
}

impl Drop for AfterCut {
    fn drop(&mut self) {
        drop(self.mounted.take());
    }
}
