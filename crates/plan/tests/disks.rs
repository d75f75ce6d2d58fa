//! Plans on disks, where the way from one read to the next counts; and on devices that do not seek, where it is nothing.

mod support;

use fragmend_layout::{
    Access, CostModel, DeviceKind, Extent, ExtentKind, FileId, FsKind, Layout, ObservedLoad,
    ObservedRequests, Op,
};
use fragmend_plan::{
    Device, Plan, Policy, Settings, Summary, Survey, SurveyedFile, make, with_curve,
};
use proptest::prelude::*;
use support::*;

const GB: u64 = 1_000_000_000;

/// The same reads, each where the one before has left the head.
fn in_order(reads: &[Access]) -> Ranked {
    reads.iter().copied().zip(1..).collect()
}

/// Plans for reads of these slots of 64 KiB, one after the other, on a file with extents of 64 KiB at these places.
fn plan(places: &[u64], slots: &[u64], ordered: bool) -> Plan {
    let disk = CostModel::guessed(DeviceKind::Disk);
    let reads: Vec<Access> = slots.iter().map(|n| read(n * 64 * KIB, 64 * KIB, 1)).collect();
    let layout = placed(places);
    let survey = if ordered {
        survey_in_order(&layout, in_order(&reads), &disk)
    } else {
        survey(&layout, &reads, &disk)
    };
    make(survey, &Settings::default())
}

fn ranges(plan: &Plan) -> Vec<(u64, u64)> {
    plan.files.iter().flat_map(|f| &f.ranges).map(|r| (r.offset, r.length)).collect()
}

#[test]
fn breaks_between_reads_are_mended() {
    // No read crosses a break, and between any two is a seek of some rotations.
    let places: Vec<u64> = (0..64).map(|n| 10 * GB + n * 37 % 64 * 300 * KIB).collect();
    let slots: Vec<u64> = (0..64).collect();
    let found = plan(&places, &slots, true);
    assert_eq!(ranges(&found), [(0, 4 * MIB)], "{:?}", found.summary);
    // Nothing but the transfer is left.
    let streamed = 64.0 * (50e-6 + 65_536.0 / 150e6);
    let after = found.summary.seconds_after;
    assert!((after / streamed - 1.0).abs() < 0.02, "{after}, {streamed}");
    assert!(found.summary.seconds_before > 5.0 * after);
    // Without the order there is nothing to see, and the plan says that it is not known.
    let blind = plan(&places, &slots, false);
    assert!(ranges(&blind).is_empty());
    let note = blind.summary.cost_note.expect("a note");
    assert!(note.contains("order of the accesses is not known"), "{note}");
    assert_eq!(found.summary.cost_note, None);
}

#[test]
fn what_is_read_in_order_is_not_torn() {
    // Windows of four extents: every second is broken, the others are not, and all are read one after the other. To move
    // the broken ones alone would send the head away and back for each.
    let near = |n: u64| 10 * GB + n * 68 * KIB;
    let places: Vec<u64> = (0..64)
        .map(|n| if n / 4 % 2 == 0 { near(n) } else { near(n / 4 * 4) + n % 4 * 64 * KIB })
        .collect();
    let disk = CostModel::guessed(DeviceKind::Disk);
    let reads: Vec<Access> = (0..16).map(|n| read(n * 256 * KIB, 256 * KIB, 1)).collect();
    let of = |reads: Ranked| {
        let survey = survey_in_order(&placed(&places), reads, &disk);
        ranges(&make(survey, &Settings { min_gain_s_per_gib: Some(0.0), ..Settings::default() }))
    };
    assert_eq!(of(in_order(&reads)), [(0, 4 * MIB)]);
    // Of reads that follow others, nothing is known.
    assert_eq!(of(reads.into_iter().map(|read| (read, 0)).collect()).len(), 8);
}

#[test]
fn a_stride_is_predicted_with_the_ways_between() {
    // Every third slot of a scattered file.
    let places: Vec<u64> = (0..96).map(|n| 10 * GB + n * 29 % 96 * 200 * KIB).collect();
    let slots: Vec<u64> = (0..32).map(|n| n * 3).collect();
    let found = plan(&places, &slots, true).summary;
    let disk = CostModel::guessed(DeviceKind::Disk);
    let place = |slot: u64| places[slot as usize];
    let way = |pair: &[u64]| disk.seek_ns(place(pair[0]) + 64 * KIB, place(pair[1]));
    let ways: u64 = slots.windows(2).map(way).sum();
    let reads = 32.0 * (50e-6 + 65_536.0 / 150e6);
    let before = ways as f64 / 1e9 + reads;
    assert!((found.seconds_before / before - 1.0).abs() < 1e-3, "{found:?}, {before}");
    // All of the file moves, and the head passes over two slots.
    let after = 31.0 * disk.seek_ns(0, 128 * KIB) as f64 / 1e9 + reads;
    assert!((found.seconds_after / after - 1.0).abs() < 1e-3, "{found:?}, {after}");
}

