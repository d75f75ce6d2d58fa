//! Loads that can be replayed: a fixed list of requests, issued in order by one reader, the same for
//! recording, before and after.

use crate::random::{Random, Zipf};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Size of one request in every load here: what FragPicker uses, because it is Linux's default
/// readahead (SOSP'21, section 3).
pub const REQUEST_BYTES: u64 = 128 << 10;

/// FragPicker's stride (section 5.2), in bytes.
pub const STRIDE_BYTES: u64 = 288 << 10;

/// One read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Whether reads go through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `O_DIRECT`.
    Direct,
    /// Through the page cache, with the device's own readahead.
    Buffered,
}

/// The whole file in order.
pub fn sequential(file_bytes: u64) -> Vec<Request> {
    every(file_bytes, REQUEST_BYTES)
}

/// One request, then a gap of [`STRIDE_BYTES`], and so on.
///
/// The paper says "we set the stride size as 288KB". That reproduces the paper's own figures only as
/// the gap between two requests: 128 of every 416 KiB are read, 7 of 8 of those cross a break,
/// 26.9 % of the file. From start to start it would be 38.9 %; see [`stride_start_to_start`].
pub fn stride(file_bytes: u64) -> Vec<Request> {
    every(file_bytes, REQUEST_BYTES + STRIDE_BYTES)
}

/// The other reading of the paper's stride: 288 KiB from the start of one request to the next.
pub fn stride_start_to_start(file_bytes: u64) -> Vec<Request> {
    every(file_bytes, STRIDE_BYTES)
}

/// As many requests as a sequential read needs, at aligned offsets with zipfian popularity; `seed`
/// shuffles which offsets are popular.
pub fn zipfian(file_bytes: u64, seed: u64) -> Vec<Request> {
    let mut random = Random::new(seed);
    let mut slots: Vec<u64> = (0..file_bytes / REQUEST_BYTES).collect();
    random.shuffle(&mut slots);
    let zipf = Zipf::new(slots.len(), Zipf::YCSB);
    (0..slots.len())
        .map(|_| Request {
            offset: slots[zipf.draw(&mut random)] * REQUEST_BYTES,
            len: REQUEST_BYTES,
        })
        .collect()
}

fn every(file_bytes: u64, step: u64) -> Vec<Request> {
    (0..)
        .map(|i| Request { offset: i * step, len: REQUEST_BYTES })
        .take_while(|r| r.offset + r.len <= file_bytes)
        .collect()
}

/// Issues the requests one after another.
///
/// # Errors
/// When the file cannot be opened in that mode, or a request extends beyond its end.
pub fn replay(path: &Path, requests: &[Request], mode: Mode) -> io::Result<()> {
    let file = open(path, mode)?;
    let longest = requests.iter().map(|r| r.len as usize).max().unwrap_or(0);
    let mut buffer = Aligned::new(longest);
    for request in requests {
        file.read_exact_at(&mut buffer.bytes()[..request.len as usize], request.offset)?;
    }
    Ok(())
}

/// Opens a file for reading.
pub fn open(path: &Path, mode: Mode) -> io::Result<File> {
    let flags = match mode {
        Mode::Direct => rustix::fs::OFlags::DIRECT.bits() as i32,
        Mode::Buffered => 0,
    };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// A buffer for `O_DIRECT`: aligned to a page.
pub struct Aligned {
    store: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    const ALIGN: usize = 4096;

    /// `len` bytes of zeroes.
    pub fn new(len: usize) -> Self {
        let store = vec![0; len + Self::ALIGN];
        let start = store.as_ptr().align_offset(Self::ALIGN);
        Self { store, start, len }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.store[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_stay_in_the_file_and_repeat() {
        let bytes = 64 << 20;
        for load in [sequential(bytes), stride(bytes), zipfian(bytes, 3)] {
            assert!(load.iter().all(|r| r.offset + r.len <= bytes));
        }
        assert_eq!(sequential(bytes).len(), 512);
        assert_eq!(stride(bytes)[1].offset, 416 << 10);
        assert_eq!(zipfian(bytes, 3), zipfian(bytes, 3));
        assert_ne!(zipfian(bytes, 3), zipfian(bytes, 4));
    }

    #[test]
    fn a_buffer_is_aligned() {
        let mut buffer = Aligned::new(8192);
        assert_eq!(buffer.bytes().as_ptr() as usize % 4096, 0);
        assert_eq!(buffer.bytes().len(), 8192);
    }
}
