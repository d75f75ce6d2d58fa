//! Fragments: what a read sees of a layout. A fragment continues as long as the data does, in the file and on
//! the device, whichever files share it and however it is stored there.
//!
//! Compressed data is stored in extents of its own, each of which holds at most [`LONGEST_ENCODED`] bytes of a
//! file. Where one begins directly after the last byte in which the one before it is stored, the device
//! continues reading: that is not a break.

use crate::{ByteRange, Extent, Layout};

/// The most of a file's bytes that one compressed extent holds (`BTRFS_MAX_UNCOMPRESSED`,
/// fs/btrfs/fs.h).
pub const LONGEST_ENCODED: u64 = 128 << 10;

/// Plain data among compressed data: below this length it is a few blocks that were written by themselves; from
/// it on it is data that does not compress, or is not to be compressed.
const FEW_PLAIN: u64 = 32 << 10;

/// A fragment: a range of a file in one contiguous range of the device. All figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The file bytes that it covers.
    pub range: ByteRange,
    /// How many of them are stored encoded.
    pub encoded: u64,
    /// Where it begins on the device.
    pub physical: u64,
    /// Where it ends there.
    pub physical_end: u64,
}

impl Fragment {
    fn of(extent: &Extent) -> Self {
        Self {
            range: extent.range(),
            encoded: if extent.kind.is_encoded() { extent.length } else { 0 },
            physical: extent.physical,
            physical_end: extent.physical_end(),
        }
    }

    fn goes_on_in(&self, next: &Self) -> bool {
        self.range.end == next.range.start && self.physical_end == next.physical
    }
}

/// The fewest extents that hold so many bytes, plain ones being at most `largest` bytes long.
pub fn fewest_extents(bytes: u64, encoded: u64, largest: u64) -> u64 {
    encoded.div_ceil(LONGEST_ENCODED) + (bytes - encoded).div_ceil(largest)
}

/// A range of data that is stored in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// The file bytes that it covers.
    pub range: ByteRange,
    /// Whether that way is compressed.
    pub encoded: bool,
}

/// Extents in file order, cut at holes and where the way in which they are stored changes. A few plain blocks
/// beside compressed data count as compressed: what is written block by block to a compressed file is stored
/// plain, since compression would save nothing there, until it is written anew together with the data around
/// it.
pub fn stored_alike<'a>(extents: impl IntoIterator<Item = &'a Extent>) -> Vec<Alike> {
    let mut cut: Vec<Alike> = Vec::new();
    for e in extents {
        let (range, encoded) = (e.range(), e.kind.is_encoded());
        match cut.last_mut() {
            Some(last) if last.encoded == encoded && last.range.end == range.start => {
                last.range.end = range.end;
            }
            _ => cut.push(Alike { range, encoded }),
        }
    }
    let of_two = |a: &Alike, b: &Alike| a.range.end == b.range.start && (a.encoded || b.encoded);
    let beside: Vec<bool> = (0..cut.len())
        .map(|at| {
            let before = at.checked_sub(1).is_some_and(|b| of_two(&cut[b], &cut[at]));
            before || cut.get(at + 1).is_some_and(|next| of_two(&cut[at], next))
        })
        .collect();
    let mut out: Vec<Alike> = Vec::new();
    for (part, beside) in cut.into_iter().zip(beside) {
        let encoded = part.encoded || beside && part.range.len() < FEW_PLAIN;
        match out.last_mut() {
            Some(last) if last.encoded == encoded && last.range.end == part.range.start => {
                last.range.end = part.range.end;
            }
            _ => out.push(Alike { encoded, ..part }),
        }
    }
    out
}

