//! Accesses cut to where a file has data, so that no step's work grows with the file's *size*: a sparse file
//! may have a size of 8 EiB, and any program may have tried to read all of it.
//!
//! Reads of holes cost no request. But readahead continues through them, so each range of data gets a margin on
//! both sides, and ranges whose margins meet are joined: what is fetched in and near data is the same as
//! without the cut. The one exception is a reader that comes out of a hole of more than two margins: there a
//! window has the length of the margin to grow in.

use crate::readahead::Window;
use fragmend_layout::{ByteRange, Layout};

/// The ranges that hold data, with margins: ascending, disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    spans: Vec<ByteRange>,
}

/// The least margin on both sides of data, in bytes; a window doubles to its full length within it.
const MARGIN: u64 = 1 << 20;

impl Bounds {
    /// The bounds around the data of a file.
    pub fn of(layout: &Layout, window: Window) -> Self {
        let margin = MARGIN.max(window.readahead.saturating_mul(2)).max(window.longest);
        Self::around(data(layout), margin)
    }

    /// No bounds.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { spans: vec![ByteRange { start: 0, end: u64::MAX }] }
    }

    fn around(data: impl Iterator<Item = ByteRange>, margin: u64) -> Self {
        let mut spans: Vec<ByteRange> = Vec::new();
        for d in data {
            let wide = ByteRange {
                start: d.start.saturating_sub(margin),
                end: d.end.saturating_add(margin),
            };
            match spans.last_mut() {
                Some(last) if wide.start <= last.end => last.end = last.end.max(wide.end),
                _ => spans.push(wide),
            }
        }
        Self { spans }
    }

    /// The parts of `range` within bounds.
    pub fn clip(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let first = self.spans.partition_point(|s| s.end <= range.start);
        let parts = self.spans[first..].iter().take_while(move |s| s.start < range.end);
        parts.map(move |s| s.intersect(range)).filter(|part| !part.is_empty())
    }
}

/// The ranges of a file that hold data, extent by extent.
pub fn data(layout: &Layout) -> impl Iterator<Item = ByteRange> + '_ {
    layout.extents().iter().filter(|e| e.kind.is_addressed()).map(|e| e.range())
}

/// How many times the space of a file appears in it: 1 for all files but those that share blocks with
/// themselves, which may show a few blocks as many TiB. A power of two.
pub fn times_over(layout: &Layout) -> u64 {
    let placed = || layout.extents().iter().filter(|e| e.kind.is_addressed());
    let shown: u128 = placed().map(|e| u128::from(e.physical_end() - e.physical)).sum();
    let (Some(start), Some(end)) =
        (placed().map(|e| e.physical).min(), placed().map(|e| e.physical_end()).max())
    else {
        return 1;
    };
    let times = shown / u128::from((end - start).max(1));
    u64::try_from(times).unwrap_or(u64::MAX >> 1).max(1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{Extent, ExtentKind, FileId};

    #[test]
    fn a_file_that_shares_with_itself_is_known() {
        let file = |kind, physical: fn(u64) -> u64| {
            let mut layout = Layout::new(FileId { device: 1, inode: 2, generation: 3 }, 1 << 40);
            for i in 0..1000 {
                let (logical, physical) = (i << 20, physical(i));
                layout.push(Extent { logical, physical, length: 1 << 20, kind });
            }
            times_over(&layout)
        };
        assert_eq!(file(ExtentKind::Shared, |i| (i % 10) << 21), 64);
        assert_eq!(file(ExtentKind::Data, |i| (1000 - i) << 20), 1);
        assert_eq!(file(ExtentKind::Shared, |i| (i % 2) << 40), 1);
        let encoded = ExtentKind::Encoded { stored: 4096, shared: false };
        assert_eq!(file(encoded, |i| i << 13), 1);
    }

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn accesses_are_cut_to_data_and_its_margins() {
        let bounds = Bounds::around([r(0, 10), r(12, 20), r(1000, 1010)].into_iter(), 5);
        assert_eq!(bounds.spans, [r(0, 25), r(995, 1015)]);
        let clip = |range| bounds.clip(range).collect::<Vec<_>>();
        assert_eq!(clip(r(0, u64::MAX)), [r(0, 25), r(995, 1015)]);
        assert_eq!(clip(r(3, 4)), [r(3, 4)]);
        assert_eq!(clip(r(25, 995)), []);
        assert_eq!(clip(r(7, 7)), []);
        assert_eq!(Bounds::default().clip(r(0, u64::MAX)).count(), 0);
    }
}
