//! The disk after a cut as a file in memory behind a loop device: it is mounted, read and checked without requests to
//! a server, which would take longer than all else. So is a second disk, if there is one.

use crate::copy::DiskCopy;
use crate::cut::{Cut, View};
use fragmend_sys::block::forget_buffers;
use fragmend_testbed::guest;
use fragmend_testbed::loop_device::LoopDevice;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The disks after a cut; gone when dropped. What is written to them is lost with the next cut.
pub struct CutDisk {
    view: View,
    disks: Vec<Copied>,
}

/// A part of a view, copied to a file in memory.
struct Copied {
    device: LoopDevice,
    copy: DiskCopy,
}

impl CutDisk {
    /// Disks for the cuts of a view, empty at first.
    ///
    /// # Errors
    /// Those of making a file in memory and of attaching a loop device.
    pub fn new(view: View) -> io::Result<Self> {
        let disks =
            view.disks().map(|range| Copied::new(&view, range)).collect::<io::Result<_>>()?;
        Ok(Self { view, disks })
    }

    /// The disks become what a cut leaves of them; they must not be mounted.
    ///
    /// # Errors
    /// When the log does not fit the disk; those of reading the recording.
    pub fn set(&mut self, cut: Cut) -> io::Result<()> {
        self.view.set(cut)?;
        self.disks.iter_mut().try_for_each(|disk| disk.make(&self.view))
    }

    /// The path of the block device.
    pub fn node(&self) -> &Path {
        Path::new(self.disks[0].device.node())
    }

    /// The path of the second one, if there is one.
    pub fn second(&self) -> Option<&Path> {
        self.disks.get(1).map(|disk| Path::new(disk.device.node()))
    }

    /// Detaches the devices, and waits until they are.
    ///
    /// # Panics
    /// As [`LoopDevice::detach`].
    pub fn detach(self) {
        self.disks.into_iter().for_each(|disk| disk.device.detach());
    }
}

impl Copied {
    fn new(view: &View, range: Range<u64>) -> io::Result<Self> {
        // `scripts/tidy` detaches the devices of processes that were killed. A name of its own, because `btrfs check`
        // takes devices for the same whose files have one name.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("fragmend-cut-{}-{made}", std::process::id());
        let file = memfd_create(&name, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, range.end - range.start)?;
        let file = File::from(file);
        let device = LoopDevice::attach_open(&file)?;
        Ok(Self { device, copy: DiskCopy::new(view, range, file, !guest::inside())? })
    }

    fn make(&mut self, view: &View) -> io::Result<()> {
        // Nothing is left of the last cut: what is still to be written of it goes first.
        let node = self.device.node();
        let forget = || File::open(node).and_then(forget_buffers);
        forget()?;
        self.copy.make(view)?;
        forget()
    }
}
