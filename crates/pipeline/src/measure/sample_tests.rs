//! Samples: what is drawn, what is predicted, and what timed reads say.

use super::*;
use crate::measure::reads::{MOST_BYTES, MOST_DRAWN, MOST_READS, draw, fetched, limit};
use fragmend_apply::measurement::MeasuredBy;
use fragmend_layout::{
    CostModel, CostSource, DeviceKind, DeviceProfile, ExtentKind, FsKind, RequestCost,
};
use fragmend_plan::Basis;

const BLOCK: u64 = 4096;

fn device() -> Device {
    let cost = CostModel::guessed(DeviceKind::Card);
    Device {
        device: 7,
        mount: std::path::Path::new("/mnt").into(),
        file_system: FsKind::Ext4,
        total_bytes: 3 << 30,
        block_bytes: BLOCK,
        profile: DeviceProfile { cost, ..DeviceProfile::unknown() },
    }
}

/// A file of eight blocks, no two of which follow each other on the device.
fn file(accesses: Vec<Access>) -> SurveyedFile {
    let mut layout = Layout::new(FileId { device: 7, inode: 12, generation: 1 }, 8 * BLOCK);
    for n in 0..8 {
        let (logical, physical) = (n * BLOCK, 2 * n * BLOCK);
        layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
    }
    SurveyedFile::new("/mnt/file".into(), layout, accesses, &device())
}

/// A direct read of the first file.
fn read(range: ByteRange) -> Read {
    Read { file: 0, range, missed: false }
}

pub(in crate::measure) fn sample(moves: &[(u64, u64)], in_flight: u32) -> Sample {
    let file = file(Vec::new());
    let range = |(from, to): &(u64, u64)| ByteRange { start: from * BLOCK, end: to * BLOCK };
    let moves = HashMap::from([(file.layout.file, moves.iter().map(range).collect())]);
    let whole = ByteRange { start: 0, end: 8 * BLOCK };
    Sample {
        files: vec![file],
        runs: vec![Run {
            device: 7,
            in_flight: InFlight::Always(in_flight),
            reads: vec![read(whole); 10],
        }],
        devices: vec![device()],
        loads: BTreeMap::from([(7, ObservedLoad::default())]),
        settings: Settings::default(),
        moves,
        one_more: BTreeMap::new(),
        recorded: 10,
        data_bytes: 0,
    }
}

#[test]
fn planned_ranges_are_predicted_in_one_extent_and_others_as_they_are() {
    let extents = |moves: &[(u64, u64)]| {
        let sample = sample(moves, 1);
        sample.moved(&sample.files[0]).extents().len()
    };
    assert_eq!((extents(&[]), extents(&[(0, 8)]), extents(&[(2, 5)])), (8, 1, 6));
    assert_eq!(extents(&[(0, 4), (4, 8)]), 2, "each range has a donor of its own");
    let (before, after) = sample(&[(0, 8)], 1).predicted();
    assert!(after > 0.0 && before > 4.0 * after, "{before} {after}");
    assert_eq!(sample(&[], 1).predicted().1, before);
    // A card does one at a time, whatever is in flight.
    let deep = sample(&[(0, 8)], 8).predicted();
    assert!((deep.0 / before - 1.0).abs() < 0.01, "{deep:?} {before}");
}

/// A drive on which requests overlap, that was probed: 100 us for a request, and 1 us for each neighbour more.
fn drive() -> Device {
    let cost = |request_bytes, in_flight: u32| RequestCost {
        request_bytes,
        in_flight,
        burst_ns: 100_000 + 5_000 * u64::from(in_flight - 1),
        interval_ns: 100_000 / u64::from(in_flight),
        split_ns: (in_flight > 1).then(|| 100_000 + 1_000 * u64::from(in_flight - 1)),
        stream_ns: None,
    };
    let reads = [4096, 65536].into_iter().flat_map(|bytes| [1, 8, 32].map(|n| cost(bytes, n)));
    let cost = CostModel::new(CostSource::Probed, reads.collect(), Vec::new()).unwrap();
    let profile = DeviceProfile { cost, ..DeviceProfile::unknown() };
    Device { profile, ..device() }
}

