//! The kernel's counters of a device while something runs, optionally from a cold cache.

use crate::image::Image;
use crate::tools;
use fragmend_sys::block::Counters;
use std::path::Path;
use std::time::{Duration, Instant};

/// The cost of one unit of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Requests and bytes on the image's device, journal and metadata included.
    pub device: Counters,
    /// Time from start to end, the final sync included.
    pub elapsed: Duration,
}

/// Runs `work` and returns its result with its cost on the device. Dirty pages are written back
/// before it starts and again before the count ends.
pub fn measured<T>(image: &Image, work: impl FnOnce() -> T) -> (T, Cost) {
    image.sync();
    let (before, start) = (image.counters(), Instant::now());
    let result = work();
    image.sync();
    let elapsed = start.elapsed();
    (result, Cost { device: image.counters() - before, elapsed })
}

/// The same from a cold cache.
pub fn measured_cold<T>(image: &Image, work: impl FnOnce() -> T) -> (T, Cost) {
    drop_caches(image.path());
    measured(image, work)
}

/// The same with the files' extents cached and none of their data: as for a service that has run
/// for some minutes.
pub fn measured_map_warm<T>(
    image: &Image,
    files: &[impl AsRef<Path>],
    work: impl FnOnce() -> T,
) -> (T, Cost) {
    image.remount();
    drop_caches(image.path());
    for file in files {
        tools::extents(file.as_ref());
    }
    measured(image, work)
}

/// Writes back the file system of `on`, and empties the page, dentry and inode caches of the whole
/// machine. Other file systems are not synced: one that hangs would hang this process.
///
/// # Panics
/// Without the privilege to do so.
pub fn drop_caches(on: &Path) {
    let on = std::fs::File::open(on).expect("something on the file system");
    rustix::fs::syncfs(on).expect("it can be synced");
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .expect("the page cache can be dropped: /proc/sys/vm/drop_caches needs root");
}
