//! Slow ranges beside what a policy has chosen, within a budget: they never make a plan save less, and what the budget leaves out is
//! counted once.

mod support;

use fragmend_layout::ByteRange;
use fragmend_plan::{Plan, Policy, Settings, SlowRange, make};
use support::*;

/// A MiB or more that is in one fragment from this place of the device on; the drive needs 1 ms for a MiB, and reading it lasts so many
/// times as long.
fn slow(mib: u64, mibs: u64, physical: u64, times: u64) -> SlowRange {
    SlowRange {
        range: ByteRange::at(mib * MIB, mibs * MIB),
        physical,
        fragments: 1,
        ns: mibs * times * 1_000_000,
        expected_ns: mibs * 1_000_000,
        part_bytes: MIB,
        granularity_bytes: None,
    }
}

/// The plan of a file with fragments of 64 KiB and then one of 7 MiB, of which a MiB is slow.
fn plan(
    fragments: u64,
    reads: &[fragmend_layout::Access],
    times: Option<u64>,
    policy: Policy,
    budget_bytes: Option<u64>,
) -> Plan {
    let file = scattered((0..fragments).map(|_| 64 * KIB).chain([7 * MIB]));
    let mut survey = survey(&file, reads, &serial());
    let (first, place) = (fragments / 16, (fragments + 1) * 64 * MIB);
    survey.files[0].slow =
        times.into_iter().map(|times| slow(first + 1, 1, place + MIB, times)).collect();
    assert!(survey.files[0].slow.iter().all(|slow| slow.is_in(&file)));
    let settings =
        Settings { policy, budget_bytes, min_gain_s_per_gib: Some(0.0), ..Settings::default() };
    make(survey, &settings)
}

/// A read of eight MiB in 128 fragments saves more than a slow MiB, which saves more for its bytes. The budget has space for one of them.
#[test]
fn what_is_slow_displaces_nothing_that_saves_more() {
    let reads = [read(0, 8 * MIB, 1), read(9 * MIB, MIB, 1)];
    let of = |times| plan(128, &reads, times, Policy::Gain, Some(8 * MIB)).summary;
    let (without, with) = (of(None), of(Some(20)));
    assert!(without.bytes_to_move == 8 * MIB && without.seconds_saved > 0.05, "{without:?}");
    assert!(with.seconds_saved >= without.seconds_saved, "{with:?}");
    assert_eq!((with.bytes_to_move, with.over_budget_bytes), (8 * MIB, MIB));
    // It does displace what saves less.
    let slower = of(Some(100));
    assert!((0.098..0.1).contains(&slower.seconds_saved), "{slower:?}");
    assert_eq!((slower.bytes_to_move, slower.over_budget_bytes), (MIB, 8 * MIB));
}

/// What is planned and what the budget leaves out are together what is planned without one.
#[test]
fn what_the_budget_leaves_out_is_counted_once() {
    for policy in [Policy::WholeFile, Policy::Gain] {
        let of = |budget| plan(16, &[], Some(5), policy, budget).summary;
        let all = of(None);
        for mib in 0..10 {
            let some = of(Some(mib * MIB));
            assert!(some.bytes_to_move <= mib * MIB, "{some:?}");
            let sum = some.bytes_to_move + some.over_budget_bytes;
            assert_eq!(sum, all.bytes_to_move, "{policy:?} within {mib} MiB: {some:?}");
        }
    }
}

/// What a read saves in the fragments beside a slow range is not what is saved by that.
#[test]
fn a_slow_range_pays_for_itself() {
    let reads = [read(0, 10 * MIB, 1)];
    let file = scattered((0..128).map(|_| 64 * KIB).chain([7 * MIB]));
    let of = |ns| {
        let mut survey = survey(&file, &reads, &serial());
        survey.files[0].slow = vec![SlowRange { ns, ..slow(9, 1, 129 * 64 * MIB + MIB, 1) }];
        // 5 ms for a MiB.
        let settings = Settings { min_gain_s_per_gib: Some(5.12), ..Settings::default() };
        make(survey, &settings).summary
    };
    let (little, much) = (of(1_300_000), of(8_000_000));
    assert_eq!((little.bytes_to_move, little.slow_bytes), (8 * MIB, 0), "{little:?}");
    assert_eq!((much.bytes_to_move, much.slow_bytes), (9 * MIB, MIB), "{much:?}");
}

