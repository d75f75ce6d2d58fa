//! The cases. Each is for a fresh volume. Here are those of moving by a plan; the others are in the modules.

mod pace;
mod sharing;
mod space;
mod stop;
mod volume;

pub use pace::*;
pub use sharing::*;
pub use space::*;
pub use stop::*;
pub use volume::*;

use crate::{BLOCK, Change, Fixture, SIZE, UNPACED, extents, layout, plan, reasons};
use fragmend_apply::{Options, Outcome, Receipt, Summary};
use fragmend_layout::{ByteRange, ExtentKind, SkipReason};
use std::path::Path;

/// The offset at which a file is continued, far behind its end.
const FAR: u64 = 5 << 30;

/// Moves all fragmented files, and checks that no range was left alone.
fn move_all(fixture: &dyn Fixture) -> (Summary, Vec<Receipt>) {
    let (summary, receipts) = fixture.apply(&plan(fixture, &[]), &UNPACED);
    assert_eq!(summary.skipped, [], "{summary:?}");
    assert!(summary.ranges_moved > 0, "{summary:?}");
    (summary, receipts)
}

fn whole(size: u64) -> ByteRange {
    ByteRange { start: 0, end: size }
}

/// Fragmented files become contiguous, whatever their size, and nothing else about them changes.
pub fn fragments_are_joined(fixture: &dyn Fixture) {
    // Some move in one turn, others in several, of which the last one ends inside a block.
    let sizes = [
        ("file", SIZE),
        ("block", BLOCK),
        ("odd-size", 10_000),
        ("longer", 231_033),
        ("longest", 400_000),
    ];
    let files = sizes.map(|(name, size)| (fixture.fragmented(name, size), size));
    let look = |path: &Path, size| (fixture.content(path, whole(size)), fixture.attributes(path));
    let before = files.each_ref().map(|(path, size)| look(path, *size));
    let (_, mut receipts) = move_all(fixture);
    receipts.retain(|r| r.path.to_path().is_some_and(|p| files.iter().any(|(path, _)| *path == p)));
    assert_eq!(receipts.len(), 4, "one block is in one extent: {receipts:?}");
    assert!(receipts.iter().all(|r| r.extents_after == Some(1)), "{receipts:?}");
    for round in ["warm", "cold"] {
        for ((path, size), before) in files.iter().zip(&before) {
            assert!(look(path, *size) == *before, "{round} {path:?}");
            assert_eq!(extents(fixture, path), 1, "{round} {path:?}");
        }
        fixture.check();
    }
    // Nothing is left to plan.
    assert_eq!(plan(fixture, &[]).files.len(), 0);
}

/// Of a file of which one part is planned, only this part moves.
pub fn a_part_moves_and_the_rest_stays(fixture: &dyn Fixture) {
    let file = fixture.fragmented("file", SIZE);
    let before = fixture.content(&file, whole(SIZE));
    let places = |start: u64, end: u64| -> Vec<(u64, u64)> {
        let layout = layout(fixture, &file);
        layout.within(ByteRange { start, end }).map(|e| (e.logical, e.physical)).collect()
    };
    let (head, tail) = (places(0, SIZE / 4), places(SIZE / 2, SIZE));
    let mut made = plan(fixture, &[&file]);
    let range = &mut made.files[0].ranges[0];
    (range.offset, range.length) = (SIZE / 4, SIZE / 4);
    let (summary, receipts) = fixture.apply(&made, &UNPACED);
    assert_eq!((summary.ranges_moved, receipts[0].extents_after), (1, Some(1)), "{summary:?}");
    assert_eq!((places(0, SIZE / 4), places(SIZE / 2, SIZE)), (head, tail));
    fixture.check();
    assert!(fixture.content(&file, whole(SIZE)) == before);
}

/// Holes stay holes, reserved space stays reserved, also behind the end of the file.
pub fn holes_unwritten_space_and_the_end_stay(fixture: &dyn Fixture) {
    let file = fixture.fragmented("sparse", SIZE);
    fixture.change(&file, Change::Punch(ByteRange { start: 128 << 10, end: 192 << 10 }));
    let reserved = [(512 << 10, 576 << 10), (SIZE, SIZE + (256 << 10))]
        .map(|(start, end)| fixture.reserve(&file, ByteRange { start, end }));
    let before =
        (fixture.content(&file, whole(SIZE)), kinds(fixture, &file), fixture.attributes(&file));
    let (summary, _) = move_all(fixture);
    let parts = if reserved[0] { 3 } else { 2 };
    assert!(summary.ranges_moved >= parts, "{summary:?}");
    for _ in 0..2 {
        let now =
            (fixture.content(&file, whole(SIZE)), kinds(fixture, &file), fixture.attributes(&file));
        assert!(now == before, "{:?} and then {:?}", before.1, now.1);
        fixture.check();
    }
}

