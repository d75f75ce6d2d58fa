//! Plans from recordings of a part of all places at a time, beside the plan from a recording of everything: what is promised is
//! what the moved ranges save, and with what was not seen it comes to what the full plan promises.
//!
//! Loads and recordings are simulated, by the rule of `crates/trace/bpf/sampling.h`, from fixed seeds. At a rate of 1/64 a few
//! thousand reads are some dozens, whose number varies by chance: the figures are means over recordings with different hashes.

mod support;

use fragmend_plan::{Settings, make};
use std::collections::BTreeMap;
use support::thinned::{LOWEST, Load, Rate, Read, SEEDS, recorded, saves, surveyed, whole};
use support::{KIB, MIB, Random, serial};

/// Files that are read once each.
const SCANNED: u64 = 10_000;
/// The file that is read again and again.
const HOT: u64 = 12;
const HOT_BYTES: u64 = 128 * MIB;

/// Files in fragments of 32 KiB.
fn load(reads: &[Read]) -> Load {
    let size = |inode| if inode == HOT { HOT_BYTES } else { 256 * KIB };
    Load { reads: reads.to_vec(), size, fragments: &[32 * KIB], cost: serial() }
}

/// Files of 256 KiB, each read once and as a whole, one after the other; two seconds.
fn scan(from_ns: u64) -> impl Iterator<Item = Read> {
    (0..SCANNED).map(move |n| Read {
        time_ns: from_ns + n * 200_000,
        inode: 1000 + n,
        offset: 0,
        length: 256 * KIB,
    })
}

/// Reads of 64 KiB at random places of one file for four seconds.
fn hot(from_ns: u64) -> impl Iterator<Item = Read> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..200_000).map(move |n| Read {
        time_ns: from_ns + n * 20_000,
        inode: HOT,
        offset: random.below(HOT_BYTES / (64 * KIB)) * 64 * KIB,
        length: 64 * KIB,
    })
}

const RATES: [(&str, Rate); 3] = [
    ("1/64", LOWEST),
    ("from 1 down to 1/64", |ns| ((ns / 150_000_000) as u32).min(6)),
    ("down to 1/64 and up again", |ns| match ns / 1_000_000_000 {
        0 => 2,
        1 | 2 => 6,
        3 => 4,
        _ => 1,
    }),
];

/// Checks plans from recordings of a load against the plan from all of it.
fn check(name: &str, reads: &[Read]) {
    let dir = tempfile::tempdir().unwrap();
    let (load, everything) = (load(reads), whole(reads));
    let full = surveyed(&load, everything.clone(), &BTreeMap::new());
    let full = make(full, &Settings::default()).summary;
    assert_eq!((full.unseen_seconds_before, full.worth), (0.0, true), "{}", full.verdict);
    for (rate_name, rate) in RATES {
        let (mut promised, mut kept, mut unseen, mut before) = (0.0, 0.0, 0.0, 0.0);
        for seed in 0..SEEDS {
            let files = recorded(reads, rate, seed, &dir.path().join("trace"));
            let plan = make(surveyed(&load, files, &BTreeMap::new()), &Settings::default());
            let s = &plan.summary;
            promised += s.seconds_saved / SEEDS as f64;
            kept += saves(&load, &plan, &everything) / SEEDS as f64;
            unseen += s.unseen_seconds_saved / SEEDS as f64;
            before += (s.seconds_before + s.unseen_seconds_before) / SEEDS as f64;
            let says_more = s.verdict.contains("ranges that were not recorded");
            assert_eq!(
                says_more,
                s.unseen_seconds_saved > s.seconds_saved / 100.0,
                "{}",
                s.verdict
            );
        }
        println!(
            "{name}, {rate_name}: promised {promised:.2} s, saves {kept:.2} s; besides {unseen:.2} s; all {:.2} s",
            full.seconds_saved
        );
        let close = |what: &str, a: f64, b: f64| {
            assert!((a / b - 1.0).abs() < 0.05, "{name}, {rate_name}: {what}: {a} and {b}");
        };
        close("promised and kept", promised, kept);
        close("all that could be saved", promised + unseen, full.seconds_saved);
        close("all that is waited", before, full.seconds_before);
    }
}

#[test]
fn files_that_are_read_once_each() {
    check("a scan", &scan(0).collect::<Vec<_>>());
}

#[test]
fn one_file_that_is_read_at_random_again_and_again() {
    check("a hot file", &hot(0).collect::<Vec<_>>());
}

#[test]
fn a_scan_after_a_hot_phase() {
    check("a scan after a hot phase", &hot(0).chain(scan(4_000_000_000)).collect::<Vec<_>>());
}

#[test]
fn a_hot_phase_after_a_scan() {
    check("a hot phase after a scan", &scan(0).chain(hot(2_000_000_000)).collect::<Vec<_>>());
}
