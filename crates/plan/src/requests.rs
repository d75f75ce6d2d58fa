//! From accesses to the requests that they cause (FragPicker, SOSP'21, section 4.1.2).
//!
//! Every access is clamped to the end of the file and aligned to blocks. Buffered reads go through an imitation
//! of the page cache and its readahead ([`crate::readahead`]); direct ones are requests as they are. The result
//! is a list of distinct requests, each with two weights:
//!
//! - `seen`: how often it was asked for. This is its heat, whatever the page cache held.
//! - `fetches`: how often it reaches the device, and somebody waits for it, in one replay. Nothing else costs time.
//!
//! What reaches the device is known where misses were recorded: they and direct I/O do, and what programs asked for
//! through the page cache is heat alone. Otherwise it is imitated: a cold cache that keeps what it has read, so that
//! direct I/O is always fetched and a buffered page once ([`Basis`]). Nobody waits for a buffered write: the kernel
//! writes it back later, in an order of its own. A direct write is waited for, and costs as much as a read in as many
//! requests.

use crate::bounded::{self, Bounds};
use crate::in_order::Fetches;
use crate::input::Basis;
use crate::readahead::{PageCache, Window};
use crate::ways::Head;
use fragmend_layout::{Access, Op};
use fragmend_layout::{ByteRange, Layout, windows};
use rayon::slice::ParallelSliceMut;

/// A distinct request of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// What it reads or writes, in whole blocks.
    pub range: ByteRange,
    /// How often it was asked for, up to [`u32::MAX`]: it is heat alone, and sums over requests are of 64 bits.
    pub seen: u32,
    /// How often it reaches the device in one replay, and somebody waits for it.
    pub fetches: u64,
    /// Whether it missed the page cache and is the third or a later one of windows that continue each other (where one thread read,
    /// in its order). The kernel may issue the second when the first has been read; each further one is in flight beside the one before.
    pub streamed: bool,
}

// Where nothing is read twice there are as many as accesses, and beside these in memory.
const _: () = assert!(size_of::<Request>() == 32);

/// The figures of the file and its device that determine its requests. All are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size of the file.
    pub file_size: u64,
    /// Allocation block.
    pub block: u64,
    /// How far buffered reads read ahead.
    pub window: Window,
}

impl Shape {
    /// Cuts a range at the end of the file and widens it to whole blocks.
    pub fn clamp(&self, range: ByteRange) -> Option<ByteRange> {
        let inside = range.intersect(ByteRange { start: 0, end: self.file_size });
        (!inside.is_empty()).then(|| inside.align_outward(self.block))
    }
}

/// The distinct requests that `accesses` within `bounds` cause, in ascending order of their range; `head` goes where they
/// reach the device. `in_order` if the misses are of one thread, in their order.
pub fn of(
    accesses: Vec<Access>,
    shape: Shape,
    bounds: &Bounds,
    basis: Basis,
    in_order: bool,
    head: &mut Head<'_>,
) -> Vec<Request> {
    let mut cache = PageCache::new(shape.file_size, shape.window);
    let mut out = Vec::with_capacity(accesses.len());
    // Where requests of programs were recorded besides, a miss is not one more.
    let asked = accesses.iter().any(|a| !a.direct && matches!(a.op, Op::Read | Op::Fault));
    let misses = basis == Basis::MissesRecorded;
    let mut fetches = Fetches::default();
    let counts = |a: &Access| a.op != Op::Miss || basis != Basis::AssumedCold;
    let counted = accesses.iter().enumerate().filter(|(_, a)| counts(a));
    let parts = counted.flat_map(|(index, a)| {
        let parts = bounds.clip(a.range()).enumerate();
        parts.map(move |(n, part)| (a, part, (n == 0).then_some(index)))
    });
    for (access, part, begins) in parts {
        let reaches = access.direct || access.op != Op::Write && (access.op == Op::Miss) == misses;
        if let Some(index) = begins.filter(|_| reaches) {
            head.begin(index);
        }
        let Some(range) = shape.clamp(part) else { continue };
        let (seen, all) = (access.count, u64::from(access.count));
        if access.direct {
            head.pass(range);
            out.push(Request { range, seen, fetches: all, streamed: false });
            continue;
        }
        if access.op == Op::Miss {
            head.pass(range);
            let heat = if misses && asked { 0 } else { seen };
            let streamed = if in_order { fetches.is_ahead(range) } else { misses };
            out.push(Request { range, seen: heat, fetches: all, streamed });
            continue;
        }
        if misses {
            out.push(Request { range, seen, fetches: 0, streamed: false });
            continue;
        }
        if access.op == Op::Write {
            cache.add(range);
            out.push(Request { range, seen, fetches: 0, streamed: false });
            continue;
        }
        // Folded reads were widened when they were counted, and a fault that started readahead is recorded with
        // the window that it fetched.
        if access.op != Op::Read || access.windowed {
            let fetches = u64::from(cache.add(range));
            if fetches > 0 {
                head.pass(range);
            }
            out.push(Request { range, seen, fetches, streamed: fetches > 0 });
            continue;
        }
        let before = out.len();
        cache.read(access.thread, part, |fetched| {
            let range = shape.clamp(fetched).unwrap_or(fetched);
            head.pass(range);
            out.push(Request { range, seen, fetches: 1, streamed: true });
        });
        if out.len() == before {
            // It was read from the cache: heat without a fetch.
            out.push(Request { range, seen, fetches: 0, streamed: false });
        }
    }
    // There may be as many of them as requests.
    drop(accesses);
    let mut requests = fold(out);
    if !in_order {
        find_streams(&mut requests);
    }
    requests
}

