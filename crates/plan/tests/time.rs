//! Plans in time: `gain` against FragPicker's policy at the same bytes and at the same time, on any file, load and device.

mod support;

use fragmend_layout::{Access, CostModel, DeviceKind, Layout};
use fragmend_plan::{Policy, Settings, Why, make, with_curve};
use proptest::prelude::*;
use support::*;

/// Bytes written and seconds saved by a policy within a budget.
fn outcome(
    layout: &Layout,
    accesses: &[Access],
    cost: &CostModel,
    policy: Policy,
    budget: Option<u64>,
) -> (u64, f64) {
    let summary = planned(layout, accesses, cost, policy, budget).summary;
    (summary.bytes_to_move, summary.seconds_saved)
}

/// The fewest bytes with which `gain` saves so many seconds, to a 64th of the file.
fn fewest_bytes(layout: &Layout, accesses: &[Access], cost: &CostModel, seconds: f64) -> u64 {
    let step = layout.size / 64;
    let budgets = (1..=64).map(|n| n * step);
    let enough = |budget: &u64| {
        outcome(layout, accesses, cost, Policy::Gain, Some(*budget)).1 >= seconds * (1.0 - 1e-9)
    };
    budgets.into_iter().find(enough).unwrap_or(u64::MAX)
}

/// Holds `gain` against FragPicker's policy: at the bytes of `budget`, and at what that saves.
fn compare(name: &str, layout: &Layout, accesses: &[Access], cost: &CostModel, budget: u64) {
    let theirs = outcome(layout, accesses, cost, Policy::Fragpicker, Some(budget));
    let ours = outcome(layout, accesses, cost, Policy::Gain, Some(theirs.0));
    assert!(theirs.1 > 0.0 && ours.0 <= theirs.0, "{name}: {theirs:?}, {ours:?}");
    let times = ours.1 / theirs.1;
    let part = fewest_bytes(layout, accesses, cost, theirs.1) as f64 / theirs.0 as f64;
    println!("{name}: {times:.2} times the time at the same bytes, {part:.2} of the bytes");
    assert!(times >= 1.5, "{name}: {times:.2} times the time of {theirs:?}");
    assert!(part <= 0.6, "{name}: {part:.2} of the bytes of {theirs:?}");
}

/// FragPicker's file (SOSP'21, section 5.2): thirty-two extents of 4 KiB, then one of 128 KiB.
fn fragpickers_file(bytes: u64) -> Layout {
    let group = (0..33).map(|n| if n < 32 { 4 * KIB } else { 128 * KIB });
    scattered((0..bytes / (256 * KIB)).flat_map(|_| group.clone()))
}

#[test]
fn a_large_fragment_beside_many_small_ones_is_not_moved() {
    // A request of 256 KiB needs 33 fragments: the small half of it moves, and one break is left.
    let file = fragpickers_file(32 * MIB);
    let reads: Vec<Access> = (0..128).map(|n| read(n * 256 * KIB, 256 * KIB, 1)).collect();
    compare("FragPicker's file, 256 KiB", &file, &reads, &serial(), 16 * MIB);
}

#[test]
fn windows_with_many_breaks_go_before_equally_hot_ones_with_few() {
    // A log that was appended to by small writes now and then: every eighth window is in 32 fragments, others in two.
    let window = |n: u64| if n % 8 == 7 { vec![4 * KIB; 32] } else { vec![64 * KIB; 2] };
    let file = scattered((0..256).flat_map(window));
    let mut random = Random(11);
    let reads: Vec<Access> =
        (0..2000).map(|_| read(random.below(256) * 128 * KIB, 128 * KIB, 1)).collect();
    compare("a log, uniform reads", &file, &reads, &serial(), 8 * MIB);
}

#[test]
fn what_overlaps_on_the_device_is_not_moved() {
    // Eight requests are as quick as one: of 32 fragments all but eight have to be joined, not all.
    let file = scattered(vec![4 * KIB; 32 * 64]);
    let mut random = Random(5);
    let reads: Vec<Access> =
        (0..64).map(|n| read(n * 128 * KIB, 128 * KIB, 1 + random.below(4) as u32)).collect();
    let whole = outcome(&file, &reads, &eight_abreast(), Policy::Fragpicker, None);
    let ours = outcome(&file, &reads, &eight_abreast(), Policy::Gain, None);
    assert!((ours.1 - whole.1).abs() < 1e-9, "{ours:?}, {whole:?}");
    assert!(ours.0 * 100 <= whole.0 * 80, "{ours:?}, {whole:?}");
    // Half of the bytes save two of three turns, where FragPicker's windows have saved three of half of the reads.
    let budget = Some(whole.0 / 2);
    let theirs = outcome(&file, &reads, &eight_abreast(), Policy::Fragpicker, budget);
    let ours = outcome(&file, &reads, &eight_abreast(), Policy::Gain, budget);
    assert!(ours.1 > 1.1 * theirs.1, "{ours:?}, {theirs:?}");
}

