//! How fast to go, and when to let others go first.
//!
//! At the default pace the run watches its device: bytes that were read there and not by this process were read
//! by other programs. What this process reads is known only as a sum over all devices, so it is counted while
//! its files are on that device, and at no other time ([`Pacer::begin`]). While no other program reads, there are no
//! pauses. While others read, there are two ways not to be in theirs:
//!
//! - an engine is gentle ([`Mover::gently`](crate::drive::Mover::gently)): it has one or two small requests in flight at a time and
//!   lets others have the processor in between. So a request of others waits for one short request at most, however long the
//!   step is, and pauses would make the run longer for nothing;
//! - any other engine, and a gentle one on a device that is slow: steps are short, so that a request that arrives in between waits
//!   only briefly, and each step is followed by a pause many times its length, so that at any instant the device most likely
//!   has no request of ours.

use crate::environment::Environment;
use crate::receipt::BesideReaders;
use fragmend_layout::ByteRange;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How fast data may be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// As fast as possible while no other program reads from the device, and yielding when one does.
    #[default]
    Yielding,
    /// At most this many bytes per second, whatever others do.
    BytesPerSecond(u64),
    /// As fast as possible.
    Unlimited,
}

/// While others read, the pause after a step of an engine that is not gentle is this many times as long as the step.
const YIELD: u32 = 8;
/// The longest pause for others, however slow the device has become under their load. A program that waits for
/// a file does not notice so short a pause.
pub(crate) const SHORT: Duration = Duration::from_millis(10);
/// The longest step of such an engine while others read, in bytes.
const SHORT_STEP_BYTES: u64 = 16 * 1024;
/// The longest one of a gentle engine: between two steps it is looked whether others still read.
const GENTLE_STEP_BYTES: u64 = 128 * 1024;
/// How long after the last read of another program steps stay short.
const WARY: Duration = Duration::from_millis(500);
/// Reads of others up to this many bytes within this time are ignored: metadata, a stray page.
const NOISE_BYTES: u64 = 16 * 1024;
const NOISE: Duration = Duration::from_millis(100);
/// For so long after others were seen to read, they count as reading: looking takes processor time as well.
const SURE: Duration = Duration::from_millis(50);
/// The longest time without moves that may be made up for: there is no burst after a stop, a suspended machine
/// or many files that were left alone.
const CREDIT: Duration = Duration::from_millis(250);
/// The longest pause between two checks for Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

/// Keeps the pace of one run on one device.
pub struct Pacer<'a> {
    environment: &'a dyn Environment,
    rate: Rate,
    /// Number of the device.
    device: u64,
    /// When the next byte may move, where a rate was given.
    next: Duration,
    /// What had been read from the device, and by this process from any device, when the run last turned to
    /// this one.
    since: Reads,
    /// Bytes that others had read there by the time `counted`, from when on their reads are added up.
    foreign: u64,
    counted: Duration,
    /// When others were last seen to read.
    pressed: Option<Duration>,
    /// Whether the engine at work is gentle.
    pub gentle: bool,
    /// Time spent in pauses.
    pub paused: Duration,
    /// What was moved while others read.
    pub beside: BesideReaders,
}

/// Bytes that have been read.
#[derive(Clone, Copy, Default)]
struct Reads {
    /// From one device, by all programs.
    there: u64,
    /// By this process, from any device.
    own: u64,
}

impl Reads {
    /// The present counts.
    fn now(environment: &dyn Environment, device: u64) -> Self {
        let there = environment.read_from(device).unwrap_or(0);
        Self { there, own: environment.own_io().read_bytes }
    }
}

impl<'a> Pacer<'a> {
    /// A pacer for the volume whose files' identities have this device number.
    pub fn new(rate: Rate, environment: &'a dyn Environment, device: u64) -> Self {
        let (next, since) = (environment.now(), Reads::now(environment, device));
        Self {
            environment,
            rate,
            device,
            next,
            since,
            foreign: 0,
            counted: next,
            pressed: None,
            gentle: false,
            paused: Duration::ZERO,
            beside: BesideReaders::default(),
        }
    }

    /// From now on what this process reads comes from this device, and not from another one.
    pub fn begin(&mut self) {
        (self.since, self.foreign) = (Reads::now(self.environment, self.device), 0);
        self.counted = self.now();
    }

    /// The time of the environment's clock.
    pub fn now(&self) -> Duration {
        self.environment.now()
    }

