//! Zones against a model: written data is there, in order and nowhere else, across resets and power cuts;
//! blocks wear evenly.

mod support;

use fragmend_flash::command::{Command, Hint, Refused, Units, ZoneAction};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::zones::{ZoneState, Zoned};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const UNIT: u32 = 512;

fn drive() -> Drive {
    Drive {
        geometry: Geometry {
            blocks_per_plane: 12,
            over_provisioning_per_mille: 1000,
            ..support::geometry(UNIT, 1)
        },
        timing: Timing {
            read_ns: vec![80_000],
            program_ns: 700_000,
            erase_ns: 3_000_000,
            ..Timing::round(UNIT)
        },
        buffer: BufferSpec {
            bytes: u64::from(UNIT) * 64,
            command_ns: 0,
            unit_ns: 0,
            protected: true,
            open_program_units: 0,
        },
        firmware: Firmware::default(),
    }
}

/// What a power cut leaves of copies that had not completed.
const GARBAGE: u32 = 0xA5A5_A5A5;

/// Drives whose buffers hold as little as they may: a page is one unit; two; four; or it is programmed with another one, and stripe
/// units are shorter than both.
fn tight(which: usize) -> Zoned {
    let mut drive = drive();
    let (page_units, least) = [(1, 5), (2, 5), (4, 5), (2, 13)][which];
    drive.geometry = Geometry {
        blocks_per_plane: 12,
        over_provisioning_per_mille: 1000,
        ..support::geometry(UNIT, page_units)
    };
    if which == 3 {
        drive.geometry.program_unit_bytes = 2 * drive.geometry.flash_page_bytes;
        drive.geometry.stripe_unit_bytes = UNIT;
    }
    drive.buffer.bytes = least * u64::from(drive.geometry.program_unit_bytes);
    Zoned::new(&drive, 3, true).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Append(u32, u32),
    Write(u32, u32),
    Read(u32, u32),
    Reset(u32),
    Finish(u32),
    Defragment(Vec<(u32, u32)>, u32),
    Wait(u64),
    PowerCut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let zone = 0u32..6;
    let step = prop_oneof![
        8 => (zone.clone(), 1u32..12).prop_map(|(z, n)| Step::Append(z, n)),
        4 => (zone.clone(), 1u32..12).prop_map(|(z, n)| Step::Write(z, n)),
        4 => (0u32..400, 1u32..12).prop_map(|(at, n)| Step::Read(at, n)),
        2 => zone.clone().prop_map(Step::Reset),
        1 => zone.clone().prop_map(Step::Finish),
        3 => (prop::collection::vec((0u32..400, 1u32..9), 1..4), zone)
            .prop_map(|(from, zone)| Step::Defragment(from, zone)),
        2 => (1u64..5_000_000).prop_map(Step::Wait),
        1 => Just(Step::PowerCut),
    ];
    prop::collection::vec(step, 1..120)
}

fn bytes_of(value: u32) -> Option<Box<[u8]>> {
    let mut bytes = vec![0; UNIT as usize];
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    Some(bytes.into())
}

