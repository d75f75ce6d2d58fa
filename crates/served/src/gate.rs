//! Where requests to a served disk wait: for a pace, or as long as a test holds them back, which so decides what
//! is in flight, and for how long.
//!
//! A request that waits is neither carried out nor answered, and blocks no other, if the server lets many be in
//! flight; a flush covers what was answered, as on a real disk.

use crate::request::{Arrived, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most requests in flight that are of use at a gate.
pub const MOST_IN_FLIGHT: u16 = 1024;

type Chosen = Box<dyn Fn(&Arrived) -> bool + Send>;
type Work = Box<dyn FnOnce() + Send>;

/// Where requests to a served disk wait.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.state().waiting.len();
        f.debug_struct("Gate").field("waiting", &waiting).finish_non_exhaustive()
    }
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    holds: BTreeMap<u64, Chosen>,
    /// Which requests are answered with an error.
    refused: Option<Chosen>,
    next: u64,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    /// Service time of one request of a kind.
    service_time: BTreeMap<Kind, Duration>,
    busy_until: Instant,
    over: bool,
}

struct Waiting {
    /// The hold that holds it back.
    hold: Option<u64>,
    due: Instant,
    work: Work,
}

impl Default for Gate {
    /// A gate that lets all requests pass at once.
    fn default() -> Self {
        let state = State {
            holds: BTreeMap::new(),
            refused: None,
            next: 0,
            waiting: Vec::new(),
            service_time: BTreeMap::new(),
            busy_until: Instant::now(),
            over: false,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new() }))
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the disk carries out `per_second` requests of a kind, one after the other; with
    /// `None`, as many as arrive.
    pub fn pace(&self, kind: Kind, per_second: Option<u32>) {
        let mut state = self.state();
        match per_second {
            Some(n) => state.service_time.insert(kind, Duration::from_secs(1) / n),
            None => state.service_time.remove(&kind),
        };
    }

    /// Holds back every later request that `chosen` selects, until the hold is dropped.
    pub fn hold(&self, chosen: impl Fn(&Arrived) -> bool + Send + 'static) -> Hold {
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        state.holds.insert(id, Box::new(chosen));
        Hold { gate: self.clone(), id }
    }

    /// Whether a request has to wait: for which hold, and until when.
    fn must_wait(&self, arrived: &Arrived) -> Option<(Option<u64>, Instant)> {
        let mut state = self.state();
        if state.over {
            return None;
        }
        let hold = state.holds.iter().find(|(_, chosen)| chosen(arrived)).map(|(id, _)| *id);
        let service_time = state.service_time.get(&arrived.kind).copied();
        if hold.is_none() && service_time.is_none() {
            return None;
        }
        state.busy_until = state.busy_until.max(Instant::now()) + service_time.unwrap_or_default();
        Some((hold, state.busy_until))
    }

    /// Calls `now(false)`, which carries a request out at once, or queues the work that `now(true)`
    /// returns.
    pub(crate) fn pass(&self, arrived: &Arrived, now: impl FnOnce(bool) -> Option<Work>) {
        let Some((hold, due)) = self.must_wait(arrived) else {
            now(false);
            return;
        };
        let Some(work) = now(true) else { return };
        let mut state = self.state();
        let hold = hold.filter(|id| state.holds.contains_key(id));
        state.waiting.push(Waiting { hold, due, work });
        drop(state);
        self.0.changed.notify_all();
    }

    /// Starts the thread that carries requests out once they need not wait any more.
    pub fn keeper(&self) -> Keeper {
        let gate = self.clone();
        Keeper { gate: self.clone(), thread: Some(std::thread::spawn(move || gate.work())) }
    }

    /// Carries out queued work when it is due, until [`Gate::open_for_good`].
    fn work(&self) {
        let mut state = self.state();
        loop {
            let (now, over) = (Instant::now(), state.over);
            let free = state.waiting.iter().enumerate().filter(|(_, w)| over || w.hold.is_none());
            let next = free.map(|(n, w)| (n, w.due)).min_by_key(|(_, due)| *due);
            state = match next {
                Some((n, due)) if over || due <= now => {
                    let Waiting { work, .. } = state.waiting.remove(n);
                    drop(state);
                    work();
                    self.state()
                }
                None if over => return,
                later => {
                    let wait = later.map_or(Duration::from_secs(3600), |(_, due)| due - now);
                    let woken = self.0.changed.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// From now on every request that `chosen` selects is answered with an error (`EIO`); with
    /// `None`, none is.
    pub fn refuse(&self, chosen: Option<impl Fn(&Arrived) -> bool + Send + 'static>) {
        self.state().refused = chosen.map(|chosen| Box::new(chosen) as Chosen);
    }

    /// Whether a request is to be answered with an error.
    pub(crate) fn refuses(&self, arrived: &Arrived) -> bool {
        self.state().refused.as_ref().is_some_and(|chosen| chosen(arrived))
    }

    /// Lets all requests pass from now on, also those held back.
    pub fn open_for_good(&self) {
        self.state().over = true;
        self.0.changed.notify_all();
    }
}

/// The thread that carries out what has waited at a gate. When this is dropped, the gate is opened for good, and
/// everything that waited is carried out and answered first.
#[derive(Debug)]
pub struct Keeper {
    gate: Gate,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.gate.open_for_good();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Holds requests back until it is dropped.
pub struct Hold {
    gate: Gate,
    id: u64,
}

impl Hold {
    /// How many requests it holds back now.
    pub fn held(&self) -> usize {
        self.gate.state().waiting.iter().filter(|w| w.hold == Some(self.id)).count()
    }

    /// Waits until it holds back `count` requests, at most for `patience`; returns whether it does.
    pub fn wait_for(&self, count: usize, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.held() < count {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Lets its requests pass, in order of arrival.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.holds.remove(&self.id);
        let now = Instant::now();
        for waiting in state.waiting.iter_mut().filter(|w| w.hold == Some(self.id)) {
            (waiting.hold, waiting.due) = (None, now);
        }
        self.gate.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_requests_wait_and_others_overtake_them() {
        let gate = Gate::default();
        let keeper = gate.keeper();
        let done = Arc::new(Mutex::new(Vec::new()));
        let ask = |kind, offset| {
            let arrived = Arrived { kind, offset, len: 512, bytes: &[] };
            let done = Arc::clone(&done);
            gate.pass(&arrived, move |later| {
                let work = move || done.lock().unwrap().push(offset);
                if later {
                    return Some(Box::new(work));
                }
                work();
                None
            });
        };
        let hold = gate.hold(|r| r.kind == Kind::Write && r.offset >= 1024);
        (0..4).for_each(|n| ask(Kind::Write, n * 512));
        ask(Kind::Read, 4096);
        assert!(hold.wait_for(2, Duration::from_secs(5)));
        assert_eq!(*done.lock().unwrap(), [0, 512, 4096]);
        hold.release();
        while done.lock().unwrap().len() < 5 {
            std::thread::yield_now();
        }
        assert_eq!(done.lock().unwrap()[3..], [1024, 1536]);
        // Reads are as slow as their pace.
        gate.pace(Kind::Read, Some(100));
        let started = Instant::now();
        (0..5).for_each(|n| ask(Kind::Read, n));
        while done.lock().unwrap().len() < 10 {
            std::thread::yield_now();
        }
        assert!(started.elapsed() >= Duration::from_millis(50));
        drop(keeper);
    }
}
