//! Splits extents of a file at the limits of a bio, a request or a readahead window.

use crate::command::Units;

/// Splits an extent into parts of at most this many units.
pub(super) fn split(extent: Units, max: u32) -> impl Iterator<Item = Units> {
    let max = max.max(1);
    let starts = (extent.start..extent.end()).step_by(max as usize);
    starts.map(move |start| Units::new(start, max.min(extent.end() - start)))
}

/// Consecutive extents of a file, split after every `units` units of the file.
pub fn windows(extents: &[Units], units: u32) -> Vec<Vec<Units>> {
    let (mut windows, mut left) = (Vec::<Vec<Units>>::new(), 0);
    for extent in extents {
        let mut rest = *extent;
        while rest.count > 0 {
            if left == 0 {
                windows.push(Vec::new());
                left = units;
            }
            let count = rest.count.min(left);
            windows.last_mut().expect("just pushed").push(Units::new(rest.start, count));
            rest = Units::new(rest.start + count, rest.count - count);
            left -= count;
        }
    }
    windows
}
