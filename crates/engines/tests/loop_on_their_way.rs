//! Bytes in flight: `sendfile` and `splice` pass pages of the page cache on, and the program may close
//! the file before they have arrived. When a hole is punched in the file, or other space is taken over
//! for it, the kernel splits the large folio that crosses the end of the range: it writes zeroes into
//! that very page. A move must not cause that.

mod support;

use fragmend_engines::Choice;
use fragmend_engines::begin::Wanted;
use fragmend_layout::SkipReason;
use fragmend_plan::{Plan, Policy};
use fragmend_testbed::file_system::{
    BTRFS, EXT4, EXT4_1K, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP,
};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::pipe::{RANGE, Sent};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::Path;
use support::{UNPACED, apply_on, plan};

const BLOCK: u64 = 4096;
const SIZE: u64 = 4 << 20;

fn plan_of(path: &Path, part: bool) -> Plan {
    let mut plan = plan(&[path], Policy::WholeFile);
    if part {
        let range = &mut plan.files[0].ranges[0];
        let odd = plan.devices[0].block_bytes % BLOCK;
        (range.offset, range.length) = (RANGE.0 + odd, RANGE.1);
        plan.files[0].ranges.truncate(1);
    }
    plan
}

fn file(image: &Image, name: &str) -> std::path::PathBuf {
    let path = image.path().join(name);
    interleaved(&path, SIZE, &[BLOCK], true).unwrap();
    image.sync();
    path
}

fn arrives(file_system: &'static FileSystem, engine: Choice) {
    arrives_beside(file_system, engine, |_| ());
}

/// The same while something of the file is in use.
fn arrives_beside<T>(
    file_system: &'static FileSystem,
    engine: Choice,
    uses: impl FnOnce(&Path) -> T,
) {
    let image = Image::of(file_system, 640 << 20);
    let path = file(&image, "file");
    // Only whole files are swapped.
    let part = file_system.moved_by != XFS_RMAP.moved_by;
    let plan = plan_of(&path, part);
    let wanted = Wanted { engine, force: false };
    let name = file_system.name;
    let sent = Sent::begin(&path);
    let used = uses(&path);
    let (beside, _) = apply_on(&plan, &wanted, &UNPACED);
    drop(used);
    assert_eq!(sent.wrong(), 0, "{name}: blocks arrive as others: {beside:?}");
    // It is moved, or is left alone for that reason.
    let left = beside.skipped.iter().all(|s| s.reason == SkipReason::Busy);
    assert!(left && beside.ranges_moved + beside.ranges_skipped == 1, "{name}: {beside:?}");
    let (after, _) = apply_on(&plan_of(&path, part), &wanted, &UNPACED);
    assert!(beside.ranges_moved + after.ranges_moved > 0, "{name}: {after:?}");
    assert!(is_intact(&path, SIZE).unwrap(), "{name}");
}

#[test]
fn loop_this_test_can_see() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let path = file(&image, "file");
        let sent = Sent::begin(&path);
        let punched = File::options().write(true).open(&path).unwrap();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&punched, how, RANGE.0, RANGE.1).unwrap();
        assert!(sent.wrong() > 0, "{}: no large folios here", file_system.name);
    }
}

#[test]
fn loop_what_is_on_its_way_arrives_beside_a_rewrite() {
    arrives(&EXT4, Choice::Rewrite { journal: None });
    arrives(&XFS, Choice::Rewrite { journal: None });
    // Where a range ends inside a page.
    arrives(&EXT4_1K, Choice::Rewrite { journal: None });
}

#[test]
fn loop_what_is_on_its_way_arrives_beside_sharing() {
    for file_system in [&XFS, &BTRFS] {
        arrives(file_system, Choice::Native);
        // Then it is not known whether a program has those pages mapped.
        arrives_beside(file_system, Choice::Native, |path| File::open(path).unwrap());
    }
}

#[test]
fn loop_what_is_on_its_way_arrives_beside_an_exchange() {
    arrives(&XFS_EXCHANGE, Choice::Native);
    arrives(&XFS_RMAP, Choice::Native);
    arrives(&EXT4, Choice::Native);
}
