//! Accessed, hot and fragmented windows, the hottest first (FragPicker, SOSP'21, sections
//! 4.1.2, 4.1.3 and 4.2.1).

use super::{Analysed, Candidate, fragmented_parts};
use std::cmp::Reverse;

/// Every overlap window that is in more than one fragment. Cold windows were removed before.
pub fn choose(files: &[Analysed]) -> Vec<Candidate> {
    let windows = files.iter().enumerate().flat_map(|(i, f)| f.windows.iter().map(move |w| (i, w)));
    let mut hottest_first: Vec<_> = windows.collect();
    // A stable sort: equally hot windows stay in file order.
    hottest_first.sort_by_key(|(_, w)| Reverse(w.seen));
    hottest_first
        .into_iter()
        .flat_map(|(i, w)| {
            fragmented_parts(&files[i], w.range).map(move |range| Candidate { file: i, range })
        })
        .collect()
}
