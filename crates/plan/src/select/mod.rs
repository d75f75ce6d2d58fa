//! The policies: each chooses ranges, none knows of the others.
//!
//! A policy returns candidates in the order in which it wants them moved; the budget is spent in that order.
//! [`gain`] solves the budget itself.

pub mod bills;
pub mod bypass;
pub mod crossings;
pub mod fragpicker;
pub mod gain;
pub mod iodp;
pub mod isolated;
pub mod movable;
pub mod price;
pub mod segments;
pub mod whole_file;

use crate::costs::Costs;
use crate::fragments::{Bill, Fragments};
use crate::merge::{self, Window};
use crate::requests::Request;
use crate::slow::{self, Losses};
use crate::turns::InTurn;
use crate::ways::Ways;
use crossings::Crossings;
use fragmend_layout::{ByteRange, DeviceLimits, Layout};
use price::Price;
use std::sync::{Arc, OnceLock};

/// One file, analysed: what every policy chooses from.
#[derive(Debug)]
pub struct Analysed {
    /// Distinct requests in ascending order; those that are not hot enough are left out.
    pub requests: Vec<Request>,
    /// In which turns they were recorded, if a part of all places was at a time; in ascending order.
    pub turns: Vec<InTurn>,
    /// Requests that are like these, and were not seen ([`crate::unseen`]); in ascending order.
    pub unseen: Vec<Request>,
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
    /// Its allocation block in bytes.
    pub block: u64,
    /// The ways between its reads, on a device that seeks.
    pub ways: Ways,
    /// What its reads lose in ranges that are in one fragment and yet slow.
    pub slow: Losses,
    /// Where its fragments are, if it is known which unit of its device holds what, and that is asked for.
    pub places: Option<iodp::Places>,
    /// What reads cost on its device.
    pub costs: Arc<Costs>,
    /// Whether reads that overlap no other are solved by themselves: what `gain` does.
    pub apart: bool,
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
        costs: Arc<Costs>,
    ) -> Self {
        let runs = movable::movable_runs(layout, unshare);
        Self {
            windows: merge::windows(&requests),
            requests,
            turns: Vec::new(),
            unseen: Vec::new(),
            fragments: Fragments::of(layout, &costs.model),
            runs: runs.into_iter().map(|r| r.align_outward(block)).collect(),
            breaks: layout.breaks().collect(),
            limits,
            block,
            ways: Ways::default(),
            slow: Losses::default(),
            places: None,
            costs,
            apart: false,
            crossings: OnceLock::new(),
        }
    }

    /// Replaces its requests, in ascending order, by some of them, or with other counts.
    pub fn count_anew(&mut self, requests: Vec<Request>) {
        self.windows = merge::windows(&requests);
        self.requests = requests;
        self.crossings = OnceLock::new();
        self.slow = slow::weigh(self);
    }

    /// The points where a range may end, with the time that requests which cross them wait; computed once.
    pub fn crossings(&self) -> &Crossings {
        self.crossings.get_or_init(|| Crossings::of(self, self.apart && self.ways.is_empty()))
    }

    /// The fragments once these ranges (sorted, disjoint, each within one run) are contiguous.
    pub fn fragments_after(&self, moves: &[ByteRange]) -> Fragments {
        self.fragments.after(moves, self.costs.far_ns)
    }

    /// Index of the first window that ends behind an offset.
    pub fn window_at(&self, at: u64) -> usize {
        self.windows.partition_point(|window| window.range.end <= at)
    }

    /// Whether data continues on both sides of an offset, which may be moved together.
    pub fn is_inside_run(&self, at: u64) -> bool {
        let run = self.runs.partition_point(|run| run.end <= at);
        self.runs.get(run).is_some_and(|run| run.start < at)
    }

    /// The nanoseconds of all ways between reads once these ranges (sorted, disjoint) are contiguous.
    pub fn ways_ns(&self, moves: &[ByteRange]) -> u128 {
        self.ways.after_ns(moves, &self.costs)
    }

    /// Of a range that is in one fragment and yet slow: where it begins on the device, in bytes, and how many times longer
    /// reading it lasts than the drive needs.
    pub fn slow_place(&self, range: ByteRange) -> Option<(u64, f64)> {
        let place = self.slow.of_fragment(range)?;
        (self.fragments.count(range) == 1).then_some(place)
    }

    /// The nanoseconds of [`saved_ns`](Self::saved_ns), less what the bytes of these ranges cost at this price.
    pub fn beyond(&self, moves: &[ByteRange], price: Price) -> i128 {
        let price: u128 = moves.iter().map(|m| price.of(m.len())).sum();
        self.saved_ns(moves) - price as i128
    }

    /// The nanoseconds that one replay lasts less once these ranges (sorted, disjoint, each within one run) are
    /// contiguous; below zero if it lasts longer. By the costs themselves, not by weights of breaks.
    pub fn saved_ns(&self, moves: &[ByteRange]) -> i128 {
        if moves.is_empty() {
            return 0;
        }
        let touched = touching(&self.requests, moves).filter(|r| r.fetches > 0);
        let (limit, mut clock) = (self.limits.max_request, self.costs.clock());
        let before: Bill = self.fragments.replay(touched.clone(), limit, &mut clock);
        let after = self.fragments_after(moves).replay(touched, limit, &mut clock);
        let ways = self.ways.now_ns() as i128 - self.ways_ns(moves) as i128;
        before.ns as i128 - after.ns as i128 + ways + self.slow.cured_ns(moves) as i128
    }
}

/// The requests (sorted) that overlap any of `moves` (sorted, disjoint), in one pass over both.
pub fn touching<'a>(
    requests: &'a [Request],
    moves: &'a [ByteRange],
) -> impl Iterator<Item = &'a Request> + Clone {
    let mut next = 0;
    requests.iter().filter(move |r| {
        while moves.get(next).is_some_and(|m| m.end <= r.range.start) {
            next += 1;
        }
        moves.get(next).is_some_and(|m| m.start < r.range.end)
    })
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
