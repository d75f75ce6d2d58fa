//! Reads scattered ranges of a block device: sorted, adjacent ones joined, and announced to the kernel ahead,
//! so that a cold disk works on many at once.
//!
//! Reads are buffered on purpose: the device's page cache is where ext4 keeps its own metadata, so these reads
//! return what ext4 itself sees at this moment, written back or not.

use super::extents::Nodes;
use rustix::fs::Advice;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Gaps of up to this many bytes between two wanted ranges are read as well.
const BRIDGE: u64 = 8 * 1024;
/// The longest single read, in bytes.
const LONGEST: u64 = 1 << 20;
/// The longest announcement, in bytes: the kernel cuts one to the device's readahead window, and this is the
/// usual one.
const ANNOUNCE: u64 = 128 * 1024;

/// Buffers that one worker uses again for each batch.
pub(crate) struct Space {
    ranges: Vec<Range<u64>>,
    bytes: Vec<u8>,
    node: Vec<u8>,
}

impl Space {
    pub fn new(block_bytes: u64) -> Self {
        Self { ranges: Vec::new(), bytes: Vec::new(), node: vec![0; block_bytes as usize] }
    }

    /// Reads `len` bytes at each of the ascending `addresses` and passes them to `visit` with their position in
    /// the list; `None` where they could not be read.
    pub fn read_sorted(
        &mut self,
        device: &File,
        addresses: &[u64],
        len: u64,
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) {
        self.join(addresses, len);
        announce(device, &self.ranges);
        let mut at = 0;
        for range in &self.ranges {
            self.bytes.resize((range.end - range.start) as usize, 0);
            let read = device.read_exact_at(&mut self.bytes, range.start).is_ok();
            while let Some(address) = addresses.get(at).filter(|a| **a + len <= range.end) {
                let from = (address - range.start) as usize;
                visit(at, read.then(|| &self.bytes[from..from + len as usize]));
                at += 1;
            }
        }
    }

    fn join(&mut self, addresses: &[u64], len: u64) {
        self.ranges.clear();
        for &start in addresses {
            match self.ranges.last_mut() {
                Some(last) if start <= last.end + BRIDGE && start + len - last.start <= LONGEST => {
                    last.end = last.end.max(start + len);
                }
                _ => self.ranges.push(start..start + len),
            }
        }
    }
}

/// Announces blocks, which may be in any order.
pub(crate) fn announce_blocks(device: &File, blocks: &mut [u64], block_bytes: u64) {
    blocks.sort_unstable();
    let mut space = Space::new(0);
    for part in blocks.chunks(4096) {
        let addresses: Vec<u64> = part.iter().map(|b| b * block_bytes).collect();
        space.join(&addresses, block_bytes);
        announce(device, &space.ranges);
    }
}

/// Lets the kernel start reading; it is no error if it does not.
fn announce(device: &File, ranges: &[Range<u64>]) {
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(ANNOUNCE);
            let _ = rustix::fs::fadvise(device, at, NonZeroU64::new(len), Advice::WillNeed);
            at += len;
        }
    }
}

/// Extent blocks, read directly from the device.
pub(crate) struct DeviceNodes<'a> {
    pub device: &'a File,
    pub space: &'a mut Space,
}

impl Nodes for DeviceNodes<'_> {
    fn node(&mut self, block: u64, _depth: u16) -> Option<&[u8]> {
        let at = block.checked_mul(self.space.node.len() as u64)?;
        self.device.read_exact_at(&mut self.space.node, at).ok()?;
        Some(&self.space.node)
    }

    fn expect(&mut self, blocks: &mut Vec<u64>) {
        announce_blocks(self.device, blocks, self.space.node.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_bridged_and_ranges_stay_short() {
        let mut space = Space::new(4096);
        space.join(&[0, 256, 8000, 100_000, 101_000], 256);
        assert_eq!(space.ranges, [0..8256, 100_000..101_256]);
        let many: Vec<u64> = (0..10_000).map(|i| i * 256).collect();
        space.join(&many, 256);
        assert!(space.ranges.iter().all(|r| r.end - r.start <= LONGEST));
        assert_eq!(space.ranges.iter().map(|r| r.end - r.start).sum::<u64>(), 2_560_000);
    }

    #[test]
    fn fragments_past_the_end_are_shown_as_missing() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 1000], 0).unwrap();
        let mut seen = Vec::new();
        Space::new(4096).read_sorted(&file, &[0, 500_000], 100, |i, b| {
            seen.push((i, b.map(|b| b[99])));
        });
        assert_eq!(seen, [(0, Some(7)), (1, None)]);
    }
}
