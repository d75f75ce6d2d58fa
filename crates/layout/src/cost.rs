//! What reads cost on a device, in time: the currency of plans.
//!
//! The elapsed time of a read depends on how many requests it is split into, how long they are, and how many
//! are in flight besides. Two figures for each length and number of requests in flight say that:
//!
//! - `burst_ns`: how long requests last that are issued together on an idle device, until the last is done. One
//!   program that reads, waits and reads again spends this on each access.
//! - `interval_ns`: the mean time between completions while this many are always in flight. Many programs, or one
//!   with a deep queue, spend this on each request.
//!
//! Both are of requests at places that have nothing to do with each other. The fragments of one read do: what a program
//! reads together it has usually written together, and a flash drive places data by when it is written, wherever the file
//! system has put it. So they are spread over the dies as one long request is, and share flash pages. A third figure says
//! what that costs:
//!
//! - `split_ns`: a burst of neighbours, which together are one contiguous part of the device.
//!
//! So do the windows that the kernel reads ahead in a file, of which one is in flight beside the one before:
//!
//! - `stream_ns`: the mean time between completions of requests that continue each other, so many in flight.
//!
//! A model comes from a probe, from what was observed while recording, or is a guess by what the kernel reports;
//! [`CostSource`] says which, and every output repeats it.

use schemars::JsonSchema;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// Where a cost model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CostSource {
    /// Measured by `fragmend probe`.
    Probed,
    /// Latencies of the requests that were seen while a trace was recorded.
    Observed,
    /// A guess by the kind of the device, as the kernel reports it.
    Guessed,
}

/// The cost of requests of one length, so many in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestCost {
    /// Length of each request in bytes.
    pub request_bytes: u64,
    /// Requests in flight, this one included.
    pub in_flight: u32,
    /// Nanoseconds until the last of `in_flight` requests is done that are issued together on an idle device.
    pub burst_ns: u64,
    /// Nanoseconds between two completions while `in_flight` requests are always in flight.
    pub interval_ns: u64,
    /// Nanoseconds until the last of `in_flight` requests is done that are issued together and read one contiguous part of
    /// the device; none where it was not measured, and `burst_ns` stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_ns: Option<u64>,
    /// Nanoseconds between two completions while `in_flight` requests are always in flight, each of which continues the one
    /// before it; none where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_ns: Option<u64>,
}

impl RequestCost {
    /// The burst of neighbours, or of any requests where that was not measured.
    fn neighbours_ns(&self) -> u64 {
        self.split_ns.unwrap_or(self.burst_ns)
    }

    /// The interval of a stream, or of any requests where that was not measured.
    fn stream_ns(&self) -> u64 {
        self.stream_ns.unwrap_or(self.interval_ns)
    }
}

/// The additional cost of a distance on a device that seeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeekCost {
    /// Bytes between the end of one request and the start of the next.
    pub distance_bytes: u64,
    /// Nanoseconds that the next request lasts longer than one that continues the first.
    pub ns: u64,
    /// The same for a request that begins before the end of the first: while a short way forward passes under the head, the
    /// same way back is a rotation. Where it is not known, it is as forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_ns: Option<u64>,
}

impl SeekCost {
    /// The seek in the other direction.
    fn back_ns(&self) -> u64 {
        self.back_ns.unwrap_or(self.ns)
    }
}

/// What reads cost on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Unchecked")]
pub struct CostModel {
    /// Where it comes from.
    pub source: CostSource,
    /// A cost for every length and every number in flight that occur, by length and then by number, ascending.
    reads: Vec<RequestCost>,
    /// By distance, ascending; empty for devices that do not seek.
    seeks: Vec<SeekCost>,
}

/// A model as it is in a file.
#[derive(Deserialize, JsonSchema)]
struct Unchecked {
    source: CostSource,
    #[serde(deserialize_with = "few")]
    reads: Vec<RequestCost>,
    #[serde(default, deserialize_with = "few")]
    seeks: Vec<SeekCost>,
}

/// Reads a list of at most [`MOST`] figures: of a longer one no more than that is ever in memory.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "at most {MOST} figures")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut figures = Vec::new();
            while let Some(figure) = list.next_element()? {
                figures.push(figure);
                if figures.len() > MOST {
                    return Err(A::Error::custom("a cost model has 1 to 1024 figures"));
                }
            }
            Ok(figures)
        }
    }
    from.deserialize_seq(Few(PhantomData))
}

impl TryFrom<Unchecked> for CostModel {
    type Error = Senseless;

    fn try_from(file: Unchecked) -> Result<Self, Senseless> {
        Self::new(file.source, file.reads, file.seeks)
    }
}

/// Why figures are no cost model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Senseless(&'static str);

impl std::fmt::Display for Senseless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Senseless {}

