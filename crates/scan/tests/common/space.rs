//! What must hold of the space of any file system.

use super::{layouts, mixed_files, walk};
use fragmend_layout::{ByteRange, Extent, SpaceKind, SpaceRun};
use fragmend_scan::space::{MOST_RUNS, space};
use fragmend_scan::{FoundSpace, Source};
use fragmend_testbed::image::Image;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The space of an image, after one sync; all its runs are kept.
pub fn space_of(image: &Image) -> FoundSpace {
    let tree = walk(&[image.path()]);
    let found = space(&tree.file_systems()[0], MOST_RUNS).unwrap();
    assert!(found.has_runs());
    found
}

/// Fills an image with files of every kind, and makes many short runs of free space: of files of a block each, every second
/// one is deleted.
pub fn age(image: &Image) {
    const FILES: usize = 4000;
    mixed_files(image.path());
    let small = image.path().join("small");
    fs::create_dir(&small).unwrap();
    (0..FILES).for_each(|n| fs::write(small.join(format!("{n}")), [7; 4096]).unwrap());
    image.sync();
    (0..FILES).step_by(2).for_each(|n| fs::remove_file(small.join(format!("{n}"))).unwrap());
    image.sync();
}

/// Runs are in order, disjoint, in whole blocks and on the file system; what is counted is what they are; and no extent of
/// any file is in one.
pub fn is_sound(image: &Image) -> FoundSpace {
    let found = space_of(image);
    let space = &found.space;
    for pair in space.runs.windows(2) {
        let [one, next] = pair else { unreachable!() };
        assert!(one.range.end <= next.range.start, "{pair:?}");
        assert!(one.kind != next.kind || one.range.end < next.range.start, "{pair:?}");
    }
    let is_whole = |r: &ByteRange| [r.start, r.end].iter().all(|at| at % space.block_bytes == 0);
    assert!(space.runs.iter().all(|run| !run.range.is_empty() && is_whole(&run.range)));
    assert!(space.runs.last().unwrap().range.end <= space.bytes);
    assert_eq!(space.free(), found.free);
    let metadata = space.runs.iter().filter(|run| run.kind == SpaceKind::Metadata);
    assert_eq!(metadata.map(|run| run.range.len()).sum::<u64>(), found.metadata_bytes);

    let mut extents = 0;
    for (path, layout) in layouts(&walk(&[image.path()]), Source::Fiemap) {
        // F2FS allocates nothing for what was never written.
        let has_place = |e: &&Extent| e.kind.is_placed() && e.physical != 0;
        for extent in layout.unwrap().extents().iter().filter(has_place) {
            extents += 1;
            let at = placed(extent);
            assert!(at.end <= space.bytes, "{}: {extent:?}", path.display());
            let within = runs_in(&space.runs, at);
            assert!(within.is_empty(), "{}: {extent:?} is in {within:?}", path.display());
        }
    }
    assert!(extents > 1000, "{extents}");
    found
}

/// What a new file gets was free, or had no address; it is not free any more, and is free again once the file is gone.
pub fn follows_allocation(image: &Image) {
    const BYTES: usize = 24 << 20;
    let before = space_of(image);
    let path = image.path().join("new");
    fs::write(&path, vec![9; BYTES]).unwrap();
    let during = space_of(image);
    let layout = fragmend_scan::layout_of(fs::File::open(&path).unwrap()).unwrap();
    let placed: Vec<ByteRange> = layout.extents().iter().map(placed).collect();
    assert_eq!(placed.iter().map(|at| at.len()).sum::<u64>(), BYTES as u64);
    for at in &placed {
        let was = runs_in(&before.space.runs, *at);
        let is_free = matches!(was[..], [SpaceRun { kind: SpaceKind::Free, range }] if range.intersect(*at) == *at);
        assert!(is_free || at.start >= before.space.bytes, "{at:?} was in {was:?}");
        assert!(runs_in(&during.space.runs, *at).is_empty(), "{at:?}");
    }
    let sum = |found: &FoundSpace| found.free.bytes + found.unallocated_bytes;
    let gone = sum(&before) - sum(&during);
    assert!((BYTES as u64..BYTES as u64 + (4 << 20)).contains(&gone), "{gone} bytes are gone");
    fs::remove_file(&path).unwrap();
    // XFS frees what was deleted in the background.
    let started = Instant::now();
    loop {
        let after = space_of(image);
        let is_free = |at: &ByteRange| {
            runs_in(&after.space.runs, *at).iter().all(|run| run.kind == SpaceKind::Free)
                && !runs_in(&after.space.runs, *at).is_empty()
        };
        if placed.iter().all(is_free) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{placed:?} is not free");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Free bytes and, of these, those for others than root, as `statfs(2)` counts them.
pub fn statfs(path: &Path) -> [u64; 2] {
    let all = rustix::fs::statvfs(path).unwrap();
    [all.f_bfree, all.f_bavail].map(|blocks| blocks * all.f_frsize)
}

/// The free runs.
pub fn free_runs(found: &FoundSpace) -> Vec<ByteRange> {
    found.space.free_runs().collect()
}

fn placed(extent: &Extent) -> ByteRange {
    ByteRange { start: extent.physical, end: extent.physical_end() }
}

/// The runs that share a byte with these addresses.
fn runs_in(runs: &[SpaceRun], at: ByteRange) -> Vec<SpaceRun> {
    let first = runs.partition_point(|run| run.range.end <= at.start);
    runs[first..].iter().take_while(|run| run.range.overlaps(at)).copied().collect()
}
