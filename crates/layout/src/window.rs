//! How the readahead of a sequential reader cuts a file: into windows of one length, counted from the start of
//! the file. A read costs as many requests as these windows; without a trace, plans are made of them.

use crate::ByteRange;

/// The windows of `window` bytes that contain some of `data` (ascending), each once.
pub fn windows(
    data: impl Iterator<Item = ByteRange>,
    window: u64,
) -> impl Iterator<Item = ByteRange> {
    let mut next = 0;
    data.filter(|d| !d.is_empty()).flat_map(move |d| {
        let last = (d.end - 1) / window;
        let first = (d.start / window).max(next);
        next = next.max(last + 1);
        (first..=last).map(move |k| ByteRange::at(k * window, window))
    })
}

/// Device requests of a read of `range` where it is contiguous: each window's part of it costs as many requests
/// as it needs at `max_request` bytes each. The same sum as over its [`windows`], in constant time.
pub fn requests(range: ByteRange, window: u64, max_request: u64) -> u64 {
    let many = |bytes: u64| bytes.div_ceil(max_request);
    let length = range.len();
    let first = (window - range.start % window).min(length);
    let rest = length - first;
    many(first) + rest / window * many(window) + many(rest % window)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn windows_are_those_that_hold_data_each_once() {
        let data = [r(0, 1), r(2, 11), r(12, 13), r(35, 35), r(1 << 62, (1 << 62) + 1)];
        let got: Vec<_> = windows(data.into_iter(), 10).collect();
        let far = (1 << 62) / 10 * 10;
        assert_eq!(got, [r(0, 10), r(10, 20), r(far, far + 10)]);
        let whole: Vec<_> = windows([r(0, 95)].into_iter(), 10).collect();
        assert_eq!(whole.len(), 10);
    }

    #[test]
    fn requests_are_those_of_all_windows() {
        for (window, max_request) in [(1, 1), (8, 3), (8, 8), (7, 20), (5, 4)] {
            for start in 0..20 {
                for end in start..60 {
                    let range = r(start, end);
                    let parts = windows([range].into_iter(), window).map(|w| w.intersect(range));
                    let each: u64 = parts.map(|part| part.len().div_ceil(max_request)).sum();
                    let said = requests(range, window, max_request);
                    assert_eq!(said, each, "{range:?}, {window}, {max_request}");
                }
            }
        }
    }
}