#[test]
fn what_saves_nothing_after_all_is_left_out() {
    // The second request costs a millisecond, further ones nothing: to join a part of a read's fragments is useless,
    // whatever an equal part of the cost for each break would be.
    let second = model(|_, n| if n == 1 { [100_000, 100_000] } else { [1_100_000, 10_000] });
    // A read of two short fragments and a long one, and another that overlaps it. Behind them the same fragments, of
    // which the short ones are read often and all of them once: FragPicker's window is all of them.
    let file = scattered([4 * KIB, 4 * KIB, MIB, 4 * KIB, 4 * KIB, MIB]);
    let behind = MIB + 8 * KIB;
    let reads = [
        read(0, MIB, 10),
        read(4 * KIB, 4 * KIB, 1),
        read(behind, 8 * KIB, 10),
        read(behind, MIB, 1),
    ];
    // 8 KiB are worth half of a part, and 1 MiB is not worth the whole.
    let settings = Settings { min_gain_s_per_gib: Some(20.0), ..Settings::default() };
    let plan = make(survey(&file, &reads, &second), &settings);
    let ranges: Vec<_> = plan.files[0].ranges.iter().map(|r| (r.offset, r.length)).collect();
    assert_eq!(ranges, [(behind, 8 * KIB)]);
    let paid = |r: &fragmend_plan::PlannedRange| {
        r.seconds_saved >= 20.0 * r.length as f64 / f64::from(1 << 30)
    };
    assert!(plan.files.iter().flat_map(|f| &f.ranges).all(paid));
}

const GB: u64 = 1_000_000_000;

#[test]
fn on_a_disk_distance_counts() {
    let disk = CostModel::guessed(DeviceKind::Disk);
    // Two reads, of two fragments each: those of one are near each other, those of the other 400 GB apart.
    let near = [10 * GB, 10 * GB + 128 * KIB];
    let file = placed(&[near[0], near[1], 50 * GB, 450 * GB]);
    let reads = [read(0, 128 * KIB, 100), read(128 * KIB, 128 * KIB, 100)];
    let of = |budget| planned(&file, &reads, &disk, Policy::Gain, budget);
    let one = of(Some(128 * KIB));
    assert_eq!(one.files[0].ranges[0].offset, 128 * KIB, "{one:?}");
    let seek = disk.seek_ns(0, 400 * GB - 64 * KIB) as f64;
    let expected = 100.0 * (seek + 50_000.0) / 1e9;
    assert!((one.summary.seconds_saved / expected - 1.0).abs() < 1e-3, "{expected}: {one:?}");
    let both = of(None).summary;
    let less = both.seconds_saved - one.summary.seconds_saved;
    let expected = 100.0 * (disk.seek_ns(0, 64 * KIB) as f64 + 50_000.0) / 1e9;
    assert!((less / expected - 1.0).abs() < 1e-3, "{less}, {expected}");
}

#[test]
fn on_a_disk_no_part_of_a_read_goes_far_away() {
    // A hot read of three fragments beside each other, and a rare one of two of them: moved by themselves, these would be
    // a long seek away from the first.
    let disk = CostModel::guessed(DeviceKind::Disk);
    let place = |n: u64| 10 * GB + n * 68 * KIB;
    let file = placed(&[place(0), place(1), place(2)]);
    let reads = [read(0, 192 * KIB, 1000), read(64 * KIB, 128 * KIB, 1)];
    let plan = planned(&file, &reads, &disk, Policy::Gain, None);
    let ranges: Vec<_> = plan.files[0].ranges.iter().map(|r| (r.offset, r.length)).collect();
    assert_eq!(ranges, [(0, 192 * KIB)]);
    // And with space for two of them alone, nothing moves.
    let plan = planned(&file, &reads, &disk, Policy::Gain, Some(128 * KIB));
    assert_eq!((plan.files.len(), plan.summary.why), (0, Some(Why::OverBudget)), "{plan:?}");
}

/// A device that need not make sense but for its figures growing with the number in flight.
fn any_device() -> impl Strategy<Value = CostModel> {
    let step = prop_oneof![Just(0u64), 1u64..200_000];
    let steps = prop::collection::vec(step, 64);
    (1u64..500_000, 0u64..20, steps).prop_map(|(first, byte, steps)| {
        model(|bytes, n| {
            let burst = first + steps[..n as usize - 1].iter().sum::<u64>();
            let burst = burst + byte * bytes * u64::from(n);
            [burst, (burst / u64::from(n)).max(1)]
        })
    })
}

