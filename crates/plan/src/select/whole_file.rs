//! Every fragmented file, whole, the most fragmented first, as e4defrag and similar tools do.

use super::{Analysed, Candidate};
use fragmend_layout::ByteRange;
use std::cmp::Reverse;

/// Every run of every fragmented file, cut at the largest extent, which costs nothing; parts in one fragment
/// are left out.
pub fn choose(files: &[Analysed]) -> Vec<Candidate> {
    let mut order: Vec<_> = (0..files.len()).filter(|i| !files[*i].breaks.is_empty()).collect();
    order.sort_by_key(|i| Reverse(files[*i].breaks.len()));
    let fragments_of = |i: usize| {
        let file = &files[i];
        let cuts = file.runs.iter().flat_map(|run| split(*run, file.limits.largest_extent));
        cuts.filter(|range| file.fragments.count(*range) > 1)
            .map(move |range| Candidate { file: i, range })
            .collect::<Vec<_>>()
    };
    order.into_iter().flat_map(fragments_of).collect()
}

fn split(run: ByteRange, largest: u64) -> impl Iterator<Item = ByteRange> {
    (0..run.len().div_ceil(largest))
        .map(move |i| ByteRange::at(run.start + i * largest, largest).intersect(run))
}
