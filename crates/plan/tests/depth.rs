//! How many reads were in flight while it was recorded does not depend on which files are planned for, nor on where their
//! data is by now.

mod support;

use fragmend_layout::{
    CostModel, DeviceKind, FileAccesses, FileId, Layout, ObservedLoad, ObservedRequests,
};
use fragmend_plan::{RecordedReads, Settings, Summary, Survey, SurveyedFile, make};
use std::collections::BTreeMap;
use support::{BLOCK, DEVICE, KIB, device, placed, read, scattered, survey, survey_in_order};

const GB: u64 = 1_000_000_000;

/// So many requests in so many bursts, when each of which so many others were in flight.
fn load(requests: u64, bytes: u64, bursts: u64, others: u64) -> ObservedLoad {
    let class = ObservedRequests {
        write: false,
        up_to_bytes: bytes.next_power_of_two(),
        up_to_in_flight: 8,
        count: requests,
        bytes: bytes * requests,
        in_flight: 4 * requests,
        total_ns: 100_000 * requests,
    };
    ObservedLoad {
        read_bursts: bursts,
        bursts_before: Some(bursts * others),
        requests: vec![class],
        ..ObservedLoad::default()
    }
}

/// A single program read one file in requests of 32 KiB, six to a read, and another in two to a read, a thousand times each, one read
/// at a time: the load is of both, the plan for one of them; or for the first, which has been mended since. What the trace has of
/// others is not known.
#[test]
fn one_read_at_a_time_is_one_read_at_a_time() {
    let load = load(8000, 32 * KIB, 2000, 0);
    let flash = CostModel::guessed(DeviceKind::Nvme);
    for (name, file) in [
        ("the second file", scattered([32 * KIB; 2])),
        ("the first file, mended since", scattered([192 * KIB])),
    ] {
        let reads = [read(0, file.size, 1000)];
        let mut survey = survey(&file, &reads, &flash);
        survey.loads.insert(DEVICE, load.clone());
        let summary = make(Survey { misses: true, ..survey }, &Settings::default()).summary;
        println!("{name}: depth {:.2}, {}", summary.depth, summary.verdict);
        assert!(summary.depth < 1.1, "{name}: {}", summary.depth);
    }
}

/// A program read two files of 256 KiB, one in 16 requests a read and one in two, each 900 and 100 times, `together` at a
/// time, while so many others were in flight.
fn depths(together: u64, others: u64) -> Vec<f64> {
    let (many, few) = (scattered(vec![16 * KIB; 16]), scattered([128 * KIB; 2]));
    let mended = scattered([256 * KIB]);
    let seen = |inode, count| FileAccesses {
        accesses: vec![read(0, 256 * KIB, count)],
        ..FileAccesses::of(FileId { device: DEVICE, inode, generation: 1 })
    };
    let files = [seen(12, 900), seen(13, 100)];
    let recorded: BTreeMap<u64, RecordedReads> = RecordedReads::by_device(&files);
    let load = load(900 * 16 + 100 * 2, 16 * KIB, 1000 / together, others);
    let device = device(CostModel::guessed(DeviceKind::Nvme));
    let plan = |layouts: [Option<&Layout>; 2]| {
        let file = |(layout, seen): (Option<&Layout>, &FileAccesses)| {
            let mut layout = layout?.clone();
            layout.file = seen.file;
            Some(SurveyedFile::new("/mnt/file".into(), layout, seen.accesses.clone(), &device))
        };
        let survey = Survey {
            files: layouts.into_iter().zip(&files).filter_map(file).collect(),
            devices: vec![device.clone()],
            misses: true,
            loads: BTreeMap::from([(DEVICE, load.clone())]),
            recorded: recorded.clone(),
            ..Survey::default()
        };
        make(survey, &Settings::default()).summary.depth
    };
    let ways = [[Some(&many), Some(&few)], [Some(&many), None], [None, Some(&few)]];
    let after = [[Some(&mended), Some(&mended)], [Some(&mended), None], [None, Some(&mended)]];
    ways.into_iter().chain(after).map(plan).collect()
}

#[test]
fn a_recording_has_one_depth_before_and_after_a_move_and_for_each_of_its_files() {
    // A batch of ten, each of which meets half of the others.
    for (together, others, depth) in [(1, 0, 1.0), (1, 7, 8.0), (10, 0, 5.5), (10, 1, 15.5)] {
        let found = depths(together, others);
        // The mean of several files is rounded.
        assert!(found.iter().all(|d| (d / depth - 1.0).abs() < 1e-9), "{found:?}, {depth}");
    }
}

/// A disk did what the trace has of it, or a little more; the file was in one or in four fragments then, and is in either now.
#[test]
fn others_are_told_from_fragments_that_were_mended_since() {
    let disk = CostModel::guessed(DeviceKind::Disk);
    let apart = placed(&[10 * GB, 20 * GB, 30 * GB, 40 * GB]);
    let whole = placed(&[0, 1, 2, 3].map(|n| 10 * GB + n * 64 * KIB));
    let reads: support::Ranked = (1..=100).map(|rank| (read(0, 256 * KIB, 1), rank)).collect();
    let accesses = reads.iter().map(|(read, _)| *read).collect();
    let seen = FileAccesses { accesses, ..FileAccesses::of(apart.file) };
    let plan = |layout: &Layout, load: ObservedLoad| -> Summary {
        let survey = Survey {
            misses: true,
            loads: BTreeMap::from([(DEVICE, load)]),
            recorded: RecordedReads::by_device(std::slice::from_ref(&seen)),
            ..survey_in_order(layout, reads.clone(), &disk)
        };
        make(survey, &Settings::default()).summary
    };
    let others = |layout, load| {
        plan(layout, load).cost_note.is_some_and(|note| note.contains("other programs"))
    };
    for layout in [&apart, &whole] {
        // Alone, in fragments and in one.
        assert!(!others(layout, load(400, 64 * KIB, 100, 0)));
        assert!(!others(layout, load(100, 256 * KIB, 100, 0)));
        // As many bytes of others, in fewer requests than were the trace's.
        assert!(others(layout, load(200, 256 * KIB, 100, 0)));
    }
    // As many short reads of others as there were reads.
    let mut short = load(100, 256 * KIB, 200, 0);
    short.requests.extend(load(100, BLOCK, 0, 0).requests);
    assert!(others(&whole, short));
}
