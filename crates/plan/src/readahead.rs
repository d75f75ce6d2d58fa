//! What buffered reads fetch from the device: the page cache and its readahead, imitated.
//!
//! FragPicker (SOSP'21, section 4.1.2) widens sequential reads to the readahead window. The kernel does more
//! than that, and prediction depends on it: the window starts small and doubles, a window is begun *ahead* of
//! the reader at a marked page, and a random read right behind cached pages counts as sequential. The rules
//! here are those of mm/readahead.c (`page_cache_sync_ra`, `page_cache_async_ra`, `get_init_ra_size`,
//! `get_next_ra_size`), the same in substance since 2.6.23; [`WindowEnds`] has where windows that are begun
//! ahead end. The cache is cold at first and keeps what it has read; each thread that reads the file has a
//! state of its own, as each open file has in the kernel. The tests in `loop_readahead.rs` compare all this
//! with a real kernel.

use fragmend_layout::ByteRange;
use fragmend_layout::{DeviceProfile, WindowEnds};
use rustc_hash::FxHashMap;

/// Unit of the page cache, in bytes.
pub const PAGE: u64 = 4096;
/// The largest folios have a size of 8 MiB (`MAX_XAS_ORDER` in linux/pagemap.h).
const LARGEST_ORDER: u32 = 11;

/// How far the kernel reads ahead. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The readahead window.
    pub readahead: u64,
    /// A single read beyond the window is fetched in windows of at most this.
    pub longest: u64,
    /// Where windows end that are begun ahead of the reader.
    pub ends: WindowEnds,
}

impl Window {
    /// The kernel's readahead on a device.
    pub fn of(profile: &DeviceProfile) -> Self {
        Self {
            readahead: profile.readahead_bytes,
            longest: profile.longest_window_bytes,
            ends: profile.window_ends,
        }
    }
}

/// Pages in a node of the kernel's tree of them (`XA_CHUNK_SIZE`).
const NODE: u64 = 64;

/// The page cache of one file. All positions are page numbers.
#[derive(Debug)]
pub struct PageCache {
    /// Largest window.
    window: u64,
    /// Largest window for a read that is longer than `window`.
    largest: u64,
    ends: WindowEnds,
    /// Pages of the file.
    end: u64,
    pages: FxHashMap<u64, Word>,
    streams: FxHashMap<u32, Stream>,
}

/// 64 pages: which are cached, which start the next window when they are read, and which of those
/// are the first of their folio.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    cached: u64,
    marked: u64,
    first: u64,
}

/// `struct file_ra_state`.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    start: u64,
    size: u64,
    ahead: u64,
    /// Order of the folios that the last window was made of.
    order: u32,
    /// Page of the last byte that was read; `None` before the first read.
    previous: Option<u64>,
}

impl PageCache {
    /// An empty cache for a file of `file_size` bytes.
    pub fn new(file_size: u64, window: Window) -> Self {
        Self {
            window: (window.readahead / PAGE).max(1),
            largest: (window.longest / PAGE).max(1),
            ends: window.ends,
            end: file_size.div_ceil(PAGE),
            pages: FxHashMap::default(),
            streams: FxHashMap::default(),
        }
    }

    /// One read of `range` (bytes) by `thread`; `fetch` gets each range (bytes, whole pages) that is fetched
    /// from the device for it, in order.
    pub fn read(&mut self, thread: u32, range: ByteRange, mut fetch: impl FnMut(ByteRange)) {
        let last = range.end.div_ceil(PAGE).min(self.end);
        let mut at = range.start / PAGE;
        if at >= last {
            return;
        }
        let mut stream = self.streams.get(&thread).copied().unwrap_or_default();
        while let Some((page, cached)) = self.next_event(at, last) {
            let wanted = last - page;
            let window = if cached {
                let (first, pages) = self.unmark(page);
                self.ahead_of(&mut stream, first, pages, last - first)
            } else {
                Some(self.missed(&mut stream, page, wanted))
            };
            if let Some((start, size, mark)) = window {
                self.fill(start, size, mark.map(|m| (m, stream.order)), &mut fetch);
            }
            // Now the page is cached, whatever the window was.
            at = page + 1;
            if !cached && !self.is_cached(page) {
                self.fill(page, 1, None, &mut fetch);
            }
        }
        stream.previous = Some(last - 1);
        self.streams.insert(thread, stream);
    }