/// How a read is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Its bytes.
    pub bytes: u64,
    /// Its requests, at least one.
    pub requests: u64,
    /// Sum of [`CostModel::seek_ns`] over consecutive requests.
    pub seek_ns: u64,
    /// Whether a part of it has moved and the rest has not: the two were written at different times, and may meet on a die.
    pub torn: bool,
    /// Whether it is in flight beside the read that it continues, as windows are that are read ahead.
    pub streamed: bool,
}

impl Split {
    /// A read of one request without a seek.
    pub fn whole(bytes: u64) -> Self {
        Self { bytes, requests: 1, seek_ns: 0, torn: false, streamed: false }
    }
}

/// What a read costs but for its seeks: what [`CostModel::read_ns`] needs of the model, so that it is looked up once
/// for all reads of one length in as many requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unseeking {
    /// Its share of the time, if all reads in flight overlap.
    overlapped_ns: f64,
    /// The time that the device needs between this read and the next.
    paced_ns: f64,
    depth: f64,
}

impl Unseeking {
    /// Nanoseconds that the read lasts with these seeks. One arm does them: nothing overlaps with a seek.
    pub fn read_ns(self, seek_ns: u64) -> f64 {
        let seek = seek_ns as f64;
        (self.overlapped_ns + seek / self.depth).max(self.paced_ns + seek)
    }
}

/// No time of a request is longer: an hour, so that sums of many do not overflow.
const LONGEST_NS: u64 = 3600 * 1_000_000_000;
/// No model has more figures of a kind: sizes of 512 bytes to 1 GiB times numbers of 1 to 4096 are fewer.
const MOST: usize = 1024;

impl CostModel {
    /// A model of these figures, in any order.
    ///
    /// # Errors
    /// There are no figures, too many, a length or a number in flight is 0, a time is 0 or longer than an hour, or
    /// a combination is missing or twice there.
    pub fn new(
        source: CostSource,
        mut reads: Vec<RequestCost>,
        mut seeks: Vec<SeekCost>,
    ) -> Result<Self, Senseless> {
        if reads.is_empty() || reads.len() > MOST || seeks.len() > MOST {
            return Err(Senseless("a cost model has 1 to 1024 figures"));
        }
        let possible = |ns: u64| (1..=LONGEST_NS).contains(&ns);
        let read = |r: &RequestCost| {
            let times = [r.burst_ns, r.interval_ns, r.neighbours_ns(), r.stream_ns()];
            times.into_iter().all(possible)
        };
        if !reads.iter().all(read) || !seeks.iter().all(|s| s.ns.max(s.back_ns()) <= LONGEST_NS) {
            return Err(Senseless("a time is 0 or longer than an hour"));
        }
        if reads.iter().any(|r| r.request_bytes == 0 || r.in_flight == 0) {
            return Err(Senseless("a length or a number in flight is 0"));
        }
        reads.sort_unstable_by_key(|r| (r.request_bytes, r.in_flight));
        seeks.sort_unstable_by_key(|s| s.distance_bytes);
        let columns =
            reads.iter().take_while(|r| r.request_bytes == reads[0].request_bytes).count();
        let first: Vec<u32> = reads[..columns].iter().map(|r| r.in_flight).collect();
        let whole = reads.chunks(columns).all(|row| {
            row.iter().map(|r| r.in_flight).eq(first.iter().copied())
                && row.iter().all(|r| r.request_bytes == row[0].request_bytes)
        });
        let distinct = first.windows(2).all(|pair| pair[0] < pair[1])
            && reads.chunks(columns).map(|row| row[0].request_bytes).is_sorted_by(|a, b| a < b)
            && seeks.is_sorted_by(|a, b| a.distance_bytes < b.distance_bytes);
        if !whole || !distinct {
            return Err(Senseless(
                "a combination of length and number in flight is missing or twice there",
            ));
        }
        Ok(Self { source, reads, seeks })
    }

    /// The figures of reads, by length and then by number in flight.
    pub fn reads(&self) -> &[RequestCost] {
        &self.reads
    }

    /// The figures of distances; empty for devices that do not seek.
    pub fn seeks(&self) -> &[SeekCost] {
        &self.seeks
    }

    /// Nanoseconds by which a request that begins at byte `start` of the device lasts longer because the one before it
    /// ended at byte `end`.
    pub fn seek_ns(&self, end: u64, start: u64) -> u64 {
        if start < end {
            self.seek_by(end - start, SeekCost::back_ns)
        } else {
            self.seek_by(start - end, |seek| seek.ns)
        }
    }

    /// The same over this distance, in a direction that is not known.
    pub fn seek_either_ns(&self, distance_bytes: u64) -> u64 {
        self.seek_ns(0, distance_bytes).midpoint(self.seek_ns(distance_bytes, 0))
    }

