//! Beside programs that read from the device, ext4's engine reads, writes and reads back little at a time.

mod support;

use fragmend_engines::{Choice, engine};
use fragmend_layout::ByteRange;
use fragmend_sys::block::Counters;
use fragmend_sys::mounts;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use support::identity;
use support::pace::{relocate, relocate_gently};

const MIB: u64 = 1 << 20;
const BYTES: u64 = 4 * MIB;
/// The file's extents.
const EXTENT: u64 = 256 << 10;
/// The longest request beside readers.
const REQUEST: u64 = 32 << 10;

/// Moves a file of such extents, all of which is cold; returns what the device has done meanwhile.
fn moved(gently: bool) -> (Counters, Counters) {
    let image = Image::ext4(64 * MIB);
    let path = image.path().join("file");
    interleaved(&path, BYTES, &[EXTENT], true).unwrap();
    image.remount();
    let volume =
        engine::volume_for(&mounts::of_path(&path).unwrap(), &Choice::Native, false).unwrap();
    let mut file = volume.open(identity(&path), &path).unwrap_or_else(|skip| panic!("{skip:?}"));
    let all = [ByteRange { start: 0, end: BYTES }];
    let before = image.counters();
    let done =
        if gently { relocate_gently(&mut *file, &all) } else { relocate(&mut *file, &all, || {}) };
    let after = image.counters();
    let done = done.unwrap().remove(0);
    assert!(done.bytes == BYTES && done.skip.is_none(), "{done:?}");
    drop(file);
    // It has the root of the file system open.
    drop(volume);
    assert!(is_intact(&path, BYTES).unwrap());
    image.fsck();
    (before, after)
}

#[test]
fn loop_beside_readers_requests_are_small() {
    let requests = |gently| {
        let (before, after) = moved(gently);
        let read = after.read_bytes - before.read_bytes;
        let written = after.written_bytes - before.written_bytes;
        println!("gently: {gently}, {read} bytes read, {written} written");
        (after.reads - before.reads, after.writes - before.writes)
    };
    let [(reads, writes), (gentle_reads, gentle_writes)] = [false, true].map(requests);
    println!("{reads} reads and {writes} writes, gently {gentle_reads} and {gentle_writes}");
    // All is read, and once more when it was written; some of the journal and of metadata besides.
    assert!(gentle_reads >= 2 * BYTES / REQUEST && gentle_writes >= BYTES / REQUEST);
    assert!(reads < gentle_reads / 2 && writes < gentle_writes / 2);
}
