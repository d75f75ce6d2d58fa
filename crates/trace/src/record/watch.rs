//! Measures what a recording costs, and pauses it.
//!
//! At the end of each turn there is a short window in which the kernel counts the run time of the BPF programs
//! (`BPF_ENABLE_STATS`; counting all the time would cost as much as a part of the programs). To that come what the
//! kernel does to run them, which is measured once, on a system call that does next to nothing, and this thread's own
//! processor time. Without the privilege for these statistics (`CAP_SYS_ADMIN`), the run time is an estimate by the
//! number of accesses.

use super::budget::{Cost, Rates, Savings};
use super::kernel::{Kernel, RunTime};
use super::shared::{Control, TURN_SHIFT};
use super::sources::PAUSABLE;
use crate::TraceError;
use crate::sampling::{Overhead, Sampling};
use fragmend_sys::bpf_stats;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long requests are watched between two pauses.
const TURN: Duration = Duration::from_millis(30);
/// How long a turn lasts where there are no pauses: to measure needs up to 10 ms, whatever is recorded.
const LONG_TURN: Duration = Duration::from_secs(3);
/// How often it is looked in such a turn whether a load has begun, which ends the turn.
const LOOK: Duration = Duration::from_millis(50);
/// The first turn: nothing is known of the cost before its end.
const FIRST_TURN: Duration = Duration::from_millis(30);
/// The last part of a turn, in which run time is counted.
const WINDOW: Duration = Duration::from_millis(20);
/// Most of this process's time for an access that counts as its cost: the rest does not depend on accesses.
const OWN_MOST_NS: f64 = 5000.0;
/// The time over which the cost of what reaches the device is averaged, in seconds.
const MEAN_S: f64 = 1.0;
/// Processor time of an access where run time is not counted.
const ESTIMATE_NS: f64 = 600.0;

/// What is recorded now, and what that costs.
pub(super) struct Watch {
    /// What is left of the limit; `None` without one.
    savings: Option<Savings>,
    processors: f64,
    /// How much longer a system call lasts because a program is attached.
    entry_ns: f64,
    /// What is recorded at most.
    start: Rates,
    /// What is recorded.
    rates: Rates,
    /// Turns so far.
    turns: u32,
    /// The most that one access has stood for.
    most: u32,
    turn: Turn,
    /// How long the pause was that belongs to this turn and came before it.
    ahead: Duration,
    /// What the last window has shown: the programs alone, and with this process's work.
    programs: Cost,
    cost: Cost,
    begun: Instant,
    /// Up to here, time and cost are added up.
    booked: Instant,
    watched: Duration,
    /// The time, weighted by the part of the places that was recorded.
    places: Duration,
    /// Whether there was a pause.
    paused: bool,
    programs_s: f64,
    /// This thread's processor time at the beginning.
    thread_s: f64,
    /// The same at the last booking.
    booked_thread_s: f64,
    /// The time for measuring and pausing alone.
    upkeep_s: f64,
    /// Both at the end of the last window, and when that was.
    last_s: [f64; 2],
    last: Instant,
    /// Accesses at the end of the last window: all, and those that reached the device.
    events: [u64; 2],
}

enum Turn {
    /// Requests are watched, until the window begins.
    Watching {
        since: Instant,
        until: Instant,
    },
    /// In the window at the end of that.
    Counting {
        since: Instant,
        begun: Instant,
        before: Option<(OwnedFd, Vec<RunTime>)>,
    },
    Paused {
        until: Instant,
    },
}

impl Watch {
    /// Begins, with all programs attached. The limit is in per cent of the machine's processor time.
    pub fn new(limit_percent: Option<f64>, shift: u32, entry_ns: f64) -> Self {
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let (now, thread) = (Instant::now(), thread_seconds());
        let limit = limit_percent.map(|percent| percent / 100.0 * processors);
        Self {
            savings: limit.map(Savings::new),
            processors,
            entry_ns,
            start: Rates::new(shift),
            rates: Rates::new(shift),
            turns: 0,
            most: 1 << shift,
            turn: Turn::Watching { since: now, until: now + (FIRST_TURN - WINDOW) },
            ahead: Duration::ZERO,
            programs: Cost::default(),
            cost: Cost::default(),
            begun: now,
            booked: now,
            watched: Duration::ZERO,
            places: Duration::ZERO,
            paused: false,
            programs_s: 0.0,
            thread_s: thread,
            booked_thread_s: thread,
            upkeep_s: 0.0,
            last_s: [thread, 0.0],
            last: now,
            events: [0; 2],
        }
    }

