//! What the options of a drive's firmware and timing change, and that nothing changes without them.

mod support;

use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Placement, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::ssd::Ssd;

const UNIT: u32 = 4096;

fn drive() -> Drive {
    Drive {
        geometry: Geometry {
            blocks_per_plane: 64,
            pages_per_block: 64,
            over_provisioning_per_mille: 150,
            ..support::geometry(UNIT, 2)
        },
        timing: Timing::round(2 * UNIT),
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

fn write(ssd: &mut Ssd, at: u64, units: Units, fua: bool) -> u64 {
    let write = Command::Write { units, hint: Hint::None, fua };
    ssd.submit(at, &write).expect("a write").done_ns
}

fn read(ssd: &mut Ssd, at: u64, unit: u32) -> u64 {
    ssd.submit(at, &Command::Read(Units::new(unit, 1))).expect("a read").done_ns - at
}

#[test]
fn reads_go_before_programs_that_have_not_begun() {
    let wait = |reads_first: bool| {
        let mut drive = drive();
        drive.timing.reads_first = reads_first;
        let mut ssd = Ssd::new(&drive).expect("a drive");
        ssd.precondition(Units::new(0, 64)).expect("space");
        let alone = read(&mut ssd, 0, 0);
        // Four program units for each die, on which one has begun when the reads arrive.
        let at = ssd.idle_at();
        write(&mut ssd, at, Units::new(64, 32), false);
        let first = read(&mut ssd, at + 100_000, 0);
        let second = read(&mut ssd, at + 100_000, 1);
        ssd.audit().expect("tables that agree");
        (alone, first, second, ssd.idle_at() - at)
    };
    let ((alone, first, second, idle), (_, early, next, late)) = (wait(false), wait(true));
    assert!(first > 700_000 + alone && second > first, "{first}");
    assert!(early < 250_000 + alone && next >= early + alone / 2, "{early}, {next}");
    assert!(next < first && late > 900_000 && idle > 900_000, "the programs wait instead");
}

/// The latency of the link is that of each command, and commands that are in flight together wait for it together.
#[test]
fn a_link_with_latency_delays_each_command_once() {
    const LATENCY_NS: u64 = 1_000_000;
    let ends = |link_latency_ns: u64| {
        let mut drive = drive();
        drive.timing.link_latency_ns = link_latency_ns;
        let mut ssd = Ssd::new(&drive).expect("a drive");
        ssd.precondition(Units::new(0, 64)).expect("space");
        let together = [0, 2, 4, 6].map(|unit| read(&mut ssd, 0, unit));
        let units = Units::new(64, 8);
        let write = Command::Write { units, hint: Hint::None, fua: false };
        let alone = [write, Command::Flush, Command::Trim(units)].map(|command| {
            let at = ssd.idle_at() + LATENCY_NS;
            ssd.submit(at, &command).expect("it is done").done_ns - at
        });
        (together, alone)
    };
    let (without, with) = (ends(0), ends(LATENCY_NS));
    assert_eq!(with.0, without.0.map(|ns| ns + LATENCY_NS));
    assert_eq!(with.1, without.1.map(|ns| ns + LATENCY_NS));
}

#[test]
fn a_flush_is_not_delayed_by_reads_after_it() {
    let mut drive = drive();
    drive.timing.reads_first = true;
    let mut ssd = Ssd::new(&drive).expect("a drive");
    ssd.precondition(Units::new(0, 64)).expect("space");
    write(&mut ssd, 0, Units::new(64, 32), false);
    let flushed = ssd.submit(0, &Command::Flush).expect("a flush").done_ns;
    assert!(read(&mut ssd, 0, 0) > 700_000, "the programs before the flush are pinned");
    assert!(ssd.idle_at() >= flushed);
}

/// The longest and the mean wait of a writer whose writes are durable before they are acknowledged, each of a
/// random unit of a full drive, and how much the flash wrote for a unit.
fn waits(paced: bool) -> (u64, u64, u64) {
    let mut drive = drive();
    drive.firmware.collection_paced = paced;
    let mut ssd = Ssd::new(&drive).expect("a drive");
    let all = ssd.units();
    ssd.precondition(Units::new(0, all)).expect("space");
    let (mut now, mut longest, mut sum, mut before) = (0, 0, 0, ssd.counters());
    let (warm_up, measured) = (60_000, 40_000);
    for n in 0..warm_up + measured {
        let unit = (n as u32).wrapping_mul(2_654_435_761) % all;
        let done = write(&mut ssd, now, Units::new(unit, 1), true);
        if n == warm_up {
            before = ssd.counters();
        } else if n > warm_up {
            (longest, sum) = (longest.max(done - now), sum + done - now);
        }
        now = done;
    }
    ssd.audit().expect("tables that agree");
    let waf = ssd.counters().since(&before).waf_per_mille();
    (longest, sum / measured, waf)
}

#[test]
fn paced_collection_shortens_the_longest_wait() {
    let (lump, paced) = (waits(false), waits(true));
    println!("longest wait, mean wait, write amplification: {lump:?}, paced {paced:?}");
    assert!(paced.0 * 10 < lump.0, "{paced:?}, {lump:?}");
}

#[test]
fn the_address_decides_the_die() {
    let mut drive = drive();
    drive.firmware.placement = Placement::ByAddress;
    let mut ssd = Ssd::new(&drive).expect("a drive");
    let all = ssd.units();
    let mut now = 0;
    for n in 0..20_000u32 {
        let units = Units::new(n.wrapping_mul(2_654_435_761) % (all / 2), 1);
        now = write(&mut ssd, now, units, false);
    }
    // Stripe units of two units, on four dies.
    let moved =
        (0..all / 2).filter(|unit| ssd.die_of(*unit).is_some_and(|die| die != unit / 2 % 4));
    assert_eq!(moved.count(), 0);
}

#[test]
fn commands_to_the_dies_need_time_on_the_channel() {
    let times = |array_command_ns: u64| {
        let mut drive = drive();
        drive.timing.array_command_ns = array_command_ns;
        let mut ssd = Ssd::new(&drive).expect("a drive");
        ssd.precondition(Units::new(0, 64)).expect("space");
        let (first, idle) = (read(&mut ssd, 0, 0), ssd.idle_at());
        // Two dies of one channel.
        let other = read(&mut ssd, idle, 0).max(read(&mut ssd, idle, 4));
        (first, other)
    };
    let (without, with) = (times(0), times(1_000));
    assert_eq!(with.0, without.0 + 1_000);
    assert!(with.1 >= without.1 + 1_000, "{with:?}, {without:?}");
}

#[test]
fn a_trim_needs_time_for_what_it_unmaps() {
    let mut drive = drive();
    (drive.timing.trim_command_ns, drive.timing.trim_unit_ns) = (10_000, 300);
    let mut ssd = Ssd::new(&drive).expect("a drive");
    ssd.precondition(Units::new(0, 64)).expect("space");
    let trim = |ssd: &mut Ssd, at, start, count| {
        let trim = Command::Trim(Units::new(start, count));
        ssd.submit(at, &trim).expect("a trim").done_ns - at
    };
    assert_eq!(trim(&mut ssd, 0, 60, 100), 10_000 + 4 * 300, "four of them are mapped");
    assert_eq!(trim(&mut ssd, 100_000, 60, 100), 10_000);
    // The processor does one thing at a time: many small trims need longer than one of all.
    let at = 1_000_000;
    let last = (0..8).map(|n| trim(&mut ssd, at, n * 4, 2)).max();
    assert_eq!(last, Some(8 * 10_000 + 16 * 300));
}
