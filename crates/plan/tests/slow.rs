//! Ranges that are slow in one fragment: what reads lose in them, when writing them anew is worth it, and how they are planned.

mod support;

use fragmend_layout::{
    Access, ByteRange, CostModel, Layout, ObservedLoad, ObservedRequests, Recorded,
};
use fragmend_plan::{Plan, Policy, Settings, SlowRange, Survey, Why, make, with_curve};
use support::*;

/// A range of a file in one fragment from 64 MiB of the device on; the drive needs 1 ms for a MiB, and reading it lasts so
/// many times as long.
fn slow(mib: u64, mibs: u64, times: u64) -> SlowRange {
    SlowRange {
        range: ByteRange::at(mib * MIB, mibs * MIB),
        physical: (64 + mib) * MIB,
        fragments: 1,
        ns: mibs * times * 1_000_000,
        expected_ns: mibs * 1_000_000,
        part_bytes: MIB,
        granularity_bytes: None,
    }
}

fn surveyed(layout: &Layout, reads: &[fragmend_layout::Access], ranges: &[SlowRange]) -> Survey {
    let mut survey = survey(layout, reads, &eight_abreast());
    survey.files[0].slow = ranges.to_vec();
    survey
}

/// The plan at this price, in seconds per GiB.
fn plan(survey: Survey, price: f64, budget_bytes: Option<u64>) -> Plan {
    let settings =
        Settings { min_gain_s_per_gib: Some(price), budget_bytes, ..Settings::default() };
    make(survey, &settings)
}

/// Offset and length in MiB of the planned ranges, and the place if they are written anew.
fn ranges(plan: &Plan) -> Vec<(u64, u64, Option<u64>)> {
    let all = plan.files.iter().flat_map(|file| &file.ranges);
    let mut all: Vec<_> =
        all.map(|r| (r.offset / MIB, r.length / MIB, r.slow_at.map(|at| at / MIB))).collect();
    all.sort_unstable();
    all
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.001 * b.abs()
}

#[test]
fn one_read_of_the_file_saves_what_was_measured() {
    let file = scattered([48 * MIB]);
    let plan = plan(surveyed(&file, &[], &[slow(16, 8, 5)]), 0.04, None);
    assert_eq!(ranges(&plan), [(16, 8, Some(80))]);
    let summary = &plan.summary;
    assert!(summary.worth && summary.slow_bytes == 8 * MIB, "{summary:?}");
    // Reads of 128 KiB lose nothing for a block of theirs; the model's figures are those of the other reads.
    let lost = 0.032 * (8.0 * 31.0 / 255.0);
    assert!(near(summary.seconds_saved, lost), "{summary:?}");
    let range = &plan.files[0].ranges[0];
    assert!(range.reason.starts_with("slow-inside: in one extent"), "{}", range.reason);
    assert!(range.reason.contains("5.0 times"), "{}", range.reason);
    assert_eq!((range.extents, range.seen), (1, 0));
    assert!(near(summary.seconds_saved, range.seconds_saved), "{summary:?}");
}

#[test]
fn what_is_read_more_often_saves_more() {
    let file = scattered([48 * MIB]);
    let saved = |count| {
        let reads = [read(16 * MIB, MIB, count), read(40 * MIB, MIB, 5)];
        let plan = plan(surveyed(&file, &reads, &[slow(16, 1, 5), slow(30, 1, 9)]), 0.04, None);
        // What is never read is slow for nobody.
        assert_eq!(ranges(&plan), [(16, 1, Some(80))]);
        assert_eq!(plan.files[0].ranges[0].seen, u64::from(count));
        plan.summary.seconds_saved
    };
    assert!(near(saved(1), 0.004) && near(saved(100), 0.4), "{} {}", saved(1), saved(100));
}

#[test]
fn what_was_recorded_in_one_turn_is_promised_once() {
    let file = scattered([48 * MIB]);
    let saved = |turns: [u32; 6]| {
        let mut survey = surveyed(&file, &[read(16 * MIB, MIB, 64); 6], &[slow(16, 1, 5)]);
        let recorded = turns.map(|turn| Recorded { turn, times: 1, most: 64 });
        survey.files[0].recorded = recorded.to_vec();
        plan(survey, 0.04, None).summary.seconds_saved
    };
    assert!(near(saved([7; 6]), 6.0 * 0.004), "{}", saved([7; 6]));
    // In enough turns to be sure.
    let turns = [1, 2, 3, 4, 5, 6];
    assert!(near(saved(turns), 6.0 * 64.0 * 0.004), "{}", saved(turns));
}

