//! Reads of many fragments are split as if each fragment was looked at.

use super::*;
use fragmend_layout::{DeviceKind, Extent, ExtentKind, FileId};
use proptest::prelude::*;

impl PartialEq for Fragments {
    /// What was computed is the same if the rest is.
    fn eq(&self, other: &Self) -> bool {
        (&self.fragments, &self.seeks, &self.moved)
            == (&other.fragments, &other.seeks, &other.moved)
            && self.joins == other.joins
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

/// How a read is split, by a look at each of its fragments.
fn one_by_one(p: &Fragments, range: ByteRange, limit: u64) -> Split {
    let (first, touched) = (p.first_behind(range.start), p.touched_by(range));
    let lengths = || touched.iter().map(|p| p.intersect(range).len());
    let (mut requests, mut open) = (0, 0u64);
    for (i, bytes) in lengths().enumerate() {
        let join = p.joins.get(first + i).copied().unwrap_or_default();
        let whole = || bytes == touched[i].len() && range.start <= touched[i - 1].start;
        if i == 0 || join == Join::Apart || join == Join::InFront && !whole() {
            requests += open.div_ceil(limit);
            open = 0;
        }
        open += bytes;
    }
    let seeks = p.seeks.get(first + 1..first + touched.len()).unwrap_or_default();
    let moved = p.moved.get(first..first + touched.len()).unwrap_or_default();
    Split {
        bytes: lengths().sum(),
        requests: requests + open.div_ceil(limit),
        seek_ns: seeks.iter().sum(),
        torn: moved.windows(2).any(|pair| pair[0] != pair[1]),
        streamed: false,
    }
}

proptest! {
    #[test]
    fn a_read_of_many_fragments_is_split_as_one_by_one(
        // Runs of fragments that are each so long, and so far behind the one before it in the file and on the device.
        runs in prop::collection::vec((1usize..400, 1u64..6, 0u64..2, -9i64..3, any::<bool>()), 1..20),
        reads in prop::collection::vec((0u64..4000, 0u64..9000), 1..20),
        moves in prop::collection::btree_set(0u64..8000, 0..12),
        (limit, disk, aligned) in (1u64..40, any::<bool>(), any::<bool>()),
    ) {
        let kind = ExtentKind::Data;
        let id = FileId { device: 1, inode: 2, generation: 3 };
        let mut layout = Layout::new(id, 1 << 20);
        let (mut logical, mut physical) = (0, 1u64 << 40);
        for (many, length, hole, gap, touches) in runs {
            // Now and then requests end where sums do.
            let many = if aligned { many.next_multiple_of(STEP) } else { many };
            for _ in 0..many {
                // In front of the one before it, behind it, or neither.
                let gap = if touches && gap < 0 { -2 * length as i64 } else { gap };
                physical = physical.wrapping_add_signed(gap);
                layout.push(Extent { logical, physical, length, kind });
                (logical, physical) = (logical + length + hole, physical + length);
            }
        }
        let kind = if disk { DeviceKind::Disk } else { DeviceKind::Flash };
        let now = Fragments::of(&layout, &CostModel::guessed(kind));
        let moves: Vec<u64> = moves.into_iter().collect();
        let moves: Vec<ByteRange> = moves.chunks_exact(2).map(|m| range(m[0], m[1])).collect();
        for p in [now.after(&moves, 77), now] {
            for (start, length) in &reads {
                let read = range(*start, start + length);
                prop_assert_eq!(p.split(read, limit), one_by_one(&p, read, limit));
                prop_assert_eq!(p.split(read, 7), one_by_one(&p, read, 7));
            }
        }
    }
}

#[test]
fn a_read_of_nothing_needs_no_request() {
    let kind = ExtentKind::Data;
    let mut layout = Layout::new(FileId { device: 1, inode: 2, generation: 3 }, 1 << 20);
    layout.push(Extent { logical: 0, physical: 1 << 40, length: 3, kind });
    layout.push(Extent { logical: 3, physical: 1 << 30, length: 3, kind });
    let p = Fragments::of(&layout, &CostModel::guessed(DeviceKind::Flash));
    for at in 0..7 {
        let split = p.split(range(at, at), 1);
        assert_eq!((split.bytes, split.requests), (0, 0), "at {at}");
    }
}