    /// The kernel side's setting for what is recorded now.
    pub fn control(&self) -> Control {
        match self.turn {
            Turn::Paused { .. } => self.rates.paused(self.has_turns()),
            _ => self.rates.watching(self.has_turns()),
        }
    }

    /// Whether parts of the places take turns, where not all are recorded.
    fn has_turns(&self) -> bool {
        self.savings.is_some()
    }

    /// Measures, pauses or goes on if it is time. Returns how long nothing is to be done.
    pub fn step(&mut self, kernel: &mut Kernel) -> Result<Duration, TraceError> {
        if self.savings.is_none() {
            return Ok(Duration::MAX);
        }
        let (now, thread) = (Instant::now(), thread_seconds());
        let until = match &self.turn {
            Turn::Watching { until, .. } | Turn::Paused { until } => *until,
            Turn::Counting { begun, .. } => *begun + WINDOW,
        };
        if now < until && !self.has_begun(kernel, now)? {
            return Ok((until - now).min(LOOK));
        }
        match &mut self.turn {
            Turn::Watching { since, .. } => {
                let since = *since;
                // By what was known: a load that has begun meanwhile is not of the whole turn.
                self.book();
                let before = bpf_stats::enable().ok().map(|fd| (fd, kernel.run_times()));
                self.turn = Turn::Counting { since, begun: Instant::now(), before };
            }
            Turn::Counting { since, begun, before } => {
                let (since, window, before) = (*since, now - *begun, before.take());
                self.measure(kernel, window, now - since, before, thread)?;
                self.end_turn(kernel, now - since)?;
            }
            Turn::Paused { .. } => {
                self.book();
                self.watch_for(TURN);
                kernel.set_control(&self.control())?;
                kernel.resume()?;
            }
        }
        self.upkeep_s += thread_seconds() - thread;
        Ok(Duration::ZERO)
    }

    /// Whether so much arrives in this long turn that what it costs has to be measured now.
    fn has_begun(&self, kernel: &Kernel, now: Instant) -> Result<bool, TraceError> {
        let (Turn::Watching { since, .. }, Some(savings)) = (&self.turn, &self.savings) else {
            return Ok(false);
        };
        let watched = now - *since;
        if watched < LOOK {
            return Ok(false);
        }
        let events: u64 = kernel.stats()?.events.iter().sum();
        let cost = (events - self.events[0]) as f64 * ESTIMATE_NS / 1e9;
        Ok(cost > savings.limit() * watched.as_secs_f64())
    }

    /// Begins a turn.
    fn watch_for(&mut self, time: Duration) {
        let now = Instant::now();
        self.turns += 1;
        self.turn = Turn::Watching { since: now, until: now + (time - WINDOW) };
    }

