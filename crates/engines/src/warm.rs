//! The pages of a file's ranges that were in the page cache before the move: moving drops them, and they are
//! brought back afterwards.

use super::mounted::OpenFile;
use super::pages::Pages;
use fragmend_layout::ByteRange;
use fragmend_sys::cache;
use fragmend_sys::same::Compare;
use std::time::{Duration, Instant};

/// How long bringing back may last, for all that is settled together: pages that are missing then are read when
/// they are needed. There is no check for Ctrl-C meanwhile.
pub(super) const RESTORING: Duration = Duration::from_millis(400);
/// Bytes between two checks of the clock.
const STEP: u64 = 256 << 10;

/// The parts of a range, and of the folios that reach into it, that were cached.
pub(super) struct Warm(Vec<ByteRange>);

impl Warm {
    /// Checks `range` and what is around it on the same folios.
    pub fn of(file: &OpenFile, range: ByteRange) -> Self {
        let wide = range.align_outward(cache::largest_folio());
        let parts = [
            ByteRange { start: wide.start, end: range.start },
            range,
            ByteRange { start: range.end, end: wide.end },
        ];
        Self(parts.into_iter().filter(|part| is_cached(file, *part)).collect())
    }

    /// Whether less than half of `range`, for which this was made, was cached.
    pub fn was_cold(&self, range: ByteRange) -> bool {
        !self.0.contains(&range)
    }

    /// Drops what moving left in the cache of `range` if it was not cached before, and brings back what was, in
    /// small reads and until this moment.
    pub fn restore(&self, file: &OpenFile, range: ByteRange, pages: &mut Pages, until: Instant) {
        if self.was_cold(range) {
            drop_until(file, range, until);
        }
        for part in &self.0 {
            let mut at = part.start;
            while at < part.end && Instant::now() < until {
                let step = ByteRange::at(at, STEP).intersect(*part);
                // Best effort.
                let _ = pages.bring_in(&file.fd, step);
                at = step.end;
            }
        }
    }
}

/// Whether nothing of a range is in the page cache, so that pages that moving brings in may be dropped again.
pub(super) fn is_cold(file: &OpenFile, range: ByteRange) -> bool {
    cache::cached_pages(&file.fd, range.start..range.end).is_ok_and(|pages| pages == 0)
}

/// Drops ranges from the page cache, best effort.
pub(super) fn drop_cached(file: &OpenFile, ranges: impl IntoIterator<Item = ByteRange>) {
    let until = Instant::now() + RESTORING;
    ranges.into_iter().for_each(|range| drop_until(file, range, until));
}

/// Drops pages that the device has as well: others may have written to them since, and the device may have
/// refused that. Dirty pages are in use, and would have to be waited for.
pub(super) fn drop_until(file: &OpenFile, range: ByteRange, until: Instant) {
    if cache::dirty_pages(&file.fd, range.start..range.end).is_ok_and(|pages| pages > 0) {
        return;
    }
    let _ = Compare::default().drop(&file.fd, range.start..range.end, || Instant::now() < until);
}

/// Whether at least half of a range is in the page cache.
pub(super) fn is_cached(file: &OpenFile, range: ByteRange) -> bool {
    let page = rustix::param::page_size() as u64;
    let pages = cache::cached_pages(&file.fd, range.start..range.end);
    !range.is_empty() && pages.is_ok_and(|n| n * 2 >= range.len() / page)
}
