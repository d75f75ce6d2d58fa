//! The virtual time of a served drive: a discrete-event simulation whose load is the real host.
//!
//! A request arrives at an instant of virtual time, and the drive says when it will be done. [`Timetable::complete`]
//! takes the earliest of those in flight and advances the time to it. Who calls that, and when, decides what the
//! host's own time costs: see [`super::worker`]. Nothing here knows real time.
//!
//! The host's path to the drive has a depth (`queue_depth` of the drive's file: a memory card does one command at
//! a time, SATA 32). Requests beyond that wait, in order of arrival, until one that the drive has is done; what
//! they wait belongs to their latency, as they are in flight for the host.

use super::model::{Model, Request};
use super::tally::Tally;
use fragmend_flash::command::Refused;
use fragmend_flash::counters::Counters;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Which one.
    pub ticket: Ticket,
    /// Why the drive refused it, if it did.
    pub refused: Option<Refused>,
}

struct InFlight {
    at: u64,
    request: Request,
    refused: Option<Refused>,
}

/// The requests in flight of a drive, and the time.
pub struct Timetable {
    model: Model,
    depth: usize,
    now: u64,
    tickets: u64,
    /// Those that the drive has, by when they are done.
    accepted: BinaryHeap<Reverse<(u64, Ticket)>>,
    /// Those that wait for the drive to accept them.
    waiting: VecDeque<Ticket>,
    in_flight: BTreeMap<Ticket, InFlight>,
    tally: Tally,
    /// The drive's counters when counting began.
    counted_before: Counters,
}

impl Timetable {
    /// An idle drive that accepts this many requests at once.
    pub fn new(model: Model, depth: u32) -> Self {
        let counted_before = model.counters();
        Self {
            model,
            depth: depth.max(1) as usize,
            now: 0,
            tickets: 0,
            accepted: BinaryHeap::new(),
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            tally: Tally::default(),
            counted_before,
        }
    }

    /// The virtual time, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Advances the time to this instant, unless it is later already.
    pub fn advance(&mut self, to: u64) {
        if to > self.now {
            self.tally.passed(to - self.now, self.in_flight.len());
            self.now = to;
        }
    }

    /// A request arrives at this instant, or now if that is later.
    pub fn arrive(&mut self, at: u64, request: Request) -> Ticket {
        self.advance(at);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.in_flight.insert(ticket, InFlight { at: self.now, request, refused: None });
        self.tally.arrived(self.in_flight.len());
        if self.accepted.len() < self.depth {
            self.accept(self.now, ticket);
        } else {
            self.waiting.push_back(ticket);
        }
        ticket
    }

    /// The drive accepts a request.
    fn accept(&mut self, at: u64, ticket: Ticket) {
        let Some(request) = self.in_flight.get_mut(&ticket) else { return };
        let done = self.model.submit(at, request.request).unwrap_or_else(|refused| {
            request.refused = Some(refused);
            at
        });
        self.accepted.push(Reverse((done, ticket)));
    }

    /// When the next request is done.
    pub fn next_at(&self) -> Option<u64> {
        self.accepted.peek().map(|Reverse((done, _))| *done)
    }

    /// Advances the time to when the next request is done, and returns which one that is.
    pub fn complete(&mut self) -> Option<Completed> {
        let Reverse((done, ticket)) = self.accepted.pop()?;
        self.advance(done);
        let InFlight { at, request, refused } = self.in_flight.remove(&ticket)?;
        self.tally.completed(request, done - at, refused.is_some());
        if let Some(next) = self.waiting.pop_front() {
            let arrived = self.in_flight.get(&next).map_or(done, |next| next.at);
            self.accept(done.max(arrived), next);
        }
        Some(Completed { ticket, refused })
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The counts since counting began.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The drive's own counts since counting began.
    pub fn counters(&self) -> Counters {
        self.model.counters().since(&self.counted_before)
    }

    /// Fills the drive, see [`Model::fill`]; not counted.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn fill(&mut self) -> Result<(), Refused> {
        let before = self.counters();
        let filled = self.model.fill();
        self.counted_before = self.model.counters().since(&before);
        filled
    }

    /// Begins to count anew. The time goes on.
    pub fn reset(&mut self) {
        self.tally = Tally::default();
        self.tally.arrived(self.in_flight.len());
        self.counted_before = self.model.counters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use crate::raw;
    use fragmend_flash::command::Units;
    use fragmend_served::request::Kind;

    const UNIT: u64 = 4096;

    fn table(drive: &str) -> Timetable {
        let setup = presets::named(drive).expect("a preset");
        Timetable::new(Model::new(setup.device()), setup.host.queue_depth)
    }

    fn read(unit: u64) -> Request {
        Request { kind: Kind::Read, offset: unit * UNIT, len: UNIT }
    }

    /// Units in an order without a pattern.
    fn scattered(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| n * 7919 % 4093)
    }