#[test]
fn a_short_read_loses_less_than_its_part_and_one_die_nothing() {
    let file = scattered([48 * MIB]);
    let lost = |bytes, granularity_bytes| {
        let range = SlowRange { granularity_bytes, ..slow(16, 1, 5) };
        let reads = [read(16 * MIB, bytes, 1)];
        plan(surveyed(&file, &reads, &[range]), 0.0, None).summary.seconds_saved
    };
    assert_eq!((lost(4 * KIB, None), lost(32 * KIB, Some(32 * KIB))), (0.0, 0.0));
    assert!(near(lost(512 * KIB, None), 0.004 * 127.0 / 255.0), "{}", lost(512 * KIB, None));
    assert!(near(lost(64 * KIB, Some(32 * KIB)), 0.004 / 31.0));
    // A granularity that cannot be is taken for half of the part.
    assert!(near(lost(768 * KIB, Some(u64::MAX)), 0.002));
}

#[test]
fn the_price_and_the_budget_hold_for_it_as_well() {
    let file = scattered([48 * MIB]);
    let of = || surveyed(&file, &[], &[slow(8, 2, 5), slow(20, 16, 2)]);
    // 4 s per GiB, and 1 s.
    assert_eq!(ranges(&plan(of(), 0.5, None)).len(), 3, "cut to what an apply may repeat");
    assert_eq!(ranges(&plan(of(), 2.0, None)), [(8, 2, Some(72))]);
    let none = plan(of(), 5.0, None);
    assert_eq!((ranges(&none), none.summary.why), (Vec::new(), Some(Why::TooRarelyRead)));
    assert_eq!((none.summary.slow_bytes, none.summary.bytes_to_move), (0, 0));
    // What saves most for its bytes comes first; a part of the other fits as well.
    let some = plan(of(), 0.0, Some(10 * MIB));
    assert_eq!(ranges(&some), [(8, 2, Some(72)), (20, 8, Some(84))]);
    assert_eq!(some.summary.over_budget_bytes, 8 * MIB);
    let nothing = plan(of(), 0.0, Some(MIB));
    assert_eq!(nothing.summary.why, Some(Why::OverBudget));
    assert_eq!(nothing.summary.over_budget_bytes, 18 * MIB);
}

#[test]
fn a_move_of_fragments_cures_what_is_slow_in_it() {
    // Sixteen fragments of 64 KiB, and then one of 7 MiB.
    let file = scattered((0..16).map(|_| 64 * KIB).chain([7 * MIB]));
    let mut at = slow(2, 2, 5);
    at.physical = 17 * 64 * MIB + MIB;
    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let surveyed = || {
        let mut survey = survey(&file, &[], &serial());
        survey.files[0].slow = vec![at];
        survey
    };
    let (plan, curve) = with_curve(surveyed(), &settings, true);
    assert_eq!(ranges(&plan), [(0, 8, None)], "once, as an ordinary move");
    assert_eq!(plan.summary.slow_bytes, 0);
    let saved = plan.summary.seconds_saved;
    assert!(saved > 0.0075, "{saved}");
    // Both are points of the curve.
    let most = curve.last().unwrap().seconds_saved;
    assert!(most >= saved * 0.99 && curve.len() > 2, "{curve:?}");
    // By itself, the slow range is written anew, and what is fragmented moves.
    let both = self::plan(surveyed(), 0.0, None);
    assert_eq!(ranges(&both), [(0, 1, None), (2, 2, Some(17 * 64 + 1))]);
}

#[test]
fn what_is_slower_than_its_fragments_explain_moves_though_the_drive_does_not_care_for_these() {
    // Eight fragments of a MiB each, of which eight requests last as long as one.
    let file = scattered((0..8).map(|_| MIB));
    let two = SlowRange { fragments: 2, ..slow(0, 2, 3) };
    assert!(two.is_in(&file));
    let elsewhere = SlowRange { physical: 0, ..two };
    let in_one = SlowRange { fragments: 1, ..two };
    assert!(!elsewhere.is_in(&file) && !in_one.is_in(&file));
    let reads: Vec<_> = (0..64).map(|n| read(n * 128 * KIB, 128 * KIB, 10)).collect();
    let of = |ranges: &[SlowRange]| plan(surveyed(&file, &reads, ranges), 0.04, None);
    assert_eq!(of(&[]).summary.why, Some(Why::NothingFragmented), "no read crosses a break");
    let plan = of(&[two]);
    assert_eq!(ranges(&plan), [(0, 2, None)], "it is in two fragments: an ordinary move");
    assert_eq!((plan.files[0].ranges[0].extents, plan.summary.slow_bytes), (2, 0));
    let lost = 160.0 * 0.002 * (31.0 / 255.0);
    assert!(near(plan.summary.seconds_saved, lost), "{:?}", plan.summary);
    // A part of it that is in one fragment is where that one is.
    let second: Vec<_> = (8..16).map(|n| read(n * 128 * KIB, 128 * KIB, 10)).collect();
    let half = self::plan(surveyed(&file, &second, &[two]), 0.04, None);
    assert_eq!(ranges(&half), [(1, 1, Some(128))]);
}

