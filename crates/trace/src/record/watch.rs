//! Measures what a recording costs, and pauses it.
//!
//! At the end of each turn there is a short window in which the kernel counts the run time of the BPF programs
//! (`BPF_ENABLE_STATS`; counting all the time would cost as much as a part of the programs). To that come what the
//! kernel does to run them, which is measured once, on a system call that does next to nothing, and this thread's own
//! processor time. Without the privilege for these statistics (`CAP_SYS_ADMIN`), the run time is an estimate by the
//! number of accesses.

use super::budget::{Cost, Rates};
use super::kernel::{Kernel, RunTime};
use super::sources::PAUSABLE;
use crate::TraceError;
use crate::sampling::Overhead;
use fragmend_sys::bpf_stats;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long requests are watched between two pauses.
const TURN: Duration = Duration::from_millis(30);
/// How long a turn lasts where there are no pauses.
const LONG_TURN: Duration = Duration::from_millis(300);
/// The first turn: nothing is known of the cost before its end.
const FIRST_TURN: Duration = Duration::from_millis(30);
/// The last part of a turn, in which run time is counted.
const WINDOW: Duration = Duration::from_millis(20);
/// Most of this process's time for an access that counts as its cost: the rest does not depend on accesses.
const OWN_MOST_NS: f64 = 5000.0;
/// The weight of the newest window in the mean cost of misses.
const NEWEST: f64 = 0.1;
/// Processor time of an access where run time is not counted.
const ESTIMATE_NS: f64 = 600.0;

