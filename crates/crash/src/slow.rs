//! A served disk that is slow, or that holds back chosen requests until they are released
//! ([`fragmend_served::gate`]).

use crate::disk::Disk;
use crate::log::Log;
use crate::marks::{Mark, Marks};
use crate::mount::Mount;
use crate::serve::Served;
pub use fragmend_served::gate::{Gate, Hold};
pub use fragmend_served::request::{Arrived, Kind};
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::FileSystem;
use fragmend_testbed::loop_device::LoopDevice;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A served disk as a block device behind a [`Gate`].
pub struct SlowDisk {
    device: Option<LoopDevice>,
    gate: Gate,
    served: Option<Served>,
}

impl SlowDisk {
    /// Serves a disk in `dir`, an empty directory, and attaches a loop device to it. Its gate lets
    /// all requests pass at first.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(disk: Disk, dir: &Path) -> io::Result<Self> {
        let gate = Gate::default();
        let served = Served::start_slow(disk, dir, gate.clone())?;
        let device = Some(LoopDevice::attach(&served.disk()));
        Ok(Self { device, gate, served: Some(served) })
    }

    /// The path of the block device.
    pub fn node(&self) -> &Path {
        Path::new(self.device.as_ref().expect("there until it is dropped").node())
    }

    /// The gate that its requests pass.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The file that marks are written to.
    pub fn marks(&self) -> PathBuf {
        self.served.as_ref().expect("there until it is dropped").marks()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.gate.open_for_good();
        if let Some(device) = self.device.take() {
            if std::thread::panicking() {
                drop(device);
            } else {
                device.detach();
            }
        }
        drop(self.served.take());
    }
}

/// A mounted file system on a [`SlowDisk`]; unmounted and removed when dropped.
pub struct SlowMount {
    file_system: &'static FileSystem,
    options: String,
    mounted: Option<Mount>,
    disk: Option<SlowDisk>,
    dir: tempfile::TempDir,
    _tree: Ticket,
}

impl SlowMount {
    /// Makes a file system of `bytes` bytes, and mounts it with these options besides its own.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(file_system: &'static FileSystem, bytes: u64, options: &str) -> Self {
        let dir = fragmend_testbed::scratch::directory("slow");
        let tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let served = dir.path().join("served");
        fs::create_dir(&served).expect("a directory");
        fs::create_dir(dir.path().join("mnt")).expect("a directory");
        let disk = Disk::create(dir.path(), bytes).expect("an image");
        let disk = SlowDisk::start(disk, &served).expect("a disk through FUSE");
        file_system.make(disk.node(), &[]);
        let options = options.to_owned();
        let mut mounted =
            Self { file_system, options, mounted: None, disk: Some(disk), dir, _tree: tree };
        mounted.mount();
        mounted
    }

    fn disk(&self) -> &SlowDisk {
        self.disk.as_ref().expect("there until it is dropped")
    }

    /// Where it is mounted.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// A directory beside it, on another file system.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// The path of the block device.
    pub fn node(&self) -> &Path {
        self.disk().node()
    }

    /// The gate that the disk's requests pass.
    pub fn gate(&self) -> &Gate {
        self.disk().gate()
    }

    /// Mounts it, if it is not.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn mount(&mut self) {
        if self.mounted.is_none() {
            let mounted = Mount::new(self.file_system, self.node(), &self.root(), &self.options);
            self.mounted = Some(mounted.unwrap_or_else(|why| panic!("{why}")));
        }
    }

    /// Unmounts it, if it is mounted, which drops all caches.
    ///
    /// # Panics
    /// When it stays in use for many seconds.
    pub fn unmount(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount();
        }
    }

    /// Writes back all dirty pages, and commits (`syncfs`).
    ///
    /// # Panics
    /// When that fails.
    pub fn sync(&self) {
        rustix::fs::syncfs(File::open(self.root()).expect("the root")).expect("syncfs");
    }

    /// Records all requests to the disk from now on; a [`crate::cut::View`] of
    /// [`SlowMount::recorded`] shows what a cut leaves.
    ///
    /// # Panics
    /// When there is no space for a log.
    pub fn record(&self) {
        self.mark(&Mark::Recording);
    }

    /// Adds a mark to the recording.
    ///
    /// # Panics
    /// When there is no space for it.
    pub fn mark(&self, mark: &Mark) {
        let marks = Marks::open(&self.disk().marks()).expect("a place for marks");
        marks.write(mark).expect("a log");
    }

    /// The image when recording began, and the log so far.
    ///
    /// # Errors
    /// When nothing was recorded.
    pub fn recorded(&self) -> io::Result<(File, Arc<Log>)> {
        let inside = |name: &str| self.dir.path().join(name);
        let base = File::open(inside(crate::disk::IMAGE))?;
        Ok((base, Arc::new(Log::open(&inside(crate::disk::LOG))?)))
    }
}

impl Drop for SlowMount {
    fn drop(&mut self) {
        self.gate().open_for_good();
        drop(self.mounted.take());
        drop(self.disk.take());
    }
}
