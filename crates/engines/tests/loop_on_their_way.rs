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
use fragmend_testbed::process::Running;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::Path;
use support::{UNPACED, apply_on, holder, plan};

const BLOCK: u64 = 4096;
const SIZE: u64 = 4 << 20;
/// Its ends are inside folios, however large these are.
const RANGE: (u64, u64) = (259 * BLOCK, 501 * BLOCK);

/// Reads a file from its beginning, so that its folios grow, puts what is around both ends of the
/// range into a pipe, and closes the file. At the end it prints how many of those blocks have changed.
const SENDER: &str = "
import os, sys, fcntl
block, first, last = 4096, 259, 760
f = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
size = os.fstat(f).st_size
whole = b''.join(os.pread(f, 16384, at) for at in range(0, size, 16384))
r, w = os.pipe()
fcntl.fcntl(w, 1031, 1 << 20) # F_SETPIPE_SZ
sent = [n for edge in (first, last) for n in range(edge - 64, edge + 60)]
for n in sent:
    assert os.splice(f, w, block, offset_src=n * block) == block
os.close(f)
print('ready', flush=True)
sys.stdin.read()
print(sum(os.read(r, block) != whole[n * block:][:block] for n in sent))
";

fn sender(path: &Path) -> Running {
    holder(path, SENDER)
}

/// How many blocks have changed when they arrive.
fn wrong(mut sender: Running) -> u32 {
    drop(sender.child().stdin.take());
    let told = sender.wait().expect(&[0]);
    told.lines().last().unwrap().parse().unwrap()
}

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
    let image = Image::of(file_system, 640 << 20);
    let path = file(&image, "file");
    // Only whole files are swapped.
    let part = file_system.moved_by != XFS_RMAP.moved_by;
    let plan = plan_of(&path, part);
    let wanted = Wanted { engine, force: false };
    let name = file_system.name;
    let sent = sender(&path);
    let (beside, _) = apply_on(&plan, &wanted, &UNPACED);
    assert_eq!(wrong(sent), 0, "{name}: blocks arrive as others: {beside:?}");
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
        let sent = sender(&path);
        let punched = File::options().write(true).open(&path).unwrap();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&punched, how, RANGE.0, RANGE.1).unwrap();
        assert!(wrong(sent) > 0, "{}: no large folios here", file_system.name);
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
    arrives(&XFS, Choice::Native);
    arrives(&BTRFS, Choice::Native);
}

#[test]
fn loop_what_is_on_its_way_arrives_beside_an_exchange() {
    arrives(&XFS_EXCHANGE, Choice::Native);
    arrives(&XFS_RMAP, Choice::Native);
    arrives(&EXT4, Choice::Native);
}