/// Reads of a file of so many blocks.
fn any_reads(blocks: u64) -> impl Strategy<Value = Vec<Access>> {
    let one = (0..blocks, 1..blocks.min(48) + 1, 1u32..20);
    let one = one.prop_map(move |(start, length, count)| {
        read(start * BLOCK, length.min(blocks - start) * BLOCK, count)
    });
    prop::collection::vec(one, 1..40)
}

fn any_file() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![3 => 1u64..4, 1 => 1u64..60], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn gain_never_saves_less_time_for_the_same_bytes(
        (lengths, reads) in any_file().prop_flat_map(|lengths| {
            let blocks = lengths.iter().sum();
            (Just(lengths), any_reads(blocks))
        }),
        cost in any_device(),
        budget in prop::option::of(1u64..200),
        others in prop_oneof![Just(0u64), 1u64..40],
        min_gain in prop_oneof![Just(Some(0.0)), Just(None), (0.0..50.0).prop_map(Some)],
    ) {
        let file = scattered(lengths.iter().map(|blocks| blocks * BLOCK));
        let plan = |policy, budget_bytes| {
            let mut settings = any_gain(policy, budget_bytes);
            settings.min_gain_s_per_gib = min_gain;
            make(deep(survey(&file, &reads, &cost), others), &settings).summary
        };
        let ours = plan(Policy::Gain, budget.map(|blocks| blocks * BLOCK));
        let theirs = plan(Policy::Fragpicker, Some(ours.bytes_to_move));
        // A plan that is not worth it moves nothing, and compares with nothing.
        prop_assert!(ours.seconds_saved >= theirs.seconds_saved * (1.0 - 1e-9), "{ours:?}\n{theirs:?}");
        // With any price, and their bytes to spend.
        let theirs = plan(Policy::Fragpicker, None);
        let settings = any_gain(Policy::Gain, Some(theirs.bytes_to_move));
        let ours = make(deep(survey(&file, &reads, &cost), others), &settings).summary;
        prop_assert!(
            ours.seconds_saved >= theirs.seconds_saved * (1.0 - 1e-9) || !theirs.worth,
            "{ours:?}\n{theirs:?}"
        );
    }

    #[test]
    fn what_is_predicted_is_the_sum_of_the_reads(
        (lengths, reads) in any_file().prop_flat_map(|lengths| {
            let blocks = lengths.iter().sum();
            (Just(lengths), any_reads(blocks))
        }),
        cost in any_device(),
    ) {
        let file = scattered(lengths.iter().map(|blocks| blocks * BLOCK));
        let (plan, curve) = with_curve(survey(&file, &reads, &cost), &any_gain(Policy::Gain, None), true);
        // By the model itself, read by read.
        let expected: f64 = reads
            .iter()
            .map(|r| {
                let (bytes, requests) = (r.range().len(), file.fragments(r.range()));
                let split = fragmend_layout::Split { requests, ..fragmend_layout::Split::whole(bytes) };
                f64::from(r.count) * cost.read_ns(split, 1.0).round() / 1e9
            })
            .sum();
        let before = plan.summary.seconds_before;
        prop_assert!((before - expected).abs() <= 1e-9 * expected.max(1.0), "{before}, {expected}");
        // And after: on a layout on which the ranges have moved.
        let mut moved = Layout::new(file.file, file.size);
        let ranges: Vec<_> = plan.files.iter().flat_map(|f| &f.ranges).map(|r| r.range()).collect();
        let mut at: Vec<u64> = file.breaks().chain([0]).collect();
        at.extend(ranges.iter().flat_map(|r| [r.start, r.end]));
        at.retain(|offset| *offset < file.size);
        at.sort_unstable();
        at.dedup();
        let mut physical = 1 << 50;
        for (n, start) in at.iter().enumerate() {
            let end = at.get(n + 1).copied().unwrap_or(file.size);
            let goes_on = ranges.iter().any(|r| r.start < *start && *start < r.end);
            physical += if goes_on { 0 } else { 1 << 30 };
            let kind = fragmend_layout::ExtentKind::Data;
            moved.push(fragmend_layout::Extent { logical: *start, physical, length: end - start, kind });
            physical += end - start;
        }
        let then = make(survey(&moved, &reads, &cost), &any_gain(Policy::Gain, None)).summary;
        let after = plan.summary.seconds_after;
        prop_assert!((then.seconds_before - after).abs() <= 1e-9 * after.max(1.0), "{then:?}, {after}");
        // The curve ascends, is bounded, and has nothing that is more than all of it.
        prop_assert!(curve.len() <= fragmend_plan::curve::MOST_POINTS + 1);
        prop_assert_eq!((curve[0].bytes, curve[0].seconds_saved), (0, 0.0));
        let ascends = curve.windows(2).all(|p| p[0].bytes < p[1].bytes && p[0].seconds_saved < p[1].seconds_saved);
        prop_assert!(ascends, "{curve:?}");
        prop_assert!(curve.iter().all(|p| p.seconds_saved <= before));
    }
}
