//! The kernel's counters of a device while something runs, optionally from a cold cache.

use crate::image::Image;
use crate::tools;
use fragmend_sys::block::Counters;
use fragmend_sys::cache;
use std::fs::File;
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

/// Writes back a file and drops its pages, and those of no other file: tests run beside others that look at theirs.
///
/// # Panics
/// When pages stay: something has them mapped, or writes to them.
pub fn drop_pages(path: &Path) {
    let file = File::open(path).expect("a file");
    file.sync_all().expect("it can be synced");
    let bytes = file.metadata().expect("its size").len();
    cache::forget(&file, 0..bytes, || true).expect("its pages can be dropped");
}

/// Writes back the file system of `on`, and empties the page, dentry and inode caches of the whole
/// machine: for a bench or a demo, beside which nothing runs; no test does that. Other file systems are not synced: one
/// that hangs would hang this process.
///
/// # Panics
/// Without the privilege to do so.
pub fn drop_caches(on: &Path) {
    let on = File::open(on).expect("something on the file system");
    rustix::fs::syncfs(on).expect("it can be synced");
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .expect("the page cache can be dropped: /proc/sys/vm/drop_caches needs root");
}
