//! The testbed itself: an image mounts, a file fragments, and everything is gone afterwards.

use fragmend_testbed::{
    fragment,
    image::{Image, run},
};

#[test]
fn loop_fragpickers_file_is_truly_fragmented() {
    let image = Image::ext4(256 << 20);
    let path = image.path().join("file");
    fragment::interleaved(&path, 8 << 20, &fragment::FRAGPICKER_EXTENTS, true).unwrap();
    let found = run("filefrag", [&path]);
    // 8 MiB are 32 rounds of 33 extents; the allocator's first preallocation hides a few.
    let extents: u64 = found.split_whitespace().rev().nth(2).unwrap().parse().unwrap();
    assert!((1000..=1056).contains(&extents), "{found}");
    assert!(fragment::is_intact(&path, 8 << 20).unwrap());
    image.fsck();
    assert!(fragment::is_intact(&path, 8 << 20).unwrap());
}
