//! The pace: how much moves before it is asked again.

use super::whole;
use crate::watch::{Places, STEP, Watch, moved_bytes, places};
use crate::{Fixture, SIZE, layout};
use fragmend_layout::{ByteRange, Terms};

/// Moves four ranges of a file; returns them, what happened, and where the file was before.
fn watched(fixture: &dyn Fixture) -> (Vec<ByteRange>, Watch, Places) {
    let path = fixture.fragmented("file", SIZE);
    let before = places(&layout(fixture, &path));
    let quarters: Vec<ByteRange> = whole(SIZE).steps(SIZE / 4).collect();
    let mut watch = Watch::new(STEP);
    let settled = watch.relocate(fixture, &path, &quarters, &Terms::default()).expect("space");
    settled.durable.expect("what has moved is durable");
    assert_eq!(watch.fates.len(), quarters.len(), "each range has a result");
    let after = places(&layout(fixture, &path));
    assert_eq!(moved_bytes(&before, &after, whole(SIZE)), SIZE);
    fixture.check();
    (quarters, watch, before)
}

/// Each step is asked for, is no longer than allowed, and is followed by a pause; all bytes are counted.
pub fn every_step_is_asked_for_and_followed_by_a_pause(fixture: &dyn Fixture) {
    let (_, watch, _) = watched(fixture);
    for pause in &watch.pauses {
        assert!(pause.steps <= 1, "{} steps without a pause", pause.steps);
        let (reported, allowed) = (pause.reported, pause.allowed);
        assert!(reported <= allowed, "{reported} bytes in a step, {allowed} were allowed");
    }
    let all: u64 = watch.pauses.iter().map(|pause| pause.reported).sum();
    assert_eq!(all, SIZE, "bytes in all steps");
}

/// Between two pauses no more of the file changes its place than the step had, on volumes that move a range
/// part by part.
pub fn no_more_moves_between_two_pauses_than_was_allowed(fixture: &dyn Fixture) {
    let (_, watch, mut before) = watched(fixture);
    for pause in &watch.pauses {
        let (moved, allowed) = (moved_bytes(&before, &pause.places, whole(SIZE)), pause.allowed);
        assert!(moved <= allowed, "{moved} bytes between two pauses, {allowed} were allowed");
        before.clone_from(&pause.places);
    }
    let last = watch.fates.last().map(|(_, places)| places);
    assert!(last == Some(&before), "something moved after the last pause");
}

/// When a range is reported, none of those behind it has moved: where the pace allows less in one go than a
/// range has, a range moves at a time. On volumes that do not move all ranges of a file together.
pub fn ranges_move_one_after_the_other(fixture: &dyn Fixture) {
    let (quarters, watch, before) = watched(fixture);
    for ((_, places), range) in watch.fates.iter().zip(&quarters) {
        assert_eq!(moved_bytes(&before, places, *range), range.len(), "not moved: {range:?}");
        let rest = ByteRange { start: range.end, end: SIZE };
        assert_eq!(moved_bytes(&before, places, rest), 0, "moved behind {range:?}");
    }
}