    /// Writes units in order, and lets the drive become idle.
    fn fill(table: &mut Timetable, units: u64) {
        for at in (0..units).step_by(64) {
            let len = 64 * UNIT;
            table.arrive(table.now(), Request { kind: Kind::Write, offset: at * UNIT, len });
            while table.complete().is_some() {}
        }
        table.advance(table.now() + 10_000_000_000);
        table.reset();
    }

    /// Keeps `depth` reads in flight; returns how long all of them lasted.
    fn play(table: &mut Timetable, reads: impl Iterator<Item = u64>, depth: usize) -> u64 {
        let start = table.now();
        for unit in reads {
            while table.in_flight() >= depth {
                table.complete();
            }
            table.arrive(table.now(), read(unit));
        }
        while table.complete().is_some() {}
        table.now() - start
    }

    #[test]
    fn reads_last_as_long_as_the_model_says() {
        for depth in [1, 2, 8, 32] {
            let mut table = table("nvme-b");
            fill(&mut table, 4096);
            let ours = play(&mut table, scattered(2000), depth);
            let setup = presets::named("nvme-b").expect("a preset");
            let reads = scattered(2000).map(|unit| Units::new(unit as u32, 1));
            let model = raw::read(raw::preconditioned(&setup, 4096), reads, depth, 0);
            assert!(ours.abs_diff(model) * 100 <= model, "depth {depth}: {ours}, not {model}");
            let tally = table.tally();
            assert_eq!((tally.reads.requests, tally.in_flight_max), (2000, depth));
            assert!(tally.in_flight_mean() > depth as f64 * 0.9, "{}", tally.in_flight_mean());
            assert!(tally.in_flight_mean() <= depth as f64);
        }
    }

    #[test]
    fn a_filled_drive_is_in_the_flash_everywhere_and_nothing_was_counted() {
        let mut table = table("nvme-b");
        let unwritten = play(&mut table, scattered(100), 1);
        let before = (table.now(), table.counters());
        table.fill().expect("room");
        assert_eq!((table.now(), table.counters()), before);
        let written = play(&mut table, scattered(100), 1);
        // A sensing, and the transfer over the channel.
        assert_eq!(written - unwritten, 100 * (3600 + 4883));
        assert_eq!(table.tally().reads.requests, 200);
        // An overwrite, as on a drive that is full.
        table.arrive(table.now(), Request { kind: Kind::Write, offset: 0, len: UNIT });
        assert!(table.complete().is_some_and(|done| done.refused.is_none()));
    }

    #[test]
    fn a_card_does_one_command_at_a_time() {
        let mut one = table("microsd");
        let alone = play(&mut one, scattered(100), 1);
        let mut many = table("microsd");
        let together = play(&mut many, scattered(100), 32);
        assert_eq!(alone, together);
        // Those that wait are in flight for the host.
        assert_eq!(many.tally().in_flight_max, 32);
        assert!(many.tally().reads.latency_ns > 20 * one.tally().reads.latency_ns);
    }

    #[test]
    fn time_stands_still_while_nothing_is_in_flight() {
        let mut table = table("hdd");
        table.arrive(0, read(1_000_000));
        assert_eq!(table.now(), 0);
        let done = table.next_at().expect("one in flight");
        let ticket = table.complete().expect("it").ticket;
        assert_eq!((table.now(), table.complete(), table.next_at()), (done, None, None));
        let next = table.arrive(0, read(1_000_000));
        assert!(next > ticket);
        assert_eq!(table.now(), done, "it arrives now");
        assert_eq!(table.tally().busy_ns, done);
    }

    #[test]
    fn a_request_that_the_drive_refuses_is_done_at_once() {
        let mut table = table("microsd");
        table.arrive(5, Request { kind: Kind::Read, offset: 1 << 40, len: UNIT });
        assert_eq!(table.next_at(), Some(5));
        let refused = table.complete().expect("it").refused;
        assert_eq!(refused, Some(Refused::OutOfRange));
        assert_eq!((table.tally().refused, table.tally().reads.requests), (1, 0));
    }

    #[test]
    fn counts_begin_anew_while_requests_are_in_flight() {
        let mut table = table("nvme-b");
        fill(&mut table, 64);
        table.arrive(table.now(), read(0));
        table.reset();
        assert_eq!(table.tally().in_flight_max, 1);
        table.complete();
        assert_eq!((table.tally().reads.requests, table.tally().reads.bytes), (1, UNIT));
        table.arrive(table.now(), Request { kind: Kind::Discard, offset: 0, len: 64 * UNIT });
        table.complete();
        assert_eq!((table.tally().discards.requests, table.tally().discards.bytes), (1, 64 * UNIT));
        assert_eq!(table.counters().commands, 1, "the drive counts what it accepts");
    }
}