impl Layout {
    /// The fragments of `range`, in file order.
    pub fn fragments_within(&self, range: ByteRange) -> impl Iterator<Item = Fragment> + '_ {
        let addressed = self.within(range).filter(|e| e.kind.is_addressed());
        let mut fragments = addressed.map(|e| Fragment::of(&e)).peekable();
        std::iter::from_fn(move || {
            let mut fragment = fragments.next()?;
            while let Some(next) = fragments.next_if(|next| fragment.goes_on_in(next)) {
                fragment.range.end = next.range.end;
                fragment.encoded += next.encoded;
                fragment.physical_end = next.physical_end;
            }
            Some(fragment)
        })
    }

    /// All fragments of the file.
    pub fn all_fragments(&self) -> impl Iterator<Item = Fragment> + '_ {
        self.fragments_within(ByteRange { start: 0, end: u64::MAX })
    }

    /// The number of fragments of `range`: the requests that a read of it costs when no request limit cuts
    /// further.
    pub fn fragments(&self, range: ByteRange) -> u64 {
        self.fragments_within(range).count() as u64
    }

    /// Offsets where data continues in the file but not on the device, in ascending order.
    pub fn breaks(&self) -> impl Iterator<Item = u64> + '_ {
        let mut end = None;
        self.all_fragments().filter_map(move |fragment| {
            let before = end.replace(fragment.range.end);
            (before == Some(fragment.range.start)).then_some(fragment.range.start)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtentKind, FileId};

    const KIB: u64 = 1024;

    fn layout(extents: &[(u64, u64, u64, ExtentKind)]) -> Layout {
        let mut l = Layout::new(FileId { device: 1, inode: 2, generation: 3 }, 0);
        for &(logical, physical, length, kind) in extents {
            l.push(Extent { logical, physical, length, kind });
        }
        l
    }

    fn encoded(stored: u64) -> ExtentKind {
        ExtentKind::Encoded { stored, shared: false }
    }

    #[test]
    fn compressed_extents_that_follow_each_other_on_the_device_are_one_fragment() {
        let k = 128 * KIB;
        let l = layout(&[
            (0, 0, k, encoded(60 * KIB)),
            (k, 60 * KIB, k, encoded(40 * KIB)),
            (2 * k, 100 * KIB, k, ExtentKind::Data),
            (3 * k, 300 * KIB, k, encoded(40 * KIB)),
        ]);
        assert_eq!(l.breaks().collect::<Vec<_>>(), [3 * k]);
        let first = l.all_fragments().next().unwrap();
        assert_eq!((first.range.end, first.encoded, first.physical_end), (3 * k, 2 * k, 228 * KIB));
        // A read of a part of a compressed extent reads all of it.
        assert_eq!(l.fragments(ByteRange { start: 64 * KIB, end: k + 4 * KIB }), 1);
        assert_eq!(l.extents().len(), 4);
    }

    #[test]
    fn other_users_of_an_extent_do_not_break_it() {
        let l = layout(&[(0, 0, 4096, ExtentKind::Data), (4096, 4096, 4096, ExtentKind::Shared)]);
        assert_eq!((l.all_fragments().count(), l.extents().len()), (1, 2));
    }

    #[test]
    fn a_few_plain_blocks_among_compressed_data_go_with_it() {
        let (e, d) = (encoded(4 * KIB), ExtentKind::Data);
        let l = layout(&[
            (0, 0, 4 * KIB, d),
            (4 * KIB, 400 * KIB, 28 * KIB, e),
            (32 * KIB, 500 * KIB, 4 * KIB, d),
            (36 * KIB, 600 * KIB, 92 * KIB, e),
            (128 * KIB, 1000 * KIB, 128 * KIB, d),
            (256 * KIB, 2000 * KIB, 32 * KIB, e),
            (512 * KIB, 3000 * KIB, 4 * KIB, d),
        ]);
        let alike: Vec<_> = stored_alike(l.extents())
            .iter()
            .map(|a| (a.range.start / KIB, a.range.end / KIB, a.encoded))
            .collect();
        assert_eq!(alike, [(0, 128, true), (128, 256, false), (256, 288, true), (512, 516, false)]);
    }

    #[test]
    fn the_fewest_extents_are_what_compression_allows() {
        assert_eq!(fewest_extents(1 << 20, 1 << 20, 128 << 20), 8);
        assert_eq!(fewest_extents((1 << 20) + 1, 1 << 20, 128 << 20), 9);
        assert_eq!(fewest_extents(256 << 20, 0, 128 << 20), 2);
    }
}
