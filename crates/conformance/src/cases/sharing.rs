//! Data that several files share.

use super::whole;
use crate::watch::{Watch, places};
use crate::{Fixture, SIZE, UNPACED, extents, layout, plan_with, reasons};
use fragmend_apply::Options;
use fragmend_layout::{Fate, Skip, SkipReason, Terms};

/// Shared data stays where it is, also if it is shared only since it was looked at. With `unshare` it moves for
/// as much space as was predicted, and the other file stays where it is. On volumes that can share.
pub fn what_is_shared_moves_only_if_that_is_asked_for(fixture: &dyn Fixture) {
    let path = fixture.fragmented("file", SIZE);
    let other = fixture.share(&path);
    let content = || [&path, &other].map(|path| fixture.content(path, whole(SIZE)));
    let (before, fragments) = (content(), extents(fixture, &path));
    let place = |path| places(&layout(fixture, path));
    let was = place(&path);
    assert!(was == place(&other) && layout(fixture, &path).shared_bytes(whole(SIZE)) == SIZE);

    let mut watch = Watch::new(SIZE);
    let ended = watch.relocate(fixture, &path, &[whole(SIZE)], &Terms::default());
    let why = |fate: &Fate| match fate {
        Fate::Left { skip, .. } => Some(skip.clone()),
        Fate::Begun(moved) => moved.skip.clone(),
    };
    let skips: Vec<Option<Skip>> = match ended {
        Ok(_) => watch.fates.iter().map(|(fate, _)| why(fate)).collect(),
        Err(skip) => vec![Some(skip)],
    };
    let reason = |skip: &Option<Skip>| skip.as_ref().map(|skip| skip.reason);
    let told: Vec<_> = skips.iter().map(reason).collect();
    assert_eq!(told, [Some(SkipReason::Shared)], "{skips:?}");
    let made = plan_with(fixture, &[&path], true);
    let (summary, _) = fixture.apply(&made, &UNPACED);
    assert_eq!(reasons(&summary, &path), [SkipReason::Shared], "{summary:?}");
    assert!(place(&path) == was && extents(fixture, &path) == fragments, "it has moved");

    let free = fixture.space().free;
    let options = Options { unshare: true, ..UNPACED };
    let (summary, _) = fixture.apply(&made, &options);
    assert_eq!((summary.moved_bytes, summary.space_cost_bytes), (SIZE, SIZE), "{summary:?}");
    assert_eq!(layout(fixture, &path).shared_bytes(whole(SIZE)), 0);
    assert_eq!((extents(fixture, &path), place(&other) == was), (1, true));
    fixture.check();
    assert!(content() == before);
    let used = free.saturating_sub(fixture.space().free);
    assert!(used.abs_diff(SIZE) <= fixture.slack(), "{used} bytes used, {SIZE} were predicted");
}