    fn seek_by(&self, distance_bytes: u64, ns: impl Fn(&SeekCost) -> u64) -> u64 {
        if distance_bytes == 0 || self.seeks.is_empty() {
            return 0;
        }
        let points = self.seeks.iter().map(|s| (s.distance_bytes as f64, ns(s) as f64));
        between(points, distance_bytes as f64, false).max(0.0) as u64
    }

    /// Nanoseconds of elapsed time that one such read lasts on average while `depth` of them are always in flight.
    /// `depth` of at most 1: each read is issued when the one before is done.
    pub fn read_ns(&self, split: Split, depth: f64) -> f64 {
        self.unseeking(split, depth).read_ns(split.seek_ns)
    }

    /// The same for reads that are split so, whatever their seeks.
    pub fn unseeking(&self, split: Split, depth: f64) -> Unseeking {
        let whole = split.bytes as f64;
        let requests = split.requests.max(1) as f64;
        let bytes = whole / requests;
        let depth = depth.max(1.0);
        let torn_ns = if split.torn { self.torn_ns(whole) } else { 0.0 };
        let alone = self.burst_ns(bytes, requests) + torn_ns;
        let more_ns = || (requests * self.one_more_ns(bytes) - self.one_more_ns(whole)).max(0.0);
        if split.streamed && self.knows_streams() {
            let (share, more) =
                (depth.min(2.0) - 1.0, if requests > 1.0 { more_ns() } else { 0.0 });
            let streamed = self.at(whole, 2.0, RequestCost::stream_ns) + more + torn_ns / 2.0;
            let overlapped_ns = alone + (streamed - alone) * share;
            return Unseeking { overlapped_ns, paced_ns: 0.0, depth };
        }
        // No more than what one read costs alone can overlap with the others, and no device is quicker than its
        // intervals.
        let paced_ns = if depth == 1.0 {
            0.0
        } else if requests > 1.0 && self.knows_neighbours() {
            // The device is as busy as with the read in one request, and longer by what its requests need more than one.
            self.interval_ns(whole, depth) + more_ns()
        } else {
            requests * self.interval_ns(bytes, requests * depth)
        };
        Unseeking { overlapped_ns: alone / depth, paced_ns, depth }
    }

    /// The same if the requests of the read were at places that have nothing to do with each other, as those of data are that
    /// was written at different times. Which it is cannot be seen: the two are how well the cost of a split is known.
    pub fn unseeking_apart(&self, split: Split, depth: f64) -> Unseeking {
        if split.requests <= 1 || split.streamed || !self.knows_neighbours() {
            return self.unseeking(split, depth);
        }
        let requests = split.requests as f64;
        let (bytes, depth) = (split.bytes as f64 / requests, depth.max(1.0));
        let deepest = f64::from(self.deepest());
        let beyond = (requests - deepest).max(0.0);
        let burst = self.at(bytes, requests.min(deepest), |r| r.burst_ns);
        let alone = burst + beyond * self.interval_ns(bytes, deepest);
        let paced_ns =
            if depth == 1.0 { 0.0 } else { requests * self.interval_ns(bytes, requests * depth) };
        Unseeking { overlapped_ns: alone / depth, paced_ns, depth }
    }

    /// The same if each request after the first costs so many nanoseconds of elapsed time, as was measured.
    pub fn unseeking_with(&self, split: Split, depth: f64, one_more_ns: f64) -> Unseeking {
        let whole = self.unseeking(Split { requests: 1, torn: false, ..split }, depth);
        let torn_ns = if split.torn { self.torn_ns(split.bytes as f64) } else { 0.0 } / whole.depth;
        let more = (split.requests.saturating_sub(1)) as f64 * one_more_ns + torn_ns;
        let ns = whole.read_ns(0);
        // Not even many splits make a read quicker than its bytes.
        let ns = (ns + more).max(ns / 4.0);
        Unseeking { overlapped_ns: ns, paced_ns: 0.0, depth: whole.depth }
    }

    /// Nanoseconds that the device needs to read so many bytes in long requests, one after the other.
    pub fn stream_ns(&self, bytes: u64) -> f64 {
        const LONG: f64 = 1_048_576.0;
        bytes as f64 / LONG * self.interval_ns(LONG, f64::from(self.deepest()))
    }

    /// Nanoseconds until the `requests` requests of one read, of `bytes` each, are done, issued together on an idle device.
    fn burst_ns(&self, bytes: f64, requests: f64) -> f64 {
        if requests <= 1.0 {
            return self.at(bytes, 1.0, |r| r.burst_ns);
        }
        let deepest = f64::from(self.deepest());
        let burst = self.split_ns(bytes, requests.min(deepest));
        let beyond = (requests - deepest).max(0.0);
        if beyond == 0.0 { burst } else { burst + beyond * self.one_more_ns(bytes) }
    }

