//! Blocks smaller than a page: ranges may begin and end anywhere in a page, and move all the same.

mod support;

use fragmend_plan::{Plan, PlannedRange, Policy};
use fragmend_testbed::file_system::EXT4_1K;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::random::Random;
use fragmend_testbed::tools::extents;
use std::fs;
use support::{apply, fragmented, plan};

const BLOCK: u64 = 1024;
const SIZE: u64 = 512 * BLOCK;

/// Holes, in blocks of 1 KiB: the data between them begins at another offset in a page each time.
const HOLES: [(u64, u64); 4] = [(0, 3), (70, 2), (203, 1), (401, 11)];

#[test]
fn loop_ranges_off_a_page_move() {
    let image = Image::of(&EXT4_1K, 128 << 20);
    let mut random = Random::new(0x00F2_A641);
    for round in 0..12 {
        let path = image.path().join(format!("file-{round}"));
        // The last page and the last block are partial.
        let size = SIZE - round * 300;
        interleaved(&path, size, &[BLOCK], true).unwrap();
        image.sync();
        let mut made: Plan = plan(&[&path], Policy::WholeFile);
        let template = made.files[0].ranges[0].clone();
        // Gaps and lengths in blocks, four of which are a page.
        let mut ranges: Vec<PlannedRange> = Vec::new();
        let mut at = random.below(4);
        let end = size.div_ceil(BLOCK);
        while at < end {
            let length = (2 + random.below(13)).min(end - at);
            let (offset, bytes) = (at * BLOCK, length * BLOCK);
            ranges.push(PlannedRange { offset, length: bytes, ..template.clone() });
            at += length + random.below(6);
        }
        ranges.retain(|r| r.length > BLOCK);
        made.files[0].ranges = ranges;
        let (summary, receipts) = apply(&made);
        let stuck: Vec<_> = receipts.iter().filter(|r| r.extents_after != Some(1)).collect();
        assert!(stuck.is_empty(), "round {round}: {stuck:?}");
        assert!(!summary.failed(), "round {round}: {summary:?}");
        assert!(is_intact(&path, size).unwrap(), "round {round}");
    }
    image.fsck();
}

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
