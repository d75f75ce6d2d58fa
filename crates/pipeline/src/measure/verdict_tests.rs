//! Verdicts: for which ranges is predicted, and when a share of the prediction is no news.

use super::*;
use crate::measure::sample::tests::sample;
use fragmend_apply::measurement::{MeasuredBy, NotMeasured};
use fragmend_apply::{Outcome, Receipt};
use fragmend_layout::FileId;
use fragmend_plan::{Plan, PlannedFile, PlannedRange, Settings, Survey};
use std::path::Path;

/// A plan of two ranges of the file of [`sample`], of which the first saves twice as much as the second.
pub(in crate::measure) fn plan() -> Plan {
    let range = |offset: u64, seconds_saved: f64| PlannedRange {
        offset,
        length: 16384,
        extents: 4,
        seen: 1,
        requests_before: 4,
        requests_after: 1,
        seconds_saved,
        space_cost_bytes: 0,
        slow_at: None,
        reason: String::new(),
    };
    let mut plan = fragmend_plan::make(Survey::default(), &Settings::default());
    (plan.summary.seconds_before, plan.summary.seconds_after) = (3.0, 2.9);
    plan.files = vec![PlannedFile {
        path: Path::new("/mnt/file").into(),
        file: FileId { device: 7, inode: 12, generation: 1 },
        size: 32768,
        ranges: vec![range(0, 2.0), range(16384, 1.0)],
    }];
    plan
}

fn receipt(plan: &Plan, range: usize, outcome: Outcome) -> Receipt {
    let file = &plan.files[0];
    Receipt::blank(file.path.clone(), &file.ranges[range], outcome, Some(4))
}

/// These ranges of the plan, after a receipt for each.
pub(in crate::measure) fn moved(plan: &Plan, ranges: &[usize]) -> Moved {
    let mut moved = Moved::default();
    for range in 0..plan.files[0].ranges.len() {
        let outcome = if ranges.contains(&range) { Outcome::Moved } else { Outcome::Skipped };
        moved.note(&receipt(plan, range, outcome));
    }
    moved
}

fn rounds(seconds: &[f64]) -> Rounds {
    Rounds { seconds: seconds.to_vec(), clock: MeasuredBy::Wall, others_bytes: 0 }
}

/// Ten reads of the file, with both ranges planned.
fn found(ranges: &[usize], before: Rounds, after: Rounds) -> Measurement {
    let (mut sample, plan) = (sample(&[(0, 4), (4, 8)], 1), plan());
    sample.data_bytes = 1 << 20;
    replayed(&mut sample, &plan, &moved(&plan, ranges), Ok(before), Ok(after))
}

#[test]
fn of_two_receipts_of_a_range_the_later_one_counts() {
    let plan = plan();
    let mut moved = moved(&plan, &[0, 1]);
    assert_eq!((moved.ranges(&plan), moved.share(&plan)), (2, 1.0));
    moved.note(&receipt(&plan, 0, Outcome::Skipped));
    assert_eq!((moved.ranges(&plan), moved.share(&plan)), (1, 1.0 / 3.0));
    let elsewhere = Path::new("/mnt/else").into();
    moved.note(&Receipt { path: elsewhere, ..receipt(&plan, 0, Outcome::Moved) });
    assert_eq!(moved.ranges(&plan), 1);
}

#[test]
fn what_was_not_moved_is_not_predicted() {
    let of = |ranges: &[usize]| found(ranges, rounds(&[0.1; 3]), rounds(&[0.05; 3]));
    let (all, half, none) = (of(&[0, 1]), of(&[1]), of(&[]));
    let saved = [&all, &half, &none].map(|found| found.predicted.unwrap().seconds_saved);
    assert!((saved[1] / saved[0] - 0.5).abs() < 0.05, "{saved:?}");
    assert_eq!(saved[0], saved[2], "where nothing was moved there is nothing beside it");
    let ranges = [&all, &half, &none].map(|found| (found.predicted_ranges, found.planned_ranges));
    assert_eq!(ranges, [(2, 2), (1, 2), (2, 2)]);
    let share = half.saved_of_predicted.unwrap();
    assert!((share - 0.05 / saved[1]).abs() < 1e-9, "{share}");
}

#[test]
fn rounds_that_differ_by_more_than_they_save_give_no_verdict() {
    let predicted = found(&[0, 1], rounds(&[1.0; 3]), rounds(&[1.0; 3])).predicted.unwrap();
    let saved = predicted.seconds_saved;
    let verdict = |before: [f64; 3], after: [f64; 3]| {
        let scaled = |seconds: [f64; 3]| rounds(&seconds.map(|s| s * saved));
        let found = found(&[0, 1], scaled(before), scaled(after));
        assert!(found.measured.is_some() && found.noise.is_some());
        assert_eq!(found.no_verdict.is_some(), found.saved_of_predicted.is_none());
        assert_eq!(found.no_verdict.is_some(), !found.detail.is_empty());
        found.saved_of_predicted.ok_or_else(|| found.no_verdict.unwrap())
    };
    let share = verdict([1.2, 1.2, 1.3], [0.2; 3]).unwrap();
    assert!((share - 1.0).abs() < 1e-9, "{share}");
    // Something holds the drive in the rounds before the move: 1209 ms and 9 ms, and rounds that differ by 165 %.
    let noise = Err(NoVerdict::Noise);
    assert_eq!(verdict([0.01, 0.37, 0.62], [0.003; 3]), noise);
    assert_eq!(verdict([1.0, 1.2, 1.4], [0.6, 1.0, 1.2]), noise, "both differ");
    // Nothing is saved, and that is certain.
    let share = verdict([0.02, 0.03, 0.04], [0.03, 0.04, 0.05]).unwrap();
    assert!((share + 0.01).abs() < 1e-9, "{share}");
}

#[test]
fn reads_beside_other_programs_give_no_verdict() {
    let busy = |others_bytes| Rounds { others_bytes, ..rounds(&[0.1; 3]) };
    let verdict = |before, after| found(&[0, 1], busy(before), busy(after)).no_verdict;
    assert_eq!(verdict(700 << 10, 700 << 10), None);
    assert_eq!(verdict(800 << 10, 0), Some(NoVerdict::OtherPrograms));
    assert_eq!(verdict(0, 800 << 10), Some(NoVerdict::OtherPrograms));
}

#[test]
fn rounds_of_two_clocks_are_not_compared() {
    let served = Rounds { clock: MeasuredBy::Served, ..rounds(&[0.1; 3]) };
    let found = found(&[0, 1], rounds(&[0.2; 3]), served);
    assert_eq!((found.measured, found.not_measured), (None, Some(NotMeasured::ClocksDiffer)));
}
