//! A served drive: the kernel's requests arrive here, and are answered when the model of the drive is done with
//! them.
//!
//! A request is carried out on the data when it arrives, and its answer is kept. That is allowed: what a read
//! returns beside a write in flight is the old or the new data. The thread of [`super::worker`] gives the answers.

use super::data::Data;
use super::mode::Mode;
use super::model::{Model, Request};
use super::quiet::{Level, Quiet};
use super::timetable::{Ticket, Timetable};
use fragmend_served::request::{Answer, Arrived, Disk};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the host must be quiet unless `settle` of the control file says otherwise.
pub const SETTLE: Duration = Duration::from_millis(2);

/// The latest virtual time in nanoseconds, 146 years: what requests last is added to it without an overflow.
pub const LATEST_NS: u64 = u64::MAX / 4;

/// A drive that is served, shared by the kernel's requests, the worker and the control files.
#[derive(Clone)]
pub struct Drive(Arc<Inner>);

pub(super) struct Inner {
    pub mode: Mode,
    data: Data,
    bytes: u64,
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

pub(super) struct State {
    pub table: Timetable,
    answers: BTreeMap<Ticket, Kept>,
    /// Requests that have arrived, and are being carried out on the data.
    pub arriving: usize,
    /// Changes whenever a request has arrived.
    pub arrivals: u64,
    /// When the last request arrived, or the last answer was given.
    pub last: Instant,
    pub settle: Duration,
    /// How often the host was quiet, for each reason.
    pub idle: u64,
    pub caught_up: u64,
    pub settled: u64,
    pub level: Level,
    /// Requests that failed for want of the file's space, or because the drive refused them.
    pub failed: u64,
    /// Serving has ended: what arrives is answered at once.
    pub over: bool,
    /// Something has panicked: what arrives is answered with an error.
    pub broken: bool,
}

/// An answer that is not given yet.
pub(super) struct Kept {
    answer: Answer,
    result: io::Result<Vec<u8>>,
}

impl Kept {
    pub fn give(self) {
        self.answer.give(self.result.as_deref().map_err(|e| {
            e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error)
        }));
    }
}

impl State {
    /// Takes the answers of the requests that are done next, all at the same instant.
    pub fn complete(&mut self) -> Vec<Kept> {
        let mut done = Vec::new();
        let at = self.table.next_at();
        self.level.answered(self.table.in_flight());
        while at.is_some() && self.table.next_at() == at {
            let Some(completed) = self.table.complete() else { break };
            let Some(mut kept) = self.answers.remove(&completed.ticket) else { continue };
            if completed.refused.is_some() {
                self.failed += 1;
                kept.result = Err(rustix::io::Errno::IO.into());
            }
            done.push(kept);
        }
        done
    }

    /// Answers everything in flight with an error, and whatever arrives from now on.
    pub fn fail(&mut self) {
        self.broken = true;
        self.answers.clear();
    }

    /// The host was quiet for this reason.
    pub fn was_quiet(&mut self, how: Quiet) {
        match how {
            Quiet::Idle => self.idle += 1,
            Quiet::CaughtUp => self.caught_up += 1,
            Quiet::Settled => self.settled += 1,
        }
    }
}

impl Drive {
    /// Serves the first `bytes` bytes of a drive that accepts `depth` requests at once.
    pub fn new(model: Model, depth: u32, data: Data, bytes: u64, mode: Mode) -> Self {
        let started = Instant::now();
        let state = Mutex::new(State {
            table: Timetable::new(model, depth),
            answers: BTreeMap::new(),
            arriving: 0,
            arrivals: 0,
            last: started,
            settle: SETTLE,
            idle: 0,
            caught_up: 0,
            settled: 0,
            level: Level::default(),
            failed: 0,
            over: false,
            broken: false,
        });
        Self(Arc::new(Inner { mode, data, bytes, started, state, changed: Condvar::new() }))
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// Wakes up the worker.
    pub(super) fn changed(&self) {
        self.0.changed.notify_all();
    }
}

impl Inner {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, State>,
        time: Duration,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The virtual time of this instant, if the time goes by itself.
    pub fn virtual_now(&self) -> Option<u64> {
        let real = self.started.elapsed().as_nanos() as u64;
        self.mode.factor().map(|factor| ((real as f64 / factor) as u64).min(LATEST_NS))
    }

    /// When an instant of virtual time is, with this factor.
    pub fn real(&self, virtual_ns: u64, factor: f64) -> Instant {
        self.started + Duration::from_nanos((virtual_ns as f64 * factor) as u64)
    }
}

/// Counts a request as arriving until it is dropped.
struct Arriving<'a>(&'a Inner);

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.arriving -= 1;
        state.arrivals += 1;
        state.last = Instant::now();
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Disk for Drive {
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn carry_out(&self, arrived: &Arrived<'_>, answer: Answer) {
        let inner = &*self.0;
        let at = inner.virtual_now();
        inner.state().arriving += 1;
        let _arriving = Arriving(inner);
        let mut result = inner.data.carry_out(arrived);
        let mut state = inner.state();
        if state.broken {
            result = Err(rustix::io::Errno::IO.into());
        }
        if result.is_err() {
            state.failed += 1;
        }
        if state.over || state.broken {
            drop(state);
            return Kept { answer, result }.give();
        }
        let Arrived { kind, offset, len, .. } = *arrived;
        let at = at.unwrap_or(state.table.now());
        let ticket = state.table.arrive(at, Request { kind, offset, len });
        state.answers.insert(ticket, Kept { answer, result });
    }
}
