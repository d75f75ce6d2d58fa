//! What a plan says is of all that was waited for, not of the ranges that were seen alone.

mod support;

use fragmend_layout::Recorded;
use fragmend_plan::{Part, Settings, Why, make};
use std::collections::BTreeMap;
use support::thinned::{LOWEST, Load, recorded, saves, shuffled, surveyed, whole};
use support::{KIB, MIB, read, scattered, serial, survey};

/// One file in eight fragments that is read often, among many that are contiguous (they are one fragment long) and read once each.
#[test]
fn less_than_a_hundredth_of_all_time_is_not_worth_it() {
    let often = (0..300).map(|_| (1, 0, 256 * KIB));
    let once = (0..100_000).map(|n| (1000 + n, 0, 32 * KIB));
    let long =
        (0..20).flat_map(|n| (0..6000).map(move |k| (200_000 + n, k % 1000 * 32 * KIB, 32 * KIB)));
    let reads = shuffled(often.chain(once).chain(long).collect(), 100_000);
    fn size(inode: u64) -> u64 {
        match inode {
            1 => 256 * KIB,
            ..200_000 => 32 * KIB,
            _ => 32_000 * KIB,
        }
    }
    let load = Load { reads, size, fragments: &[32 * KIB], cost: serial() };
    let everything = whole(&load.reads);
    let full = make(surveyed(&load, everything.clone(), &BTreeMap::new()), &Settings::default());
    println!("full: {:?} {}", full.summary.why, full.summary.verdict);
    let dir = tempfile::tempdir().unwrap();
    let mut other = 0;
    for seed in 0..8 {
        let files = recorded(&load.reads, LOWEST, seed, &dir.path().join("trace"));
        let plan = make(surveyed(&load, files, &BTreeMap::new()), &Settings::default());
        let s = &plan.summary;
        println!(
            "thinned: {:.2} of {:.2} s, unseen {:.2} of {:.2} s, {:?}: {}; keeps {:.2}",
            s.seconds_saved,
            s.seconds_before,
            s.unseen_seconds_saved,
            s.unseen_seconds_before,
            s.why,
            s.verdict,
            saves(&load, &plan, &everything)
        );
        other += u64::from(s.worth);
    }
    assert_eq!(full.summary.why, Some(Why::DeviceDoesNotCare));
    assert_eq!(other, 0, "of 8 plans this many are worth it");
}

/// A contiguous file was seen once, for 64 reads of which 63 may be of any other; the device did more besides.
#[test]
fn nothing_fragmented_is_known_of_what_was_seen_alone() {
    let file = scattered([256 * KIB]);
    for (times, why) in [(1, Why::NotSeenEnough), (64, Why::NothingFragmented)] {
        let mut survey = survey(&file, &[read(0, 256 * KIB, 64)], &serial());
        survey.misses = true;
        survey.files[0].recorded = vec![Recorded { turn: 5, times, most: 0 }];
        let (places_ppm, device_reads) = (15_625, Some(100_000));
        survey.part = Some(Part { places_ppm, place_bytes: MIB, device_reads });
        let summary = make(survey, &Settings::default()).summary;
        assert_eq!(summary.why, Some(why), "{}", summary.verdict);
    }
}
