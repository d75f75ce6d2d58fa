//! From accesses to the requests that they cause (FragPicker, SOSP'21, section 4.1.2).
//!
//! Every access is clamped to the end of the file and aligned to blocks. Buffered sequential
//! reads are widened to the readahead window, and those that fall into a window already fetched
//! are dropped, because the page cache serves them. What stays is a list of distinct requests,
//! each with two weights:
//!
//! - `seen`: how often it was asked for. This is its heat, whatever the page cache held.
//! - `fetches`: how often it reaches the device when the trace is replayed once from a cold
//!   cache that keeps what it has read. Direct I/O always does; a buffered page once.

use fragmend_layout::ByteRange;
use fragmend_trace::{Access, Op};
use rayon::slice::ParallelSliceMut;
use rustc_hash::FxHashMap;

/// A distinct request of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// What it reads or writes, in whole blocks.
    pub range: ByteRange,
    /// Times asked for.
    pub seen: u64,
    /// Times it reaches the device in one replay from a cold cache.
    pub fetches: u64,
}

/// The measures of the file and its device that shape requests. All figures are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size of the file.
    pub file_size: u64,
    /// Allocation block.
    pub block: u64,
    /// Readahead window.
    pub readahead: u64,
}

/// The distinct requests behind `accesses`, in ascending order of their range.
pub fn of(accesses: &[Access], shape: Shape) -> Vec<Request> {
    let mut builder = Builder {
        shape: Shape { readahead: shape.readahead.next_multiple_of(shape.block), ..shape },
        streams: FxHashMap::default(),
        cache: Cache::default(),
        out: Vec::with_capacity(accesses.len()),
    };
    accesses.iter().for_each(|a| builder.add(a));
    let mut open: Vec<_> = builder.streams.drain().map(|(_, s)| s).collect();
    open.sort_unstable_by_key(|s| s.last);
    for stream in open.into_iter().filter(|s| s.pending) {
        builder.emit_cut(stream.last, stream.count, false);
    }
    fold(builder.out)
}

/// The requests of one sequential read of the whole file, for policies without a trace.
pub fn sequential(shape: Shape) -> Vec<Request> {
    let end = shape.file_size.next_multiple_of(shape.block);
    cut(ByteRange { start: 0, end }, shape.readahead.next_multiple_of(shape.block))
        .map(|range| Request { range, seen: 1, fetches: 1 })
        .collect()
}

/// One thread's reading of the file.
struct Stream {
    last: ByteRange,
    /// Where the last read ended, to the byte.
    end: u64,
    count: u64,
    /// Not yet known to be part of a sequential read, and not yet counted.
    pending: bool,
    /// End of the window that was fetched last.
    window_end: u64,
}

struct Builder {
    shape: Shape,
    streams: FxHashMap<u32, Stream>,
    cache: Cache,
    out: Vec<Request>,
}

impl Builder {
    fn add(&mut self, access: &Access) {
        let Some(range) = self.clamp(access.range()) else { return };
        let count = u64::from(access.count);
        match access.op {
            _ if access.direct || access.op == Op::Miss => {
                self.out.push(Request { range, seen: count, fetches: count })
            }
            _ if access.windowed => self.emit(range, count),
            Op::Read => self.buffered_read(access, range, count),
            // A fault that started readahead carries the window that it fetched.
            Op::Fault | Op::Write | Op::Miss => self.emit(range, count),
        }
    }

    /// Cuts at the end of the file and widens to blocks.
    fn clamp(&self, range: ByteRange) -> Option<ByteRange> {
        let file = ByteRange { start: 0, end: self.shape.file_size };
        let inside = range.intersect(file);
        (!inside.is_empty()).then(|| inside.align_outward(self.shape.block))
    }

    fn buffered_read(&mut self, access: &Access, range: ByteRange, count: u64) {
        let end = access.range().end;
        let Some(stream) = self.streams.get_mut(&access.thread) else {
            let first = Stream { last: range, end, count, pending: true, window_end: 0 };
            self.streams.insert(access.thread, first);
            return;
        };
        // Linux calls a read sequential when it starts in the page where the last one ended.
        let page_end = stream.end.checked_next_multiple_of(self.shape.block);
        let goes_on = access.offset >= stream.end && Some(access.offset) <= page_end;
        if !goes_on {
            let before = std::mem::replace(
                stream,
                Stream { last: range, end, count, pending: true, window_end: 0 },
            );
            if before.pending {
                self.emit_cut(before.last, before.count, false);
            }
            return;
        }
        let start = if stream.pending { stream.last.start } else { stream.window_end };
        stream.pending = false;
        (stream.last, stream.end) = (range, end);
        if range.end > start {
            let window = self.shape.readahead;
            let fetched = ByteRange { start, end: range.end }.align_outward(window);
            stream.window_end = fetched.end;
            self.emit_cut(fetched, count, true);
        }
    }

    /// Emits a range in readahead windows: aligned ones, or counted from its start.
    fn emit_cut(&mut self, range: ByteRange, count: u64, aligned: bool) {
        let window = self.shape.readahead;
        let shift = if aligned { 0 } else { range.start };
        let relative = ByteRange { start: range.start - shift, end: range.end - shift };
        for part in cut(relative, window) {
            let part = ByteRange { start: part.start + shift, end: part.end + shift };
            if let Some(part) = self.clamp(part) {
                self.emit(part, count);
            }
        }
    }

    fn emit(&mut self, range: ByteRange, seen: u64) {
        let fetches = u64::from(self.cache.fill(range, self.shape.block));
        self.out.push(Request { range, seen, fetches });
    }
}

