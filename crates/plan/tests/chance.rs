//! Plans from recordings of a part of all places at a time choose nothing, and promise nothing, by chance: what most ranges would
//! not pay for, if everything was recorded, is not moved for the few that look as if they did.

mod support;

use fragmend_layout::{Access, CostModel, DeviceKind, Op, Recorded};
use fragmend_plan::{Policy, Settings, Survey, make};
use support::thinned::{Found, LOWEST, Load, Rate, Read, compare, priced, shuffled};
use support::{KIB, MIB, Random, read, scattered, serial, survey};

const FILES: u64 = 10_000;
const BYTES: u64 = 256 * KIB;
/// Seconds that contiguous files save in one read of a file.
const SAVED: f64 = 3.5e-3;

/// So many reads of each file as a whole, in fragments of 32 KiB, in an order that says nothing.
fn reads_of(times: impl Fn(u64) -> u64) -> Load {
    let all = (0..FILES).flat_map(|n| (0..times(n)).map(move |_| (1000 + n, 0, BYTES)));
    let reads = shuffled(all.collect(), 100_000);
    Load { reads, size: |_| BYTES, fragments: &[32 * KIB], cost: serial() }
}

/// From 3000 reads of the first down to two of the last.
fn popular(file: u64) -> u64 {
    (3000.0 / (file as f64 + 1.0).powf(0.8)).ceil() as u64
}

/// A price of so many reads of a file.
fn pays(reads: f64) -> Settings {
    priced(reads, SAVED, BYTES)
}

/// Everything at first, and then the lowest rate, as a recorder does when it finds out what a load costs.
const WHOLE_FIRST: Rate = |ns| if ns < 4_000_000_000 { 0 } else { 6 };

fn assert_kept(Found { promised, kept, cost }: Found) {
    assert!((promised / kept - 1.0).abs() < 0.1, "{promised} and {kept}");
    assert!(kept > cost && cost > 0.0, "{kept} for {cost}");
}

fn assert_nothing(Found { promised, kept, cost }: Found) {
    assert_eq!((promised, kept, cost), (0.0, 0.0, 0.0));
}

#[test]
fn what_pays_is_promised_as_it_is_saved() {
    let ten = reads_of(|_| 10);
    assert_kept(compare("3 reads of each, 1.5 pay", &reads_of(|_| 3), LOWEST, &pays(1.5)));
    assert_kept(compare("10 reads of each, 4 pay", &ten, LOWEST, &pays(4.0)));
    let popular = reads_of(popular);
    assert_kept(compare("popular ones, 8 pay", &popular, LOWEST, &pays(8.0)));
    assert_kept(compare("popular ones, 50 pay", &popular, LOWEST, &pays(50.0)));
    let budget = Settings { budget_bytes: Some(20 * MIB), ..pays(8.0) };
    assert_kept(compare("popular ones, 8 pay, at most 20 MiB", &popular, LOWEST, &budget));
}

#[test]
fn what_does_not_pay_is_not_chosen_by_chance() {
    // A range that was seen in two turns by chance counts as 128 reads.
    assert_nothing(compare("3 reads of each, 4 pay", &reads_of(|_| 3), LOWEST, &pays(4.0)));
    assert_nothing(compare("10 reads of each, 20 pay", &reads_of(|_| 10), LOWEST, &pays(20.0)));
    // One heavy turn among several light ones.
    let load = reads_of(|_| 16);
    assert_nothing(compare("16 reads, whole first, 30 pay", &load, WHOLE_FIRST, &pays(30.0)));
}

#[test]
fn the_hottest_are_not_those_that_look_so_by_chance() {
    let (load, default) = (reads_of(|_| 3), Settings::default());
    for (name, settings) in [
        ("a hundredth", Settings { hot_fraction: 0.02, ..pays(1.5) }),
        (
            "fragpicker",
            Settings { policy: Policy::Fragpicker, hot_fraction: 0.02, ..default.clone() },
        ),
        (
            "fragpicker with a budget",
            Settings { policy: Policy::Fragpicker, budget_bytes: Some(4 * MIB), ..default },
        ),
    ] {
        let found = compare(name, &load, LOWEST, &settings);
        assert!(found.promised <= 1.2 * found.kept, "{found:?}");
    }
}

/// Reads of 64 KiB at multiples of 16 KiB on a disk. What was seen has ends in the middle of what was not, and a way to a moved
/// range and back is longer than what is saved: a plan that moved what was seen made all reads four times as long.
#[test]
fn reads_that_were_not_seen_are_not_torn() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let places = (64 * MIB - 64 * KIB) / (16 * KIB);
    let place = |_| {
        let near = (random.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
        (12, (places as f64 * near.powi(3)) as u64 * 16 * KIB, 64 * KIB)
    };
    let reads: Vec<Read> = shuffled((0..50_000).map(place).collect(), 50_000);
    let disk = CostModel::guessed(DeviceKind::Disk);
    let load = Load { reads, size: |_| 64 * MIB, fragments: &[32 * KIB], cost: disk };
    assert_nothing(compare("overlapping reads, 1/64", &load, LOWEST, &Settings::default()));
    assert_nothing(compare("overlapping reads, 1/8", &load, |_| 3, &Settings::default()));
    let half = compare("overlapping reads, 1/2", &load, |_| 1, &Settings::default());
    assert!(half.kept > half.promised && half.promised > 0.0, "{half:?}");
}

/// What programs ask for through the page cache is watched with pauses: of a window that missed it, they may not have been seen to
/// ask at all.
#[test]
fn what_missed_the_cache_counts_though_nobody_was_seen_to_ask() {
    let miss = Access { op: Op::Miss, direct: false, ..read(0, MIB, 64) };
    let asked = Access { direct: false, ..read(40 * MIB, 4 * KIB, 1) };
    let accesses = [&[miss; 6][..], &[asked]].concat();
    let file = scattered([32 * KIB; 2048]);
    let mut survey = Survey { misses: true, ..survey(&file, &accesses, &serial()) };
    let turns = (1..=7).map(|turn| Recorded { turn, times: 1, most: 64 });
    survey.files[0].recorded = turns.collect();
    let mut everything = survey.clone();
    everything.files[0].recorded.clear();
    let [promised, everything] =
        [survey, everything].map(|s| make(s, &Settings::default()).summary.seconds_saved);
    assert!(
        everything > 1.0 && (promised / everything - 1.0).abs() < 1e-9,
        "{promised} of {everything}"
    );
}
