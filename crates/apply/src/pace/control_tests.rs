//! The controller beside a simulated device, whose other programs send a request every 250 us.

use super::control::{Controller, LONGEST_PAUSE, SHORTEST_STEP};
use crate::environment::Foreground;
use std::time::Duration;

const INTERVAL_NS: u64 = 250_000;
/// Bytes a second of our steps.
const SPEED: u64 = 256 << 20;
const FULL: u64 = 1 << 20;
const TOLERANCE: f64 = 0.1;

/// A device: undisturbed a request lasts between 100 and 200 us. Beside a step of ours, one in `one_in` waits for what
/// is left of it, besides.
struct Device {
    now_ns: u64,
    next_ns: u64,
    random: u64,
    one_in: u64,
    /// How much slower all requests are than that, for reasons of their own.
    slower: u64,
    /// One in so many lasts up to 50 times as long, beside us or not.
    stray_one_in: u64,
    seen: Foreground,
    moved: u64,
    steps: Vec<u64>,
    pauses: Vec<Duration>,
}

impl Device {
    fn new(one_in: u64) -> Self {
        let (seen, steps, pauses) = Default::default();
        let (slower, stray_one_in) = (1, u64::MAX);
        Self {
            now_ns: 0,
            next_ns: 0,
            random: 7,
            one_in,
            slower,
            stray_one_in,
            seen,
            moved: 0,
            steps,
            pauses,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        // Knuth's MMIX generator.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below.max(1)
    }

    /// Lets time pass, with a step of ours or without.
    fn pass(&mut self, ns: u64, working: bool) {
        let end = self.now_ns + ns;
        while self.next_ns < end {
            let strays = self.draw(self.stray_one_in) == 0;
            let times = if strays { 1 + self.draw(50) } else { 1 };
            let undisturbed = (100_000 + self.draw(100_000)) * self.slower * times;
            if working {
                let waits = self.draw(self.one_in) == 0;
                let left = if waits { end - self.next_ns } else { 0 };
                self.seen.beside.record(undisturbed + left);
            } else {
                self.seen.alone.record(undisturbed);
            }
            self.next_ns += INTERVAL_NS;
        }
        self.now_ns = end;
    }

    /// Steps with their pauses, until so much time has passed.
    fn run(&mut self, control: &mut Controller, time: Duration) {
        let end = self.now_ns + time.as_nanos() as u64;
        while self.now_ns < end {
            let bytes = control.step(FULL);
            let busy = Duration::from_nanos(bytes * 1_000_000_000 / SPEED);
            self.pass(busy.as_nanos() as u64, true);
            self.moved += bytes;
            self.steps.push(bytes);
            control.look(self.seen.clone());
            let pause = control.pause(busy);
            self.pass(pause.as_nanos() as u64, false);
            self.pauses.push(pause);
        }
    }

    /// How often a request lasted longer than the tolerance allows, in all that came since `from`.
    fn slow_share(&self, from: &Foreground) -> f64 {
        let most = 199_000 * self.slower * 11 / 10;
        let (alone, beside) =
            (self.seen.alone.since(&from.alone), self.seen.beside.since(&from.beside));
        (alone.above(most) + beside.above(most)) as f64 / (alone.count() + beside.count()) as f64
    }

    /// Bytes a second in the last `time`, which is run now.
    fn speed(&mut self, control: &mut Controller, time: Duration) -> f64 {
        let before = self.moved;
        self.run(control, time);
        (self.moved - before) as f64 / time.as_secs_f64()
    }
}

fn beside(one_in: u64) -> (Device, Controller) {
    let mut device = Device::new(one_in);
    let control = Controller::new(TOLERANCE, device.seen.clone());
    // What others met before we came is known of a recording; here they are listened to.
    device.pass(1, false);
    (device, control)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn where_nobody_waits_for_us_steps_are_long_and_follow_each_other() {
    let (mut device, mut control) = beside(u64::MAX);
    device.run(&mut control, SECOND);
    let speed = device.speed(&mut control, SECOND);
    assert!(speed > 0.9 * SPEED as f64, "{speed}");
    assert_eq!(*device.steps.last().unwrap(), FULL);
}

#[test]
fn the_tail_is_kept_and_what_it_leaves_over_is_used() {
    let (mut device, mut control) = beside(4);
    device.run(&mut control, 2 * SECOND);
    let (from, moved) = (device.seen.clone(), device.moved);
    device.run(&mut control, 10 * SECOND);
    let share = device.slow_share(&from);
    assert!((0.006..0.0125).contains(&share), "{share}");
    let speed = (device.moved - moved) as f64 / 10.0;
    assert!(speed > 0.02 * SPEED as f64, "{speed}");
    // It does not swing between standing still and full speed: each half second has a part of it.
    for half in 0..8 {
        let part = device.speed(&mut control, SECOND / 2);
        assert!((0.3..3.0).contains(&(part / speed)), "half second {half}: {part} of {speed}");
    }
}

#[test]
fn it_gives_way_within_a_few_steps_and_returns_to_full_speed() {
    let (mut device, mut control) = beside(u64::MAX);
    device.run(&mut control, SECOND);
    device.one_in = 1;
    let before = device.steps.len();
    device.run(&mut control, SECOND);
    let until_pause = device.pauses[before..].iter().position(|p| !p.is_zero()).unwrap();
    assert!(until_pause <= 3, "{until_pause} steps");
    assert!(device.speed(&mut control, SECOND) < 0.2 * SPEED as f64);
    assert!(*device.steps.last().unwrap() <= 4 * SHORTEST_STEP, "{:?}", device.steps.last());
    device.one_in = u64::MAX;
    device.run(&mut control, 10 * SECOND);
    assert!(device.speed(&mut control, SECOND) > 0.9 * SPEED as f64);
}

/// All that disturbs them is their own doing.
#[test]
fn others_that_become_slower_by_themselves_are_not_waited_for_long() {
    let (mut device, mut control) = beside(u64::MAX);
    // What they met long ago is forgotten.
    for _ in 0..60 {
        device.pass(1_000_000_000, false);
        control.look(device.seen.clone());
    }
    device.slower = 4;
    device.run(&mut control, 2 * SECOND);
    assert!(device.speed(&mut control, SECOND) > 0.9 * SPEED as f64);
}

/// A tolerance of a tenth leaves next to nothing over where the tail is long, and what chance adds to one side is not owed
/// for ever.
#[test]
fn a_long_tail_that_is_not_ours_is_hardly_waited_for() {
    let (mut device, mut control) = beside(u64::MAX);
    device.stray_one_in = 30;
    device.run(&mut control, SECOND);
    let speed = device.speed(&mut control, 8 * SECOND);
    assert!(speed > 0.4 * SPEED as f64, "{speed}");
}

#[test]
fn no_foreground_stops_it_for_good() {
    // Every request beside ours waits for a second.
    let (mut device, mut control) = beside(u64::MAX);
    for _ in 0..1000 {
        device.pass(1_000_000, false);
        device.seen.beside.record(1_000_000_000);
        control.look(device.seen.clone());
    }
    let step = Duration::from_millis(1);
    assert_eq!(control.pause(step), step * 49, "a fiftieth of the time");
    assert_eq!(control.pause(SECOND), LONGEST_PAUSE, "however long a step has lasted");
    // The same while nothing is known.
    let (_, control) = beside(1);
    assert_eq!((control.pause(step), control.pause(SECOND)), (step * 49, LONGEST_PAUSE));
}

#[test]
fn what_was_left_over_during_a_stop_is_no_licence_for_a_burst() {
    let (mut device, mut control) = beside(1);
    device.run(&mut control, 5 * SECOND);
    let (steps, from) = (device.steps.len(), device.seen.clone());
    // The process is stopped for a minute, and others go on.
    device.pass(60_000_000_000, false);
    control.look(device.seen.clone());
    device.run(&mut control, SECOND);
    let slow = device.seen.beside.since(&from.beside).above(220_000);
    assert!(slow < 4 + 40 * 2, "{slow} slow requests in {} steps", device.steps.len() - steps);
}
