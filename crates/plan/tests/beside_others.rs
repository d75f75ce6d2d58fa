//! Of a recording of a part of all places at a time, files are judged by themselves as far as they can be: those that pay for
//! certain are moved beside others whose reads a plan would make slower, and these are left as they are, also where there are too few reads to tell.

mod support;

use fragmend_layout::{CostModel, DeviceKind};
use fragmend_plan::{Plan, Settings, make};
use std::collections::BTreeMap;
use support::thinned::{LOWEST, Load, Rate, recorded, saves, shuffled, surveyed, whole};
use support::{KIB, MIB, Random};

fn size(inode: u64) -> u64 {
    if inode == 12 { 64 * MIB } else { 256 * KIB }
}

/// Reads of one file that overlap, as in `chance.rs`: a plan that moves what was seen makes them slower.
fn overlapping(n: u64) -> Vec<(u64, u64, u64)> {
    let mut random = Random(0x1234_5678_9abc_def1);
    let places = (64 * MIB - 64 * KIB) / (16 * KIB);
    let place = |_| {
        let near = (random.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
        (12, (places as f64 * near.powi(3)) as u64 * 16 * KIB, 64 * KIB)
    };
    (0..n).map(place).collect()
}

fn load(files: u64, times: u64, torn: u64, spacing_ns: u64) -> Load {
    let paying = (0..files).flat_map(|n| (0..times).map(move |_| (1000 + n, 0, 256 * KIB)));
    let reads = shuffled(paying.chain(overlapping(torn)).collect(), spacing_ns);
    let cost = CostModel::guessed(DeviceKind::Disk);
    Load { reads, size, fragments: &[32 * KIB], cost }
}

fn only(plan: &Plan, wanted: bool) -> Plan {
    let mut plan = plan.clone();
    plan.files.retain(|f| (f.file.inode == 12) == wanted);
    plan
}

/// What plans from three recordings promise, and what their moves save of the overlapping reads and of the others, in seconds.
fn show(name: &str, load: &Load, rate: Rate) -> Vec<[f64; 3]> {
    let dir = tempfile::tempdir().unwrap();
    let everything = whole(&load.reads);
    let of = |seed| {
        let files = recorded(&load.reads, rate, seed, &dir.path().join("trace"));
        let plan = make(surveyed(load, files, &BTreeMap::new()), &Settings::default());
        let [torn, paying] = [true, false].map(|w| saves(load, &only(&plan, w), &everything));
        let promised = plan.summary.seconds_saved;
        println!("{name}: promised {promised:.1} s; saves {torn:.1} and {paying:.1} s");
        [promised, torn, paying]
    };
    (0..3).map(of).collect()
}

/// Files that pay for certain, beside a file whose reads the plan would make slower.
#[test]
fn nothing_is_made_slower_beside_what_pays() {
    let all = show("40 files, 2000 reads each", &load(40, 2000, 10_000, 50_000), LOWEST);
    for [promised, torn, paying] in all {
        assert!(
            torn >= -0.01 * paying,
            "moves make the overlapping reads {torn} s slower, others save {paying}, promised {promised}"
        );
    }
}

/// What pays is moved though what else was recorded would be made slower.
#[test]
fn what_pays_is_moved_beside_what_would_be_slower() {
    let all = show("10 files, 1000 reads each", &load(10, 1000, 50_000, 50_000), LOWEST);
    for [promised, _, paying] in all {
        assert!(paying > 0.0, "nothing is moved: promised {promised}");
    }
}

/// The overlapping reads alone, few and many, at the lowest rate and at higher ones.
#[test]
fn overlapping_reads_are_not_made_slower_however_few_they_are() {
    let rates: [(&str, Rate, &[u64]); 3] = [
        ("1/64", LOWEST, &[1000, 2000, 4000, 8000, 16_000]),
        ("1/8", |_| 3, &[300, 1000, 2000]),
        ("1/2", |_| 1, &[300, 1000]),
    ];
    for (name, rate, numbers) in rates {
        for n in numbers {
            let load = load(0, 0, *n, 50_000);
            for [promised, torn, _] in show(&format!("{n} alone at {name}"), &load, rate) {
                assert!(promised <= 0.0 || torn >= 0.0, "{n}: {promised} s promised, {torn} saved");
            }
        }
    }
}

/// Reads of whole slots of one file on a disk: what moves ends within the file, but no read crosses there.
#[test]
fn reads_that_do_not_overlap_are_moved() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let slot = |_| (12, random.below(20) * 512 * KIB, 256 * KIB);
    let reads = shuffled((0..10_000).map(slot).collect(), 50_000);
    let load = Load { reads, ..load(0, 0, 0, 50_000) };
    // All of it thinned out; most of it whole, and a little thinned out at the end.
    let rates: [(&str, Rate); 2] =
        [("1/64", LOWEST), ("whole first", |ns| if ns < 450_000_000 { 0 } else { 6 })];
    for (name, rate) in rates {
        for [promised, torn, _] in show(name, &load, rate) {
            assert!(torn > 0.0 && (promised / torn - 1.0).abs() < 0.3, "{promised} of {torn}");
        }
    }
}
