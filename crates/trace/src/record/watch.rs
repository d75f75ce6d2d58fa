//! Measures what a recording costs, and pauses it.
//!
//! At the end of each turn there is a short window in which the kernel counts the run time of the BPF programs
//! (`BPF_ENABLE_STATS`; counting all the time would cost as much as a part of the programs). To that come what the
//! kernel does to run them, which is measured once, on a system call that does next to nothing, and this thread's own
//! processor time. Without the privilege for these statistics (`CAP_SYS_ADMIN`), the run time is an estimate by the
//! number of accesses. So it is between the windows, because a load may begin or end there: at each look while everything
//! is recorded, and in pauses for what reaches the device.

use super::arrivals::{Arrived, OWN_SHARE};
use super::budget::{Cost, Rates, Savings};
use super::kernel::Kernel;
use super::runs::Run;
use super::shared::{Control, TURN_SHIFT};
use crate::TraceError;
use crate::sampling::{Overhead, Sampling};
use fragmend_sys::bpf_stats::{self, RunTime};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long requests are watched between two pauses.
const TURN: Duration = Duration::from_millis(30);
/// How long a turn lasts where everything is recorded: to measure has a price, whatever is recorded.
const LONG_TURN: Duration = Duration::from_secs(3);
/// How long it lasts where only places are left out.
const THINNED_TURN: Duration = Duration::from_millis(300);
/// How often it is looked in such a turn whether a load has begun.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked in a pause how much reaches the device.
const LOOK_IN_PAUSE: Duration = Duration::from_millis(100);
/// The first turn: nothing is known of the cost before its end.
const FIRST_TURN: Duration = Duration::from_millis(20);
/// The last part of a turn, in which run time is counted.
const WINDOW: Duration = Duration::from_millis(10);
/// Most of this process's time for an access that counts as its cost: the rest does not depend on accesses.
const OWN_MOST_NS: f64 = 5000.0;
/// The time over which the cost of what reaches the device is averaged, in seconds.
const MEAN_S: f64 = 1.0;
/// What is recorded now, and what that costs.
pub(super) struct Watch {
    /// What is left of the limit; `None` without one.
    savings: Option<Savings>,
    processors: f64,
    run: Run,
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
    /// What is known of the cost: of the programs alone, and with this process's work for accesses.
    programs: Cost,
    cost: Cost,
    /// By how much the programs cost more than the estimate by number, in the last window with a load.
    scale: f64,
    /// From here, and up to `booked`, time and cost are added up.
    begun: Instant,
    booked: Instant,
    watched: Duration,
    /// The time, weighted by the part of the places that was recorded.
    places: Duration,
    /// Whether there was a pause.
    paused: bool,
    programs_s: f64,
    /// This thread's processor time when that began.
    thread_s: f64,
    /// The same at the last booking.
    booked_thread_s: f64,
    /// The time for measuring and pausing alone.
    upkeep_s: f64,
    /// Both at the end of the last window.
    last_s: [f64; 2],
    /// Accesses up to the end of the last window, and up to the last look.
    measured: Arrived,
    looked: Arrived,
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
        before: Option<Before>,
    },
    Paused {
        until: Instant,
    },
}

/// Before a window, in which run time is counted while this is kept.
struct Before {
    _counting: OwnedFd,
    runs: Vec<(String, RunTime)>,
    arrived: Arrived,
}

