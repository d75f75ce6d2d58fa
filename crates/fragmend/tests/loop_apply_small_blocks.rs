//! Where blocks are smaller than pages: ranges that begin and end anywhere in a page move, several
//! of one file at once.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::EXT4_1K;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use std::fs;
use support::{apply, fragmented, plan};

/// Holes, in blocks of 1 KiB: what lies between them begins differently in its pages each time.
const HOLES: [(u64, u64); 4] = [(0, 3), (70, 2), (203, 1), (401, 11)];

#[test]
fn loop_ranges_within_pages_move() {
    let image = Image::of(&EXT4_1K, 128 << 20);
    let path = fragmented(&image, "file");
    for (start, blocks) in HOLES {
        let (start, length) = (format!("{start}KiB"), format!("{blocks}KiB"));
        let args = ["-p", "-o", &start, "-l", &length].map(AsRef::as_ref);
        run("fallocate", args.into_iter().chain([path.as_os_str()]));
    }
    image.sync();
    let bytes = fs::read(&path).unwrap();
    let made = plan(&[&path], Policy::WholeFile);
    let starts: Vec<u64> = made.files[0].ranges.iter().map(|r| r.offset >> 10).collect();
    assert_eq!(starts, HOLES.map(|(start, blocks)| start + blocks));
    let (summary, _) = apply(&made);
    assert_eq!((&summary.skipped[..], summary.ranges_moved), (&[][..], 4), "{summary:?}");
    for _ in 0..2 {
        assert!(extents(&path) <= 4);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        image.fsck();
    }
}