#[test]
fn what_fragments_cost_is_what_reads_last_longer_than_in_one_piece() {
    let sample = |device| Sample { devices: vec![device], data_bytes: 1 << 20, ..sample(&[], 1) };
    let timed = |seconds: &[f64], others_bytes, control_s: f64| {
        let rounds = Rounds { seconds: seconds.to_vec(), clock: MeasuredBy::Wall, others_bytes };
        let one_more = sample(drive()).one_more(&rounds, |_| Ok(control_s));
        one_more.map(|found| found[&7].ns).map_err(|why| why.detail)
    };
    // Ten reads in eight requests; in one piece each would last 100 us.
    let ns = timed(&[0.0017; 3], 0, 0.001).unwrap();
    assert!((ns - 10_000.0).abs() < 1.0, "{ns}");
    assert_eq!(timed(&[0.00103; 3], 0, 0.001), Ok(0.0), "as exact as the model");
    assert!(timed(&[0.0008; 3], 0, 0.001).unwrap() < 0.0);
    for (seconds, others, control, why) in [
        (0.0017, 1 << 19, 0.001, "other programs"),
        (0.0017, 0, 0.0013, "as when the device was probed"),
        (0.0017, 0, 0.0007, "as when the device was probed"),
        (0.2, 0, 0.001, "more than reads of their own"),
        (f64::INFINITY, 0, 0.001, "leave"),
    ] {
        let found = timed(&[seconds; 3], others, control);
        let told = found.clone().is_err_and(|told| told.contains(why) || why == "leave");
        assert!(told, "{seconds} {others} {control}: {found:?}");
    }
    assert!(timed(&[0.0012, 0.0017, 0.0022], 0, 0.001).unwrap_err().contains("differ"));
    // Where it does not matter, and where few reads cross a break.
    let rounds = Rounds { seconds: vec![0.0017; 3], clock: MeasuredBy::Wall, others_bytes: 0 };
    assert!(sample(device()).one_more(&rounds, |_| Ok(0.001)).is_err());
    let mut few = sample(drive());
    let one = ByteRange { start: 0, end: BLOCK };
    few.runs[0].reads.extend([read(one); 500]);
    let why = few.one_more(&rounds, |_| Ok(0.051)).unwrap_err().detail;
    assert!(why.contains("too few"), "{why}");
}

#[test]
fn a_trace_of_endless_reads_is_drawn_from_in_bounds() {
    let long = Access {
        count: u32::MAX,
        length: u32::MAX,
        ..access(&read(ByteRange { start: 0, end: 1 }))
    };
    let mut file = file(vec![long; 100_000]);
    file.layout = Layout::new(file.layout.file, 1 << 40);
    for most in [0, 1 << 12, MOST_DRAWN] {
        let drawn = fetched(0, &file, Basis::MissesRecorded, most);
        assert!((1..=most.max(MOST_READS)).contains(&drawn.len()), "{}", drawn.len());
    }
}

#[test]
fn what_reached_the_device_is_replayed_within_limits() {
    let seen = |op, is_direct, at: u64, bytes: u32| Access {
        op,
        direct: is_direct,
        length: bytes,
        ..access(&read(ByteRange { start: at, end: at + 1 }))
    };
    let accesses = vec![
        seen(Op::Read, false, 0, 100),
        seen(Op::Miss, false, 0, 100),
        seen(Op::Read, true, 3 * BLOCK, 4096),
        seen(Op::Write, true, 0, 4096),
        seen(Op::Read, true, 7 * BLOCK, 1 << 20),
    ];
    let blocks = |basis| -> Vec<(u64, u64)> {
        let ranges = fetched(0, &file(accesses.clone()), basis, MOST_DRAWN);
        ranges.into_iter().map(|r| (r.range.start / BLOCK, r.range.end / BLOCK)).collect()
    };
    assert_eq!(blocks(Basis::MissesRecorded), [(0, 1), (3, 4), (7, 8)]);
    // Without misses the page cache is imitated, with its readahead.
    let imitated = blocks(Basis::AssumedCold);
    assert!(imitated.len() == 3 && imitated[0].1 >= 1, "{imitated:?}");
    let range = ByteRange { start: 0, end: 1 << 20 };
    let mut runs =
        vec![Run { device: 7, in_flight: InFlight::Always(1), reads: vec![read(range); 100] }];
    limit(&mut runs);
    assert_eq!(runs[0].reads.len() as u64, MOST_BYTES >> 20);
}

