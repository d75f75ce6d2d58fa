//! What one thread that reads through the page cache has waited for before each of its reads of the device was issued.
//!
//! It waits for the page that it reads, not for the window: of a window in fragments, those behind this page may still be in
//! flight. The mark of the first window of a sequence is on its second page (`page_cache_sync_ra`, mm/readahead.c), so what
//! follows is issued once its first page is there. The mark of each later one is on its first page: what follows
//! is issued once all pages in front of it are there. Where a sequence ends within its last window but one is not
//! recorded; it is taken to be the middle.

use super::Sample;
use super::reads::{InFlight, Read, Run};
use fragmend_layout::ByteRange;
use std::ops::Range;

/// The reads of a run as they are issued: where a part of one is waited for by itself, that part is a read.
pub(super) struct Parts {
    /// The device number of the file system.
    pub device: u64,
    pub in_flight: InFlight,
    pub reads: Vec<Read>,
    /// Of each, the earlier ones that it is issued after; empty unless they are as one thread [read](InFlight::AsRead).
    pub needs: Vec<Range<usize>>,
}

impl Sample {
    /// The parts of a run, as its files were surveyed, or with the planned ranges `moved`, which are in one fragment each then.
    pub(super) fn parts(&self, run: &Run, as_surveyed: bool) -> Parts {
        let Run { device, in_flight, .. } = *run;
        if in_flight != InFlight::AsRead {
            return Parts { device, in_flight, reads: run.reads.clone(), needs: Vec::new() };
        }
        let end_of = |read: &Read, at: u64| {
            if as_surveyed { self.end_of_fragment(read, at) } else { read.range.end }
        };
        in_order(run, end_of)
    }

    /// Where the fragment ends that holds this byte of a read.
    fn end_of_fragment(&self, read: &Read, at: u64) -> u64 {
        let mut fragments = self.files[read.file].layout.fragments_within(read.range);
        let found = fragments.find(|fragment| fragment.range.end > at);
        found.map_or(read.range.end, |fragment| fragment.range.end)
    }
}

/// The parts of reads of one file, where `end_of` is the end of the fragment that holds a byte of a read.
fn in_order(run: &Run, end_of: impl Fn(&Read, u64) -> u64) -> Parts {
    let places = run.places();
    let mut parts = Parts {
        device: run.device,
        in_flight: run.in_flight,
        reads: Vec::new(),
        needs: Vec::new(),
    };
    // Of each read, its first part, and the ends of the first one and the middle one, and of all.
    let mut bounds: Vec<[usize; 4]> = Vec::new();
    for (n, read) in run.reads.iter().enumerate() {
        let ByteRange { start, end } = read.range;
        let (first, middle) = (end_of(read, start), end_of(read, start.midpoint(end)));
        let begin = parts.reads.len();
        let needs = match (places[n], n.checked_sub(1)) {
            (_, None) => 0..0,
            // The first window is issued once the page in front of it has been read.
            (1, Some(before)) => bounds[before][0]..bounds[before][3],
            (2, Some(before)) => bounds[before][0]..bounds[before][1],
            (place, Some(before)) if place > 2 => bounds[before - 1][0]..bounds[before - 1][3],
            // The end of another sequence: its last window but one, or its only one.
            (_, Some(before)) => match places[before] {
                0 => bounds[before][0]..bounds[before][3],
                1 => bounds[before][0]..bounds[before][2],
                _ => bounds[before - 1][0]..bounds[before - 1][2],
            },
        };
        let mut at = start;
        for cut in [first, middle, end] {
            if cut > at {
                parts.reads.push(Read { range: ByteRange { start: at, end: cut }, ..*read });
                parts.needs.push(needs.clone());
                at = cut;
            }
        }
        let until = |end: u64| {
            begin + parts.reads[begin..].iter().filter(|part| part.range.end <= end).count()
        };
        bounds.push([begin, until(first), until(middle), parts.reads.len()]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_issued_after_the_page_that_was_waited_for() {
        // A page, its first window of 4 pages, and two more; then a single page. Fragments end at even pages.
        let range = |start: u64, end: u64| ByteRange { start: start * 4096, end: end * 4096 };
        let ranges =
            [range(100, 101), range(101, 105), range(105, 113), range(113, 129), range(7, 8)];
        let read = |range| Read { file: 0, range, missed: true };
        let reads = ranges.map(read).to_vec();
        let run = Run { device: 1, in_flight: InFlight::AsRead, reads };
        let parts = in_order(&run, |read, at| (at + 1).next_multiple_of(8192).min(read.range.end));
        let pages = |r: &Read| (r.range.start / 4096, r.range.end / 4096);
        let found: Vec<_> = parts.reads.iter().map(pages).zip(parts.needs).collect();
        let expected = [
            ((100, 101), 0..0),
            ((101, 102), 0..1),
            ((102, 104), 0..1),
            ((104, 105), 0..1),
            ((105, 106), 1..2),
            ((106, 110), 1..2),
            ((110, 113), 1..2),
            ((113, 114), 1..4),
            ((114, 122), 1..4),
            ((122, 129), 1..4),
            // The middle of the last window but one.
            ((7, 8), 4..6),
        ];
        assert_eq!(found, expected);
    }
}