/// Which byte ranges of a file are allocated, and whether they were never written.
fn kinds(fixture: &dyn Fixture, path: &Path) -> Vec<(u64, u64, bool)> {
    let mut kinds: Vec<(u64, u64, bool)> = Vec::new();
    for e in layout(fixture, path).extents() {
        let unwritten = e.kind == ExtentKind::Unwritten;
        match kinds.last_mut() {
            Some(last) if last.1 == e.logical && last.2 == unwritten => last.1 += e.length,
            _ => kinds.push((e.logical, e.logical + e.length, unwritten)),
        }
    }
    kinds
}

/// Offsets beyond four GiB, and a hole of five.
pub fn five_gibibytes_and_mostly_holes(fixture: &dyn Fixture) {
    const TAIL: u64 = 64 * BLOCK;
    let file = fixture.fragmented("file", SIZE);
    fixture.append_far(&file, FAR, TAIL);
    let tail = ByteRange { start: FAR, end: FAR + TAIL };
    let before = (
        fixture.content(&file, whole(SIZE)),
        fixture.content(&file, tail),
        fixture.attributes(&file),
    );
    assert!(extents(fixture, &file) > 250, "{}", extents(fixture, &file));
    let (_, receipts) = move_all(fixture);
    assert!(receipts.iter().any(|r| r.offset >= FAR && r.extents_after == Some(1)));
    fixture.check();
    assert!(extents(fixture, &file) <= 2);
    let now = (
        fixture.content(&file, whole(SIZE)),
        fixture.content(&file, tail),
        fixture.attributes(&file),
    );
    assert!(now == before);
}

/// What another program has changed since the plan was made is left alone, with the reason that applies.
pub fn what_changed_since_the_plan_is_left_alone(fixture: &dyn Fixture) {
    let cases = [
        ("vanished", SkipReason::Vanished, Change::Remove),
        ("replaced", SkipReason::IdentityChanged, Change::Replace),
        ("truncated", SkipReason::SizeChanged, Change::Truncate(100)),
        (
            "punched",
            SkipReason::LayoutChanged,
            Change::Punch(ByteRange { start: 65536, end: 65536 + BLOCK }),
        ),
    ];
    for (name, reason, change) in cases {
        let path = fixture.fragmented(name, SIZE);
        let made = plan(fixture, &[&path]);
        assert_eq!(made.files.len(), 1, "{name}");
        fixture.change(&path, change);
        let places = || (change != Change::Remove).then(|| extents(fixture, &path));
        let before = places();
        let (summary, _) = fixture.apply(&made, &UNPACED);
        assert_eq!(reasons(&summary, &path), [reason], "{name}: {summary:?}");
        assert_eq!((summary.ranges_moved, summary.moved_bytes), (0, 0), "{name}");
        assert_eq!(places(), before, "{name}");
    }
    // It has been mended in the meantime.
    let path = fixture.fragmented("mended", SIZE);
    let made = plan(fixture, &[&path]);
    assert_eq!(fixture.apply(&made, &UNPACED).0.ranges_moved, 1);
    fixture.check();
    let (summary, _) = fixture.apply(&plan_of_now(fixture, &made), &UNPACED);
    assert_eq!(reasons(&summary, &path), [SkipReason::AlreadyContiguous], "{summary:?}");
    fixture.check();
}

/// The plan with the device number that the volume has now: mounted again, it may have another.
fn plan_of_now(fixture: &dyn Fixture, made: &fragmend_plan::Plan) -> fragmend_plan::Plan {
    let mut plan = made.clone();
    for file in &mut plan.files {
        let path = file.path.to_path().expect("a path");
        file.file = fixture.identity(&path);
        plan.devices.iter_mut().for_each(|device| device.device = file.file.device);
    }
    plan
}

