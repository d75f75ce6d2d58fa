//! The planned files: each range with its own figures and its reason.

use crate::file::{PlannedFile, PlannedRange};
use crate::fragments::Bill;
use crate::input::Policy;
use crate::make::Kept;
use crate::parallel;
use crate::select::Analysed;
use crate::source::MOST_RANGES;
use fragmend_layout::{ByteRange, Layout};
use std::cmp::Reverse;

/// The planned files. Those that save most time come first, so that an interrupted apply has done the best part; what moves out of
/// segments goes to the log in the order of inodes.
pub fn entries(
    files: Vec<Kept>,
    analysed: Vec<Analysed>,
    moves: Vec<Vec<ByteRange>>,
    (traced, policy): (bool, Policy),
) -> Vec<PlannedFile> {
    // File by file, so that the memory of each analysis is freed before the next file is planned.
    let files = files.into_iter().zip(analysed).zip(moves);
    let planned = parallel::map_owned(
        files.filter(|(_, moves)| !moves.is_empty()).collect(),
        |((kept, analysed), moves)| {
            let (saved, ranges) = explain(&analysed, &kept.shared, &moves, traced);
            let file = |ranges: &[PlannedRange]| PlannedFile {
                path: kept.path.as_path().into(),
                file: kept.file,
                size: kept.size,
                ranges: ranges.to_vec(),
            };
            // No entry has more ranges than its reader accepts; a file may have several entries.
            ranges.chunks(MOST_RANGES).map(|some| (saved, file(some))).collect::<Vec<_>>()
        },
    );
    let mut planned: Vec<(u128, PlannedFile)> = planned.into_iter().flatten().collect();
    let by_inode = policy == Policy::Segments;
    planned.sort_by_key(|(saved, file)| (Reverse(if by_inode { 0 } else { *saved }), file.file));
    planned.into_iter().map(|(_, file)| file).collect()
}

/// The planned ranges of a file, and the nanoseconds that they save.
fn explain(
    file: &Analysed,
    shared: &Layout,
    moves: &[ByteRange],
    traced: bool,
) -> (u128, Vec<PlannedRange>) {
    let mut total = 0;
    let range = |((range, [before, now]), seen): ((&ByteRange, [Bill; 2]), u64)| {
        let fragments = file.fragments.count(*range);
        let saved_ns = before.ns.saturating_sub(now.ns);
        total += saved_ns;
        let slow = file.slow_place(*range);
        let us = saved_ns as f64 / 1e3;
        let reason = match slow {
            Some((_, times)) => {
                let seen = if traced { format!("seen {seen} times; ") } else { String::new() };
                format!(
                    "slow-inside: in one extent, and reading it lasts {times:.1} times as long as the drive needs; {seen}{us:.0} us saved"
                )
            }
            None if traced => {
                let times = before.requests.saturating_sub(now.requests);
                format!(
                    "seen {seen} times in {fragments} fragments; {us:.0} us and {times} requests saved"
                )
            }
            None => format!("{fragments} fragments"),
        };
        PlannedRange {
            offset: range.start,
            length: range.len(),
            extents: fragments,
            seen: if traced { seen } else { 0 },
            requests_before: before.requests,
            requests_after: now.requests,
            seconds_saved: saved_ns as f64 / 1e9,
            space_cost_bytes: shared.shared_bytes(*range),
            slow_at: slow.map(|(place, _)| place),
            reason,
        }
    };
    let ranges = moves.iter().zip(file.bills(moves)).zip(file.seen(moves)).map(range).collect();
    (total, ranges)
}
