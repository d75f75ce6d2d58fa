//! The guarantees of every kind of drive: a read returns the last write, counters and idle time match the
//! commands, and flushed data survives a power cut.

mod support;

use fragmend_flash::command::{Command, Hint, Refused, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::inplace::{InPlace, InPlaceDrive, Media};
use fragmend_flash::joined::Joined;
use fragmend_flash::ssd::Ssd;
use fragmend_flash::zones::Zoned;

const UNIT: u32 = 512;

fn flash(protected: bool) -> Drive {
    Drive {
        geometry: Geometry {
            over_provisioning_per_mille: 1000,
            blocks_per_plane: 12,
            ..support::geometry(UNIT, 2)
        },
        timing: Timing::round(UNIT),
        buffer: BufferSpec {
            bytes: u64::from(UNIT) * 64,
            command_ns: 1_000,
            unit_ns: 100,
            protected,
            open_program_units: 4,
        },
        firmware: Firmware::default(),
    }
}

fn in_place(media: Media) -> InPlace {
    in_place_of(1 << 10, media)
}

fn in_place_of(units: u32, media: Media) -> InPlace {
    InPlace::with_content(&InPlaceDrive {
        bytes: u64::from(UNIT * units),
        unit_bytes: UNIT,
        command_ns: 1_000,
        link_bytes_per_second: 1_000_000_000,
        media,
    })
}

/// A drive of each kind that keeps content, and whether that survives a power cut.
fn drives() -> Vec<(&'static str, Box<dyn Device>, bool)> {
    let disk = Media::Disk {
        rotation_ns: 8_333_333,
        seek_least_ns: 500_000,
        seek_most_ns: 15_000_000,
        bytes_per_second: 180_000_000,
        ahead_bytes: 4096,
    };
    let card = Media::Card {
        access_ns: 0,
        bytes_per_second: 100_000_000,
        map_miss_ns: 500_000,
        map_segment_bytes: 4096,
        map_segments: 2,
    };
    let parallel = Media::Parallel { access_ns: 10_000, write_ns: None, part_bytes: 4096, ways: 4 };
    let ssd = |protected| Box::new(Ssd::with_content(&flash(protected)).expect("a drive"));
    let zoned = Zoned::new(&flash(true), 3, true).expect("a drive");
    // Writes of the tests reach beyond the end of the first one.
    let first = Box::new(in_place_of(24, parallel.clone()));
    let joined = Joined::new(first, ssd(false)).expect("units of the same length");
    vec![
        ("SSD", ssd(false), true),
        ("SSD with capacitors", ssd(true), true),
        ("zoned", Box::new(zoned), true),
        ("disk", Box::new(in_place(disk)), true),
        ("card", Box::new(in_place(card)), true),
        ("parallel", Box::new(in_place(parallel)), true),
        ("joined", Box::new(joined), true),
        ("memory", Box::new(in_place(Media::Memory {})), false),
    ]
}

/// Writes units that consist of their number and a version; returns when the write is acknowledged.
fn write(drive: &mut dyn Device, at: u64, units: Units, version: u8) -> u64 {
    let contents = &mut |unit: u32| {
        let mut bytes = vec![version; UNIT as usize];
        bytes[..4].copy_from_slice(&unit.to_le_bytes());
        Some(bytes.into())
    };
    let write = Command::Write { units, hint: Hint::None, fua: false };
    drive.submit_with(at, &write, contents).expect("a write").done_ns
}

fn holds(drive: &dyn Device, units: Units, version: u8) -> bool {
    let bytes = drive.bytes(units);
    let mut all = units.each().zip(bytes.chunks_exact(UNIT as usize));
    all.all(|(unit, bytes)| {
        bytes[..4] == unit.to_le_bytes() && bytes[4..].iter().all(|b| *b == version)
    })
}

#[test]
fn cells_may_be_written_more_slowly_than_they_are_read() {
    let ns = |write_ns| {
        let media = Media::Parallel { access_ns: 10_000, write_ns, part_bytes: 4096, ways: 4 };
        let mut drive = in_place(media);
        let written = write(&mut drive, 0, Units::new(0, 1), 1);
        (
            written,
            drive.submit(written, &Command::Read(Units::new(0, 1))).expect("a read").done_ns
                - written,
        )
    };
    let ((alike, read), (slower, same)) = (ns(None), ns(Some(15_000)));
    assert_eq!((alike, slower, same), (read, read + 5_000, read));
}

#[test]
fn every_drive_keeps_what_was_flushed() {
    for (name, mut drive, survives) in drives() {
        assert_eq!(drive.unit_bytes(), UNIT, "{name}");
        let (first, second) = (Units::new(0, 16), Units::new(16, 16));
        let acknowledged = write(&mut *drive, 0, first, 1);
        let flushed = drive.submit(acknowledged, &Command::Flush).expect("a flush").done_ns;
        let written = write(&mut *drive, flushed, second, 2);
        assert!(0 < acknowledged && acknowledged <= flushed && flushed < written, "{name}");
        assert!(holds(&*drive, first, 1) && holds(&*drive, second, 2), "{name}");
        assert_eq!(drive.bytes(Units::new(32, 2)), vec![0; 2 * UNIT as usize], "{name}");

        let done = drive.submit(written, &Command::Read(first)).expect("a read").done_ns;
        assert!(done > written && drive.idle_at() >= done, "{name}");
        let counters = drive.counters();
        let found = (counters.commands, counters.host_read, counters.host_written);
        assert_eq!(found, (4, 16, 32), "{name}");

        drive.power_cut(done);
        assert_eq!(holds(&*drive, first, 1), survives, "{name}");
        let end = drive.submit(done, &Command::Read(first)).expect("a read").done_ns;
        assert!(end > done && drive.idle_at() >= end, "{name}");
        let third = Units::new(32, 4);
        if drive.submit(end, &Command::Trim(first)) != Err(Refused::Unsupported) {
            assert_eq!(drive.bytes(first), vec![0; 16 * UNIT as usize], "{name}");
            write(&mut *drive, end, third, 3);
            assert!(holds(&*drive, third, 3), "{name}");
        }
    }
}

#[test]
fn every_drive_refuses_what_is_beyond_its_end() {
    for (name, mut drive, _) in drives() {
        let units = drive.units();
        let last = Command::Read(Units::new(units - 1, 1));
        assert!(drive.submit(0, &last).is_ok(), "{name}");
        let beyond = Command::Read(Units::new(units - 1, 2));
        assert_eq!(drive.submit(0, &beyond), Err(Refused::OutOfRange), "{name}");
        let nothing = Command::Read(Units::new(0, 0));
        assert_eq!(drive.submit(0, &nothing), Err(Refused::Length), "{name}");
        assert_eq!(drive.counters().commands, 1, "{name}");
    }
}