/// Two files with slots of 64 KiB so far apart, on which reads were done in turns, and what is planned for them.
fn in_turns(places: [u64; 2], apart: u64, settings: &Settings) -> Plan {
    in_turns_on([DEVICE; 2], FsKind::Ext4, places, apart, settings)
}

/// The same, on devices with these numbers.
fn in_turns_on(
    devices: [u64; 2],
    file_system: FsKind,
    places: [u64; 2],
    apart: u64,
    settings: &Settings,
) -> Plan {
    let device = Device { file_system, ..device(CostModel::guessed(DeviceKind::Disk)) };
    let file = |n: u64| {
        let id = FileId { device: devices[n as usize], inode: 100 + n, generation: 1 };
        let layout = placed_in(id, &[0, 1, 2, 3].map(|slot| places[n as usize] + slot * apart));
        let rank = |slot: u64| (2 * slot + n + 1) as u32;
        let read = |slot: u64| (read(slot * 64 * KIB, 64 * KIB, 1), rank(slot));
        ranked(&format!("/mnt/{n}"), layout, (0..4).map(read).collect(), &device)
    };
    let files = vec![file(0), file(1)];
    let devices = devices.map(|number| Device { device: number, ..device.clone() }).to_vec();
    make(Survey { files, devices, ordered: true, ..Survey::default() }, settings)
}

#[test]
fn ways_between_subvolumes_count() {
    let on = |devices, kind| {
        in_turns_on(devices, kind, [10 * GB, 40 * GB], 300 * KIB, &Settings::default()).summary
    };
    let (one, two) = (on([DEVICE; 2], FsKind::Btrfs), on([DEVICE, 8], FsKind::Btrfs));
    let figures = |s: &Summary| (s.seconds_before, s.seconds_after, s.bytes_to_move);
    assert_eq!(figures(&one), figures(&two));
    // Of two file systems on one disk it is not known how far apart they are.
    assert!(on([DEVICE, 8], FsKind::Xfs).seconds_before < 0.5 * one.seconds_before);
}

#[test]
fn the_way_from_one_file_to_another_counts() {
    let disk = CostModel::guessed(DeviceKind::Disk);
    let (places, apart) = ([10 * GB, 40 * GB], 300 * KIB);
    let found = in_turns(places, apart, &Settings::default()).summary;
    let at = |file: usize, slot: u64| places[file] + slot * apart;
    let there = (0..4).map(|slot| disk.seek_ns(at(0, slot) + 64 * KIB, at(1, slot)));
    let back = (0..3).map(|slot| disk.seek_ns(at(1, slot) + 64 * KIB, at(0, slot + 1)));
    let reads = 8.0 * (50e-6 + 65_536.0 / 150e6);
    let before = there.chain(back).sum::<u64>() as f64 / 1e9 + reads;
    assert!((found.seconds_before / before - 1.0).abs() < 1e-3, "{found:?}, {before}");
    // Both files move beside each other: the head goes three slots forward, and three back.
    assert_eq!(found.bytes_to_move, 8 * 64 * KIB, "{found:?}");
    let there = disk.seek_ns(64 * KIB, 256 * KIB);
    let back = disk.seek_ns(5 * 64 * KIB, 64 * KIB);
    let after = (4 * there + 3 * back) as f64 / 1e9 + reads;
    assert!((found.seconds_after / after - 1.0).abs() < 1e-3, "{found:?}, {after}");
    // With one of them alone, the way to the other would be longer than before; and what is contiguous is left where it is.
    let some = Settings { budget_bytes: Some(256 * KIB), ..Settings::default() };
    assert_eq!(in_turns(places, apart, &some).summary.bytes_to_move, 0);
    assert_eq!(in_turns(places, 64 * KIB, &Settings::default()).summary.bytes_to_move, 0);
}

#[test]
fn what_costs_more_than_its_ways_save_does_not_move_with_the_others() {
    const TURNS: u64 = 1000;
    let device = device(CostModel::guessed(DeviceKind::Disk));
    let id = |inode| FileId { device: DEVICE, inode, generation: 1 };
    // Two files that are read in turns, each slot of which is elsewhere.
    let mut files: Vec<SurveyedFile> = (0..2)
        .map(|n| {
            let places: Vec<u64> =
                (0..TURNS).map(|slot| (10 + 30 * n) * GB + slot * 300 * KIB).collect();
            let rank = |slot: u64| (2 * slot + n + 1) as u32;
            let read = |slot: u64| (read(slot * 64 * KIB, 64 * KIB, 1), rank(slot));
            let reads = (0..TURNS).map(read).collect();
            ranked(&format!("/mnt/{n}"), placed_in(id(n), &places), reads, &device)
        })
        .collect();
    // A large one with a break every 64 MiB, of which one block is read in the end.
    const LENGTH: u64 = 64 * MIB;
    let mut large = Layout::new(id(2), 128 * LENGTH);
    for n in 0..128 {
        let (logical, physical) = (n * LENGTH, 100 * GB + n * 2 * LENGTH);
        large.push(Extent { logical, physical, length: LENGTH, kind: ExtentKind::Data });
    }
    let once = vec![(read(0, 4 * KIB, 1), 2 * TURNS as u32 + 1)];
    files.push(ranked("/mnt/large", large, once, &device));
    let survey = Survey { files, devices: vec![device], ordered: true, ..Survey::default() };
    let summary = make(survey, &Settings::default()).summary;
    assert_eq!(summary.bytes_to_move, 2 * TURNS * 64 * KIB, "{summary:?}");
}