    /// How long to wait after a step of `bytes` that lasted `busy`.
    pub fn due(&mut self, bytes: u64, busy: Duration) -> Duration {
        match self.rate {
            Rate::Unlimited => Duration::ZERO,
            Rate::BytesPerSecond(rate) => {
                let now = self.now();
                let from = self.next.max(now.saturating_sub(CREDIT));
                self.next = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                self.next.saturating_sub(now)
            }
            Rate::Yielding => {
                // It is looked in any case.
                if !self.others_read() {
                    return Duration::ZERO;
                }
                if self.gentle {
                    self.beside.moved_gently_bytes += bytes;
                    return Duration::ZERO;
                }
                self.beside.moved_with_pauses_bytes += bytes;
                (busy * YIELD).min(SHORT)
            }
        }
    }

    /// What to move in the next step: from `at` on, at most `full` bytes, at least `least`.
    pub fn part(&self, at: u64, full: u64, least: u64) -> ByteRange {
        let bytes = match (self.is_pressed(), self.gentle) {
            (false, _) => full,
            (true, false) => full.min(SHORT_STEP_BYTES),
            (true, true) => full.min(GENTLE_STEP_BYTES),
        };
        ByteRange::at(at, bytes.max(least))
    }

    /// Waits for `pause`, or until `stop`.
    pub fn pause(&mut self, pause: Duration, stop: &AtomicBool) {
        let since = self.now();
        while !stop.load(Ordering::Relaxed) {
            let left = pause.saturating_sub(self.now() - since);
            if left.is_zero() {
                break;
            }
            self.environment.wait(left.min(NAP));
        }
        self.paused += self.now() - since;
    }

    /// Whether another program read from the device recently.
    fn others_read(&mut self) -> bool {
        if self.pressed.is_some_and(|at| self.now() - at < SURE) {
            return true;
        }
        let Reads { there, own } = Reads::now(self.environment, self.device);
        let read = there.saturating_sub(self.since.there);
        // A read of ours is counted for this process at once, and for the device when it is completed.
        let foreign = read.saturating_sub(own.saturating_sub(self.since.own));
        let (now, is_loud) = (self.now(), foreign > self.foreign + NOISE_BYTES);
        if is_loud {
            self.pressed = Some(now);
        }
        // However short the steps are, few bytes in each of them add up.
        if is_loud || now - self.counted > NOISE {
            (self.foreign, self.counted) = (self.foreign.max(foreign), now);
        }
        self.is_pressed()
    }

