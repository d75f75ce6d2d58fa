//! An aged file system: full of small files of which some are removed, so that files that grow
//! afterwards are allocated in the holes.

use crate::random::Random;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A cache of files that fills a file system and evicts entries at random.
pub struct Cache {
    dir: PathBuf,
    entries: Vec<PathBuf>,
}

impl Cache {
    /// Fills what is free with files of 4 KiB to `largest_bytes` bytes until the disk is full.
    ///
    /// # Panics
    /// When writing fails for another reason than a full disk.
    pub fn fill(dir: &Path, largest_bytes: u64, seed: u64) -> Self {
        const DIRECTORIES: u64 = 64;
        let mut random = Random::new(seed);
        for d in 0..DIRECTORIES {
            std::fs::create_dir_all(dir.join(d.to_string())).expect("a cache directory");
        }
        let blob = vec![0xA5; largest_bytes as usize];
        let mut entries = Vec::new();
        for n in 0u64.. {
            let path = dir.join((n % DIRECTORIES).to_string()).join(n.to_string());
            let len = 4096 * (1 + random.below(largest_bytes / 4096));
            let written = File::create(&path).and_then(|mut f| {
                entries.push(path);
                f.write_all(&blob[..len as usize])
            });
            match written {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => break,
                Err(e) => panic!("filling the cache: {e}"),
            }
        }
        random.shuffle(&mut entries);
        Self { dir: dir.to_owned(), entries }
    }

    /// Evicts `n` entries, at random.
    pub fn evict(&mut self, n: usize) {
        for path in self.entries.drain(self.entries.len().saturating_sub(n)..) {
            std::fs::remove_file(path).expect("a cache entry can be removed");
        }
    }

    /// Entries that are left.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes the cache and all that is in it.
    pub fn retire(self) {
        std::fs::remove_dir_all(&self.dir).expect("the cache can be removed");
    }
}

/// Allocates `bytes` as contiguously as possible, as an archive or an image does; removing the file
/// leaves a contiguous free range.
pub fn reserve(path: &Path, bytes: u64) {
    let file = File::create_new(path).expect("the archive's file");
    fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("space for the archive");
}

/// Allocates every free block to a new file, including those that are reserved for root.
///
/// # Panics
/// When the file cannot be created.
pub fn fill_up(path: &Path) -> File {
    let file = File::create(path).expect("the filler's file");
    let mut at = 0;
    for bytes in [16 << 20, 1 << 20, 64 << 10, 4096] {
        while fallocate(&file, FallocateFlags::empty(), at, bytes).is_ok() {
            at += bytes;
        }
    }
    file
}