proptest! {
    // The same cases each time; PROPTEST_RNG_SEED and PROPTEST_CASES make others.
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn zones_hold_what_was_written(which in 0usize..4, steps in steps()) {
        let mut drive = tight(which);
        let zone_units = drive.zone_units();
        let mut model: Vec<(Vec<u32>, ZoneState)> = vec![(Vec::new(), ZoneState::Empty); 6];
        prop_assert_eq!(drive.zones().len(), 6);
        let (mut now, mut next) = (0, 1);
        let mut copying: Vec<(u64, u32, std::ops::Range<usize>)> = Vec::new();
        for step in steps {
            match step {
                Step::Append(zone, count) | Step::Write(zone, count) => {
                    let open = model.iter().filter(|(_, state)| *state == ZoneState::Open).count();
                    let (held, state) = &mut model[zone as usize];
                    if matches!(step, Step::Write(..)) && held.len() as u32 == zone_units {
                        continue; // where it ends, the next one begins
                    }
                    let at = zone * zone_units + held.len() as u32;
                    let fits = *state != ZoneState::Full && held.len() as u32 + count <= zone_units;
                    let may = fits && (*state == ZoneState::Open || open < 3);
                    let first = next;
                    next += count;
                    let command = match step {
                        Step::Append(..) => Command::Zone { zone, action: ZoneAction::Append(count) },
                        _ => Command::Write { units: Units::new(at, count), hint: Hint::None, fua: false },
                    };
                    let mut contents = |unit: u32| bytes_of(first + unit - at);
                    match drive.submit_with(now, &command, &mut contents) {
                        Ok(done) => {
                            prop_assert!(may && (done.at == at || matches!(step, Step::Write(..))));
                            held.extend(first..first + count);
                            let full = held.len() as u32 == zone_units;
                            *state = if full { ZoneState::Full } else { ZoneState::Open };
                        }
                        Err(why) => prop_assert!(!may && why == Refused::ZoneState, "{:?}", why),
                    }
                    // A write that is not at the write pointer.
                    let elsewhere = Command::Write { units: Units::new(at + 1, 1), hint: Hint::None, fua: false };
                    if at + 1 < 6 * zone_units && (at + 1) / zone_units == zone && model[zone as usize].0.len() as u32 != at + 1 - zone * zone_units {
                        prop_assert_eq!(drive.submit_with(now, &elsewhere, &mut |_| None), Err(Refused::ZoneState));
                    }
                }
                Step::Read(at, count) => {
                    let command = Command::Read(Units::new(at % (5 * zone_units), count));
                    prop_assert!(drive.submit_with(now, &command, &mut |_| None).is_ok());
                }
                Step::Reset(zone) => {
                    let command = Command::Zone { zone, action: ZoneAction::Reset };
                    prop_assert!(drive.submit_with(now, &command, &mut |_| None).is_ok());
                    model[zone as usize] = (Vec::new(), ZoneState::Empty);
                    copying.retain(|(_, of, _)| *of != zone);
                }
                Step::Finish(zone) => {
                    let command = Command::Zone { zone, action: ZoneAction::Finish };
                    prop_assert!(drive.submit_with(now, &command, &mut |_| None).is_ok());
                    model[zone as usize].1 = ZoneState::Full;
                }
                Step::Defragment(from, zone) => {
                    let from: Vec<Units> = from.iter().map(|(at, n)| Units::new(at % (7 * zone_units), *n)).collect();
                    let all: Vec<u32> = from.iter().flat_map(|units| units.each()).collect();
                    let open = model.iter().filter(|(_, state)| *state == ZoneState::Open).count();
                    let value = |unit: &u32| {
                        let (held, _) = model.get((unit / zone_units) as usize)?;
                        held.get((unit % zone_units) as usize).copied()
                    };
                    let values: Vec<u32> = all.iter().filter_map(value).collect();
                    let mut apart = all.clone();
                    apart.sort_unstable();
                    apart.dedup();
                    let (held, state) = &model[zone as usize];
                    let fits = held.len() + all.len() <= zone_units as usize;
                    let at = zone * zone_units + held.len() as u32;
                    let why = if all.iter().any(|unit| *unit >= 6 * zone_units) {
                        Some(Refused::OutOfRange)
                    } else if apart.len() < all.len() {
                        Some(Refused::Overlap)
                    } else if values.len() < all.len() {
                        Some(Refused::Unmapped)
                    } else if *state == ZoneState::Full || !fits || *state == ZoneState::Empty && open == 3 {
                        Some(Refused::ZoneState)
                    } else {
                        None
                    };
                    let command = Command::InDeviceDefragment { from, zone };
                    match drive.submit(now, &command) {
                        Ok(done) => {
                            prop_assert_eq!((why, done.at), (None, at));
                            let (held, state) = &mut model[zone as usize];
                            copying.push((done.done_ns, zone, held.len()..held.len() + values.len()));
                            held.extend(values);
                            let full = held.len() as u32 == zone_units;
                            *state = if full { ZoneState::Full } else { ZoneState::Open };
                        }
                        Err(refused) => prop_assert_eq!(why, Some(refused)),
                    }
                }
                Step::Wait(ns) => now += ns,
                Step::PowerCut => {
                    drive.power_cut(now);
                    for (end, zone, units) in std::mem::take(&mut copying) {
                        if end > now {
                            model[zone as usize].0[units].fill(GARBAGE);
                        }
                    }
                }
            }
            for (zone, (held, state)) in model.iter().enumerate() {
                let report = drive.zones()[zone];
                prop_assert_eq!((report.state, report.write_pointer - report.start), (*state, held.len() as u32));
                for at in 0..zone_units {
                    let bytes = drive.bytes(Units::new(report.start + at, 1));
                    let found = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                    prop_assert_eq!(found, held.get(at as usize).copied().unwrap_or(0));
                }
            }
        }
    }
}

