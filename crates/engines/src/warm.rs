//! What a service had in the page cache of a file's ranges: moving them throws it out, and it
//! comes back afterwards.

use super::mounted::OpenFile;
use super::pages::Pages;
use fragmend_layout::ByteRange;
use fragmend_sys::cache;
use fragmend_sys::same::Compare;
use std::time::{Duration, Instant};

/// How long bringing back may take, for all that is settled together: what is not there by then
/// comes when it is read. Nobody looks at Ctrl-C meanwhile.
pub(super) const RESTORING: Duration = Duration::from_millis(400);
/// Bytes between two looks at the clock.
const STEP: u64 = 256 << 10;

/// The parts of a range, and of the folios that reach into it, that were cached.
pub(super) struct Warm(Vec<ByteRange>);

impl Warm {
    /// Looks at `range` and what lies around it on the same folios.
    pub fn of(file: &OpenFile, range: ByteRange) -> Self {
        let wide = range.align_outward(cache::largest_folio());
        let parts = [
            ByteRange { start: wide.start, end: range.start },
            range,
            ByteRange { start: range.end, end: wide.end },
        ];
        Self(parts.into_iter().filter(|part| is_cached(file, *part)).collect())
    }

    /// Drops what moving left in the cache of `range` if nobody had it there, and else brings back
    /// what was there before, in small reads and until that moment.
    pub fn restore(&self, file: &OpenFile, range: ByteRange, pages: &mut Pages, until: Instant) {
        if !self.0.contains(&range) {
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

/// Whether nothing of a range is in the page cache, so that what moving brings in may go again.
pub(super) fn is_cold(file: &OpenFile, range: ByteRange) -> bool {
    cache::cached_pages(&file.fd, range.start..range.end).is_ok_and(|pages| pages == 0)
}

/// Drops ranges from the page cache, best effort.
pub(super) fn drop_cached(file: &OpenFile, ranges: impl IntoIterator<Item = ByteRange>) {
    let until = Instant::now() + RESTORING;
    ranges.into_iter().for_each(|range| drop_until(file, range, until));
}

/// Drops what the device has as well: somebody may have written to it since, and been refused. What is
/// dirty is in use, and would have to be waited for.
fn drop_until(file: &OpenFile, range: ByteRange, until: Instant) {
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