/// Cuts a range at multiples of `window`.
fn cut(range: ByteRange, window: u64) -> impl Iterator<Item = ByteRange> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let end = ((start / window + 1) * window).min(range.end);
            let part = ByteRange { start, end };
            start = end;
            part
        })
    })
}

/// Sorts, and folds equal ranges into one request.
fn fold(mut requests: Vec<Request>) -> Vec<Request> {
    requests.par_sort_unstable_by_key(|r| r.range);
    requests.dedup_by(|next, kept| {
        let same = next.range == kept.range;
        if same {
            kept.seen += next.seen;
            kept.fetches += next.fetches;
        }
        same
    });
    requests
}

/// Which blocks the page cache would hold: bitmaps of 64 blocks, only where something is.
#[derive(Default)]
struct Cache {
    words: FxHashMap<u64, u64>,
}

impl Cache {
    /// Marks the blocks as held; whether any of them was not.
    fn fill(&mut self, range: ByteRange, block: u64) -> bool {
        let mut missed = false;
        for (word, mask) in words(range, block) {
            let held = self.words.entry(word).or_default();
            missed |= *held & mask != mask;
            *held |= mask;
        }
        missed
    }
}

/// The bitmap words that a range touches, each with the bits of the range in it.
fn words(range: ByteRange, block: u64) -> impl Iterator<Item = (u64, u64)> {
    let (first, end) = (range.start / block, range.end.div_ceil(block));
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = first.max(word * 64) - word * 64;
        let high = end.min(word * 64 + 64) - word * 64;
        let mask = if high == 64 { u64::MAX } else { (1 << high) - 1 };
        (word, mask & (u64::MAX << low))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const SHAPE: Shape = Shape { file_size: 1000 * KIB, block: 4 * KIB, readahead: 128 * KIB };

    fn read(offset: u64, length: u64) -> Access {
        Access {
            offset,
            length: length as u32,
            count: 1,
            thread: 1,
            op: Op::Read,
            direct: false,
            windowed: false,
        }
    }

    fn direct(offset: u64, length: u64) -> Access {
        Access { direct: true, ..read(offset, length) }
    }

    fn ranges(accesses: &[Access]) -> Vec<(u64, u64, u64, u64)> {
        let flat = |r: Request| (r.range.start / KIB, r.range.end / KIB, r.seen, r.fetches);
        of(accesses, SHAPE).into_iter().map(flat).collect()
    }

    #[test]
    fn sequential_reads_become_windows() {
        // FragPicker's grep: 32 KiB reads, converted to 128 KiB (section 5.4).
        let reads: Vec<_> = (0..8).map(|i| read(i * 32 * KIB, 32 * KIB)).collect();
        assert_eq!(ranges(&reads), [(0, 128, 1, 1), (128, 256, 1, 1)]);
    }

    #[test]
    fn small_unaligned_sequential_reads_are_one_stream() {
        let reads: Vec<_> = (0..100).map(|i| read(i * 1000, 1000)).collect();
        assert_eq!(ranges(&reads), [(0, 128, 1, 1)]);
    }

    #[test]
    fn random_buffered_reads_stay_as_they_are() {
        let reads = [read(400 * KIB, 8 * KIB), read(100 * KIB, 4 * KIB), read(400 * KIB, 8 * KIB)];
        assert_eq!(ranges(&reads), [(100, 104, 1, 1), (400, 408, 2, 1)]);
    }

    #[test]
    fn direct_reads_are_never_widened_and_always_fetched() {
        let reads = [direct(0, 4 * KIB), direct(4 * KIB, 4 * KIB), direct(0, 4 * KIB)];
        assert_eq!(ranges(&reads), [(0, 4, 2, 2), (4, 8, 1, 1)]);
    }

    #[test]
    fn end_of_file_clamps() {
        assert_eq!(ranges(&[direct(996 * KIB, 128 * KIB)]), [(996, 1000, 1, 1)]);
        assert_eq!(ranges(&[direct(1000 * KIB, 4 * KIB)]), []);
        assert_eq!(ranges(&[direct(u64::MAX - 5, 100)]), []);
    }

    #[test]
    fn two_threads_are_two_streams() {
        let mut reads = Vec::new();
        for i in 0..4 {
            reads.push(read(i * 64 * KIB, 64 * KIB));
            reads.push(Access { thread: 2, ..read(512 * KIB + i * 64 * KIB, 64 * KIB) });
        }
        assert_eq!(
            ranges(&reads),
            [(0, 128, 1, 1), (128, 256, 1, 1), (512, 640, 1, 1), (640, 768, 1, 1)]
        );
    }

    #[test]
    fn a_large_read_is_cut_at_the_window() {
        let got = ranges(&[read(100 * KIB, 300 * KIB)]);
        assert_eq!(got, [(100, 228, 1, 1), (228, 356, 1, 1), (356, 400, 1, 1)]);
    }

    #[test]
    fn a_fault_is_taken_as_it_was_seen() {
        let fault = Access { op: Op::Fault, ..read(336 * KIB, 128 * KIB) };
        assert_eq!(ranges(&[fault, fault]), [(336, 464, 2, 1)]);
    }

    #[test]
    fn the_cache_knows_its_blocks() {
        let mut cache = Cache::default();
        let range = ByteRange { start: 60 * 4096, end: 130 * 4096 };
        assert!(cache.fill(range, 4096));
        assert!(!cache.fill(range, 4096));
        assert!(!cache.fill(ByteRange { start: 64 * 4096, end: 128 * 4096 }, 4096));
        assert!(cache.fill(ByteRange { start: 59 * 4096, end: 61 * 4096 }, 4096));
    }
}
