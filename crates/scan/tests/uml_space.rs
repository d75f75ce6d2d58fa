//! The same on a real F2FS, in a guest whose kernel has it.

mod common;

use common::space::{age, follows_allocation, is_sound, statfs};
use fragmend_testbed::guest::test::f2fs;
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::Image;
use std::fs;
use std::path::Path;

guest_tests! {
    uml_f2fs_is_what_its_bitmaps_say => of_bitmaps(&f2fs());
}

fn of_bitmaps(image: &Image) {
    age(image);
    let found = is_sound(image);
    assert!(found.free.runs > 1500, "{}", found.free.runs);
    // `statfs` leaves out what the file system keeps to clean segments with, and three segments more.
    let kept = Path::new("/sys/fs/f2fs").join(image.block_device().name()).join("ovp_segments");
    let kept: u64 = fs::read_to_string(kept).unwrap().trim().parse().unwrap();
    let told = statfs(image.path())[0] + (kept << 21);
    assert!(kept > 10 && found.free.bytes.abs_diff(told) < 8 << 20, "{}, {told}", found.free.bytes);
    // Before the segments: two super blocks, two checkpoints, and the tables.
    assert!(found.metadata_bytes > 16 << 20, "{}", found.metadata_bytes);
    follows_allocation(image);
}