/// Of those that missed, leaves those marked that continue one which continues another.
fn find_streams(requests: &mut [Request]) {
    let missed = requests.iter().filter(|r| r.streamed);
    let mut ends: Vec<u64> = missed.map(|r| r.range.end).collect();
    for _ in 0..2 {
        ends.par_sort_unstable();
        // Requests are in ascending order, too.
        let (mut next, mut left) = (0, Vec::new());
        for request in requests.iter_mut().filter(|r| r.streamed) {
            let ByteRange { start, end } = request.range;
            while ends.get(next).is_some_and(|end| *end < start) {
                next += 1;
            }
            request.streamed = ends.get(next) == Some(&start);
            left.extend(request.streamed.then_some(end));
        }
        ends = left;
    }
}

/// The requests of one sequential read of all data of a file, for policies without a trace.
pub fn sequential(layout: &Layout, shape: Shape) -> Vec<Request> {
    let file = ByteRange { start: 0, end: shape.file_size.next_multiple_of(shape.block) };
    let data = bounded::data(layout).map(|d| d.intersect(file));
    let window = shape.window.readahead.next_multiple_of(shape.block);
    windows(data, window.saturating_mul(bounded::times_over(layout)))
        .map(|window| Request {
            range: window.intersect(file),
            seen: 1,
            fetches: 1,
            streamed: true,
        })
        .collect()
}

