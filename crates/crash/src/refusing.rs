//! A fragmented file on a disk that refuses writes to it. The kernel marks a page clean whose
//! writeback the disk has refused, so the page cache has the only copy of its data.

use crate::slow::{Arrived, Kind, SlowMount};
use fragmend_sys::cache;
use fragmend_sys::fiemap::Fiemap;
use fragmend_testbed::file_system::FileSystem;
use fragmend_testbed::fragment::{content, interleaved};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The data of the write that is refused: one block.
pub const REFUSED: [u8; 4096] = [0xe7; 4096];

/// A mounted file system with one fragmented file, on a disk that refuses chosen writes.
pub struct RefusingDisk {
    slow: SlowMount,
    path: PathBuf,
    bytes: u64,
}

impl RefusingDisk {
    /// Makes a file system of `disk_bytes` with a file of `bytes` in extents of 4 KiB; `prepare` may
    /// change the file before it is synced. Nothing is refused yet.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(
        file_system: &'static FileSystem,
        disk_bytes: u64,
        bytes: u64,
        prepare: impl FnOnce(&File),
    ) -> Self {
        let slow = SlowMount::new(file_system, disk_bytes, "");
        let path = slow.root().join("file");
        interleaved(&path, bytes, &[4096], true).expect("a fragmented file");
        prepare(&File::options().write(true).open(&path).expect("the file"));
        slow.sync();
        Self { slow, path, bytes }
    }

    /// The mounted file system.
    pub fn slow(&self) -> &SlowMount {
        &self.slow
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses [`REFUSED`] wherever it is written, from now on.
    pub fn refuse_data(&self) {
        self.slow.gate().refuse(Some(|arrived: &Arrived| {
            arrived.kind == Kind::Write && arrived.carries(&REFUSED[..512])
        }));
    }

    /// Refuses every write to the place on the disk that byte `at` of the file has now.
    ///
    /// # Panics
    /// When the place cannot be read.
    pub fn refuse_place(&self, at: u64) {
        let mut place = 0;
        let file = File::open(&self.path).expect("the file");
        let found = Fiemap::default()
            .for_each(&file, at..at + 1, true, |e| place = e.physical + (at - e.logical));
        found.expect("its extents");
        self.slow.gate().refuse(Some(move |arrived: &Arrived| {
            let end = arrived.offset + arrived.len;
            arrived.kind == Kind::Write && (arrived.offset..end).contains(&place)
        }));
    }

    /// Accepts all writes again.
    pub fn accept(&self) {
        self.slow.gate().refuse(None::<fn(&Arrived) -> bool>);
    }

    /// Writes [`REFUSED`] at byte `at` through an open descriptor, and waits until the disk has
    /// refused it.
    ///
    /// # Panics
    /// When the page cache does not accept it.
    pub fn write(&self, file: &File, at: u64) {
        self.write_first(file, at, REFUSED.len());
    }

    /// The same with the first `bytes` of it, at least 512.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_first(&self, file: &File, at: u64, bytes: usize) {
        file.write_all_at(&REFUSED[..bytes], at).expect("a write to the page cache");
        let range = at..at + bytes as u64;
        while cache::dirty_pages(file, range.clone()).expect("its dirty pages") > 0 {
            cache::start_writeback(file, range.clone()).expect("a writeback");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the file reads as it was made, except for [`REFUSED`] at byte `at`, and zeroes behind its
    /// first size.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn shows_refused(&self, at: u64) -> bool {
        self.shows_first(at, REFUSED.len())
    }

    /// The same for the first `bytes` of it.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn shows_first(&self, at: u64, bytes: usize) -> bool {
        let found = fs::read(&self.path).expect("the file");
        let mut expected = vec![0; found.len()];
        content(0, &mut expected[..self.bytes as usize]);
        expected[at as usize..][..bytes].copy_from_slice(&REFUSED[..bytes]);
        found == expected
    }
}
