//! What one replay costs as the files are, what it would cost if they were contiguous, and what each request would wait
//! less for every break that it does not cross.
//!
//! A request that crosses `k` breaks costs `now - contiguous` more than it needs to. The cost of a split is not linear in
//! its breaks, as requests that are issued together overlap; but a choice of ranges can be exact only for weights of
//! breaks, so each of the `k` weighs the same part of it. What is chosen by these weights is then judged by what it
//! really saves ([`crate::choose`]). A request that crosses no break weighs what the first one would cost.

use crate::costs::Clock;
use crate::fragments::{Bill, rounded};
use crate::requests::Request;
use crate::select::Analysed;
use fragmend_layout::Split;
use std::ops::AddAssign;

/// Figures of one replay, for the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// As the files are.
    pub now: Bill,
    /// Nanoseconds if every run of data were contiguous.
    pub contiguous_ns: u128,
    /// Nanoseconds as the files are if the fragments of a read were at places of the drive that have nothing to do with each
    /// other.
    pub apart_ns: u128,
    /// Nanoseconds as the files are and if they were contiguous, with each read issued when the one before is done.
    pub alone: [u128; 2],
    /// Accesses that cross a break, or touch what is slow in one fragment, as often as they were seen.
    pub asked: u128,
    /// Of these, as often as they reach the device.
    pub reached: u128,
}

impl Outlook {
    /// Of the ways between reads, which are the same at any depth: one arm goes them.
    pub fn of_ways(now: Bill, contiguous_ns: u128) -> Self {
        let alone = [now.ns, contiguous_ns];
        Self { now, contiguous_ns, apart_ns: now.ns, alone, ..Self::default() }
    }

    /// Whether what contiguous files would save is no more than what depends on where the drive keeps the fragments, which no
    /// extent map shows.
    pub fn is_in_doubt(&self) -> bool {
        let possible = self.now.ns.saturating_sub(self.contiguous_ns);
        possible > 0 && possible <= self.now.ns.abs_diff(self.apart_ns)
    }
}

impl AddAssign for Outlook {
    fn add_assign(&mut self, other: Self) {
        self.now += other.now;
        self.contiguous_ns += other.contiguous_ns;
        self.apart_ns += other.apart_ns;
        self.alone[0] += other.alone[0];
        self.alone[1] += other.alone[1];
        self.asked += other.asked;
        self.reached += other.reached;
    }
}

impl std::iter::Sum for Outlook {
    fn sum<I: Iterator<Item = Self>>(outlooks: I) -> Self {
        outlooks.fold(Self::default(), |mut sum, outlook| {
            sum += outlook;
            sum
        })
    }
}

/// A request that reaches the device.
#[derive(Clone, Copy, Debug)]
pub struct Weighed<'a> {
    /// Which one.
    pub request: &'a Request,
    /// How it is split as the file is.
    pub split: Split,
    /// The breaks that it crosses.
    pub crossed: u64,
    /// Nanoseconds, of all its fetches, for each break.
    pub weight: u64,
    /// The same for a break at the end of a moved range. More on a device that seeks, because the range will be far away, and
    /// where two parts of a read may meet on a die.
    pub torn: u64,
}

/// The outlook for `requests` of a file, which must be sorted; `show` gets each that reaches the device.
pub fn weigh<'a>(
    file: &Analysed,
    requests: &'a [Request],
    mut show: impl FnMut(Weighed<'a>),
) -> Outlook {
    let limit = file.limits.max_request;
    let costs = &*file.costs;
    let (mut clock, mut alone) = (costs.clock(), costs.clock_alone());
    // Where the drive keeps the fragments was measured, or does not matter, or is in doubt.
    let in_doubt = costs.one_more.is_none() && costs.model.knows_neighbours();
    let (mut apart, tears) = (costs.clock_apart(), costs.tears());
    let mut outlook = Outlook::default();
    let mut breaks = Breaks { offsets: &file.breaks, next: 0 };
    file.fragments.each_split(requests, limit, |r, split| {
        let crossed = breaks.inside(r);
        let often = u128::from(r.fetches);
        if crossed > 0 || file.slow.touches(r.range) {
            outlook.asked += u128::from(r.fetches.max(r.seen.into()));
            outlook.reached += often;
        }
        if r.fetches == 0 || split.requests == 0 {
            return;
        }
        let best = if crossed > 0 { contiguous(split, crossed, limit) } else { split };
        let bill = Bill::of(split, r.fetches, &mut clock);
        let best_bill = if crossed > 0 { Bill::of(best, r.fetches, &mut clock) } else { bill };
        outlook.now += bill;
        outlook.contiguous_ns += best_bill.ns;
        outlook.apart_ns += if in_doubt && split.requests > 1 {
            Bill::of(split, r.fetches, &mut apart).ns
        } else {
            bill.ns
        };
        if costs.depth > 1.0 {
            outlook.alone[0] += Bill::of(split, r.fetches, &mut alone).ns;
            outlook.alone[1] += Bill::of(best, r.fetches, &mut alone).ns;
        }
        let first =
            |clock: &mut Clock| first_break_ns(best, costs.far_ns, clock).saturating_mul(often);
        let weight = if crossed > 0 {
            bill.ns.saturating_sub(best_bill.ns) / u128::from(crossed)
        } else {
            first(&mut clock)
        };
        let torn = if tears { first(&mut clock) } else { weight };
        let [weight, torn] = [weight, torn].map(|ns| u64::try_from(ns).unwrap_or(u64::MAX));
        show(Weighed { request: r, split, crossed, weight, torn });
    });
    if costs.depth <= 1.0 {
        outlook.alone = [outlook.now.ns, outlook.contiguous_ns];
    }
    outlook
}

/// Nanoseconds that one more break would cost a read.
fn first_break_ns(split: Split, far_ns: u64, clock: &mut Clock) -> u128 {
    let seek_ns = split.seek_ns + far_ns;
    let torn = Split { requests: split.requests + 1, seek_ns, torn: true, ..split };
    let more = clock.read_ns(torn) - clock.read_ns(split);
    rounded(more).into()
}

/// How a read is split that crosses `crossed` breaks, once it crosses none.
fn contiguous(split: Split, crossed: u64, limit: u64) -> Split {
    // Holes part it as before, and so does the longest request.
    let runs = split.requests.saturating_sub(crossed).max(1);
    let requests = runs.min(split.bytes.div_ceil(limit).max(1)).max(1);
    let requests = if split.bytes <= limit { runs } else { requests };
    // Of its seeks, those across holes are left.
    let seek_ns = if runs == 1 { 0 } else { split.seek_ns / (crossed + 1) };
    Split { requests, seek_ns, ..split }
}

/// The breaks of a file, for requests in ascending order.
struct Breaks<'a> {
    offsets: &'a [u64],
    /// The first behind the start of the last request.
    next: usize,
}

impl Breaks<'_> {
    /// How many breaks a request crosses.
    fn inside(&mut self, r: &Request) -> u64 {
        while self.offsets.get(self.next).is_some_and(|at| *at <= r.range.start) {
            self.next += 1;
        }
        const FEW: usize = 8;
        let rest = &self.offsets[self.next..];
        let near = rest.iter().take(FEW).take_while(|at| **at < r.range.end).count();
        if near < FEW { near as u64 } else { rest.partition_point(|at| *at < r.range.end) as u64 }
    }
}