#[test]
fn a_zone_that_is_written_again_and_again_wears_all_blocks() {
    let mut drive = Zoned::new(&drive(), 3, false).unwrap();
    let units = drive.zone_units();
    for round in 0..60 {
        for action in [ZoneAction::Append(units), ZoneAction::Reset] {
            let command = Command::Zone { zone: 2, action };
            drive.submit_with(round * 10_000_000, &command, &mut |_| None).unwrap();
        }
    }
    let worn: Vec<u32> = (0..drive.shape().blocks()).map(|block| drive.erases_of(block)).collect();
    let (least, most) = (worn.iter().min().unwrap(), worn.iter().max().unwrap());
    assert!(most - least <= 1 && *most >= 3, "{worn:?}");
}

/// A drive with flash pages of two units, on which a stripe unit is a page.
fn paged() -> Zoned {
    let mut drive = drive();
    drive.geometry = Geometry {
        blocks_per_plane: 12,
        over_provisioning_per_mille: 1000,
        ..support::geometry(UNIT, 2)
    };
    let mut drive = Zoned::new(&drive, 3, true).unwrap();
    let units = drive.zone_units();
    let append = Command::Zone { zone: 0, action: ZoneAction::Append(units) };
    drive.submit_with(0, &append, &mut |unit| bytes_of(unit + 1)).unwrap();
    drive
}

#[test]
fn a_page_that_stays_on_its_die_goes_by_copyback() {
    let mut drive = paged();
    let idle = drive.idle_at();
    let busy: u64 = drive.busy_ns().iter().sum();
    // A stripe of four dies: its pages begin on die 0, as the zone does.
    let command = Command::InDeviceDefragment { from: vec![Units::new(8, 8)], zone: 1 };
    let done = drive.submit(idle, &command).unwrap();
    assert_eq!((done.at, done.done_ns), (drive.zone_units(), idle + 80_000 + 700_000));
    let counters = drive.counters();
    assert_eq!((counters.copybacks, counters.copied), (4, 8));
    assert_eq!(drive.busy_ns().iter().sum::<u64>() - busy, 4 * 780_000);
    assert_eq!(drive.bytes(Units::new(done.at, 8)), drive.bytes(Units::new(8, 8)));
    assert_eq!(drive.die_of(done.at + 2), drive.die_of(10));
    // On another die, and not as a whole page, it goes through the controller.
    let from = vec![Units::new(2, 2), Units::new(5, 1)];
    let idle = drive.idle_at();
    drive.submit(idle, &Command::InDeviceDefragment { from, zone: 1 }).unwrap();
    assert_eq!(drive.counters().copybacks, 4);
    assert_eq!(drive.counters().copied, 10, "a unit waits for the rest of its page");
    let copies = drive.bytes(Units::new(done.at + 8, 3));
    assert_eq!(copies, [drive.bytes(Units::new(2, 2)), drive.bytes(Units::new(5, 1))].concat());
}