/// A contiguous range that was measured to be slow is written anew if it still is where it was then; one that was not measured,
/// or is elsewhere by now, stays. On volumes that do that.
pub fn what_is_slow_in_one_extent_is_written_anew(fixture: &dyn Fixture) {
    const PART: u64 = SIZE / 4;
    let file = fixture.fragmented("file", SIZE);
    let made = plan(fixture, &[&file]);
    move_all(fixture);
    let before = (fixture.content(&file, whole(SIZE)), fixture.attributes(&file));
    let part = |n: u64| ByteRange::at(n * PART, PART);
    let place = |n: u64| {
        let layout = layout(fixture, &file);
        let fragments: Vec<_> = layout.fragments_within(part(n)).collect();
        assert_eq!(fragments.len(), 1, "{fragments:?}");
        fragments[0].physical
    };
    let was = [0, 1, 2, 3].map(place);
    let mut made = plan_of_now(fixture, &made);
    let template = made.files[0].ranges[0].clone();
    // The first one was not measured, the third one was measured elsewhere.
    let slow = [None, Some(was[1]), Some(was[2] + BLOCK), Some(was[3])];
    let range = |n: u64| fragmend_plan::PlannedRange {
        offset: n * PART,
        length: PART,
        slow_at: slow[n as usize],
        ..template.clone()
    };
    made.files[0].ranges = (0..4).map(range).collect();
    let dry = Options { dry_run: true, ..UNPACED };
    assert_eq!(fixture.apply(&made, &dry).0.ranges_left, 2, "it says what it would do");
    let (summary, receipts) = fixture.apply(&made, &UNPACED);
    assert_eq!((summary.ranges_moved, summary.moved_bytes), (2, 2 * PART), "{summary:?}");
    let stayed: Vec<_> = receipts.iter().filter(|r| r.outcome != Outcome::Moved).collect();
    assert_eq!(stayed.iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 2 * PART]);
    let already = |r: &&Receipt| r.reason == Some(SkipReason::AlreadyContiguous);
    assert!(stayed.iter().all(already), "{stayed:?}");
    let moved: Vec<_> = receipts.iter().filter(|r| r.outcome == Outcome::Moved).collect();
    let once = |r: &&Receipt| (r.extents_before, r.extents_after) == (Some(1), Some(1));
    assert!(moved.iter().all(once), "{moved:?}");
    let now = [0, 1, 2, 3].map(place);
    assert_eq!((now[0], now[2]), (was[0], was[2]));
    for _ in 0..2 {
        let now = (fixture.content(&file, whole(SIZE)), fixture.attributes(&file));
        assert!(now == before, "{:?} and then {:?}", before.1, now.1);
        fixture.check();
    }
    // A second run repeats nothing, unless a range was written anew in its old place.
    let again = [1, 3].into_iter().filter(|n| now[*n] == was[*n]).count() as u64;
    let made = plan_of_now(fixture, &made);
    assert_eq!(fixture.apply(&made, &UNPACED).0.moved_bytes, again * PART);
    assert!(fixture.content(&file, whole(SIZE)) == before.0);
}

/// The same where the volume cannot do that: it says so, and nothing moves.
pub fn what_is_slow_in_one_extent_is_left_alone_with_a_reason(fixture: &dyn Fixture) {
    let file = fixture.fragmented("file", SIZE);
    let made = plan(fixture, &[&file]);
    move_all(fixture);
    let before = layout(fixture, &file);
    let mut made = plan_of_now(fixture, &made);
    made.files[0].ranges.truncate(1);
    made.files[0].ranges[0].slow_at = Some(before.extents()[0].physical);
    let (summary, _) = fixture.apply(&made, &UNPACED);
    assert_eq!(reasons(&summary, &file), [SkipReason::Unsupported], "{summary:?}");
    assert!(summary.skipped[0].detail.contains("--engine rewrite"), "{summary:?}");
    assert_eq!(layout(fixture, &file).extents(), before.extents());
}

/// A dry run moves nothing, and reports what would move.
pub fn a_dry_run_moves_nothing(fixture: &dyn Fixture) {
    let file = fixture.fragmented("file", SIZE);
    let (before, made) = (layout(fixture, &file), plan(fixture, &[&file]));
    let dry = Options { dry_run: true, ..UNPACED };
    let (summary, receipts) = fixture.apply(&made, &dry);
    assert_eq!((summary.moved_bytes, summary.ranges_moved), (0, 0), "{summary:?}");
    assert!(summary.dry_run && receipts.len() == 1, "{receipts:?}");
    assert_eq!(layout(fixture, &file).extents(), before.extents());
}

/// Without a free block nothing moves, whatever the floor.
pub fn a_full_disk_is_left_alone(fixture: &dyn Fixture) {
    const MANY: u64 = 8 << 20;
    let path = fixture.fragmented("file", MANY);
    let (content, made) = (fixture.content(&path, whole(MANY)), plan(fixture, &[&path]));
    fixture.fill();
    let before = extents(fixture, &path);
    let default = fixture.apply(&made, &Options::default()).0;
    assert_eq!(reasons(&default, &path), [SkipReason::FreeSpaceFloor], "{default:?}");
    let no_floor = Options { free_floor_bytes: Some(0), ..UNPACED };
    let (summary, _) = fixture.apply(&made, &no_floor);
    let [why] = reasons(&summary, &path)[..] else { panic!("{summary:?}") };
    let space = [SkipReason::FreeSpaceFloor, SkipReason::NoSpace];
    assert!(space.contains(&why), "{summary:?}");
    assert_eq!((summary.moved_bytes, extents(fixture, &path)), (0, before));
    fixture.release();
    fixture.check();
    assert!(fixture.content(&path, whole(MANY)) == content);
    let made = plan(fixture, &[&path]);
    assert!(fixture.apply(&made, &UNPACED).0.ranges_moved > 0, "there is space now");
}
