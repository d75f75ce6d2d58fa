//! What a service had in the page cache of a file's ranges: moving them throws it out, and it
//! comes back afterwards.

use super::mounted::OpenFile;
use fragmend_layout::ByteRange;
use fragmend_sys::cache;
use rustix::fs::Advice;

/// No page-cache folio of a file is larger (a PMD's worth, mm/huge_memory.c).
pub(super) const LARGEST_FOLIO: u64 = 2 << 20;

/// The parts of a range, and of the folios that reach into it, that were cached.
pub(super) struct Warm(Vec<ByteRange>);

impl Warm {
    /// Looks at `range` and what lies around it on the same folios.
    pub fn of(file: &OpenFile, range: ByteRange) -> Self {
        let wide = range.align_outward(LARGEST_FOLIO);
        let parts = [
            ByteRange { start: wide.start, end: range.start },
            range,
            ByteRange { start: range.end, end: wide.end },
        ];
        Self(parts.into_iter().filter(|part| is_cached(file, *part)).collect())
    }

    /// Drops what moving left in the cache of `range`, and asks for what was there before.
    pub fn restore(&self, file: &OpenFile, range: ByteRange) {
        let _ = cache::drop_clean(&file.fd, range.start..range.end);
        self.0.iter().for_each(|part| will_need(file, *part));
    }
}

/// Whether nothing of a range is in the page cache, so that what moving brings in may go again.
pub(super) fn is_cold(file: &OpenFile, range: ByteRange) -> bool {
    cache::cached_pages(&file.fd, range.start..range.end).is_ok_and(|pages| pages == 0)
}

/// Drops ranges from the page cache, best effort.
pub(super) fn drop_cached(file: &OpenFile, ranges: impl IntoIterator<Item = ByteRange>) {
    for ByteRange { start, end } in ranges {
        let _ = cache::drop_clean(&file.fd, start..end);
    }
}

/// Has a range read into the page cache, in single pages.
pub(super) fn will_need(file: &OpenFile, range: ByteRange) {
    let len = std::num::NonZeroU64::new(range.len());
    let _ = rustix::fs::fadvise(&file.fd, range.start, len, Advice::WillNeed);
}

/// Whether at least half of a range is in the page cache.
fn is_cached(file: &OpenFile, range: ByteRange) -> bool {
    let page = rustix::param::page_size() as u64;
    let pages = cache::cached_pages(&file.fd, range.start..range.end);
    !range.is_empty() && pages.is_ok_and(|n| n * 2 >= range.len() / page)
}