#[test]
fn what_is_still_being_copied_is_there_when_the_copy_is_complete() {
    let mut drive = paged();
    let idle = drive.idle_at();
    let copy = |from, zone| Command::InDeviceDefragment { from: vec![from], zone };
    let first = drive.submit(idle, &copy(Units::new(8, 2), 1)).unwrap();
    let read = drive.submit(idle + 1, &Command::Read(Units::new(first.at + 1, 1))).unwrap();
    assert!(read.done_ns > first.done_ns, "{read:?}, {first:?}");
    let second = drive.submit(idle + 2, &copy(Units::new(first.at, 1), 2)).unwrap();
    assert!(second.done_ns >= first.done_ns, "{second:?}, {first:?}");
    // What is on another die is there.
    let beside = drive.submit(idle + 3, &Command::Read(Units::new(42, 1))).unwrap();
    assert!(beside.done_ns < first.done_ns, "{beside:?}, {first:?}");
}

#[test]
fn sources_are_sensed_before_anything_is_programmed_and_each_page_once() {
    let mut drive = paged();
    let copy = |drive: &mut Zoned, from: &[(u32, u32)], zone| {
        let from = from.iter().map(|(at, count)| Units::new(*at, *count)).collect();
        let (idle, busy) = (drive.idle_at(), drive.busy_ns().iter().sum::<u64>());
        let done = drive.submit(idle, &Command::InDeviceDefragment { from, zone }).unwrap();
        let busy = drive.busy_ns().iter().sum::<u64>() - busy;
        (done.done_ns - idle, drive.idle_at() - idle, busy)
    };
    // Pages of dies 1 and 0 go to dies 0, 1, 2 and 3, so that each die senses two and programs one.
    let (in_buffer, all, _) = copy(&mut drive, &[(2, 2), (0, 2), (10, 2), (8, 2)], 1);
    assert_eq!(drive.counters().copybacks, 0);
    assert!((160_000..300_000).contains(&in_buffer), "{in_buffer}");
    assert!((860_000..1_000_000).contains(&all), "{all}");
    // The units of a page, in their order and in another one.
    let [(.., in_order), (.., apart)] =
        [[(4, 1), (5, 1)], [(7, 1), (6, 1)]].map(|from| copy(&mut drive, &from, 1));
    assert_eq!(in_order, apart, "a page is sensed once");
}

#[test]
fn a_page_is_programmed_when_the_last_of_its_units_has_arrived() {
    let mut drive = paged();
    let idle = drive.idle_at();
    // Die 3 is busy with three sensings.
    for at in [14, 22, 30] {
        drive.submit(idle, &Command::Read(Units::new(at, 1))).unwrap();
    }
    let from = vec![Units::new(6, 1), Units::new(2, 1)];
    drive.submit(idle, &Command::InDeviceDefragment { from, zone: 1 }).unwrap();
    let lasted = drive.idle_at() - idle;
    assert!((4 * 80_000 + 700_000..1_200_000).contains(&lasted), "{lasted}");
}

#[test]
fn a_copy_that_is_longer_than_the_buffer_is_made_in_turns() {
    let mut spec = drive();
    spec.buffer.bytes = 8 * u64::from(UNIT);
    let mut drive = Zoned::new(&spec, 3, true).unwrap();
    let units = drive.zone_units();
    let append = Command::Zone { zone: 0, action: ZoneAction::Append(units) };
    drive.submit_with(0, &append, &mut |unit| bytes_of(unit + 1)).unwrap();
    let from = (1..units - 1).rev().map(|at| Units::new(at, 1)).collect();
    let idle = drive.idle_at();
    let done = drive.submit(idle, &Command::InDeviceDefragment { from, zone: 1 }).unwrap();
    assert!(done.done_ns - idle > 700_000, "it has waited for programs");
    for at in 1..units - 1 {
        let copy = done.at + units - 2 - at;
        assert_eq!(drive.bytes(Units::new(copy, 1)), drive.bytes(Units::new(at, 1)));
    }
}

