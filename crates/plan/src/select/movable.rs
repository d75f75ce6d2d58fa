//! What of a file may be moved: ranges of data that belong to this file alone and are stored in one way.
//!
//! Data that is shared with other files would afterwards exist twice, as theirs and as a copy, which needs
//! space: it is moved only where that was asked for. Compressed data is moved apart from plain data, because
//! engines do so. It is stored in extents of [`LONGEST_ENCODED`] bytes of the file wherever there is space for
//! them, so it is moved only where it is in more fragments than that makes.

use fragmend_layout::{Alike, ByteRange, Extent, LONGEST_ENCODED, Layout, stored_alike};

/// The ranges that may be moved, in ascending order.
pub fn movable_runs(layout: &Layout, unshare: bool) -> Vec<ByteRange> {
    let may_move = |e: &&Extent| e.kind.is_addressed() && (unshare || !e.kind.is_shared());
    let hopeless = |part: &Alike| {
        part.encoded && layout.fragments(part.range) <= part.range.len().div_ceil(LONGEST_ENCODED)
    };
    let mut parts = stored_alike(layout.extents().iter().filter(may_move));
    parts.retain(|part| !hopeless(part));
    parts.into_iter().map(|part| part.range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{ExtentKind, FileId};

    const KIB: u64 = 1024;

    fn layout(extents: &[(u64, u64, u64, ExtentKind)]) -> Layout {
        let mut l = Layout::new(FileId { device: 1, inode: 2, generation: 3 }, 0);
        for &(logical, physical, length, kind) in extents {
            l.push(Extent { logical, physical, length, kind });
        }
        l
    }

    #[test]
    fn what_is_shared_is_left_out_unless_it_was_asked_for() {
        let l = layout(&[
            (0, 90 * KIB, 8 * KIB, ExtentKind::Data),
            (8 * KIB, 50 * KIB, 8 * KIB, ExtentKind::Shared),
            (16 * KIB, 10 * KIB, 8 * KIB, ExtentKind::Data),
        ]);
        let range = |start, end| ByteRange { start: start * KIB, end: end * KIB };
        assert_eq!(movable_runs(&l, false), [range(0, 8), range(16, 24)]);
        assert_eq!(movable_runs(&l, true), [range(0, 24)]);
        assert_eq!(l.shared_bytes(range(4, 24)), 8 * KIB);
    }

    #[test]
    fn compressed_data_is_moved_where_fewer_extents_would_hold_it() {
        let encoded = |shared| ExtentKind::Encoded { stored: 20 * KIB, shared };
        let short = |shared| {
            layout(&[
                (0, 90 * KIB, 64 * KIB, encoded(shared)),
                (64 * KIB, 50 * KIB, 64 * KIB, encoded(shared)),
                (128 * KIB, 10 * KIB, 256 * KIB, ExtentKind::Data),
            ])
        };
        let whole = ByteRange { start: 0, end: 128 * KIB };
        let tail = ByteRange { start: 128 * KIB, end: 384 * KIB };
        assert_eq!(movable_runs(&short(false), false), [whole, tail]);
        assert_eq!(movable_runs(&short(true), false), [tail]);
        assert_eq!(short(true).shared_bytes(whole), 40 * KIB);
        let long = layout(&[
            (0, 90 * KIB, 128 * KIB, encoded(false)),
            (128 * KIB, 50 * KIB, 128 * KIB, encoded(false)),
        ]);
        assert_eq!(movable_runs(&long, true), []);
    }
}
