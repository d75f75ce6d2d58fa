//! The policies: each chooses ranges, none knows of the others.
//!
//! A policy returns candidates in the order in which it wants them moved; the budget is spent in that order.
//! [`gain`] solves the budget itself.

pub mod bypass;
pub mod fragpicker;
pub mod gain;
pub mod movable;
pub mod whole_file;

use crate::fragments::Fragments;
use crate::merge::{self, Window};
use crate::requests::Request;
use fragmend_layout::{ByteRange, DeviceLimits, Layout};
use gain::Crossings;
use std::sync::OnceLock;

/// One file, analysed: what every policy chooses from.
#[derive(Debug)]
pub struct Analysed {
    /// Distinct requests in ascending order; those that are not hot enough are left out.
    pub requests: Vec<Request>,
    /// Length of the longest of them in bytes.
    pub longest_request: u64,
    /// Their overlap windows.
    pub windows: Vec<Window>,
    /// The file's fragments.
    pub fragments: Fragments,
    /// Maximal ranges of data that may be moved, in ascending order.
    pub runs: Vec<ByteRange>,
    /// Offsets where data continues elsewhere on the device, in ascending order.
    pub breaks: Vec<u64>,
    /// What the device and file system allow.
    pub limits: DeviceLimits,
    crossings: OnceLock<Crossings>,
}

impl Analysed {
    /// Analyses a file by its sorted, distinct requests and its layout; `block` is its allocation block in
    /// bytes. Shared data may be moved if `unshare`.
    pub fn of(
        requests: Vec<Request>,
        layout: &Layout,
        limits: DeviceLimits,
        block: u64,
        unshare: bool,
    ) -> Self {
        let runs = movable::movable_runs(layout, unshare);
        Self {
            longest_request: requests.iter().map(|r| r.range.len()).max().unwrap_or(0),
            windows: merge::windows(&requests),
            requests,
            fragments: Fragments::of(layout),
            runs: runs.into_iter().map(|r| r.align_outward(block)).collect(),
            breaks: layout.breaks().collect(),
            limits,
            crossings: OnceLock::new(),
        }
    }

    /// The points where a range may end, with the accesses that cross them; computed once.
    pub fn crossings(&self) -> &Crossings {
        self.crossings.get_or_init(|| Crossings::of(self))
    }
}

/// A range that a policy wants contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Index of its file.
    pub file: usize,
    /// Whole blocks, within one run.
    pub range: ByteRange,
}

/// The part of each run that is in `range`, where that part is in more than one fragment.
fn fragmented_parts(file: &Analysed, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
    let first = file.runs.partition_point(|run| run.end <= range.start);
    file.runs[first..]
        .iter()
        .take_while(move |run| run.start < range.end)
        .map(move |run| run.intersect(range))
        .filter(|part| file.fragments.count(*part) > 1)
}

/// Takes candidates in order while they fit the budget; later, smaller ones may still use the rest.
pub fn within_budget(candidates: Vec<Candidate>, budget: Option<u64>) -> Vec<Candidate> {
    let mut left = budget.unwrap_or(u64::MAX);
    let mut fits = |c: &Candidate| {
        let fits = c.range.len() <= left;
        left -= if fits { c.range.len() } else { 0 };
        fits
    };
    candidates.into_iter().filter(|c| fits(c)).collect()
}