#[test]
fn a_copy_that_cannot_be_made_changes_nothing() {
    let mut drive = paged();
    let (units, zones) = (drive.zone_units(), drive.zones());
    let counters = drive.counters();
    let refused = |drive: &mut Zoned, from: &[Units], zone| {
        let command = Command::InDeviceDefragment { from: from.to_vec(), zone };
        drive.submit(drive.idle_at(), &command).unwrap_err()
    };
    let all = Units::new(0, units);
    assert_eq!(refused(&mut drive, &[], 1), Refused::Length);
    assert_eq!(refused(&mut drive, &[Units::new(3, 0)], 1), Refused::Length);
    assert_eq!(refused(&mut drive, &[Units::new(0, 4), Units::new(3, 2)], 1), Refused::Overlap);
    assert_eq!(refused(&mut drive, &[Units::new(units, 1)], 1), Refused::Unmapped);
    assert_eq!(refused(&mut drive, &[Units::new(u32::MAX, 2)], 1), Refused::OutOfRange);
    assert_eq!(refused(&mut drive, &[all], 6), Refused::OutOfRange);
    assert_eq!(refused(&mut drive, &[Units::new(0, 1)], 0), Refused::ZoneState, "it is full");
    assert_eq!((drive.zones(), drive.counters()), (zones, counters));
    drive.submit(0, &Command::Zone { zone: 1, action: ZoneAction::Append(1) }).unwrap();
    assert_eq!(refused(&mut drive, &[all], 1), Refused::ZoneState, "too much for the zone");
}

/// A small drive whose program units have four units each, and whose buffer holds five of them.
fn with_little_buffer() -> Zoned {
    let mut drive = drive();
    drive.geometry = Geometry {
        blocks_per_plane: 12,
        over_provisioning_per_mille: 1000,
        ..support::geometry(UNIT, 4)
    };
    drive.buffer.bytes = 5 * 4 * u64::from(UNIT);
    Zoned::new(&drive, 2, true).unwrap()
}

fn append(drive: &mut Zoned, zone: u32, count: u32) {
    let append = Command::Zone { zone, action: ZoneAction::Append(count) };
    drive.submit(drive.idle_at(), &append).unwrap_or_else(|why| panic!("zone {zone}: {why}"));
}

#[test]
fn the_buffer_holds_nothing_of_zones_that_are_reset_or_finished() {
    for action in [ZoneAction::Reset, ZoneAction::Finish] {
        let mut drive = with_little_buffer();
        for round in 0..40 {
            let zone = round % drive.zones().len() as u32;
            drive
                .submit(drive.idle_at(), &Command::Zone { zone, action: ZoneAction::Reset })
                .unwrap();
            append(&mut drive, zone, 1 + round % 7);
            drive.submit(drive.idle_at(), &Command::Zone { zone, action }).unwrap();
        }
        let padded = drive.counters().padded;
        assert!((padded > 0) == (action == ZoneAction::Finish), "{padded}");
    }
}

#[test]
fn what_is_assembled_at_a_power_cut_is_continued() {
    let mut drive = with_little_buffer();
    for round in 0..12 {
        append(&mut drive, 0, 1 + round % 3);
        append(&mut drive, 1, 3);
        drive.power_cut(drive.idle_at() + round as u64);
    }
    assert_eq!(drive.zones()[1].write_pointer - drive.zones()[1].start, 36);
}

#[test]
fn a_buffer_that_cannot_hold_what_open_zones_assemble_is_refused() {
    let mut drive = drive();
    let refused = |drive: &Drive, open| Zoned::new(drive, open, true).unwrap_err().field;
    assert_eq!(refused(&drive, 0), "open_zones");
    assert_eq!(refused(&drive, 64), "bytes");
    drive.buffer.bytes = u64::from(UNIT);
    assert_eq!(refused(&drive, 1), "bytes");
}