impl Watch {
    /// Begins, with all programs attached. The limit is in per cent of the machine's processor time.
    pub fn new(limit_percent: Option<f64>, shift: u32, run: Run) -> Self {
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let (now, thread) = (Instant::now(), thread_seconds());
        let limit = limit_percent.map(|percent| percent / 100.0 * processors);
        let none = Arrived { at: now, all: 0, device: 0 };
        Self {
            savings: limit.map(Savings::new),
            processors,
            run,
            start: Rates::new(shift),
            rates: Rates::new(shift),
            turns: 0,
            most: 1 << shift,
            turn: Turn::Watching { since: now, until: now + (FIRST_TURN - WINDOW) },
            ahead: Duration::ZERO,
            programs: Cost::default(),
            cost: Cost::default(),
            scale: 1.0,
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
            measured: none,
            looked: none,
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
        let (until, look) = match &self.turn {
            // Between two pauses there is a window soon.
            Turn::Watching { until, .. } if self.rates.one_in > 1 => (*until, Duration::MAX),
            Turn::Watching { until, .. } => (*until, LOOK),
            Turn::Paused { until } => (*until, LOOK_IN_PAUSE),
            Turn::Counting { begun, .. } => (*begun + WINDOW, WINDOW),
        };
        if now < until {
            let since = now - self.looked.at;
            if since < look {
                return Ok((until - now).min(look.saturating_sub(since)));
            }
            self.look(kernel, now)?;
            self.upkeep_s += thread_seconds() - thread;
            return Ok((until - now).min(look));
        }
        match &mut self.turn {
            Turn::Watching { since, .. } => {
                let since = *since;
                // By what was known: a load that has begun meanwhile is not of the whole turn.
                self.book();
                let arrived = Arrived::now(kernel)?;
                let counting = bpf_stats::enable().ok();
                let before =
                    counting.map(|fd| Before { _counting: fd, runs: kernel.run_times(), arrived });
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

    /// Looks at what has arrived since the last look, and enters its cost by its number. A load that has begun since the
    /// last window ends the turn when there is nothing left to pay it with.
    fn look(&mut self, kernel: &mut Kernel, now: Instant) -> Result<(), TraceError> {
        let arrived = Arrived::now(kernel)?;
        let arrivals = arrived.since(&std::mem::replace(&mut self.looked, arrived));
        let (known, number) = (self.programs, arrivals.by_number(self.rates));
        let Some(savings) = self.savings else { return Ok(()) };
        match self.turn {
            Turn::Paused { .. } => {
                self.book();
                self.average(number.device, number.device * (1.0 + OWN_SHARE), arrivals.seconds);
                let rates = self.rates.next_device(self.cost, &savings, self.start);
                if rates != self.rates {
                    self.thin_out(rates);
                    kernel.set_control(&self.control())?;
                }
            }
            Turn::Watching { since, .. } => {
                let [requests, device] = [number.requests, number.device].map(|n| n * self.scale);
                let heavy = requests + device > savings.limit();
                if heavy {
                    let fixed = known.fixed.max(number.fixed);
                    self.programs = Cost { requests, device, fixed };
                }
                self.book();
                if heavy && self.savings.is_some_and(|savings| savings.overspent()) {
                    let device = device * (1.0 + OWN_SHARE);
                    self.cost = Cost { requests, device, fixed: self.programs.fixed };
                    self.end_turn(kernel, now - since)?;
                } else {
                    self.programs = known;
                }
            }
            Turn::Counting { .. } => {}
        }
        Ok(())
    }

    /// Enters what accesses that reached the device have cost for so many seconds.
    fn average(&mut self, programs: f64, cost: f64, seconds: f64) {
        let newest = seconds / (seconds + MEAN_S);
        self.programs.device += (programs - self.programs.device) * newest;
        self.cost.device += (cost - self.cost.device) * newest;
    }

    /// From now on so much is recorded, and costs so much less.
    fn thin_out(&mut self, rates: Rates) {
        let fewer = 2f64.powi(self.rates.device_shift as i32 - rates.device_shift as i32);
        self.programs.device *= fewer;
        self.cost.device *= fewer;
        self.rates = rates;
        self.most = self.most.max(1 << rates.device_shift).max(rates.one_in);
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
        before: Option<Before>,
        thread: f64,
    ) -> Result<(), TraceError> {
        let arrived = Arrived::now(kernel)?;
        let seen = arrived.since(&std::mem::replace(&mut self.measured, arrived));
        let last = std::mem::replace(&mut self.last_s, [thread, self.upkeep_s]);
        let upkeep = self.upkeep_s - last[1];
        let own = (thread - last[0]) - upkeep;
        let own = own.clamp(0.0, (seen.requests + seen.device) * OWN_MOST_NS / 1e9);
        // What reached the device came in pauses since the last window as well.
        let limit = self.savings.map_or(0.0, |savings| savings.limit());
        let device_share = seen.device / (seen.requests + seen.device).max(1.0);
        let programs = match before {
            Some(before) => {
                let counted = self.run.cost(&before.runs, &kernel.run_times(), window);
                // The programs for the page cache run for all files of the machine, and those for direct I/O for all
                // places: fewer places save what accesses cost alone.
                let number = arrived.since(&before.arrived).by_number(self.rates);
                if number.requests + number.device > limit / 4.0 {
                    let scale =
                        (counted.requests + counted.device) / (number.requests + number.device);
                    self.scale = scale.clamp(0.5, 3.0);
                }
                let device = number.device.min(counted.device);
                Cost { device, fixed: counted.device - device, ..counted }
            }
            None => seen.by_number(self.rates),
        };
        self.looked = arrived;
        self.programs.requests = programs.requests;
        self.cost.requests = programs.requests + own * (1.0 - device_share) / turn.as_secs_f64();
        // What reaches the device comes in bursts: the mean over about a second counts.
        let cost = programs.device + own * device_share / seen.seconds;
        self.average(programs.device, cost, seen.seconds);
        let newest = seen.seconds / (seen.seconds + MEAN_S);
        let fixed = programs.fixed + upkeep / seen.seconds;
        self.programs.fixed += (programs.fixed - self.programs.fixed) * newest;
        self.cost.fixed += (fixed - self.cost.fixed) * newest;
        Ok(())
    }

    /// Chooses what is recorded next, after a turn of this length, and pauses if requests are not to be watched all the
    /// time.
    fn end_turn(&mut self, kernel: &mut Kernel, lasted: Duration) -> Result<(), TraceError> {
        let before = self.rates;
        self.book();
        if let Some(savings) = self.savings {
            self.thin_out(savings.next(before, self.cost, self.start));
        }
        let one_in = self.rates.one_in;
        if one_in == 1 && before.one_in == 1 {
            self.watch_for(if self.rates == self.start { LONG_TURN } else { THINNED_TURN });
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
        let mut cost = self.programs.device + self.programs.fixed;
        if !matches!(self.turn, Turn::Paused { .. }) {
            self.watched += passed;
            cost += self.programs.requests;
        }
        self.programs_s += cost * passed.as_secs_f64();
        if let Some(savings) = &mut self.savings {
            savings.spend(passed.as_secs_f64(), cost * passed.as_secs_f64() + own);
        }
    }

    /// How the recording was thinned out since the last call, and what it cost of its limit in this time, which `lasted` so
    /// long.
    pub fn since_last(
        &mut self,
        region_bytes: u64,
        lasted: Duration,
    ) -> (Option<Sampling>, Option<Overhead>) {
        self.book();
        let own = self.booked_thread_s - self.thread_s;
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
        self.begin_part();
        (Some(sampling).filter(|_| !whole), overhead)
    }

    /// From here on, [`since_last`](Self::since_last) adds up anew.
    fn begin_part(&mut self) {
        (self.begun, self.thread_s) = (self.booked, self.booked_thread_s);
        (self.watched, self.places, self.programs_s) = (Duration::ZERO, Duration::ZERO, 0.0);
        self.paused = matches!(self.turn, Turn::Paused { .. });
        self.most = self.rates.one_in.max(1 << self.rates.device_shift);
    }
}

/// Where in its period a turn is, from 0 to 1: the multiples of the golden ratio are spread evenly.
fn place_in_period(turn: u32) -> f64 {
    (f64::from(turn) * 0.618_033_988_749_894_9).fract()
}

/// The processor time of this thread.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
