//! Whether the host has sent all that it is about to send, so that virtual time may advance.
//!
//! After an answer, the program that waited for it wakes up and sends its next request, some tens of microseconds
//! later, or some milliseconds where others want the processors too. Three things tell that nothing more comes:
//!
//! - **The machine is idle.** The kernel counts the tasks that run or want to (the fourth field of `/proc/loadavg`,
//!   proc_loadavg(5)). If that is the thread which looks, and no other, all others wait, for an answer or for time.
//! - **The host has caught up.** A program that keeps some requests in flight sends one for each answer. If as many
//!   are in flight as were at any of the last answers, none is owed.
//! - **The host has settled.** Where something else always runs and fewer are in flight than were, no request has
//!   arrived for the settling time; for five times as long, if more tasks want to run than there are processors, so
//!   that the program may be waiting for one.
//!
//! Which of them it was is counted. The settling time decides how far a program may be delayed without that its
//! requests arrive late in virtual time; it costs real time only.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// How often one looks.
const STEP: Duration = Duration::from_micros(30);
/// How long no request must have arrived where the host has caught up.
const CAUGHT_UP: Duration = Duration::from_micros(60);
/// How much longer the settling time is where tasks wait for a processor.
const CONTENDED: u32 = 5;
/// How many of the last answers count.
const ANSWERS: usize = 64;

/// Why the host counts as quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// No other task of the machine runs or wants to.
    Idle,
    /// As many requests are in flight as were at any of the last answers.
    CaughtUp,
    /// No request has arrived for the settling time.
    Settled,
}

/// Looks at the tasks that run.
#[derive(Debug)]
pub struct Watch {
    running: Option<File>,
    processors: u32,
}

impl Watch {
    /// One for the calling thread; without `/proc`, only the time decides.
    pub fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Self { running: File::open("/proc/loadavg").ok(), processors }
    }

    /// Waits for a step; returns whether the host is quiet after it. `since` is when the last request arrived or
    /// the last answer was given.
    pub fn look(&self, since: Instant, caught_up: bool, settle: Duration) -> Option<Quiet> {
        std::thread::sleep(STEP.min(settle));
        let running = self.running();
        if running == Some(1) {
            return Some(Quiet::Idle);
        }
        let is_contended = running.is_some_and(|tasks| tasks > self.processors);
        let passed = since.elapsed();
        if passed >= settle * if is_contended { CONTENDED } else { 1 } {
            return Some(Quiet::Settled);
        }
        (caught_up && passed >= CAUGHT_UP).then_some(Quiet::CaughtUp)
    }

    fn running(&self) -> Option<u32> {
        let mut text = [0; 64];
        let len = self.running.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(&text[..len])
    }
}

/// How many requests were in flight at each of the last answers.
#[derive(Clone, Debug, Default)]
pub struct Level(VecDeque<usize>);

impl Level {
    /// An answer is given; with it, this many were in flight.
    pub fn answered(&mut self, in_flight: usize) {
        if self.0.len() == ANSWERS {
            self.0.pop_front();
        }
        self.0.push_back(in_flight);
    }

    /// Whether as many are in flight as were at any of the last answers.
    pub fn is_reached(&self, in_flight: usize) -> bool {
        self.0.iter().max().is_some_and(|most| in_flight >= *most)
    }
}

/// The tasks that run, in the text of `/proc/loadavg`.
fn parse(text: &[u8]) -> Option<u32> {
    let field = std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(3)?;
    field.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_that_run_are_counted() {
        assert_eq!(parse(b"1.41 1.29 1.09 3/115 11948\n"), Some(3));
        assert_eq!(parse(b"1.41 1.29"), None);
        let watch = Watch::start();
        let running = watch.running().expect("there is /proc");
        assert!(running >= 1, "this thread runs");
        // A thread that runs beside it, so that only the time can end the wait.
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            let (since, settle) = (Instant::now(), Duration::from_millis(5));
            let mut how = std::iter::repeat_with(|| watch.look(since, false, settle)).flatten();
            assert_eq!(how.next(), Some(Quiet::Settled));
            assert!(since.elapsed() >= settle);
            let (since, long) = (Instant::now(), Duration::from_secs(60));
            let mut how = std::iter::repeat_with(|| watch.look(since, true, long)).flatten();
            assert_eq!(how.next(), Some(Quiet::CaughtUp));
            assert!(since.elapsed() >= CAUGHT_UP);
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn the_level_is_the_most_of_the_last_answers() {
        let mut level = Level::default();
        assert!(!level.is_reached(1), "nothing is known yet");
        level.answered(32);
        assert!(level.is_reached(32) && !level.is_reached(31));
        (1..ANSWERS).for_each(|_| level.answered(2));
        assert!(!level.is_reached(31));
        level.answered(2);
        assert!(level.is_reached(2) && !level.is_reached(1));
    }
}