    /// Marks `range` (bytes) as cached; returns whether any of it was not cached before.
    pub fn add(&mut self, range: ByteRange) -> bool {
        let (start, end) = (range.start / PAGE, range.end.div_ceil(PAGE).min(self.end));
        let mut missed = false;
        self.fill(start, end.saturating_sub(start), None, &mut |_| missed = true);
        missed
    }

    /// Handles a page that is not cached. Returns the window: start, size, marked page.
    fn missed(&self, s: &mut Stream, page: u64, wanted: u64) -> (u64, u64, Option<u64>) {
        let window = self.window_for(wanted);
        let follows = s.previous.is_some_and(|p| page.wrapping_sub(p) <= 1);
        if page == 0 || wanted > window || follows {
            s.start = page;
            s.size = first_size(wanted, window);
            s.ahead = if s.size > wanted { s.size - wanted } else { s.size >> 1 };
        } else {
            let behind = self.cached_before(page, window);
            if behind <= wanted {
                // A single random read: it is fetched as it is, and the stream's state stays.
                return (page, wanted, None);
            }
            let from_the_start = behind == page;
            s.start = page;
            s.size = (if from_the_start { behind * 2 } else { behind } + wanted).min(window);
            s.ahead = 1;
        }
        s.order = 0;
        (s.start, s.size, Some(s.start + s.size - s.ahead))
    }

    /// Handles a read of a marked folio of `pages` from `page` on: returns the next window, if there is one to
    /// begin.
    fn ahead_of(
        &self,
        s: &mut Stream,
        page: u64,
        pages: u64,
        wanted: u64,
    ) -> Option<(u64, u64, Option<u64>)> {
        let window = self.window_for(wanted);
        let expected = (s.start + s.size).saturating_sub(s.ahead);
        if s.size > 0 && page == expected {
            s.start += s.size;
            s.size = s.size.max(next_size(s.size, window));
        } else {
            let start = self.next_miss(page + 1, window, (2..NODE).contains(&pages))?;
            s.start = start;
            s.size = next_size(start - page + wanted, window);
        }
        if self.ends != WindowEnds::AnyPage {
            // A window that is not a multiple of a folio should not end in the middle of one.
            s.order = (s.order + 2).min(LARGEST_ORDER).min(window.trailing_zeros());
            let end = s.start + s.size;
            let aligned = end >> s.order << s.order;
            s.size = if aligned > s.start { aligned - s.start } else { s.size };
            s.order = s.order.min(s.size.ilog2());
        }
        if self.ends == WindowEnds::FourPages {
            s.order = 0; // single pages after all
        }
        s.ahead = s.size;
        Some((s.start, s.size, Some(s.start)))
    }

    /// The first page of `window` from `page` on that is not cached (`page_cache_next_miss`). When the scan
    /// starts inside a folio that is smaller than a node of the kernel's tree, the position that it keeps in
    /// that node stays one page behind the index that it reports, and it skips the first page of the next node.
    fn next_miss(&self, page: u64, window: u64, inside: bool) -> Option<u64> {
        let node = |page: u64| page / NODE;
        let finger = |p: u64| if inside && node(p - 1) == node(page - 1) { p - 1 } else { p };
        (page..page + window).find(|p| !self.is_cached(finger(*p)))
    }

    /// The largest window for a read of which `wanted` pages are left.
    fn window_for(&self, wanted: u64) -> u64 {
        if wanted > self.window && self.largest > self.window {
            wanted.min(self.largest)
        } else {
            self.window
        }
    }

    /// Cached pages right before `page`, as far back as one window.
    fn cached_before(&self, page: u64, window: u64) -> u64 {
        (1..=window.min(page)).take_while(|back| self.is_cached(page - back)).count() as u64
    }

