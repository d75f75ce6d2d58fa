//! A request to end, in the middle of a file and between two.

use super::space::is_returned;
use super::whole;
use crate::watch::{STEP, Watch, moved_bytes, places};
use crate::{Fixture, SIZE, UNPACED, extents, layout, plan};
use fragmend_apply::Event;
use fragmend_layout::{ByteRange, Fate, Terms};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A move that is to end moves nothing more, except back. Each range that has changed has a result, and the
/// result is true.
pub fn a_stopped_move_ends_with_a_result_for_all_that_moved(fixture: &dyn Fixture) {
    for pause in [1, 2, 6] {
        stopped_at(fixture, pause);
    }
}

fn stopped_at(fixture: &dyn Fixture, pause: usize) {
    let path = fixture.fragmented(&format!("stopped-{pause}"), SIZE);
    let looked = || (fixture.content(&path, whole(SIZE)), fixture.attributes(&path));
    let (before, free) = (looked(), fixture.space().free);
    let was = places(&layout(fixture, &path));
    let quarters: Vec<ByteRange> = whole(SIZE).steps(SIZE / 4).collect();
    let mut watch = Watch::stopping(STEP, pause);
    let settled = watch.relocate(fixture, &path, &quarters, &Terms::default()).expect("space");
    settled.durable.expect("what has moved is durable");
    assert_eq!(watch.pauses.len(), pause, "steps after the stop");
    let now = layout(fixture, &path);
    let is = places(&now);
    let then = &watch.pauses[pause - 1].places;
    for (index, range) in quarters.iter().enumerate() {
        let moved = moved_bytes(&was, &is, *range);
        match watch.fates.get(index).map(|(fate, _)| fate) {
            None => assert_eq!(moved, 0, "range {index} has no result"),
            Some(Fate::Left { .. }) => assert_eq!(moved, 0, "range {index} is said to be left"),
            Some(Fate::Begun(end)) if end.interrupted => {
                assert!(!end.whole || moved == 0, "range {index} is half done");
                // What is in more fragments for that goes back.
                let is_back = end.returns && moved == 0;
                let later = moved_bytes(then, &is, *range);
                assert!(later == 0 || is_back, "range {index} moved on after the stop");
            }
            Some(Fate::Begun(end)) => {
                assert_eq!(moved_bytes(then, &is, *range), 0, "range {index} moved on");
                let all = (end.skip.clone(), moved, now.fragments(*range));
                assert_eq!(all, (None, range.len(), 1), "range {index} is said to be complete");
            }
        }
    }
    fixture.check();
    assert!(looked() == before);
    is_returned(fixture, free);
    let (summary, _) = fixture.apply(&plan(fixture, &[&path]), &UNPACED);
    assert_eq!((summary.ranges_moved, extents(fixture, &path)), (1, 1), "{summary:?}");
}

/// A run that is to end after its first file counts the ranges of the others as left, and touches none of them.
pub fn a_stopped_run_accounts_for_every_range(fixture: &dyn Fixture) {
    let files = ["a", "b", "c"].map(|name| fixture.fragmented(name, SIZE));
    let made = plan(fixture, &files.each_ref().map(|path| &**path));
    let look = |path: &Path| (fixture.content(path, whole(SIZE)), places(&layout(fixture, path)));
    let before = files.each_ref().map(|path| look(path));
    let (stop, mut moved) = (AtomicBool::new(false), Vec::new());
    let summary = fixture.run(&made, &UNPACED, &stop, &mut |event| {
        if let Event::Range(receipt) = event {
            moved.push(receipt.path.to_path().expect("a path"));
            stop.store(true, Ordering::Relaxed);
        }
    });
    let counts = (summary.ranges_moved, summary.ranges_skipped, summary.ranges_left);
    assert_eq!((summary.interrupted, counts), (true, (1, 0, 2)), "{summary:?}");
    fixture.check();
    for (path, before) in files.iter().zip(before) {
        let after = look(path);
        assert!(after.0 == before.0, "{path:?}");
        assert_eq!(after.1 == before.1, !moved.contains(path), "{path:?}");
    }
}
