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