/// A page at a random place, its first window, and two that are begun ahead, of a file of 1 MiB on flash; twice.
fn sequences(thread: u32) -> Vec<Access> {
    let miss = |(at, blocks): (u64, u64)| {
        let range = ByteRange { start: at * BLOCK, end: (at + blocks) * BLOCK };
        Access { thread, ..access(&Read { missed: true, ..read(range) }) }
    };
    [(40, 1), (41, 4), (45, 8), (53, 16), (4, 1), (5, 4), (9, 7), (16, 12)].map(miss).to_vec()
}

fn drawn(accesses: Vec<Access>, ordered: bool, depth: f64) -> Vec<Run> {
    let flash = CostModel::guessed(DeviceKind::Nvme);
    let profile = DeviceProfile { cost: flash, ..DeviceProfile::unknown() };
    let device = Device { profile, ..device() };
    let mut layout = Layout::new(FileId { device: 7, inode: 12, generation: 1 }, 256 * BLOCK);
    let (length, kind) = (256 * BLOCK, ExtentKind::Data);
    layout.push(Extent { logical: 0, physical: 0, length, kind });
    let file = SurveyedFile::new("/mnt/file".into(), layout, accesses, &device);
    let basis = Basis::MissesRecorded;
    let (files, devices) = (&[file][..], &[device][..]);
    let source = Source { files, devices, basis, ordered, depth, most_in_flight: 32 };
    draw(&source, &mut Rng::with_seed(1)).0
}

#[test]
fn what_one_thread_read_is_replayed_as_it_was_in_flight() {
    let runs = drawn(sequences(1), true, 1.6);
    assert_eq!((runs.len(), runs[0].in_flight), (1, InFlight::AsRead));
    let starts: Vec<u64> = runs[0].reads.iter().map(|r| r.range.start / BLOCK).collect();
    assert_eq!(starts, [40, 41, 45, 53, 4, 5, 9, 16]);
    assert_eq!(runs[0].places(), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!((runs[0].in_flight_before(), runs[0].depth()), (4, 1.5));
    // Of two threads, out of order, with more in flight than one thread has, or one read at a time, it is not known, or does
    // not matter.
    let two = [sequences(1), sequences(2)].concat();
    for runs in [
        drawn(two, true, 1.6),
        drawn(sequences(1), false, 1.6),
        drawn(sequences(1), true, 4.0),
        drawn(sequences(1), true, 1.0),
    ] {
        assert!(runs.iter().all(|run| run.in_flight != InFlight::AsRead), "{runs:?}");
    }
}

#[test]
fn what_was_in_flight_while_one_thread_read_is_predicted_so() {
    let mut sample = sample(&[], 1);
    let cost = |bytes, in_flight, ns| RequestCost {
        request_bytes: bytes,
        in_flight,
        burst_ns: ns,
        interval_ns: ns / u64::from(in_flight),
        split_ns: (in_flight > 1).then_some(ns),
        stream_ns: (in_flight == 2).then_some(1_000),
    };
    let figures = [(BLOCK, 1), (BLOCK, 2), (64 * BLOCK, 1), (64 * BLOCK, 2)];
    let figures = figures.map(|(bytes, n)| cost(bytes, n, 10_000 * u64::from(n))).to_vec();
    sample.devices[0].profile.cost =
        CostModel::new(CostSource::Probed, figures, Vec::new()).unwrap();
    sample.files[0].layout = Layout::new(sample.files[0].layout.file, 256 * BLOCK);
    let (length, kind) = (256 * BLOCK, ExtentKind::Data);
    sample.files[0].layout.push(Extent { logical: 0, physical: 0, length, kind });
    sample.runs = drawn(sequences(1), true, 1.6);
    // Four of the eight are waited for by themselves, four are in a stream; the parts in one piece are all by themselves.
    let seconds = 4.0 * 10e-6 + 4.0 * 1e-6;
    assert!((sample.predicted().0 - seconds).abs() < 1e-9, "{:?}", sample.predicted());
    let pieces = sample.in_one_piece();
    let as_it_is = |file: &SurveyedFile| file.layout.clone();
    let pieces = sample.bill(&pieces, &as_it_is, BTreeMap::new()).seconds();
    assert!((pieces - 8.0 * 10e-6).abs() < 1e-9, "{pieces}");
}
