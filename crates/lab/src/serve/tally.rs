//! Counts of the requests to a served drive, in virtual time.

use super::model::Request;
use fragmend_served::request::Kind;
use schemars::JsonSchema;
use serde::Serialize;

/// The counts of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Count {
    /// Requests that were carried out.
    pub requests: u64,
    /// Their bytes; 0 for flushes.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// The sum of their latencies in virtual time, from arrival to completion.
    #[schemars(extend("x-unit" = "ns"))]
    pub latency_ns: u64,
}

/// The counts since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads.
    pub reads: Count,
    /// Writes.
    pub writes: Count,
    /// Discards.
    pub discards: Count,
    /// Zeroed ranges.
    pub zeroes: Count,
    /// Flushes.
    pub flushes: Count,
    /// Requests that the drive refused.
    pub refused: u64,
    /// Virtual time that passed.
    pub elapsed_ns: u64,
    /// Virtual time that passed while a request was in flight.
    pub busy_ns: u64,
    /// Requests in flight, times the nanoseconds that passed with them.
    pub in_flight_ns: u128,
    /// The most requests in flight.
    pub in_flight_max: usize,
}

impl Tally {
    /// Time passed with this many requests in flight.
    pub fn passed(&mut self, ns: u64, in_flight: usize) {
        self.elapsed_ns += ns;
        if in_flight > 0 {
            self.busy_ns += ns;
            self.in_flight_ns += u128::from(ns) * in_flight as u128;
        }
    }

    /// A request arrived; with it, this many are in flight.
    pub fn arrived(&mut self, in_flight: usize) {
        self.in_flight_max = self.in_flight_max.max(in_flight);
    }

    /// A request is done.
    pub fn completed(&mut self, request: Request, latency_ns: u64, refused: bool) {
        if refused {
            self.refused += 1;
            return;
        }
        let count = match request.kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
            Kind::Discard => &mut self.discards,
            Kind::Zero => &mut self.zeroes,
            Kind::Flush => &mut self.flushes,
        };
        count.requests += 1;
        count.bytes += request.len;
        count.latency_ns += latency_ns;
    }

    /// How many requests were in flight on average while any was; 0 if none was.
    pub fn in_flight_mean(&self) -> f64 {
        if self.busy_ns == 0 { 0.0 } else { self.in_flight_ns as f64 / self.busy_ns as f64 }
    }
}
