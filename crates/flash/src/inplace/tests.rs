//! Times of each kind of media, and power cuts.

use super::*;
use crate::command::Hint;

fn disk() -> InPlaceDrive {
    InPlaceDrive {
        bytes: 1 << 40,
        unit_bytes: 4096,
        command_ns: 100_000,
        link_bytes_per_second: 600_000_000,
        media: Media::Disk {
            rotation_ns: 8_333_333,
            seek_least_ns: 500_000,
            seek_most_ns: 15_000_000,
            bytes_per_second: 180_000_000,
            ahead_bytes: 1 << 20,
        },
    }
}

fn with_media(media: Media) -> InPlaceDrive {
    InPlaceDrive {
        bytes: 1 << 36,
        unit_bytes: 4096,
        command_ns: 10_000,
        link_bytes_per_second: 10_000_000_000,
        media,
    }
}

fn read(drive: &mut InPlace, at: u64, start: u32, count: u32) -> u64 {
    drive.submit(at, &Command::Read(Units::new(start, count))).unwrap().done_ns
}

#[test]
fn a_disk_reads_on_without_a_seek_and_waits_for_the_rotation_after_one() {
    let mut disk = InPlace::new(&disk());
    let first = read(&mut disk, 0, 0, 32);
    let next = read(&mut disk, first, 32, 32);
    assert!(next - first < 1_000_000, "{}", next - first);
    let far = read(&mut disk, next, 1 << 27, 1);
    assert!(far - next > 5_000_000 && far - next < 26_000_000, "{}", far - next);
    let back = read(&mut disk, far, 0, 1);
    assert!(back - far > 5_000_000);
}

#[test]
fn a_card_does_one_command_after_the_other() {
    let mut card = InPlace::new(&with_media(Media::Card {
        access_ns: 0,
        bytes_per_second: 100_000_000,
        map_miss_ns: 500_000,
        map_segment_bytes: 4 << 20,
        map_segments: 2,
    }));
    let first = read(&mut card, 0, 0, 1);
    assert_eq!(first, 10_000 + 500_000 + 40_960);
    assert_eq!(read(&mut card, 0, 8, 1), first + 40_960, "its segment is loaded");
}

#[test]
fn a_card_reads_ahead_from_where_the_last_access_ended() {
    let mut card = InPlace::new(&with_media(Media::Card {
        access_ns: 1_000_000,
        bytes_per_second: 100_000_000,
        map_miss_ns: 0,
        map_segment_bytes: 4 << 20,
        map_segments: 2,
    }));
    let first = read(&mut card, 0, 0, 1);
    assert_eq!(first, 10_000 + 1_000_000 + 40_960);
    let next = read(&mut card, first, 1, 1);
    assert_eq!(next, first + 10_000 + 40_960);
    assert_eq!(read(&mut card, next, 3, 1), next + 10_000 + 1_000_000 + 40_960, "a gap");
}

#[test]
fn ways_work_in_parallel() {
    let media = Media::Parallel { access_ns: 10_000, write_ns: None, part_bytes: 4096, ways: 4 };
    let mut parallel = InPlace::new(&with_media(media));
    assert_eq!(read(&mut parallel, 0, 0, 4), 20_000);
    assert_eq!(read(&mut parallel, 0, 4, 8), 40_000);
    // Of four scattered parts some share a way.
    let scattered = (0..64).map(|n| {
        let at = 1_000_000 * (n + 1);
        let first = n as u32 * 1024 + 64;
        let done = (0..4).map(|part| read(&mut parallel, at, first + part * 257, 1));
        done.max().unwrap() - at
    });
    let worst = scattered.max().unwrap();
    assert!((30_000..=50_000).contains(&worst), "{worst}");
}

#[test]
fn a_write_of_part_of_a_unit_reads_it_first() {
    let part = |units, bytes, offset| Command::WritePart { units, bytes, offset, hint: Hint::None };
    let media = Media::Parallel { access_ns: 10_000, write_ns: None, part_bytes: 4096, ways: 4 };
    let done = |command| {
        let mut drive = InPlace::new(&with_media(media.clone()));
        let done = drive.submit(0, &command).map(|completion| completion.done_ns);
        (done, drive.counters().merged_writes)
    };
    assert_eq!(done(part(Units::new(0, 1), 4096, 0)), (Ok(20_000), 0));
    assert_eq!(done(part(Units::new(0, 1), 512, 0)), (Ok(30_000), 1));
    assert_eq!(done(part(Units::new(0, 1), 512, 1024)), (Ok(30_000), 1));
    // The last unit is cut, and on another way than the first.
    assert_eq!(done(part(Units::new(0, 2), 4608, 0)), (Ok(30_000), 1));
    assert_eq!(done(part(Units::new(0, 1), 0, 0)), (Err(Refused::Length), 0));
    assert_eq!(done(part(Units::new(0, 1), 4096, 512)), (Err(Refused::Length), 0));
}

fn write(drive: &mut InPlace, at: u64, unit: u32, value: u8) -> u64 {
    let write = Command::Write { units: Units::new(unit, 1), hint: Hint::None, fua: false };
    let contents = &mut |_| Some(vec![value; 4096].into());
    drive.submit_with(at, &write, contents).unwrap().done_ns
}

#[test]
fn a_power_cut_undoes_what_was_not_acknowledged() {
    let mut disk = InPlace::with_content(&disk());
    let value = |drive: &InPlace, unit| drive.bytes(Units::new(unit, 1))[0];
    let first = write(&mut disk, 0, 7, 1);
    let second = write(&mut disk, first, 7, 2);
    write(&mut disk, first, 8, 3);
    assert_eq!((value(&disk, 7), value(&disk, 8)), (2, 3));
    disk.power_cut(second);
    assert_eq!((value(&disk, 7), value(&disk, 8)), (2, 0));
    let third = write(&mut disk, second, 7, 4);
    disk.power_cut(third - 1);
    assert_eq!(value(&disk, 7), 2);
    assert_eq!(disk.counters().host_written, 4);
}

#[test]
fn memory_is_empty_after_a_power_cut() {
    let mut memory = InPlace::with_content(&with_media(Media::Memory {}));
    let done = write(&mut memory, 0, 7, 1);
    assert_eq!(memory.idle_at(), done);
    memory.power_cut(done);
    assert_eq!(memory.bytes(Units::new(7, 1)), vec![0; 4096]);
}

/// With a segment for each byte, an access of a file of some MB would look through millions of them.
#[test]
fn a_card_whose_mapping_is_in_too_many_parts_is_refused() {
    let field = |map_segment_bytes, map_segments| {
        let card = Media::Card {
            access_ns: 0,
            bytes_per_second: 100_000_000,
            map_miss_ns: 0,
            map_segment_bytes,
            map_segments,
        };
        with_media(card).check().map_err(|wrong| wrong.field)
    };
    assert_eq!(field(4095, 1), Err("map_segment_bytes"));
    assert_eq!(field(4096, u32::MAX), Err("map_segments"));
    assert_eq!(field(4096, 4096), Ok(()));
}