    /// Nanoseconds of a burst of so many neighbours: between the figures for as many bytes in all, in fewer and in more
    /// requests.
    fn split_ns(&self, bytes: f64, requests: f64) -> f64 {
        if !self.knows_neighbours() {
            return self.at(bytes, requests, |r| r.burst_ns);
        }
        let ns = |n: f64| self.at(bytes * requests / n, n, RequestCost::neighbours_ns);
        let points = self.first_row().iter().map(|r| f64::from(r.in_flight)).map(|n| (n, ns(n)));
        between(points, requests, false)
    }

    /// The figures of the shortest requests: one for every number in flight that there is.
    fn first_row(&self) -> &[RequestCost] {
        let of_it = |r: &&RequestCost| r.request_bytes == self.reads[0].request_bytes;
        &self.reads[..self.reads.iter().take_while(of_it).count()]
    }

    /// Nanoseconds that a further request of `bytes` adds to a read that is in many: where neighbours were not measured, an
    /// interval.
    fn one_more_ns(&self, bytes: f64) -> f64 {
        let before = self.first_row().iter().rev().nth(1).map(|r| r.in_flight);
        let deepest = f64::from(self.deepest());
        let Some(before) = before.filter(|_| self.knows_neighbours()).map(f64::from) else {
            return self.interval_ns(bytes, deepest);
        };
        let burst = |requests| self.at(bytes, requests, RequestCost::neighbours_ns);
        ((burst(deepest) - burst(before)) / (deepest - before)).max(0.0)
    }

    /// Nanoseconds by which a read of `bytes` lasts longer whose halves are at places that have nothing to do with each
    /// other.
    fn torn_ns(&self, bytes: f64) -> f64 {
        let halves = |figure: fn(&RequestCost) -> u64| self.at(bytes / 2.0, 2.0, figure);
        (halves(|r| r.burst_ns) - halves(RequestCost::neighbours_ns)).max(0.0)
    }

    /// Whether where it keeps the fragments of a read may matter on the device: bursts of neighbours were measured, and
    /// it does more than one request at a time.
    pub fn places_matter(&self) -> bool {
        const NEARLY: f64 = 0.9;
        let deepest = f64::from(self.deepest());
        let bytes = self.reads[0].request_bytes as f64;
        let burst = |requests| self.at(bytes, requests, |r| r.burst_ns);
        self.knows_neighbours() && burst(deepest) < NEARLY * deepest * burst(1.0)
    }

    /// Whether streams of two in flight were measured.
    pub fn knows_streams(&self) -> bool {
        self.reads.iter().any(|r| r.in_flight == 2 && r.stream_ns.is_some())
    }

    /// Whether bursts of neighbours were measured.
    pub fn knows_neighbours(&self) -> bool {
        self.reads.iter().any(|r| r.split_ns.is_some())
    }

    /// Nanoseconds between completions of requests of `bytes` each, `in_flight` of them in flight.
    fn interval_ns(&self, bytes: f64, in_flight: f64) -> f64 {
        self.at(bytes, in_flight.min(f64::from(self.deepest())), |r| r.interval_ns)
    }

    /// The largest number in flight of which there are figures.
    pub fn deepest(&self) -> u32 {
        self.reads[self.reads.len() - 1].in_flight
    }

    /// A figure between those that there are: linear in the length, also beyond the longest, as a rate has no end;
    /// linear in the number in flight.
    fn at(&self, bytes: f64, in_flight: f64, figure: impl Fn(&RequestCost) -> u64 + Copy) -> f64 {
        let rows = self.reads.chunk_by(|a, b| a.request_bytes == b.request_bytes);
        let of_row = |row: &[RequestCost]| {
            let points = row.iter().map(|r| (f64::from(r.in_flight), figure(r) as f64));
            (row[0].request_bytes as f64, between(points, in_flight, false))
        };
        between(rows.map(of_row), bytes, true).max(1.0)
    }
}

/// The value at `x` on the line through these points, which are in ascending order: that of the first point before
/// it, and behind the last point that of the last, or if `goes_on` on the line through the last two.
fn between(points: impl Iterator<Item = (f64, f64)>, x: f64, goes_on: bool) -> f64 {
    let [mut before, mut last] = [None; 2];
    for point in points {
        (before, last) = (last, Some(point));
        if x <= point.0 {
            break;
        }
    }
    match (before, last) {
        (Some((x0, y0)), Some((x1, y1))) if x <= x1 || goes_on => {
            y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        }
        (_, Some((_, y))) => y,
        (_, None) => 0.0,
    }
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;
