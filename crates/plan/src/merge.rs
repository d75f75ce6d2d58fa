//! Overlapping requests to windows: FragPicker's algorithm 1 (SOSP'21, section 4.1.2).
//!
//! If two overlapping requests were moved apart, each would be split where the other begins; so they become one
//! window. Adjacent requests do not overlap. A window remembers its requests, so that a hot database file does
//! not become one range without inner structure.

use crate::requests::Request;
use fragmend_layout::ByteRange;
use std::ops::Range;

/// The paper's overlap window: a maximal chain of overlapping requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// From the first request's start to the last one's end.
    pub range: ByteRange,
    /// Accesses counted in it: its heat.
    pub seen: u64,
    /// The requests of the window, as indices into the sorted list of the file.
    pub requests: Range<usize>,
}

/// Merges `requests`, which must be sorted by range.
pub fn windows(requests: &[Request]) -> Vec<Window> {
    let mut out: Vec<Window> = Vec::new();
    for (i, request) in requests.iter().enumerate() {
        let seen = u64::from(request.seen);
        match out.last_mut() {
            Some(window) if request.range.overlaps(window.range) => {
                window.range.end = window.range.end.max(request.range.end);
                window.seen += seen;
                window.requests.end = i + 1;
            }
            _ => out.push(Window { range: request.range, seen, requests: i..i + 1 }),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start: u64, end: u64, seen: u32) -> Request {
        let range = ByteRange { start, end };
        Request { range, seen, fetches: seen.into(), streamed: false }
    }

    #[test]
    fn the_papers_example() {
        // "two I/Os access file ranges 1-40 and 31-60": one window 1-60 with count 2.
        let got = windows(&[request(1, 40, 1), request(31, 60, 1)]);
        assert_eq!(
            got,
            [Window { range: ByteRange { start: 1, end: 60 }, seen: 2, requests: 0..2 }]
        );
    }

    #[test]
    fn touching_requests_stay_apart() {
        assert_eq!(windows(&[request(0, 4, 1), request(4, 8, 1)]).len(), 2);
    }

    #[test]
    fn a_request_inside_another_does_not_shorten_the_window() {
        let got = windows(&[request(0, 100, 1), request(10, 20, 5), request(90, 110, 1)]);
        assert_eq!(got.len(), 1);
        assert_eq!((got[0].range.end, got[0].seen), (110, 7));
    }
}