    /// The first page of `at..last` that is not cached or is marked, and whether it is cached.
    fn next_event(&self, at: u64, last: u64) -> Option<(u64, bool)> {
        let mut at = at;
        while at < last {
            let word = self.pages.get(&(at / 64)).copied().unwrap_or_default();
            let events = (!word.cached | word.marked) & (u64::MAX << (at % 64));
            if events != 0 {
                let page = at / 64 * 64 + u64::from(events.trailing_zeros());
                return (page < last).then_some((page, word.cached & bit(page) != 0));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Caches a window, and passes the ranges of it that were not cached to `fetch`. The mark is a page and the
    /// largest order of the folio that begins there.
    fn fill(
        &mut self,
        start: u64,
        size: u64,
        mark: Option<(u64, u32)>,
        fetch: &mut impl FnMut(ByteRange),
    ) {
        let end = start.saturating_add(size).min(self.end);
        // Only a folio that is fetched now can carry the mark.
        let mark = mark.filter(|(m, _)| (start..end).contains(m) && !self.is_cached(*m));
        let mark = mark.map(|(page, order)| (page, self.folio_pages(page, order, end)));
        let mut joined: Option<ByteRange> = None;
        let mut at = start;
        while at < end {
            let base = at / 64 * 64;
            let upto = end.min(base + 64);
            let mask = span(at - base, upto - base);
            let word = self.word(at);
            let mut missing = mask & !word.cached;
            word.cached |= mask;
            while missing != 0 {
                let low = u64::from(missing.trailing_zeros());
                let run = u64::from((missing >> low).trailing_ones());
                missing &= !span(low, low + run);
                let part = ByteRange { start: (base + low) * PAGE, end: (base + low + run) * PAGE };
                match &mut joined {
                    Some(s) if s.end == part.start => s.end = part.end,
                    other => {
                        if let Some(done) = other.replace(part) {
                            fetch(done);
                        }
                    }
                }
            }
            at = upto;
        }
        if let Some(last) = joined {
            fetch(last);
        }
        if let Some((first, pages)) = mark {
            (first..first + pages).for_each(|page| self.word(page).marked |= bit(page));
            self.word(first).first |= bit(first);
        }
    }

    /// Pages of the folio that is made at `page` in a window that ends at `end`: as many as its
    /// alignment allows, unless some of them are cached already (`page_cache_ra_order`).
    fn folio_pages(&self, page: u64, order: u32, end: u64) -> u64 {
        let mut order = order.min(page.trailing_zeros());
        while page + (1 << order) > end {
            order -= 1;
        }
        if (page..page + (1 << order)).any(|p| self.is_cached(p)) { 1 } else { 1 << order }
    }

    /// Removes the mark from the folio that holds a marked page; returns the folio's first page and its length.
    fn unmark(&mut self, page: u64) -> (u64, u64) {
        let mut first = page;
        while self.word(first).first & bit(first) == 0 {
            first -= 1;
        }
        self.word(first).first &= !bit(first);
        let mut end = first;
        while self.word(end).marked & bit(end) != 0 && self.word(end).first & bit(end) == 0 {
            self.word(end).marked &= !bit(end);
            end += 1;
        }
        (first, end - first)
    }

    fn is_cached(&self, page: u64) -> bool {
        self.pages.get(&(page / 64)).is_some_and(|w| w.cached & bit(page) != 0)
    }

    fn word(&mut self, page: u64) -> &mut Word {
        self.pages.entry(page / 64).or_default()
    }
}

/// `get_init_ra_size`.
fn first_size(wanted: u64, window: u64) -> u64 {
    let size = wanted.next_power_of_two();
    match size {
        s if s <= window / 32 => s * 4,
        s if s <= window / 4 => s * 2,
        _ => window,
    }
}

/// `get_next_ra_size`.
fn next_size(size: u64, window: u64) -> u64 {
    match size {
        s if s < window / 16 => s * 4,
        s if s <= window / 2 => s * 2,
        _ => window,
    }
}

fn bit(page: u64) -> u64 {
    1 << (page % 64)
}

/// Bits `low..high` of a word; `high` is at most 64.
fn span(low: u64, high: u64) -> u64 {
    let below = if high == 64 { u64::MAX } else { (1 << high) - 1 };
    below & (u64::MAX << low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 4 << 20;
    const WINDOW: Window =
        Window { readahead: 128 << 10, longest: 1280 << 10, ends: WindowEnds::AnyPage };

    /// Offsets and lengths in KiB of what a list of reads (KiB) fetches.
    fn fetched(reads: &[(u64, u64)]) -> Vec<(u64, u64)> {
        fetched_by(WINDOW, reads)
    }

    fn fetched_by(window: Window, reads: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut cache = PageCache::new(FILE, window);
        let mut out = Vec::new();
        for (offset, len) in reads {
            let range = ByteRange::at(offset * 1024, len * 1024);
            cache.read(1, range, |f| out.push((f.start / 1024, f.len() / 1024)));
        }
        out
    }

    #[test]
    fn a_stream_of_small_reads_ramps_up() {
        let reads: Vec<_> = (0..64).map(|i| (i * 4, 4)).collect();
        assert_eq!(
            fetched(&reads),
            [(0, 16), (16, 32), (48, 64), (112, 128), (240, 128), (368, 128)]
        );
    }

    #[test]
    fn newer_kernels_end_windows_on_large_folios() {
        let reads: Vec<_> = (0..64).map(|i| (i * 4, 4)).collect();
        let got = fetched_by(Window { ends: WindowEnds::LargeFolios, ..WINDOW }, &reads);
        let want = [(0, 16), (16, 32), (48, 16), (64, 32), (96, 32), (128, 64), (192, 64)];
        assert_eq!(got[..7], want, "{got:?}");
    }

    #[test]
    fn a_cached_page_takes_no_mark() {
        // A single page in the middle of the range that becomes the first window of a stream: the window's mark
        // would be on it. Continued reading meets the end of the window, not the mark.
        let reads = [(404, 4), (1000, 4), (396, 4), (400, 4), (404, 4), (408, 4), (412, 4)];
        assert_eq!(fetched(&reads), [(404, 4), (1000, 4), (396, 4), (400, 4), (408, 8)]);
    }

    #[test]
    fn any_page_of_a_marked_folio_begins_the_next_window() {
        let aligned = Window { ends: WindowEnds::LargeFolios, ..WINDOW };
        let mut reads: Vec<_> = (0..12).map(|i| (i * 4, 4)).collect();
        let before = fetched_by(aligned, &reads);
        assert_eq!(before.last(), Some(&(48, 16)), "{before:?}");
        // The window's first folio is all of it. Older kernels have single pages, and a mark on the first.
        reads.push((56, 4));
        assert_eq!(fetched_by(aligned, &reads).len(), before.len() + 1);
        assert_eq!(fetched_by(WINDOW, &reads), fetched_by(WINDOW, &reads[..12]));
    }

    #[test]
    fn a_read_beyond_the_window_is_fetched_as_one_request() {
        assert_eq!(fetched(&[(512, 1024)]), [(512, 1024)]);
        // Half way through the second a third is begun ahead.
        let got = fetched(&[(512, 2048)]);
        assert_eq!(got, [(512, 1280), (1792, 1280), (3072, 1024)]);
    }

    #[test]
    fn large_reads_from_the_start_come_in_windows() {
        let reads: Vec<_> = (0..4).map(|i| (i * 128, 128)).collect();
        assert_eq!(fetched(&reads), [(0, 128), (128, 128), (256, 128), (384, 128), (512, 128)]);
    }

    #[test]
    fn random_reads_are_fetched_as_they_are_and_once() {
        assert_eq!(fetched(&[(400, 8), (1000, 4), (400, 8)]), [(400, 8), (1000, 4)]);
        // The second one continues where the first one ended: a stream begins.
        assert_eq!(fetched(&[(400, 8), (404, 8)]), [(400, 8), (408, 16)]);
    }

    #[test]
    fn what_is_behind_cached_pages_counts_as_sequential() {
        // Thirteen pages right behind 16 cached ones: more pages are cached before it than are asked for.
        let got = fetched(&[(1024, 64), (2048, 4), (1088, 8)]);
        assert_eq!(got, [(1024, 64), (2048, 4), (1088, 72)]);
    }

    #[test]
    fn the_end_of_the_file_ends_a_window() {
        let mut cache = PageCache::new(10_000, WINDOW);
        let mut out = Vec::new();
        cache.read(1, ByteRange::at(0, 4096), |f| out.push(f));
        assert_eq!(out, [ByteRange { start: 0, end: 12288 }]);
        cache.read(1, ByteRange::at(20_000, 4096), |_| panic!("there is nothing there"));
    }

    #[test]
    fn what_is_added_is_not_fetched() {
        let mut cache = PageCache::new(FILE, WINDOW);
        assert!(cache.add(ByteRange::at(250 * PAGE, 80 * PAGE)));
        assert!(!cache.add(ByteRange::at(256 * PAGE, 64 * PAGE)));
        cache.read(1, ByteRange::at(250 * PAGE, 80 * PAGE), |f| panic!("{f:?}"));
    }
}