    /// Whether others have read there a short while ago, and are to be yielded to.
    pub fn is_pressed(&self) -> bool {
        self.rate == Rate::Yielding && self.pressed.is_some_and(|at| self.now() - at < WARY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::OwnIo;
    use std::cell::Cell;

    /// A clock that stands still unless something waits on it, and two devices, 0 and 1, from which this
    /// process and another one read.
    #[derive(Default)]
    struct Virtual {
        now: Cell<Duration>,
        read: [Cell<u64>; 2],
        own: Cell<u64>,
    }

    impl Virtual {
        fn others_read(&self, device: usize, bytes: u64) {
            self.read[device].set(self.read[device].get() + bytes);
        }

        fn we_read(&self, device: usize, bytes: u64) {
            self.own.set(self.own.get() + bytes);
            self.others_read(device, bytes);
        }
    }

    impl Environment for Virtual {
        fn now(&self) -> Duration {
            self.now.get()
        }

        fn wait(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }

        fn read_from(&self, device: u64) -> Option<u64> {
            self.read.get(device as usize).map(Cell::get)
        }

        fn own_io(&self) -> OwnIo {
            OwnIo { read_bytes: self.own.get(), written_bytes: 0 }
        }

        fn give_way(&self) {}
    }

    #[test]
    fn a_stop_is_not_followed_by_a_burst() {
        const RATE: u64 = 1 << 20;
        let world = Virtual::default();
        world.wait(Duration::from_secs(60));
        let mut pacer = Pacer::new(Rate::BytesPerSecond(RATE), &world, 0);
        assert_eq!(pacer.due(RATE, Duration::ZERO), Duration::from_secs(1));
        // As if the process had been stopped for that long.
        world.wait(Duration::from_secs(17));
        assert_eq!(pacer.due(RATE, Duration::ZERO), Duration::from_secs(1) - CREDIT);
        // A short delay is made up for.
        world.wait(Duration::from_secs(1) - CREDIT + Duration::from_millis(20));
        assert_eq!(pacer.due(RATE / 100, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_reader_is_given_way_to_until_none_has_read_for_a_while() {
        let (world, go_on) = (Virtual::default(), AtomicBool::new(false));
        let mut pacer = Pacer::new(Rate::Yielding, &world, 0);
        let busy = Duration::from_millis(1);
        world.others_read(0, NOISE_BYTES);
        assert_eq!(pacer.due(4096, busy), Duration::ZERO, "noise");
        assert_eq!(pacer.part(0, 1 << 20, 4096).len(), 1 << 20);
        world.others_read(0, 2 * NOISE_BYTES);
        assert_eq!(pacer.due(4096, busy), busy * YIELD);
        assert_eq!(pacer.due(4096, Duration::from_secs(1)), SHORT, "never for longer");
        assert_eq!(pacer.part(0, 1 << 20, 4096).len(), SHORT_STEP_BYTES);
        pacer.pause(WARY, &go_on);
        assert_eq!((world.now(), pacer.paused), (WARY, WARY));
        assert_eq!(pacer.due(4096, busy), Duration::ZERO);
        pacer.pause(WARY, &AtomicBool::new(true));
        assert_eq!(world.now(), WARY, "told to end");
    }

    #[test]
    fn a_gentle_engine_needs_no_pauses_as_long_as_it_is_gentle() {
        let world = Virtual::default();
        let mut pacer = Pacer::new(Rate::Yielding, &world, 0);
        let busy = Duration::from_millis(1);
        pacer.gentle = true;
        world.others_read(0, 2 * NOISE_BYTES);
        assert_eq!((pacer.due(4096, busy), pacer.is_pressed()), (Duration::ZERO, true));
        assert_eq!(pacer.part(0, 1 << 20, 4096).len(), GENTLE_STEP_BYTES);
        pacer.gentle = false;
        assert_eq!(pacer.due(4096, busy), busy * YIELD);
        assert_eq!(pacer.part(0, 1 << 20, 4096).len(), SHORT_STEP_BYTES);
        // A rate is kept by any engine.
        let mut pacer = Pacer::new(Rate::BytesPerSecond(1 << 20), &world, 0);
        pacer.gentle = true;
        assert_eq!(pacer.due(1 << 20, busy), Duration::from_secs(1));
        assert!(!pacer.is_pressed());
    }

    /// Steps may be so short that hardly anybody reads during one of them.
    #[test]
    fn reads_of_others_add_up_over_steps() {
        let world = Virtual::default();
        let mut pacer = Pacer::new(Rate::Yielding, &world, 0);
        let busy = Duration::from_millis(1);
        let mut step = |bytes, pause| {
            world.others_read(0, bytes);
            world.wait(pause);
            pacer.due(4096, busy)
        };
        let dues: Vec<_> = (0..12).map(|_| step(NOISE_BYTES / 8, busy)).collect();
        assert_eq!((dues[7], dues[8]), (Duration::ZERO, busy * YIELD));
        step(0, WARY);
        let dues = (0..20).map(|_| step(NOISE_BYTES / 8, NOISE / 4));
        assert!(dues.into_iter().all(|due| due.is_zero()), "a stray page now and then");
    }

    /// What this process reads from one device does not hide what others read from another one.
    #[test]
    fn readers_are_seen_on_each_device_for_itself() {
        const MUCH: u64 = 64 << 20;
        let world = Virtual::default();
        let pacer = |device| Pacer::new(Rate::Yielding, &world, device);
        let (mut here, mut there) = (pacer(0), pacer(1));
        let busy = Duration::from_millis(1);
        here.begin();
        world.we_read(0, MUCH);
        assert_eq!(here.due(4096, busy), Duration::ZERO, "our own");
        there.begin();
        world.we_read(1, 4096);
        world.others_read(1, 2 * NOISE_BYTES);
        assert_eq!(there.due(4096, busy), busy * YIELD, "hidden by what was read before");
        // Nor does what we read there count as a read of others here.
        world.we_read(1, MUCH);
        here.begin();
        assert_eq!(here.due(4096, busy), Duration::ZERO, "our own, elsewhere");
        world.others_read(0, 2 * NOISE_BYTES);
        assert_eq!(here.due(4096, busy), busy * YIELD, "hidden by what was read elsewhere");
    }

    /// A device completes a read later than this process began it.
    #[test]
    fn what_is_on_its_way_to_us_is_nobody_elses() {
        let world = Virtual::default();
        let mut pacer = Pacer::new(Rate::Yielding, &world, 0);
        let busy = Duration::from_millis(1);
        world.own.set(1 << 20);
        assert_eq!(pacer.due(4096, busy), Duration::ZERO);
        world.others_read(0, 1 << 20);
        assert_eq!(pacer.due(4096, busy), Duration::ZERO);
    }
}
