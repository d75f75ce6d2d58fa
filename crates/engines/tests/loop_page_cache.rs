//! A move leaves the page cache as it was: what was cached is cached, and what was not is not. In a test program
//! of its own, because what the process reads is counted.

mod support;

use fragmend_plan::Policy;
use fragmend_sys::cache::{cached_pages, drop_clean};
use fragmend_testbed::file_system::{BTRFS, EXT4, EXT4_1K, XFS, XFS_EXCHANGE};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use std::fs::File;
use support::{apply, fragmented_of, plan};

const SIZE: u64 = 1 << 20;

#[test]
fn loop_what_was_cached_is_cached_and_nothing_else() {
    for file_system in [&EXT4, &EXT4_1K, &XFS, &XFS_EXCHANGE, &BTRFS] {
        for is_warm in [false, true] {
            let image = Image::of(file_system, 320 << 20);
            let path = fragmented_of(&image, "file", SIZE);
            let plan = plan(&[&path], Policy::WholeFile);
            let pages = || cached_pages(File::open(&path).unwrap(), 0..SIZE).unwrap();
            let all = SIZE / rustix::param::page_size() as u64;
            drop_clean(File::open(&path).unwrap(), 0..SIZE).unwrap();
            assert_eq!(pages(), 0);
            if is_warm {
                assert!(is_intact(&path, SIZE).unwrap());
                assert_eq!(pages(), all);
            }
            let (summary, _) = apply(&plan);
            println!("{}, warm {is_warm}: {} pages, {summary:?}", file_system.name, pages());
            assert_eq!(summary.moved_bytes, SIZE, "{summary:?}");
            assert_eq!(pages(), if is_warm { all } else { 0 }, "{}", file_system.name);
            // From the old place, and from the new one to compare it.
            if [EXT4.name, EXT4_1K.name].contains(&file_system.name) && !is_warm {
                let most = 2 * SIZE + SIZE / 8;
                assert!(summary.read_bytes <= most, "{summary:?}");
            }
            assert!(is_intact(&path, SIZE).unwrap());
            image.fsck();
        }
    }
}