/// What requests are watched now, and what that costs.
pub(super) struct Watch {
    /// In processors; `None` without a limit.
    limit: Option<f64>,
    processors: f64,
    /// How much longer a system call lasts because a program is attached.
    entry_ns: f64,
    /// What is recorded.
    pub rates: Rates,
    turn: Turn,
    /// What the last window has shown.
    cost: Cost,
    /// Up to here, time and cost are added up.
    booked: Instant,
    watched: Duration,
    /// Whether there was a pause.
    pub paused: bool,
    programs_s: f64,
    /// This thread's processor time at the beginning.
    thread_s: f64,
    /// The same for measuring and pausing alone.
    upkeep_s: f64,
    /// Both at the end of the last window.
    last_s: [f64; 2],
    /// Accesses at the end of the last window.
    events: u64,
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
        Self {
            limit: limit_percent.map(|percent| percent / 100.0 * processors),
            processors,
            entry_ns,
            rates: Rates::new(shift),
            turn: Turn::Watching { since: now, until: now + (FIRST_TURN - WINDOW) },
            cost: Cost::default(),
            booked: now,
            watched: Duration::ZERO,
            paused: false,
            programs_s: 0.0,
            thread_s: thread,
            upkeep_s: 0.0,
            last_s: [thread, 0.0],
            events: 0,
        }
    }

    /// Measures, pauses or goes on if it is time. Returns how long nothing is to be done.
    pub fn step(&mut self, kernel: &mut Kernel) -> Result<Duration, TraceError> {
        let Some(limit) = self.limit else { return Ok(Duration::MAX) };
        let (now, thread) = (Instant::now(), thread_seconds());
        let until = match &self.turn {
            Turn::Watching { until, .. } | Turn::Paused { until } => *until,
            Turn::Counting { begun, .. } => *begun + WINDOW,
        };
        if now < until {
            return Ok(until - now);
        }
        match &mut self.turn {
            Turn::Watching { since, .. } => {
                let since = *since;
                let before = bpf_stats::enable().ok().map(|fd| (fd, kernel.run_times()));
                self.turn = Turn::Counting { since, begun: Instant::now(), before };
            }
            Turn::Counting { since, begun, before } => {
                let (since, window, before) = (*since, now - *begun, before.take());
                self.cost = self.measured(kernel, window, now - since, before, thread)?;
                self.end_turn(kernel, since, limit)?;
            }
            Turn::Paused { .. } => {
                self.book();
                kernel.set_control(&self.rates.watching())?;
                kernel.resume()?;
                self.watch_for(TURN);
            }
        }
        self.upkeep_s += thread_seconds() - thread;
        Ok(Duration::ZERO)
    }

    fn watch_for(&mut self, time: Duration) {
        let now = Instant::now();
        self.turn = Turn::Watching { since: now, until: now + (time - WINDOW) };
    }

    /// What the window has shown, at the end of a turn of this length; `thread` is this thread's processor time.
    fn measured(
        &mut self,
        kernel: &Kernel,
        window: Duration,
        turn: Duration,
        before: Option<(OwnedFd, Vec<RunTime>)>,
        thread: f64,
    ) -> Result<Cost, TraceError> {
        let events: u64 = kernel.stats()?.events.iter().sum();
        let seen = (events - self.events) as f64;
        self.events = events;
        let last = std::mem::replace(&mut self.last_s, [thread, self.upkeep_s]);
        let own = (thread - last[0]) - (self.upkeep_s - last[1]);
        let own = own.clamp(0.0, seen * OWN_MOST_NS / 1e9) / turn.as_secs_f64();
        let Some((_counting, before)) = before else {
            let programs = seen * ESTIMATE_NS / 1e9 / turn.as_secs_f64();
            return Ok(Cost { programs, own, always: 0.0 });
        };
        let (mut programs, mut always) = (0.0, 0.0);
        for (before, after) in before.iter().zip(kernel.run_times()) {
            // Other tracepoints do not divert system calls.
            let share = if after.name == "on_sys_exit" { 1.0 } else { 0.5 };
            let runs = (after.runs - before.runs) as f64;
            let ns = (after.ns - before.ns) as f64 + runs * self.entry_ns * share;
            let pausable = PAUSABLE.contains(&after.name.as_str());
            *(if pausable { &mut programs } else { &mut always }) += ns / 1e9;
        }
        let seconds = window.as_secs_f64();
        // Misses come in bursts, and a place that is left out once is not complete any more.
        let always = self.cost.always + (always / seconds - self.cost.always) * NEWEST;
        Ok(Cost { programs: programs / seconds, own, always })
    }

    /// Chooses what is recorded next, and pauses if requests are not to be watched all the time.
    fn end_turn(
        &mut self,
        kernel: &mut Kernel,
        since: Instant,
        limit: f64,
    ) -> Result<(), TraceError> {
        let before = self.rates;
        self.rates = before.next(self.cost, limit);
        if before.one_in == 1 {
            // What this turn has seen stands for itself alone.
            self.book();
            kernel.set_control(&self.rates.watching())?;
            self.watch_for(if self.rates.one_in == 1 { LONG_TURN } else { TURN });
            return Ok(());
        }
        kernel.pause();
        self.paused = true;
        self.book();
        kernel.set_control(&self.rates.paused())?;
        let now = Instant::now();
        self.turn = Turn::Paused { until: now + (now - since) * (before.one_in - 1) };
        Ok(())
    }

    /// Adds up time and cost since the last call.
    fn book(&mut self) {
        let now = Instant::now();
        let passed = now - self.booked;
        self.booked = now;
        let mut cost = self.cost.always;
        if !matches!(self.turn, Turn::Paused { .. }) {
            self.watched += passed;
            cost += self.cost.programs;
        }
        self.programs_s += cost * passed.as_secs_f64();
    }

    /// How long requests were watched, and what all that cost of these limits, in a recording of this length. To be
    /// called when the programs are detached.
    pub fn end(&mut self, lasted: Duration) -> (Duration, Option<Overhead>) {
        self.book();
        let own = thread_seconds() - self.thread_s;
        let all = lasted.as_secs_f64() * self.processors;
        let ppm = |processors: f64| (processors * 1e6).round() as u64;
        let overhead = self.limit.map(|limit| Overhead {
            limit_ppm: ppm(limit / self.processors),
            used_ppm: ppm((self.programs_s + own) / all.max(1e-9)),
        });
        (self.watched, overhead)
    }
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
