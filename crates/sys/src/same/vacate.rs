//! Whether anything besides the page cache refers to pages of a file.
//!
//! A program may have a device write into a shared mapping of a file (direct I/O from another disk, RDMA), and
//! remove the mapping and close the file meanwhile: the kernel keeps the pages pinned (`pin_user_pages()`,
//! mm/gup.c), and nothing shows that. Where such a page leaves the file, or is given other blocks, what the
//! device writes is lost. But the kernel evicts no page that anything else refers to (`mapping_evict_folio()`,
//! mm/truncate.c), and empties the per-CPU batches, which refer to pages as well, before it gives up
//! (`generic_fadvise()`, mm/fadvise.c). So a page that could be dropped was not pinned. While a lease is held,
//! none can be pinned afterwards: that needs a mapping, and a mapping an open file.

use super::{Compare, Same, may_deceive};
use crate::backoff::DoublingWait;
use crate::cache;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

/// Pages to whose boundaries a range is widened at each try, because a folio is dropped as a whole or not at all.
/// What refers to a page for a moment (reclaim, compaction, readahead) is gone by the last one.
const WIDTHS: [u64; 9] = [1, 1, 16, 64, u64::MAX, 1, 1, 1, u64::MAX];
const FIRST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(16);

/// What became of the cached pages of a range.
#[derive(Debug)]
pub enum Vacated {
    /// None is in the page cache.
    Yes,
    /// The device has the same data, but some stay: they are mapped, or something refers to them.
    Held,
    /// They may not be dropped: never [`Same::Yes`].
    No(Same),
}

impl Compare {
    /// Drops the cached pages of `range` (bytes, outwards to whole pages), as [`drop`](Self::drop) does, until
    /// none is left, and those of folios that cross its ends. Waits no longer than some 80 ms for what refers to
    /// them, besides the time of the comparison.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn vacate(
        &mut self,
        file: impl AsFd,
        range: Range<u64>,
        mut go_on: impl FnMut() -> bool,
    ) -> io::Result<Vacated> {
        let (file, page) = (file.as_fd(), rustix::param::page_size() as u64);
        let wide = |pages: u64| {
            let whole = pages.saturating_mul(page).min(cache::largest_folio());
            range.start / whole * whole..range.end.next_multiple_of(whole)
        };
        // Before Linux 6.5 it is not known there what the device has.
        if may_deceive(file)? && cache::cached_pages(file, wide(1)).is_err() {
            return Ok(Vacated::No(Same::Unknown));
        }
        let mut wait = DoublingWait::new(FIRST_WAIT, LONGEST_WAIT);
        let mut left = Vacated::Yes;
        for (tried, pages) in WIDTHS.into_iter().enumerate() {
            if cache::pages_there(file, wide(1))? == 0 {
                return Ok(Vacated::Yes);
            }
            if tried > 0 {
                wait.sleep();
            }
            left = match self.drop(file, wide(pages), &mut go_on)? {
                Same::Yes => Vacated::Held,
                changing @ Same::Changing(None) => Vacated::No(changing),
                other => return Ok(Vacated::No(other)),
            };
        }
        Ok(if cache::pages_there(file, wide(1))? == 0 { Vacated::Yes } else { left })
    }
}