/// What a disk has done while a trace was recorded: so many reads.
fn done(reads: u64) -> ObservedLoad {
    let class = ObservedRequests {
        write: false,
        up_to_bytes: 1 << 16,
        up_to_in_flight: 1,
        count: reads,
        bytes: reads << 16,
        in_flight: reads,
        total_ns: reads,
    };
    ObservedLoad { requests: vec![class], read_bursts: reads, ..ObservedLoad::default() }
}

#[test]
fn what_others_read_between_is_not_known() {
    let disk = CostModel::guessed(DeviceKind::Disk);
    let file = placed(&[10 * GB, 20 * GB, 30 * GB, 40 * GB]);
    let reads = in_order(&[0, 1, 2, 3].map(|n| read(n * 64 * KIB, 64 * KIB, 1)));
    let plan = |reads: &Ranked, all: u64| {
        let mut survey = survey_in_order(&file, reads.clone(), &disk);
        survey.loads.insert(DEVICE, done(all));
        make(survey, &Settings::default()).summary
    };
    let alone = plan(&reads, 4);
    let says =
        |note: &Option<String>| note.as_deref().is_some_and(|n| n.contains("other programs"));
    assert!(alone.seconds_saved > 0.0 && !says(&alone.cost_note), "{alone:?}");
    // As many of others, between them.
    let beside = plan(&reads, 8);
    assert_eq!(beside.bytes_to_move, 0, "{beside:?}");
    assert!(says(&beside.cost_note), "{beside:?}");
    // As many of other files of the trace, before them: they are in its order.
    let later = reads.iter().map(|(read, rank)| (*read, rank + 4)).collect();
    assert_eq!(plan(&later, 8).seconds_saved, alone.seconds_saved);
}

#[test]
fn a_buffered_write_does_not_move_the_head() {
    let disk = CostModel::guessed(DeviceKind::Disk);
    let file = placed(&[10 * GB, 20 * GB, 30 * GB]);
    let reads = in_order(&[0, 1, 2].map(|n| read(n * 64 * KIB, 64 * KIB, 1)));
    let write = Access { op: Op::Write, direct: false, ..read(0, 4 * KIB, 1) };
    let between = reads.iter().flat_map(|read| [(write, 0), *read]).collect();
    let seconds = |accesses: &Ranked, misses| {
        let survey = Survey { misses, ..survey_in_order(&file, accesses.clone(), &disk) };
        make(survey, &Settings::default()).summary.seconds_before
    };
    let ways = disk.seek_ns(0, 10 * GB - 64 * KIB) as f64 / 1e9;
    for misses in [false, true] {
        assert_eq!(seconds(&between, misses), seconds(&reads, misses));
        assert!(seconds(&reads, misses) > 2.0 * ways);
    }
}

/// Devices that do not seek.
fn any_flash() -> impl Strategy<Value = CostModel> {
    prop_oneof![
        Just(serial()),
        Just(eight_abreast()),
        Just(CostModel::guessed(DeviceKind::Card)),
        Just(CostModel::guessed(DeviceKind::Flash)),
        Just(CostModel::guessed(DeviceKind::Nvme)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn where_nothing_seeks_the_order_changes_nothing(
        lengths in prop::collection::vec(1u64..40, 1..50),
        raw in prop::collection::vec((0u64..2000, 1u64..48, any::<bool>()), 1..60),
        cost in any_flash(),
        others in prop_oneof![Just(0u64), 1u64..40],
        policy in prop_oneof![Just(Policy::Gain), Just(Policy::Fragpicker), Just(Policy::WholeFile)],
        budget in prop::option::of(1u64..200),
    ) {
        let file = scattered(lengths.iter().map(|blocks| blocks * BLOCK));
        let blocks: u64 = lengths.iter().sum();
        let mut rank = 0;
        let reads: Ranked = raw
            .iter()
            .map(|(start, length, follows)| {
                let start = start % blocks;
                let length = (*length).min(blocks - start);
                rank += if *follows { 1 } else { 2 };
                (read(start * BLOCK, length * BLOCK, 1), rank)
            })
            .collect();
        let unordered: Vec<Access> = reads.iter().map(|(read, _)| *read).collect();
        let settings = any_gain(policy, budget.map(|blocks| blocks * BLOCK));
        let plan = |survey| with_curve(deep(survey, others), &settings, true);
        let ordered = plan(survey_in_order(&file, reads, &cost));
        prop_assert_eq!(ordered, plan(survey(&file, &unordered, &cost)));
    }
}
