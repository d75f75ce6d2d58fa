//! Services that are watched twice: when their times are compared, and what is predicted beside them.

use super::*;
use crate::measure::verdict::tests::{moved, plan};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A service that read so many MiB, and wrote nothing.
fn seen(ms: u64, mib: u64) -> Seen {
    let done = Done { busy: Duration::from_millis(ms), read_bytes: mib * MIB, written_bytes: 0 };
    let own = Own { read_bytes: Some(mib * MIB), written_bytes: 0 };
    Seen { done, clock: MeasuredBy::Wall, own }
}

/// Why these are not compared.
fn refused(before: Seen, after: Seen) -> Option<NotMeasured> {
    let found = watched_again(&plan(), &Moved::default(), Ok(before), Ok(after));
    assert_eq!(found.measured.is_none(), found.not_measured.is_some());
    assert_eq!(found.not_measured.is_some(), !found.detail.is_empty());
    assert_eq!(found.saved_of_predicted.is_some(), found.measured.is_some());
    found.not_measured
}

#[test]
fn times_are_for_the_same_bytes() {
    let again = |before, after| watched_again(&plan(), &Moved::default(), before, after);
    let found = again(Ok(seen(100, 1000)), Ok(seen(50, 2000)));
    assert_eq!(found.measured, Some(Times::new(0.1, 0.025)));
    assert_eq!((found.read_bytes, found.read_bytes_again), (1000 * MIB, Some(2000 * MIB)));
    let found = again(Ok(seen(100, 1000)), Err(CouldNot::interrupted()));
    assert_eq!((found.measured, found.not_measured), (None, Some(NotMeasured::Interrupted)));
}

#[test]
fn times_of_another_load_are_not_scaled() {
    for (before, after, why) in [
        (1000, 500, None),
        (1000, 499, Some(NotMeasured::LoadDiffers)),
        (1000, 2101, Some(NotMeasured::LoadDiffers)),
        // The service rests, and something else reads a little.
        (4500, 1, Some(NotMeasured::LoadDiffers)),
        (1000, 0, Some(NotMeasured::NothingToRead)),
        (0, 1000, Some(NotMeasured::NothingToRead)),
    ] {
        assert_eq!(refused(seen(100, before), seen(50, after)), why, "{before} {after}");
    }
    // Three times as quick, it may read six times as much.
    let mut quick = plan();
    (quick.summary.seconds_before, quick.summary.seconds_after) = (3.0, 1.0);
    let again = |mib| watched_again(&quick, &Moved::default(), Ok(seen(9, 100)), Ok(seen(9, mib)));
    assert!(again(600).measured.is_some());
    assert_eq!(again(601).not_measured, Some(NotMeasured::LoadDiffers));
    assert_eq!(again(49).not_measured, Some(NotMeasured::LoadDiffers));
    let wrote = |mib: u64| {
        let mut seen = seen(100, 1000);
        (seen.done.written_bytes, seen.own.written_bytes) = (mib * MIB, mib * MIB);
        seen
    };
    assert_eq!(refused(wrote(300), wrote(390)), None, "the service writes as well");
    assert_eq!(refused(wrote(0), wrote(110)), Some(NotMeasured::LoadDiffers));
    assert_eq!(refused(wrote(110), wrote(0)), Some(NotMeasured::LoadDiffers));
}

#[test]
fn what_other_programs_do_is_not_the_services_time() {
    let others = |read: u64, written: u64| {
        let mut seen = seen(100, 1000);
        seen.own.read_bytes = Some((1000 - read) * MIB);
        seen.done.written_bytes = written * MIB;
        seen
    };
    let busy = Some(NotMeasured::OtherPrograms);
    assert_eq!(refused(others(240, 0), others(240, 0)), None);
    assert_eq!(refused(others(260, 0), seen(50, 1000)), busy, "a backup while it was recorded");
    assert_eq!(refused(seen(100, 1000), others(260, 0)), busy);
    assert_eq!(refused(others(0, 340), others(0, 340)), busy);
    assert_eq!(refused(others(110, 0), others(0, 0)), Some(NotMeasured::LoadDiffers));
    // Without misses it is not known who has read.
    let unknown = |written| {
        let mut seen = others(0, written);
        seen.own.read_bytes = None;
        seen
    };
    assert_eq!(refused(unknown(0), unknown(0)), None);
    assert_eq!(refused(unknown(340), unknown(340)), busy);
}

#[test]
fn times_of_two_clocks_are_not_compared() {
    let served = Seen { clock: MeasuredBy::Served, ..seen(50, 1000) };
    assert_eq!(refused(seen(100, 1000), served), Some(NotMeasured::ClocksDiffer));
    assert_eq!(refused(served, served), None);
}

#[test]
fn what_a_recording_stands_for_is_on_both_sides_and_what_was_not_moved_is_not_saved() {
    let mut plan = plan();
    (plan.summary.seconds_before, plan.summary.seconds_after) = (10.0, 4.0);
    (plan.summary.unseen_seconds_before, plan.summary.unseen_seconds_saved) = (30.0, 20.0);
    let found = |ranges: &[usize]| {
        let both = (Ok(seen(100, 1)), Ok(seen(50, 1)));
        let found = watched_again(&plan, &moved(&plan, ranges), both.0, both.1);
        (found.predicted.unwrap(), found.predicted_ranges, found.planned_ranges)
    };
    assert_eq!(found(&[0, 1]), (Times::new(40.0, 34.0), 2, 2));
    assert_eq!(found(&[1]), (Times::new(40.0, 38.0), 1, 2), "which saves a third of it");
    assert_eq!(found(&[]), (Times::new(40.0, 34.0), 2, 2), "nothing was moved");
}
