//! The pace on a clock that stands still unless something waits on it.

use super::presence::{NOISE, NOISE_BYTES, WARY};
use super::*;
use crate::environment::{Foreground, OwnIo};
use std::cell::Cell;

/// Two devices, 0 and 1, from which this process and another one read.
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

    fn pacer(&self, rate: Rate, device: u64) -> Pacer<'_> {
        Pacer::new(Pacing { rate, tolerance: 0.1 }, self, device)
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

    fn foreground(&self, _: u64) -> Result<Foreground, String> {
        Err("nobody counts".into())
    }

    fn own_io(&self) -> OwnIo {
        OwnIo { read_bytes: self.own.get(), written_bytes: 0 }
    }

    fn give_way(&self) {}
}

/// What is due after a step of 4 KiB that lasted so long.
fn due(pacer: &mut Pacer<'_>, busy: Duration) -> Duration {
    pacer.due(4096, busy)
}

const BUSY: Duration = Duration::from_millis(1);

#[test]
fn a_stop_is_not_followed_by_a_burst() {
    const RATE: u64 = 1 << 20;
    let world = Virtual::default();
    world.wait(Duration::from_secs(60));
    let mut pacer = world.pacer(Rate::BytesPerSecond(RATE), 0);
    let mut due = |bytes| pacer.due(bytes, Duration::ZERO);
    assert_eq!(due(RATE), Duration::from_secs(1));
    // As if the process had been stopped for that long.
    world.wait(Duration::from_secs(17));
    assert_eq!(due(RATE), Duration::from_secs(1) - CREDIT);
    // A short delay is made up for.
    world.wait(Duration::from_secs(1) - CREDIT + Duration::from_millis(20));
    assert_eq!(due(RATE / 100), Duration::ZERO);
    assert_eq!(pacer.by(), None);
}

#[test]
fn a_reader_is_given_way_to_until_none_has_read_for_a_while() {
    let (world, go_on) = (Virtual::default(), AtomicBool::new(false));
    let mut pacer = world.pacer(Rate::Yielding, 0);
    world.others_read(0, NOISE_BYTES);
    assert_eq!(due(&mut pacer, BUSY), Duration::ZERO, "noise");
    assert_eq!(pacer.part(0, 1 << 20, 4096).len(), 1 << 20);
    assert_eq!(pacer.by(), Some(PacedBy::NobodyRead));
    world.others_read(0, 2 * NOISE_BYTES);
    assert_eq!(due(&mut pacer, BUSY), BUSY * YIELD);
    assert_eq!(pacer.by(), Some(PacedBy::DiskStatistics { why: "nobody counts".into() }));
    assert_eq!(due(&mut pacer, Duration::from_secs(1)), SHORT, "never for longer");
    assert_eq!(pacer.part(0, 1 << 20, 4096).len(), control::SHORTEST_STEP);
    pacer.pause(WARY, &go_on);
    assert_eq!((world.now(), pacer.paused), (WARY, WARY));
    assert_eq!(due(&mut pacer, BUSY), Duration::ZERO);
    pacer.pause(WARY, &AtomicBool::new(true));
    assert_eq!(world.now(), WARY, "told to end");
}

/// Steps may be so short that hardly anybody reads during one of them.
#[test]
fn reads_of_others_add_up_over_steps() {
    let world = Virtual::default();
    let mut pacer = world.pacer(Rate::Yielding, 0);
    let mut step = |bytes, pause| {
        world.others_read(0, bytes);
        world.wait(pause);
        due(&mut pacer, BUSY)
    };
    let dues: Vec<_> = (0..12).map(|_| step(NOISE_BYTES / 8, BUSY)).collect();
    assert_eq!((dues[7], dues[8]), (Duration::ZERO, BUSY * YIELD));
    step(0, WARY);
    let dues = (0..20).map(|_| step(NOISE_BYTES / 8, NOISE / 4));
    assert!(dues.into_iter().all(|due| due.is_zero()), "a stray page now and then");
}

/// What this process reads from one device does not hide what others read from another one.
#[test]
fn readers_are_seen_on_each_device_for_itself() {
    const MUCH: u64 = 64 << 20;
    let world = Virtual::default();
    let (mut here, mut there) = (world.pacer(Rate::Yielding, 0), world.pacer(Rate::Yielding, 1));
    here.begin();
    world.we_read(0, MUCH);
    assert_eq!(due(&mut here, BUSY), Duration::ZERO, "our own");
    there.begin();
    world.we_read(1, 4096);
    world.others_read(1, 2 * NOISE_BYTES);
    assert_eq!(due(&mut there, BUSY), BUSY * YIELD, "hidden by what was read before");
    // Nor does what we read there count as a read of others here.
    world.we_read(1, MUCH);
    here.begin();
    assert_eq!(due(&mut here, BUSY), Duration::ZERO, "our own, elsewhere");
    world.others_read(0, 2 * NOISE_BYTES);
    assert_eq!(due(&mut here, BUSY), BUSY * YIELD, "hidden by what was read elsewhere");
}

/// A device completes a read later than this process began it.
#[test]
fn what_is_on_its_way_to_us_is_nobody_elses() {
    let world = Virtual::default();
    let mut pacer = world.pacer(Rate::Yielding, 0);
    world.own.set(1 << 20);
    assert_eq!(due(&mut pacer, BUSY), Duration::ZERO);
    world.others_read(0, 1 << 20);
    assert_eq!(due(&mut pacer, BUSY), Duration::ZERO);
}
