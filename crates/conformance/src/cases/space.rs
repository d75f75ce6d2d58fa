//! Space: how much a move may use, and that it returns it.

use super::whole;
use crate::watch::{Watch, places};
use crate::{BLOCK, Change, Fixture, UNPACED, extents, layout, plan, reasons};
use fragmend_apply::{Event, Options, Summary};
use fragmend_layout::{ByteRange, SkipReason, Terms};
use fragmend_plan::Plan;
use std::sync::atomic::AtomicBool;

const MANY: u64 = 4 << 20;

/// No move brings the free space below the floor: not where there is a little less above it than a move needs, nor
/// where there is twice as much, which may be too little for a volume that keeps copies, nor where there is plenty.
pub fn the_floor_of_free_space_is_kept(fixture: &dyn Fixture) {
    let little = MANY - 2 * fixture.slack() - BLOCK;
    for (name, above) in [("little", little), ("twice", 2 * MANY), ("plenty", 4 * MANY)] {
        let path = fixture.fragmented(name, MANY);
        let (made, before) = (plan(fixture, &[&path]), extents(fixture, &path));
        let floor = fixture.space().free - above;
        let dry = Options { dry_run: true, free_floor_bytes: Some(floor), ..UNPACED };
        let (dry, _) = fixture.apply(&made, &dry);
        let (summary, least) = with_floor(fixture, &made, floor);
        assert!(least + fixture.slack() >= floor, "{name}: {least} bytes free, {floor} demanded");
        let why = reasons(&summary, &path);
        if name == "little" || (name == "twice" && !why.is_empty()) {
            assert_eq!(why, [SkipReason::FreeSpaceFloor], "{name}: {summary:?}");
            assert_eq!(reasons(&dry, &path), why, "{name}: a dry run says the same: {dry:?}");
            assert_eq!((summary.moved_bytes, extents(fixture, &path)), (0, before), "{name}");
        } else {
            let counts = (summary.ranges_moved, summary.ranges_skipped);
            assert_eq!(counts, (1, 0), "{name}: {summary:?}");
            assert_eq!(reasons(&dry, &path), [], "{name}: {dry:?}");
        }
    }
    fixture.check();
}

/// Applies with this floor; returns the least space that was free when a range was reported, while the move
/// still has its new and its old space.
fn with_floor(fixture: &dyn Fixture, made: &Plan, floor: u64) -> (Summary, u64) {
    let mut least = fixture.space().free;
    let options = Options { free_floor_bytes: Some(floor), ..UNPACED };
    let summary = fixture.run(made, &options, &AtomicBool::new(false), &mut |event| {
        if let Event::Range(_) = event {
            least = least.min(fixture.space().free);
        }
    });
    (summary, least)
}

/// A finished move leaves as much space free as before.
pub fn space_is_returned_after_a_move(fixture: &dyn Fixture) {
    let path = fixture.fragmented("file", MANY);
    let (made, free) = (plan(fixture, &[&path]), fixture.space().free);
    let (summary, _) = fixture.apply(&made, &UNPACED);
    assert_eq!((summary.ranges_moved, summary.space_cost_bytes), (1, 0), "{summary:?}");
    fixture.check();
    is_returned(fixture, free);
}

/// Where there is space for some of the ranges only, none of them moves, and none of the space stays used.
pub fn space_is_returned_where_there_is_not_enough(fixture: &dyn Fixture) {
    let path = fixture.fragmented("file", MANY);
    let other = fixture.fragmented("other", MANY / 2);
    let free = fixture.space().free;
    fixture.fill();
    fixture.change(&other, Change::Remove);
    let before = (fixture.content(&path, whole(MANY)), places(&layout(fixture, &path)));
    let quarters: Vec<ByteRange> = whole(MANY).steps(MANY / 4).collect();
    let mut watch = Watch::new(MANY);
    let ended = watch.relocate(fixture, &path, &quarters, &Terms::default());
    let skip = ended.expect_err("there is not enough space");
    assert_eq!(skip.reason, SkipReason::NoSpace, "{skip:?}");
    assert!(watch.fates.is_empty(), "a result of what was not begun");
    fixture.release();
    fixture.check();
    let after = (fixture.content(&path, whole(MANY)), places(&layout(fixture, &path)));
    assert!(after == before);
    is_returned(fixture, free + MANY / 2);
}

/// Checks that at least `free` bytes are free.
pub(super) fn is_returned(fixture: &dyn Fixture, free: u64) {
    let now = fixture.space().free;
    assert!(now + fixture.slack() >= free, "{now} bytes are free, and were {free}");
}
