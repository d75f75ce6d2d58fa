//! Every fragmented readahead window from the start of the file, without a trace: the right choice for files
//! that are read sequentially (FragPicker, SOSP'21, section 4.1.4).

use super::{Analysed, Candidate, fragmented_parts};
use fragmend_layout::windows;

/// The windows of every file that are in more than one fragment, in file order.
pub fn choose(files: &[Analysed]) -> Vec<Candidate> {
    let windows_of = |(i, file): (usize, &Analysed)| {
        windows(file.runs.iter().copied(), file.limits.readahead)
            .flat_map(|w| fragmented_parts(file, w))
            .map(|range| Candidate { file: i, range })
            .collect::<Vec<_>>()
    };
    files.iter().enumerate().flat_map(windows_of).collect()
}
