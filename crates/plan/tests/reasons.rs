//! Why a plan is not worth it: each reason on a load that has it, with the cost model given.

mod support;

use fragmend_layout::{Access, CostModel, CostSource, DeviceKind, Op};
use fragmend_plan::{Basis, Part, Plan, Policy, Settings, Survey, Why, make};
use support::*;

/// Sixty-four windows of 128 KiB, each in 32 fragments.
fn fragmented() -> fragmend_layout::Layout {
    scattered(vec![4 * KIB; 32 * 64])
}

fn every_window(count: u32) -> Vec<Access> {
    (0..64).map(|n| read(n * 128 * KIB, 128 * KIB, count)).collect()
}

fn buffered(accesses: Vec<Access>, op: Op) -> Vec<Access> {
    accesses.into_iter().map(|access| Access { direct: false, op, ..access }).collect()
}

fn plan(survey: Survey) -> Plan {
    make(survey, &Settings::default())
}

fn leaves_it(survey: Survey, why: Why) -> Plan {
    let plan = plan(survey);
    let summary = &plan.summary;
    assert_eq!((summary.worth, summary.why), (false, Some(why)), "{}", summary.verdict);
    assert!(summary.verdict.starts_with("not worth it: "), "{}", summary.verdict);
    assert_eq!((summary.bytes_to_move, summary.seconds_saved, plan.files.len()), (0, 0.0, 0));
    assert_eq!(summary.seconds_after, summary.seconds_before);
    plan
}

#[test]
fn what_costs_time_is_mended() {
    let plan = plan(survey(&fragmented(), &every_window(1), &serial()));
    let s = &plan.summary;
    assert!(s.worth && s.why.is_none(), "{}", s.verdict);
    // 32 requests of 500 us each instead of one, 64 times.
    assert!((s.seconds_saved - 64.0 * 31.0 * 500e-6).abs() < 1e-6, "{}", s.seconds_saved);
    assert!((s.seconds_before - s.seconds_after - s.seconds_saved).abs() < 1e-9);
    let ranges: f64 = plan.files.iter().flat_map(|f| &f.ranges).map(|r| r.seconds_saved).sum();
    assert!((ranges - s.seconds_saved).abs() < 1e-9, "{ranges}");
    assert_eq!((s.depth, s.depth_seen, s.basis), (1.0, false, Some(Basis::ImitatedCache)));
}

#[test]
fn reads_from_the_page_cache_weigh_nothing() {
    // 188,000 reads, and none missed.
    let reads = buffered(every_window(3000), Op::Read);
    let seen = |misses| Survey { misses, ..survey(&fragmented(), &reads, &serial()) };
    let s = leaves_it(seen(true), Why::AllFromCache).summary;
    assert_eq!(
        (s.basis, s.seconds_before, s.requests_before),
        (Some(Basis::MissesRecorded), 0.0, 0)
    );
    // Without misses in the trace it is an assumption that they were fetched once.
    let assumed = plan(seen(false)).summary;
    assert_eq!((assumed.basis, assumed.worth), (Some(Basis::ImitatedCache), true));
    // And a cold start can be asked for.
    let settings = Settings { assume_cold: true, ..Settings::default() };
    let cold = make(seen(true), &settings).summary;
    assert_eq!((cold.basis, cold.worth), (Some(Basis::AssumedCold), true));
    assert_eq!(cold.seconds_before, assumed.seconds_before);
    // What did miss counts as often as it did; the reads are its heat.
    let mut missed = reads.clone();
    missed.extend(buffered(every_window(50), Op::Miss));
    let plan = plan(Survey { misses: true, ..survey(&fragmented(), &missed, &serial()) });
    let s = &plan.summary;
    assert!((s.seconds_saved - 50.0 * 64.0 * 31.0 * 500e-6).abs() < 1e-4, "{}", s.seconds_saved);
    assert_eq!(plan.files[0].ranges.iter().map(|r| r.seen).sum::<u64>(), 64 * 3000);
    // The device did reads that may have been of places that were not recorded at the time.
    for (device_reads, why) in [(64 * 30, Why::NotSeenEnough), (64 * 29, Why::AllFromCache)] {
        let thinned = |survey, device_reads| {
            let device_reads = Some(device_reads);
            Survey {
                part: Some(Part { places_ppm: 20_000, place_bytes: MIB, device_reads }),
                ..survey
            }
        };
        let s = leaves_it(thinned(seen(true), device_reads), why).summary;
        assert_eq!(s.verdict.contains("2.0 % of all places"), why == Why::NotSeenEnough, "{s:?}");
        // Ten that were seen stand for 500, and explain ten.
        let mut accesses = reads.clone();
        accesses.push(read(0, 4 * KIB, 500));
        let more = Survey { misses: true, ..survey(&fragmented(), &accesses, &serial()) };
        leaves_it(thinned(more, device_reads + 10), why);
    }
    // No row at all: the recorder has seen no miss, and so no file.
    let nothing = Survey { misses: true, devices: vec![device(serial())], ..Survey::default() };
    leaves_it(nothing, Why::AllFromCache);
}