#[test]
fn what_nobody_reads_of_a_slow_range_stays() {
    let file = scattered([48 * MIB]);
    let read_to = |bytes| {
        let reads = [read(17 * MIB, 2 * MIB, 9), read(20 * MIB, bytes, 9)];
        self::plan(surveyed(&file, &reads, &[slow(16, 8, 5)]), 0.04, None)
    };
    let half = read_to(MIB);
    assert_eq!(ranges(&half), [(17, 4, Some(81))]);
    assert!(near(half.summary.seconds_saved, 9.0 * 3.0 * 0.004), "{:?}", half.summary);
    // Whole blocks.
    assert_eq!(read_to(MIB - 100).files[0].ranges[0].length, 4 * MIB);
}

/// What is promised of a part of a slow range is what its own reads lose.
#[test]
fn what_is_read_often_at_one_end_of_a_slow_range_is_lost_there() {
    let file = scattered([64 * MIB]);
    let reads = [read(0, MIB, 1), read(60 * MIB, MIB, 1000)];
    let within = |budget| plan(surveyed(&file, &reads, &[slow(0, 64, 5)]), 0.0, budget);
    let all = within(None);
    assert!(near(all.summary.seconds_saved, 1001.0 * 0.004), "{:?}", all.summary);
    // The budget has space for an eighth of it.
    let some = within(Some(8 * MIB));
    assert_eq!(ranges(&some), [(56, 5, Some(120))]);
    assert!(near(some.summary.seconds_saved, 4.0), "{:?}", some.summary);
}

#[test]
fn other_reads_in_flight_hide_a_part_of_it() {
    let file = scattered([48 * MIB]);
    let reads = [read(16 * MIB, MIB, 1000)];
    let at = |others| {
        let survey = deep(surveyed(&file, &reads, &[slow(16, 1, 2)]), others);
        plan(survey, 0.0, None).summary
    };
    let (alone, many) = (at(0), at(63));
    assert!(near(alone.seconds_saved, 1.0), "{alone:?}");
    assert!(many.seconds_saved < alone.seconds_saved / 20.0, "{many:?}");
    // On a device that does one after the other, nothing is hidden that was not before.
    let cost: CostModel = serial();
    let mut survey = survey(&file, &reads, &cost);
    survey.files[0].slow = vec![slow(16, 1, 2)];
    assert!(near(plan(survey, 0.0, None).summary.seconds_saved, 1.0));
}

#[test]
fn windows_of_a_stream_do_not_hide_each_other() {
    let file = scattered([8 * MIB]);
    let buffered = |n: u64| Access { direct: false, ..read(n * 128 * KIB, 128 * KIB, 1) };
    let reads: Vec<_> = (0..64).map(buffered).collect();
    // One program reads through the page cache: beside each window, the next one is in flight.
    let windows = ObservedRequests {
        write: false,
        up_to_bytes: 128 * KIB,
        up_to_in_flight: 2,
        count: 64,
        bytes: 8 * MIB,
        in_flight: 128,
        total_ns: 1,
    };
    let (read_bursts, bursts_before) = (64, Some(64));
    let load = ObservedLoad {
        requests: vec![windows],
        read_bursts,
        bursts_before,
        ..ObservedLoad::default()
    };
    let mut survey = surveyed(&file, &reads, &[slow(0, 8, 3)]);
    survey.loads.insert(DEVICE, load);
    let plan = plan(survey, 0.04, None);
    assert_eq!((ranges(&plan), plan.summary.depth), (vec![(0, 8, Some(64))], 2.0));
    // A window of a stream lasts 40 us where it is not slow, and an eighth of 3 ms; the first ones are alone, and lose less.
    let each = 0.003 / 8.0 - 40e-6;
    let lost = plan.summary.seconds_saved / each;
    assert!((60.0..64.0).contains(&lost), "{lost} windows");
}

#[test]
fn what_is_shared_stays_unless_that_is_asked_for() {
    use fragmend_layout::{Extent, ExtentKind};
    let mut file = Layout::new(scattered([MIB]).file, 48 * MIB);
    let kind = ExtentKind::Shared;
    file.push(Extent { logical: 0, physical: 64 * MIB, length: 48 * MIB, kind });
    let of = || surveyed(&file, &[], &[slow(16, 8, 5)]);
    let stays = plan(of(), 0.0, None);
    assert_eq!((ranges(&stays), stays.summary.left_shared_bytes), (Vec::new(), 48 * MIB));
    let settings = Settings { unshare: true, ..Settings::default() };
    let moves = make(of(), &settings);
    assert_eq!(ranges(&moves), [(16, 8, Some(80))]);
    assert_eq!(moves.summary.space_cost_bytes, 8 * MIB);
}
