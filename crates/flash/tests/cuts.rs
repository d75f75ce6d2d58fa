//! Power cuts, one after another, do not use up the space that collection needs.

mod support;

use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::ssd::Ssd;

const UNIT: u32 = 512;

fn drive() -> Drive {
    Drive {
        geometry: Geometry {
            dies_per_channel: 1,
            pages_per_block: 4,
            over_provisioning_per_mille: 500,
            ..support::geometry(UNIT, 2)
        },
        timing: Timing::round(UNIT),
        buffer: BufferSpec {
            bytes: u64::from(UNIT) * 64,
            command_ns: 0,
            unit_ns: 0,
            protected: false,
            open_program_units: 4,
        },
        firmware: Firmware::default(),
    }
}

fn write(ssd: &mut Ssd, at: u64, units: Units) -> u64 {
    let write = Command::Write { units, hint: Hint::None, fua: false };
    ssd.submit(at, &write).expect("space").done_ns
}

/// A program that a cut prevents leaves its program unit erased; only the one that was under way on a die is
/// torn.
#[test]
fn what_never_began_is_programmed_again() {
    let mut ssd = Ssd::new(&drive()).expect("a drive");
    write(&mut ssd, 0, Units::new(0, 16));
    ssd.power_cut(100_000);
    write(&mut ssd, 100_000, Units::new(0, 4));
    let in_block = |unit| ssd.place_of(unit).map(|(_, physical)| physical % 8);
    assert_eq!([0, 2].map(in_block), [Some(2); 2], "after the first program unit of each die");
    ssd.audit().expect("tables that agree");
}

/// A command may have to wait for the buffer, and programs begin and end meanwhile. A cut then finds what was programmed by that time, and
/// nothing of what was programmed later.
#[test]
fn a_cut_while_a_write_waits_for_the_buffer_finds_the_state_of_that_time() {
    let mut small = drive();
    small.buffer.bytes = u64::from(UNIT) * 6;
    let new = || Ssd::with_content(&small).expect("a drive");
    let mut whole = new();
    let done = write(&mut whole, 0, Units::new(0, 32));
    let mut counts = Vec::new();
    for at in (0..=done).step_by(10_000) {
        let mut ssd = new();
        write(&mut ssd, 0, Units::new(0, 32));
        ssd.power_cut(at);
        ssd.audit().expect("tables that agree");
        counts.push((0..32).filter(|unit| ssd.die_of(*unit).is_some()).count());
    }
    // A program lasts 200 us, and two dies have a program unit of two units each.
    assert!(counts[..20].iter().all(|count| *count == 0), "{counts:?}");
    assert!(counts.is_sorted() && counts.windows(2).all(|two| two[1] - two[0] <= 4), "{counts:?}");
    assert!(
        (24..32).contains(counts.last().expect("one")),
        "the last ones are in flight: {counts:?}"
    );
}

/// Each round the power fails in the middle of what little the host has written; now and then it writes more.
#[test]
fn a_drive_survives_cut_after_cut() {
    for seed in 0..40 {
        let mut ssd = Ssd::new(&drive()).expect("a drive");
        let all = ssd.units();
        ssd.precondition(Units::new(0, all)).expect("space");
        let mut number: u128 = seed * 7_919;
        let mut random = |below: u32| {
            number = (number * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % (1 << 62);
            (number >> 30) as u32 % below
        };
        let mut now = 0;
        for round in 0..300 {
            for _ in 0..if round % 50 == 49 { 200 } else { 1 + random(6) } {
                let count = 1 + random(3);
                now = write(&mut ssd, now, Units::new(random(all - count), count));
            }
            now += u64::from(random(4_000_000));
            ssd.power_cut(now);
            ssd.audit().expect("tables that agree");
        }
    }
}
