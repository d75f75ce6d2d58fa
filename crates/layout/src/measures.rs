//! The measures of one file's fragmentation.
//!
//! DoF, frag size and frag distance follow FragPicker (SOSP'21, section 3 and figure 3). DoF is
//! extents over the fewest possible (janusd, ATC'17, section 2), where the fewest is what the
//! file system's largest extent allows for each run of data, and compression for what is compressed.

use crate::window::requests;
use crate::{ByteRange, DeviceProfile, FsKind, Layout, fewest_extents};

/// What the file system and the device under it allow. All figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Largest extent of the file system (ext4: 32768 blocks).
    pub largest_extent: u64,
    /// Readahead window of the device.
    pub readahead: u64,
    /// Largest request that the kernel builds for the device.
    pub max_request: u64,
}

impl DeviceLimits {
    /// Of a file system with blocks of `block_bytes` on a device.
    pub fn new(kind: FsKind, block_bytes: u64, profile: &DeviceProfile) -> Self {
        Self {
            largest_extent: kind.largest_extent(block_bytes),
            readahead: profile.readahead_bytes,
            max_request: profile.max_request_bytes,
        }
    }
}

/// One file's figures. Counts unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// Extents of data, adjacent ones joined up to the largest extent.
    pub extents: u64,
    /// The fewest extents that hold the same runs of data.
    pub ideal_extents: u64,
    /// Requests of one sequential read at the device's readahead, as the file is now.
    pub requests_now: u64,
    /// The same if every run were contiguous.
    pub requests_best: u64,
    /// Bytes of addressed data.
    pub data_bytes: u64,
    /// Bytes allocated and never written.
    pub unwritten_bytes: u64,
    /// Bytes shared with other files.
    pub shared_bytes: u64,
    /// Bytes stored encoded.
    pub encoded_bytes: u64,
    /// Bytes kept inside the inode.
    pub inline_bytes: u64,
    /// Median length of a fragment, in bytes.
    pub median_frag_size: u64,
    /// Median distance from a fragment's end to the next one's start on the device, in bytes.
    pub median_frag_distance: u64,
}

impl Measures {
    /// Degree of fragmentation: 1 is the best possible. A file without data has 1.
    pub fn dof(&self) -> f64 {
        if self.ideal_extents == 0 { 1.0 } else { self.extents as f64 / self.ideal_extents as f64 }
    }

    /// Measures a layout; `on_fragment(size, distance)` is called for every fragment, with the distance to the
    /// one before it in the same run.
    pub fn of(
        layout: &Layout,
        limits: &DeviceLimits,
        mut on_fragment: impl FnMut(u64, Option<u64>),
    ) -> Self {
        use crate::ExtentKind::*;
        let mut m = Self::default();
        for e in layout.extents() {
            match e.kind {
                Unwritten => m.unwritten_bytes += e.length,
                Inline => m.inline_bytes += e.length,
                Encoded { .. } => m.encoded_bytes += e.length,
                Data | Shared | Delayed => {}
            }
            m.shared_bytes += if e.kind.is_shared() { e.length } else { 0 };
        }
        let mut sizes = Vec::new();
        let mut distances = Vec::new();
        let mut run = Run::default();
        for fragment in layout.all_fragments() {
            let size = fragment.range.len();
            let goes_on = run.range.end == fragment.range.start && !run.range.is_empty();
            let distance = goes_on.then(|| run.physical_end.abs_diff(fragment.physical));
            if !goes_on {
                run.count(&mut m, limits);
                run = Run { range: fragment.range, ..Run::default() };
            }
            run.range.end = fragment.range.end;
            run.encoded += fragment.encoded;
            run.physical_end = fragment.physical_end;
            m.data_bytes += size;
            m.extents += fewest_extents(size, fragment.encoded, limits.largest_extent);
            m.requests_now += requests(fragment.range, limits.readahead, limits.max_request);
            sizes.push(size);
            distances.extend(distance);
            on_fragment(size, distance);
        }
        run.count(&mut m, limits);
        m.median_frag_size = median(&mut sizes);
        m.median_frag_distance = median(&mut distances);
        m
    }
}

/// A run, up to the last fragment that was seen.
#[derive(Default)]
struct Run {
    range: ByteRange,
    encoded: u64,
    physical_end: u64,
}

impl Run {
    /// Adds the figures that the run would have if it were contiguous.
    fn count(&self, m: &mut Measures, limits: &DeviceLimits) {
        m.ideal_extents += fewest_extents(self.range.len(), self.encoded, limits.largest_extent);
        m.requests_best += requests(self.range, limits.readahead, limits.max_request);
    }
}

/// The lower median; 0 for an empty list. Reorders its input.
fn median(values: &mut [u64]) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extent, ExtentKind, FileId};

    const KIB: u64 = 1024;
    const LIMITS: DeviceLimits =
        DeviceLimits { largest_extent: 128 << 20, readahead: 128 * KIB, max_request: 1280 * KIB };

    fn layout(extents: &[(u64, u64, u64)]) -> Layout {
        let mut l = Layout::new(FileId { device: 0, inode: 0, generation: 0 }, 0);
        for (logical, physical, length) in extents {
            l.push(Extent {
                logical: *logical,
                physical: *physical,
                length: *length,
                kind: ExtentKind::Data,
            });
        }
        l
    }

    #[test]
    fn fragpickers_file_costs_33_requests_per_256_kib() {
        // Section 5.2: thirty-two 4 KiB blocks and one 128 KiB block.
        let mut fragments: Vec<_> =
            (0..32).map(|i| (i * 4 * KIB, (1 << 30) + i * 8 * KIB, 4 * KIB)).collect();
        fragments.push((128 * KIB, 1 << 31, 128 * KIB));
        let m = Measures::of(&layout(&fragments), &LIMITS, |_, _| {});
        assert_eq!((m.extents, m.ideal_extents), (33, 1));
        assert_eq!((m.requests_now, m.requests_best), (33, 2));
        assert_eq!(m.median_frag_size, 4 * KIB);
        assert_eq!(m.median_frag_distance, 4 * KIB);
    }

    #[test]
    fn a_large_contiguous_file_is_ideal() {
        let m = Measures::of(&layout(&[(0, 0, 1 << 30)]), &LIMITS, |_, _| {});
        assert_eq!((m.extents, m.ideal_extents), (8, 8));
        assert_eq!(m.dof(), 1.0);
        assert_eq!(m.requests_now, m.requests_best);
    }

    #[test]
    fn an_empty_file_is_not_fragmented() {
        assert_eq!(Measures::of(&layout(&[]), &LIMITS, |_, _| {}).dof(), 1.0);
    }
}
