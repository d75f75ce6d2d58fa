//! Accessed, hot and fragmented windows, the hottest first (FragPicker, SOSP'21, sections
//! 4.1.2, 4.1.3 and 4.2.1).

use super::{Analysed, Candidate, fragmented_parts};
use crate::merge;
use crate::requests::Request;
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

/// Keeps the hottest fraction of all windows (FragPicker section 4.1.3) and returns, per file, the requests of
/// the others.
pub fn cool(files: &mut [Analysed], fraction: f64) -> Vec<Vec<Request>> {
    if fraction >= 1.0 {
        return vec![Vec::new(); files.len()];
    }
    let mut heat: Vec<(Reverse<u64>, usize, usize)> = files
        .iter()
        .enumerate()
        .flat_map(|(i, f)| f.windows.iter().enumerate().map(move |(k, w)| (Reverse(w.seen), i, k)))
        .collect();
    heat.sort_unstable();
    let keep = (heat.len() as f64 * fraction.clamp(0.0, 1.0)).ceil() as usize;
    let mut hot: Vec<Vec<bool>> = files.iter().map(|f| vec![false; f.windows.len()]).collect();
    heat[..keep].iter().for_each(|(_, i, k)| hot[*i][*k] = true);
    files
        .iter_mut()
        .zip(hot)
        .map(|(file, hot)| {
            let part = |want: bool| -> Vec<Request> {
                let windows = file.windows.iter().zip(&hot).filter(|(_, h)| **h == want);
                windows.flat_map(|(w, _)| &file.requests[w.requests.clone()]).copied().collect()
            };
            let (kept, cold) = (part(true), part(false));
            file.windows = merge::windows(&kept);
            file.requests = kept;
            cold
        })
        .collect()
}
