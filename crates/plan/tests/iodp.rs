//! The policy `iodp` (InDeF): what is truncated, in which order ranges are taken, and what is known of dies.

mod support;

use fragmend_layout::{Access, ByteRange, Extent, ExtentKind, FileId, Layout, ParallelUnits};
use fragmend_plan::{Device, Plan, Policy, Settings, Survey, SurveyedFile, make};
use support::{BLOCK, DEVICE, KIB, device, eight_abreast, read};

/// Bytes of a read.
const READ: u64 = 256 * KIB;

/// A file whose n-th read of [`READ`] bytes is in fragments of `lengths[n]` bytes, at places that go round the units of four blocks
/// on sixteen dies.
fn file(lengths: &[u64]) -> Layout {
    file_of(12, lengths)
}

fn file_of(inode: u64, lengths: &[u64]) -> Layout {
    let id = FileId { device: DEVICE, inode, generation: 1 };
    let mut layout = Layout::new(id, lengths.len() as u64 * READ);
    let mut place = 1 << 30;
    for (n, length) in lengths.iter().enumerate() {
        for at in (0..READ).step_by(*length as usize) {
            let logical = n as u64 * READ + at;
            layout.push(Extent {
                logical,
                physical: place,
                length: *length,
                kind: ExtentKind::Data,
            });
            // A gap of all dies: the next fragment is where the next bytes would be.
            place += length + 16 * BLOCK;
        }
        place += READ;
    }
    layout
}

fn planned(
    layout: &Layout,
    accesses: &[Access],
    units: Option<ParallelUnits>,
    settings: Settings,
) -> Plan {
    let mut device: Device = device(eight_abreast());
    device.profile.parallel_units = units;
    let file = SurveyedFile::new("/mnt/file".into(), layout.clone(), accesses.to_vec(), &device);
    let survey = Survey { files: vec![file], devices: vec![device], ..Survey::default() };
    make(survey, &Settings { policy: Policy::Iodp, ..settings })
}

/// The reads that a plan makes contiguous, by their numbers.
fn moved(plan: &Plan) -> Vec<u64> {
    let ranges = plan.files.iter().flat_map(|f| &f.ranges).map(|r| r.range());
    ranges.map(|ByteRange { start, .. }| start / READ).collect()
}

fn truncating(percent: f64) -> Settings {
    Settings { truncate_percent: Some(percent), ..Settings::default() }
}

/// One read of each of so many ranges.
fn once(count: u64) -> Vec<Access> {
    (0..count).map(|n| read(n * READ, READ, 1)).collect()
}

#[test]
fn the_least_fragmented_are_truncated() {
    // File A of section IV: 64 blocks of 4 KiB, two of 128 KiB, and one of 256 KiB, in turn.
    let kinds = [4 * KIB, 128 * KIB, 256 * KIB];
    let lengths: Vec<u64> = (0..30).map(|n| kinds[n % 3]).collect();
    let layout = file(&lengths);
    let plan = |percent| planned(&layout, &once(30), None, truncating(percent));
    let every_third: Vec<u64> = (0..30).step_by(3).collect();
    assert_eq!(moved(&plan(67.0)), every_third);
    // What is in one fragment is never moved, and those in two are not left out any more.
    let two: Vec<u64> = (0..30).filter(|n| n % 3 < 2).collect();
    assert_eq!(moved(&plan(0.0)), two);
    assert_eq!(moved(&plan(30.0)), two);
    assert_eq!(moved(&planned(&layout, &once(30), None, Settings::default())), two);
    assert_eq!(moved(&plan(100.0)), [0u64; 0]);
    let figures = plan(67.0).summary.priorities.unwrap();
    assert_eq!((figures.ranges, figures.truncated, figures.with_dopf), (30, 20, 0));
}

#[test]
fn so_many_of_each_file_are_truncated_and_the_budget_is_for_all() {
    let device = device(eight_abreast());
    let files = [(12, 64 * KIB), (13, 4 * KIB), (14, 32 * KIB)].map(|(inode, length)| {
        // The nearest number of ranges is truncated: one of two, three of five, none of one.
        let lengths = vec![length; [2, 5, 1][inode as usize - 12]];
        let accesses = once(lengths.len() as u64);
        let path = format!("/mnt/{inode}").into();
        SurveyedFile::new(path, file_of(inode, &lengths), accesses, &device)
    });
    let plan = |budget_bytes| {
        let (files, devices) = (files.to_vec(), vec![device.clone()]);
        let survey = Survey { files, devices, ..Survey::default() };
        make(survey, &Settings { policy: Policy::Iodp, budget_bytes, ..truncating(55.0) })
    };
    let by_file = |plan: &Plan| -> Vec<(u64, usize)> {
        let mut all: Vec<_> = plan.files.iter().map(|f| (f.file.inode, f.ranges.len())).collect();
        all.sort_unstable();
        all
    };
    let all = plan(None);
    assert_eq!(by_file(&all), [(12, 1), (13, 2)]);
    let figures = all.summary.priorities.unwrap();
    assert_eq!((figures.ranges, figures.truncated), (8, 1 + 3 + 1));
    assert_eq!(by_file(&plan(Some(2 * READ))), [(13, 2)], "64 fragments before four");
}

#[test]
fn what_is_read_more_often_goes_first_within_the_budget() {
    let layout = file(&[32 * KIB, 64 * KIB, 4 * KIB, 4 * KIB]);
    // Eight fragments five times, four eleven times, 64 once, and 64 that nothing reads.
    let reads = [read(0, READ, 5), read(READ, READ, 11), read(2 * READ, READ, 1)];
    let plan = |budget| {
        let budget_bytes = Some(budget * READ);
        planned(&layout, &reads, None, Settings { budget_bytes, ..truncating(0.0) })
    };
    assert_eq!(moved(&plan(1)), [2]);
    assert_eq!(plan(1).summary.over_budget_bytes, 2 * READ);
    assert_eq!(moved(&plan(2)), [1, 2]);
    assert_eq!(moved(&plan(3)), [0, 1, 2]);
    assert_eq!(plan(3), plan(3));
}

#[test]
fn where_dies_are_known_those_on_few_go_first() {
    // Two reads in as many fragments: of the second, all are on one die of sixteen.
    let id = FileId { device: DEVICE, inode: 12, generation: 1 };
    let mut layout = Layout::new(id, 2 * READ);
    let stripe = 16 * BLOCK;
    for n in 0..64 {
        let physical = (1 << 30) + n * (stripe + BLOCK);
        layout.push(Extent { logical: n * BLOCK, physical, length: BLOCK, kind: ExtentKind::Data });
    }
    for n in 0..64 {
        let (logical, physical) = (READ + n * BLOCK, (1 << 32) + n * stripe);
        layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
    }
    let units = Some(ParallelUnits { units: 16, unit_bytes: BLOCK });
    let one = Settings { budget_bytes: Some(READ), ..truncating(0.0) };
    let known = planned(&layout, &once(2), units, one.clone());
    assert_eq!(moved(&known), [1]);
    assert_eq!(known.summary.priorities.unwrap().with_dopf, 2);
    // Without that, the first of equal ones.
    let unknown = planned(&layout, &once(2), None, one.clone());
    assert_eq!(moved(&unknown), [0]);
    // A DoPF of 240 weighs as much as 60 fragments: (4 * 64 + 240) once are less than 4 * 64 twice.
    let reads = [read(0, READ, 2), read(READ, READ, 1)];
    assert_eq!(moved(&planned(&layout, &reads, units, one)), [0]);
}
