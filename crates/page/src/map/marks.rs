//! Which ranges of which files a plan would move, and which were moved.

use super::State;
use crate::inputs::Inputs;
use fragmend_layout::{ByteRange, PathText};
use std::collections::BTreeMap;

/// The ranges of all files of one file system.
pub(super) struct Marks<'a> {
    files: BTreeMap<&'a PathText, OfFile>,
    /// Ranges of the plans, and those of them whose files were asked for.
    planned: u64,
    found: u64,
}

/// The ranges of one file, sorted, that do not overlap.
#[derive(Default)]
pub(super) struct OfFile {
    ranges: Vec<(ByteRange, State)>,
    planned: u64,
}

impl<'a> Marks<'a> {
    /// Those of all plans for the file system that has files with these numbers, and of all receipts: these name files by
    /// path alone.
    pub fn of(inputs: &'a Inputs, is_here: impl Fn(u64) -> bool) -> Self {
        let mut files: BTreeMap<&PathText, OfFile> = BTreeMap::new();
        let mut planned = 0;
        for file in inputs.plans.iter().flat_map(|plan| &plan.document.files) {
            if is_here(file.file.device) {
                let of_file = files.entry(&file.path).or_default();
                of_file.planned += file.ranges.len() as u64;
                planned += file.ranges.len() as u64;
                of_file.ranges.extend(file.ranges.iter().map(|r| (r.range(), State::ToMove)));
            }
        }
        for (path, ranges) in inputs.runs.iter().flat_map(|run| run.document.moved()) {
            let of_file = files.entry(path).or_default();
            of_file.ranges.extend(ranges.into_iter().map(|range| (range, State::Moved)));
        }
        files.values_mut().for_each(OfFile::part);
        Self { files, planned, found: 0 }
    }

    /// The ranges of a file.
    pub fn of_file(&mut self, path: &PathText) -> OfFile {
        let of_file = self.files.remove(path).unwrap_or_default();
        self.found += of_file.planned;
        of_file
    }

    /// Ranges of the plans whose files were never asked for.
    pub fn not_found(&self) -> u64 {
        self.planned - self.found
    }
}

impl OfFile {
    /// Parts ranges that overlap: what was moved is moved, also if it was planned.
    fn part(&mut self) {
        let mut edges: Vec<(u64, State, i64)> = Vec::with_capacity(2 * self.ranges.len());
        for (range, state) in self.ranges.drain(..).filter(|(range, _)| !range.is_empty()) {
            edges.extend([(range.start, state, 1), (range.end, state, -1)]);
        }
        edges.sort_unstable_by_key(|edge| edge.0);
        let (mut planned, mut moved, mut from) = (0, 0, 0);
        for (at, state, change) in edges {
            let is = match (moved > 0, planned > 0) {
                (true, _) => Some(State::Moved),
                (false, true) => Some(State::ToMove),
                (false, false) => None,
            };
            if let Some(state) = is.filter(|_| at > from) {
                self.ranges.push((ByteRange { start: from, end: at }, state));
            }
            from = at;
            *(if state == State::Moved { &mut moved } else { &mut planned }) += change;
        }
    }

    /// The parts of `range`, each with its state; `plain` is that of what is in no range.
    pub fn states(
        &self,
        range: ByteRange,
        plain: State,
    ) -> impl Iterator<Item = (ByteRange, State)> + '_ {
        let first = self.ranges.partition_point(|(marked, _)| marked.end <= range.start);
        let mut marked = self.ranges[first..].iter();
        let mut next = marked.next();
        let mut from = range.start;
        std::iter::from_fn(move || {
            if from >= range.end {
                return None;
            }
            let (end, state) = match next {
                Some((ahead, _)) if ahead.start > from => (ahead.start.min(range.end), plain),
                Some((this, state)) => {
                    next = marked.next();
                    (this.end.min(range.end), *state)
                }
                None => (range.end, plain),
            };
            let part = ByteRange { start: from, end };
            from = end;
            Some((part, state))
        })
    }
}