/// Any file, reads, slow ranges, policy and budget.
#[test]
fn no_plan_promises_more_than_there_is_or_less_than_without_a_probe() {
    let (mut changed, mut displaced) = (0, 0);
    for seed in 0..400 {
        // SplitMix64.
        let mut state: u64 = seed;
        let mut below = |n: u64| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (z ^ (z >> 31)) % n
        };
        let mut lengths = Vec::new();
        while lengths.iter().sum::<u64>() < 24 * MIB {
            let contiguous = below(3) == 0;
            let many = if contiguous { 1 } else { 16 };
            let length = if contiguous { MIB * (1 + below(6)) } else { 64 * KIB };
            lengths.extend(std::iter::repeat_n(length, many));
        }
        let file = scattered(lengths);
        let size = file.extents().iter().map(|e| e.length).sum::<u64>();
        let mut reads: Vec<_> = (0..1 + below(6))
            .map(|_| {
                let at = below(size / MIB) * MIB;
                read(at, ((1 + below(8)) * 512 * KIB).min(size - at), 1 + below(20) as u32)
            })
            .collect();
        reads.sort_by_key(|read| read.offset);
        let mut slow: Vec<SlowRange> = Vec::new();
        for mib in (0..size / MIB).filter(|_| below(3) == 0).collect::<Vec<_>>() {
            let range = ByteRange::at(mib * MIB, MIB);
            let fragments: Vec<_> = file.fragments_within(range).collect();
            let expected_ns = 10_000_000 + 500_000 * fragments.len() as u64;
            slow.push(SlowRange {
                range,
                physical: fragments[0].physical,
                fragments: fragments.len() as u64,
                ns: expected_ns * (2 + below(9)),
                expected_ns,
                part_bytes: MIB,
                granularity_bytes: None,
            });
        }
        let policy = [Policy::Gain, Policy::WholeFile, Policy::Fragpicker, Policy::Bypass]
            [below(4) as usize];
        let of = |slow: &[SlowRange], budget_bytes| {
            let mut survey = survey(&file, &reads, &serial());
            assert_eq!(survey.files[0].put_slow(slow), 0);
            let settings = Settings {
                policy,
                budget_bytes,
                min_gain_s_per_gib: Some(0.0),
                ..Settings::default()
            };
            make(survey, &settings)
        };
        let budget = (1 + below(16)) * MIB;
        let [all, some, plain] = [of(&slow, None), of(&slow, Some(budget)), of(&[], Some(budget))];
        for plan in [&all, &some] {
            let s = &plan.summary;
            let mut ranges: Vec<_> =
                plan.files.iter().flat_map(|f| &f.ranges).map(|r| r.range()).collect();
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start), "seed {seed}: {s:?}");
            assert!(s.seconds_saved <= s.seconds_before && s.seconds_after >= 0.0, "seed {seed}");
        }
        assert!(some.summary.bytes_to_move <= budget, "seed {seed}");
        let sum = some.summary.bytes_to_move + some.summary.over_budget_bytes;
        assert_eq!(sum, all.summary.bytes_to_move.max(some.summary.bytes_to_move), "seed {seed}");
        let (with, without) = (some.summary.seconds_saved, plain.summary.seconds_saved);
        assert!(with >= without - 1e-9, "seed {seed}: {policy:?} {with} {without}");
        changed += u32::from(with > without);
        displaced += u32::from(some.summary.over_budget_bytes > 0);
    }
    assert!(changed > 100 && displaced > 100, "{changed} {displaced}");
}