#[test]
fn nobody_waits_for_buffered_writes() {
    let writes = buffered(every_window(1000), Op::Write);
    for misses in [true, false] {
        let survey = Survey { misses, ..survey(&fragmented(), &writes, &serial()) };
        assert_eq!(leaves_it(survey, Why::AllFromCache).summary.seconds_before, 0.0);
    }
    let direct: Vec<_> =
        every_window(1).into_iter().map(|a| Access { op: Op::Write, ..a }).collect();
    assert!(plan(survey(&fragmented(), &direct, &serial())).summary.worth);
}

#[test]
fn a_plan_says_what_it_did_without() {
    let guess = || CostModel::guessed(DeviceKind::Card);
    let mut survey = deep(support::survey(&fragmented(), &every_window(1), &guess()), 0);
    survey.devices[0].profile.cost_note = Some("with other firmware; probe it again".into());
    let s = plan(survey).summary;
    assert_eq!(s.cost_source, Some(CostSource::Guessed));
    assert_eq!(
        s.cost_note.as_deref(),
        Some(
            "unknown was probed, but with other firmware; probe it again; what unknown answered does not say what reads cost: too few reads reached it"
        )
    );
    let s = plan(support::survey(&fragmented(), &every_window(1), &serial())).summary;
    assert_eq!((s.cost_source, s.cost_note), (Some(CostSource::Probed), None));
}

#[test]
fn a_queue_hides_splits() {
    // The link is what is waited for, in however many requests.
    let wide = model(|bytes, n| {
        let (many, link) = (u64::from(n), bytes / 3);
        [80_000 + many * link, link.max(80_000 / many)]
    });
    let halves = scattered(vec![32 * KIB; 4 * 64]);
    let survey = || survey(&halves, &every_window(100), &wide);
    // One at a time, the requests of a split read last as long as one long one.
    let alone = leaves_it(survey(), Why::DeviceDoesNotCare).summary;
    assert_eq!((alone.depth, alone.depth_seen), (1.0, false));
    // A device whose requests cost time one by one, and none behind others.
    let hidden = model(|bytes, n| {
        let (many, link) = (u64::from(n), bytes / 3);
        [80_000 + many * (link + 10_000), (link + 1).max((80_000 + link) / many / 4)]
    });
    let survey = || support::survey(&halves, &every_window(100), &hidden);
    assert!(plan(survey()).summary.worth);
    let deep = leaves_it(deep(survey(), 31), Why::HiddenBehindTheQueue).summary;
    assert!((deep.depth - 32.0).abs() < 1e-9 && deep.depth_seen, "{}", deep.depth);
}

#[test]
fn what_is_read_once_in_a_while_is_left() {
    // A guessed flash drive: 16 MiB of which one window was read.
    let flash = CostModel::guessed(DeviceKind::Flash);
    let mut reads = every_window(1);
    reads.truncate(1);
    let file = scattered(vec![32 * KIB; 4 * 64]);
    let settings = |min_gain| Settings { min_gain_s_per_gib: min_gain, ..Settings::default() };
    let made = |min_gain| make(survey(&file, &reads, &serial()), &settings(min_gain)).summary;
    assert!(made(None).worth);
    let rare = made(Some(1e6));
    assert_eq!((rare.worth, rare.why), (false, Some(Why::TooRarelyRead)));
    assert!(rare.verdict.contains("1000000.00 s per GiB"), "{}", rare.verdict);
    assert_eq!(rare.min_gain_s_per_gib, 1e6);
    // On flash, four fragments instead of one last as long: the link is what is waited for.
    leaves_it(survey(&file, &every_window(100), &flash), Why::DeviceDoesNotCare);
}

#[test]
fn what_is_contiguous_where_it_is_read_is_left() {
    let reads: Vec<Access> = (0..64).map(|n| read(n * 4 * KIB, 4 * KIB, 9)).collect();
    leaves_it(survey(&fragmented(), &reads, &serial()), Why::NothingFragmented);
}

#[test]
fn wear_is_a_share_of_the_rating() {
    let settings = Settings { rated_writes_bytes: Some(1 << 30), ..Settings::default() };
    let s = make(survey(&fragmented(), &every_window(1), &serial()), &settings).summary;
    assert_eq!(s.rated_share, Some(s.bytes_to_move as f64 / (1u64 << 30) as f64));
    let budget = Settings { budget_bytes: Some(MIB), policy: Policy::Gain, ..settings };
    let s = make(survey(&fragmented(), &every_window(1), &serial()), &budget).summary;
    assert!(s.bytes_to_move <= MIB && s.over_budget_bytes > 0, "{s:?}");
    assert_eq!(s.rated_share, Some(s.bytes_to_move as f64 / (1u64 << 30) as f64));
}