    /// Enters what the window has shown, at the end of a turn of this length; `thread` is this thread's processor time.
    fn measure(
        &mut self,
        kernel: &Kernel,
        window: Duration,
        turn: Duration,
        before: Option<(OwnedFd, Vec<RunTime>)>,
        thread: f64,
    ) -> Result<(), TraceError> {
        let stats = kernel.stats()?;
        let events = [stats.events.iter().sum(), stats.device_events];
        let [seen, on_device] = [0, 1].map(|i| (events[i] - self.events[i]) as f64);
        self.events = events;
        let last = std::mem::replace(&mut self.last_s, [thread, self.upkeep_s]);
        let own = (thread - last[0]) - (self.upkeep_s - last[1]);
        let own = own.clamp(0.0, seen * OWN_MOST_NS / 1e9);
        // What reached the device came in pauses since the last window as well.
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.last, now);
        let device_share = on_device / seen.max(1.0);
        let divided = |seconds: f64| Cost {
            requests: seconds * (1.0 - device_share) / turn.as_secs_f64(),
            device: seconds * device_share / since.as_secs_f64(),
        };
        let by_number = divided(seen * ESTIMATE_NS / 1e9);
        let programs = match before {
            Some((_counting, before)) => self.run_times_of(kernel, before, window),
            None => by_number,
        };
        // What reaches the device comes in bursts: the mean over about a second counts.
        let newest = since.as_secs_f64() / (since.as_secs_f64() + MEAN_S);
        self.programs.requests = programs.requests;
        self.programs.device += (programs.device - self.programs.device) * newest;
        // The programs for the page cache run for all files of the machine: fewer places save what accesses cost alone.
        let own = divided(own);
        let device = programs.device.min(by_number.device) + own.device;
        self.cost.requests = programs.requests + own.requests;
        self.cost.device += (device - self.cost.device) * newest;
        Ok(())
    }

    /// What the programs cost in a window, before which they had run so often.
    fn run_times_of(&self, kernel: &Kernel, before: Vec<RunTime>, window: Duration) -> Cost {
        let mut cost = Cost::default();
        for (before, after) in before.iter().zip(kernel.run_times()) {
            // Other tracepoints do not divert system calls.
            let share = if after.name == "on_sys_exit" { 1.0 } else { 0.5 };
            let runs = (after.runs - before.runs) as f64;
            let ns = (after.ns - before.ns) as f64 + runs * self.entry_ns * share;
            let pausable = PAUSABLE.contains(&after.name.as_str());
            let of = if pausable { &mut cost.requests } else { &mut cost.device };
            *of += ns / 1e9 / window.as_secs_f64();
        }
        cost
    }

    /// Chooses what is recorded next, after a turn of this length, and pauses if requests are not to be watched all the
    /// time.
    fn end_turn(&mut self, kernel: &mut Kernel, lasted: Duration) -> Result<(), TraceError> {
        let before = self.rates;
        self.book();
        if let Some(savings) = self.savings {
            self.rates = savings.next(before, self.cost, self.start);
            self.most = self.most.max(1 << self.rates.device_shift).max(self.rates.one_in);
        }
        let one_in = self.rates.one_in;
        if one_in == 1 && before.one_in == 1 {
            self.watch_for(LONG_TURN);
            return kernel.set_control(&self.control());
        }
        // A period is a turn and `one_in - 1` times as much in pauses. The turn is at another place in each, so that
        // what a period stands for does not depend on when the recording, or a load, begins or ends in it.
        let behind = (lasted * (before.one_in - 1)).saturating_sub(self.ahead);
        self.ahead = (TURN * (one_in - 1)).mul_f64(place_in_period(self.turns));
        self.pause(kernel, behind + self.ahead)
    }

    fn pause(&mut self, kernel: &mut Kernel, time: Duration) -> Result<(), TraceError> {
        kernel.pause();
        self.paused = true;
        self.turn = Turn::Paused { until: Instant::now() + time };
        kernel.set_control(&self.control())
    }

    /// Adds up time and cost since the last call.
    fn book(&mut self) {
        let (now, thread) = (Instant::now(), thread_seconds());
        let passed = now - self.booked;
        let own = thread - self.booked_thread_s;
        (self.booked, self.booked_thread_s) = (now, thread);
        self.places += passed / (1 << self.rates.device_shift);
        let mut cost = self.programs.device;
        if !matches!(self.turn, Turn::Paused { .. }) {
            self.watched += passed;
            cost += self.programs.requests;
        }
        self.programs_s += cost * passed.as_secs_f64();
        if let Some(savings) = &mut self.savings {
            savings.spend(passed.as_secs_f64(), cost * passed.as_secs_f64() + own);
        }
    }

    /// How the recording was thinned out, and what it cost of its limit. To be called when the programs are detached.
    pub fn end(
        &mut self,
        region_bytes: u64,
        lasted: Duration,
    ) -> (Option<Sampling>, Option<Overhead>) {
        self.book();
        let own = thread_seconds() - self.thread_s;
        let all = lasted.as_secs_f64() * self.processors;
        let ppm = |processors: f64| (processors * 1e6).round() as u64;
        let overhead = self.savings.map(|savings| Overhead {
            limit_ppm: ppm(savings.limit() / self.processors),
            used_ppm: ppm((self.programs_s + own) / all.max(1e-9)),
        });
        let lasted = self.booked.duration_since(self.begun);
        let places = self.places.as_secs_f64() / lasted.as_secs_f64().max(1e-9);
        let sampling = Sampling {
            region_bytes,
            watched_ns: u64::try_from(self.watched.as_nanos()).unwrap_or(u64::MAX),
            places_ppm: (places * 1e6).round().min(1e6) as u32,
            turn_ns: if self.has_turns() { 1 << TURN_SHIFT } else { 0 },
            most: self.most,
        };
        let whole = !self.paused && sampling.places_ppm == 1_000_000;
        (Some(sampling).filter(|_| !whole), overhead)
    }
}

/// Where in its period a turn is, from 0 to 1: the multiples of the golden ratio are spread evenly.
fn place_in_period(turn: u32) -> f64 {
    (f64::from(turn) * 0.618_033_988_749_894_9).fract()
}

/// How long a system call lasts that does next to nothing: the least of some measurements, because other programs
/// may run in between.
pub(super) fn syscall_ns() -> f64 {
    const ROUNDS: u32 = 10;
    const CALLS: u32 = 500;
    let round = |_| {
        let begun = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// The processor time of this thread.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
