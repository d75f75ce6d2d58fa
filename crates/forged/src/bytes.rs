//! Numbers and files made from the fuzzer's bytes.

use rustix::fs::MemfdFlags;
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A cursor over an input; it reads zeroes behind the end.
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// A cursor at its start.
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes, at most this many.
    pub fn up_to(&mut self, many: usize) -> &'a [u8] {
        let (first, rest) = self.rest.split_at(many.min(self.rest.len()));
        self.rest = rest;
        first
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.up_to(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// A number.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// A number.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// A number.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// A file in memory, which has a path.
pub struct InMemory {
    /// The file.
    pub file: File,
    path: PathBuf,
}

impl InMemory {
    fn new() -> Self {
        let fd = rustix::fs::memfd_create("forged", MemfdFlags::CLOEXEC).expect("a memfd");
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd()).into();
        Self { file: fd.into(), path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Calls `show` with a file that has this content.
pub fn with_file<R>(content: &[u8], show: impl FnOnce(&InMemory) -> R) -> R {
    thread_local! {
        static FILE: RefCell<InMemory> = RefCell::new(InMemory::new());
    }
    FILE.with_borrow_mut(|memory| {
        memory.file.set_len(content.len() as u64).expect("its length");
        memory.file.write_all_at(content, 0).expect("its content");
        show(memory)
    })
}