/// Sorts the requests, and folds those of equal range into one.
fn fold(mut requests: Vec<Request>) -> Vec<Request> {
    requests.par_sort_unstable_by_key(|r| r.range);
    requests.dedup_by(|next, kept| {
        let same = next.range == kept.range;
        if same {
            kept.seen = kept.seen.saturating_add(next.seen);
            kept.fetches += next.fetches;
            kept.streamed |= next.streamed;
        }
        same
    });
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    use fragmend_layout::WindowEnds;

    const WINDOW: Window =
        Window { readahead: 128 * KIB, longest: 128 * KIB, ends: WindowEnds::AnyPage };
    const SHAPE: Shape = Shape { file_size: 1000 * KIB, block: 4 * KIB, window: WINDOW };

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

    fn ranges_by(basis: Basis, accesses: &[Access]) -> Vec<(u64, u64, u64, u64)> {
        let flat = |r: Request| (r.range.start / KIB, r.range.end / KIB, r.seen.into(), r.fetches);
        super::of(
            accesses.to_vec(),
            SHAPE,
            &Bounds::none(),
            basis,
            false,
            &mut Head::new(true, &[]),
        )
        .into_iter()
        .map(flat)
        .collect()
    }

    fn ranges(accesses: &[Access]) -> Vec<(u64, u64, u64, u64)> {
        ranges_by(Basis::ImitatedCache, accesses)
    }

    #[test]
    fn what_did_not_miss_costs_nothing() {
        let miss = Access { op: Op::Miss, ..read(0, 128 * KIB) };
        let write = Access { op: Op::Write, ..read(512 * KIB, 4 * KIB) };
        let mut seen = vec![miss, direct(256 * KIB, 4 * KIB), write];
        seen.extend([read(0, 32 * KIB); 100]);
        let by = |basis| ranges_by(basis, &seen);
        // The miss is what the reads have asked for, and no further access.
        let recorded = [(0, 32, 100, 0), (0, 128, 0, 1), (256, 260, 1, 1), (512, 516, 1, 0)];
        assert_eq!(by(Basis::MissesRecorded), recorded);
        // For a cold start the page cache is imitated: the first read fetches its window.
        let cold = [(0, 32, 99, 0), (0, 64, 1, 1), (256, 260, 1, 1), (512, 516, 1, 0)];
        assert_eq!(by(Basis::AssumedCold), cold);
        // Where misses alone were recorded, they are all the heat there is.
        assert_eq!(ranges_by(Basis::MissesRecorded, &[miss, miss]), [(0, 128, 2, 2)]);
    }

    #[test]
    fn misses_of_one_thread_are_streams_by_their_order() {
        let miss = |at, length| Access { op: Op::Miss, ..read(at * KIB, length * KIB) };
        // The second sequence begins where the first one ends, and was read before.
        let seen = [(40, 4), (44, 16), (60, 32), (0, 4), (4, 16), (20, 20), (92, 64)];
        let seen = seen.map(|(at, length)| miss(at, length));
        let streamed = |in_order| {
            let mut head = Head::new(true, &[]);
            let (bounds, basis) = (Bounds::none(), Basis::MissesRecorded);
            let requests = super::of(seen.to_vec(), SHAPE, &bounds, basis, in_order, &mut head);
            let streamed = requests.into_iter().filter(|r| r.streamed);
            streamed.map(|r| r.range.start / KIB).collect::<Vec<_>>()
        };
        assert_eq!(streamed(true), [20, 60, 92]);
        assert_eq!(streamed(false), [20, 40, 44, 60, 92]);
    }

    #[test]
    fn nobody_waits_for_a_buffered_write() {
        let write = Access { op: Op::Write, ..read(400 * KIB, 8 * KIB) };
        // And it leaves its pages in the cache.
        assert_eq!(ranges(&[write, read(400 * KIB, 8 * KIB)]), [(400, 408, 2, 0)]);
        assert_eq!(ranges(&[Access { direct: true, ..write }]), [(400, 408, 1, 1)]);
    }

    #[test]
    fn sequential_reads_become_windows() {
        // FragPicker's grep reads 32 KiB at a time, and the device sees windows (section 5.4).
        let reads: Vec<_> = (0..16).map(|i| read(i * 32 * KIB, 32 * KIB)).collect();
        let got = ranges(&reads);
        assert_eq!(got[..3], [(0, 64, 1, 1), (64, 192, 1, 1), (96, 128, 1, 0)], "{got:?}");
        let windows = got.iter().filter(|r| r.3 == 1).map(|r| r.1 - r.0).max();
        assert_eq!(windows, Some(128), "{got:?}");
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
    fn heat_is_counted_up_to_a_limit_and_fetches_without() {
        let often = Access { count: u32::MAX, ..direct(0, 4 * KIB) };
        let most = u64::from(u32::MAX);
        assert_eq!(ranges(&[often, often]), [(0, 4, most, 2 * most)]);
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
            reads.push(read(i * 128 * KIB, 128 * KIB));
            reads.push(Access { thread: 2, ..read((i + 4) * 96 * KIB + 130 * KIB, 4 * KIB) });
        }
        // The second thread's random reads do not disturb the first one's windows.
        let windows = ranges(&reads).into_iter().filter(|r| r.1 - r.0 == 128).count();
        assert!(windows >= 4, "{windows}");
    }

    #[test]
    fn a_fault_is_taken_as_it_was_seen() {
        let fault = Access { op: Op::Fault, ..read(336 * KIB, 128 * KIB) };
        assert_eq!(ranges(&[fault, fault]), [(336, 464, 2, 1)]);
    }
}
