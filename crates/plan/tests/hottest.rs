//! Plans from recordings of a part of all places at a time that take the hottest windows promise what these save: what was chosen because
//! it is hot would be without any one of its turns, unless it is as hot as the next.

mod support;

use fragmend_layout::{Access, Op, Recorded};
use fragmend_plan::{Policy, Settings, Survey, Why, make};
use std::collections::BTreeMap;
use support::thinned::{LOWEST, Load, compare, priced, recorded, shuffled, surveyed};
use support::{KIB, MIB, Random, read, scattered, serial, survey};

/// So many direct reads of MiB of one file, each recorded in its turn for 64.
fn in_turns(places: u64, times: u32) -> Survey {
    let file = scattered([32 * KIB; 2048]);
    let mut accesses = Vec::new();
    let mut turns = Vec::new();
    for place in 0..places {
        for n in 0..times {
            accesses.push(read(place * 2 * MIB, MIB, 64));
            turns.push(Recorded { turn: n * 64 + place as u32 % 64, times: 1, most: 0 });
        }
    }
    let mut survey = Survey { misses: true, ..survey(&file, &accesses, &serial()) };
    survey.files[0].recorded = turns;
    survey
}

fn beside_everything(name: &str, thinned: Survey, settings: &Settings) -> [f64; 2] {
    let mut everything = thinned.clone();
    everything.files[0].recorded.clear();
    [thinned, everything].map(|s| {
        let plan = make(s, settings).summary;
        println!("{name}: saved {:.3} s, {}", plan.seconds_saved, plan.verdict);
        plan.seconds_saved
    })
}

fn is_near([promised, everything]: [f64; 2]) {
    assert!((promised / everything - 1.0).abs() < 0.1, "{promised} of {everything}");
}

#[test]
fn one_window_of_a_thousand_turns_and_a_budget_that_fits_all() {
    let settings =
        Settings { policy: Policy::Fragpicker, budget_bytes: Some(1 << 40), ..Settings::default() };
    is_near(beside_everything("fragpicker, 1 TiB", in_turns(1, 1000), &settings));
}

#[test]
fn one_window_of_a_thousand_turns_and_the_hottest_half() {
    let settings = Settings { hot_fraction: 0.5, ..Settings::default() };
    is_near(beside_everything("gain, hottest half", in_turns(1, 1000), &settings));
}

/// Of windows that are as hot as each other, chance says which half is the hottest.
#[test]
fn windows_alike_and_the_hottest_half() {
    let settings = Settings { hot_fraction: 0.5, ..Settings::default() };
    let mut sums = [0.0; 2];
    for seed in 1..=8 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let mut survey = in_turns(32, 6400);
        // Each of 6,400 turns is recorded with a probability of 1/64.
        let kept: Vec<bool> = (0..32 * 6400).map(|_| random.below(64) == 0).collect();
        let mut kept = [kept.clone(), kept].map(Vec::into_iter);
        survey.files[0].accesses.retain(|_| kept[0].next() == Some(true));
        survey.files[0].recorded.retain(|_| kept[1].next() == Some(true));
        let found = beside_everything("gain, hottest half of 32", survey, &settings);
        sums = [sums[0] + found[0], sums[1] + found[1]];
    }
    // As often as each was read, not as the hottest half was recorded.
    let read = 8.0 * 16.0 * 6400.0 * 31.0 * 500e-6;
    println!("{sums:?} of {read}");
    assert!((sums[0] / read - 1.0).abs() < 0.1, "{} of {read}", sums[0]);
}

/// Heat of what programs ask for is not sampled by places at all.
#[test]
fn misses_whose_heat_was_seen_whole() {
    let file = scattered([32 * KIB; 2048]);
    let mut accesses = Vec::new();
    let mut turns = Vec::new();
    for place in 0..16 {
        for n in 0..100 {
            let at = place * 2 * MIB;
            accesses.push(Access { op: Op::Miss, direct: false, ..read(at, MIB, 64) });
            turns.push(Recorded { turn: n * 64 + place as u32, times: 1, most: 0 });
        }
        accesses.push(Access { direct: false, ..read(place * 2 * MIB, MIB, 6400) });
        turns.push(Recorded { turn: 0, times: 6400, most: 0 });
    }
    let mut survey = Survey { misses: true, ..survey(&file, &accesses, &serial()) };
    survey.files[0].recorded = turns;
    let settings = Settings { hot_fraction: 0.5, ..Settings::default() };
    is_near(beside_everything("misses, hottest half", survey, &settings));
}

/// Simulated, with the recorder's own rule: ten hot files, ten thousand cold ones; the hottest are asked for.
#[test]
fn ten_hot_files_among_cold_ones() {
    let hot = (0..10).flat_map(|n| (0..5000).map(move |_| (100_000 + n, 0, 256 * KIB)));
    let cold = (0..10_000).map(|n| (1000 + n, 0, 256 * KIB));
    let reads = shuffled(hot.chain(cold).collect(), 100_000);
    let load = Load { reads, size: |_| 256 * KIB, fragments: &[32 * KIB], cost: serial() };
    let mut shares = Vec::new();
    for (name, settings) in [
        (
            "fragpicker, 1 TiB",
            Settings {
                policy: Policy::Fragpicker,
                budget_bytes: Some(1 << 40),
                ..Settings::default()
            },
        ),
        ("fragpicker, no budget", Settings { policy: Policy::Fragpicker, ..Settings::default() }),
        (
            "fragpicker, 1.25 MiB",
            Settings {
                policy: Policy::Fragpicker,
                budget_bytes: Some(5 * 256 * KIB),
                ..Settings::default()
            },
        ),
        ("gain, hottest 3 %", Settings { hot_fraction: 0.03, ..Settings::default() }),
    ] {
        let found = compare(name, &load, LOWEST, &settings);
        println!("{name}: promised / kept {:.2}", found.promised / found.kept);
        shares.push(found.promised / found.kept);
    }
    assert!(shares.iter().all(|share| (0.8..1.2).contains(share)), "promised of kept: {shares:?}");
}

/// Files that are read three times each, where four reads pay: nothing is to be moved, for the reason that too little was seen.
#[test]
fn a_budget_is_not_blamed_for_what_is_left_to_chance() {
    let what = (0..10_000).flat_map(|n| (0..3).map(move |_| (1000 + n, 0, 256 * KIB)));
    let reads = shuffled(what.collect(), 100_000);
    let load = Load { reads, size: |_| 256 * KIB, fragments: &[32 * KIB], cost: serial() };
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { budget_bytes: Some(20 * MIB), ..priced(4.0, 3.5e-3, 256 * KIB) };
    let files = recorded(&load.reads, LOWEST, 0, &dir.path().join("trace"));
    let summary = make(surveyed(&load, files, &BTreeMap::new()), &settings).summary;
    println!("{:?}: {} (over budget {})", summary.why, summary.verdict, summary.over_budget_bytes);
    assert_eq!(summary.why, Some(Why::NotSeenEnough), "{}", summary.verdict);
}
