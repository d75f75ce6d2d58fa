//! The simulated page cache against the kernel's: the same reads, from a cold cache, on a real
//! file; what the kernel reads from the device is recorded at the miss level.

use fragmend_layout::ByteRange;
use fragmend_plan::readahead::{PageCache, Window};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::random::{Random, Zipf};
use fragmend_testbed::replay::{self, Mode, Request};
use fragmend_testbed::tools::Recording;
use fragmend_trace::Filter;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const KIB: u64 = 1024;
const SIZE: u64 = 64 << 20;
/// How often the reads are tried: the kernel may read something else on a machine that others use.
const TRIES: u32 = 5;

/// What the kernel read from the device for these reads, in order.
fn kernel(image: &Image, path: &Path, requests: &[Request]) -> Vec<ByteRange> {
    let trace = image.scratch().join("trace.parquet");
    image.remount();
    let recording = Recording::start_with(&["--level", "miss"], &trace, &[image.path()]);
    replay::replay(path, requests, Mode::Buffered).unwrap();
    recording.finish();
    let trace = fragmend_trace::read(&trace, &Filter::default()).unwrap();
    let windows = trace.files.iter().flat_map(|f| &f.accesses).map(|a| a.range());
    without_repeats(windows)
}

/// A recorded window may include pages that were cached already: those were not read from the device.
fn without_repeats(windows: impl Iterator<Item = ByteRange>) -> Vec<ByteRange> {
    let mut seen = HashSet::new();
    let mut out: Vec<ByteRange> = Vec::new();
    for window in windows {
        let mut run: Option<ByteRange> = None;
        for page in (window.start..window.end).step_by(4096) {
            let new = seen.insert(page);
            match &mut run {
                Some(run) if new => run.end = page + 4096,
                None if new => run = Some(ByteRange { start: page, end: page + 4096 }),
                _ => out.extend(run.take()),
            }
        }
        out.extend(run);
    }
    out
}

/// What the planner predicts that the kernel reads.
fn imitated(window: Window, requests: &[Request]) -> Vec<ByteRange> {
    let mut cache = PageCache::new(SIZE, window);
    let mut out = Vec::new();
    for r in requests {
        cache.read(1, ByteRange::at(r.offset, r.len), |fetched| out.push(fetched));
    }
    out
}

fn loads() -> Vec<(&'static str, Vec<Request>)> {
    let request = |offset, len| Request { offset, len };
    let mut random = Random::new(11);
    let mut scattered = |len: u64, count: u64| -> Vec<Request> {
        (0..count).map(|_| request(random.below((SIZE - len) / 4096) * 4096, len)).collect()
    };
    let zipf = {
        let (mut draw, zipf) = (Random::new(12), Zipf::new(512, 0.99));
        (0..400).map(|_| request(zipf.draw(&mut draw) as u64 * 128 * KIB, 128 * KIB)).collect()
    };
    // As a database does look-ups: single pages of an index, then a run of rows, repeatedly; the
    // pages of the runs are partly cached.
    let lookups = {
        let (mut random, zipf) = (Random::new(13), Zipf::new(200, 0.99));
        let mut reads = Vec::new();
        for _ in 0..200 {
            let index = (0..3).map(|_| request(random.below(SIZE / 4 / 4096) * 4096, 4096));
            reads.extend(index.collect::<Vec<_>>());
            let row = zipf.draw(&mut random) as u64 * 71 + random.below(30);
            reads.extend((0..60).map(|i| request((row + i) * 4096, 4096)));
        }
        reads
    };
    vec![
        ("lookups", lookups),
        ("sequential 4 KiB", (0..1024).map(|i| request(i * 4096, 4096)).collect()),
        ("sequential 1000 B", (0..4096).map(|i| request(i * 1000, 1000)).collect()),
        ("sequential 128 KiB", replay::sequential(16 << 20)),
        ("sequential 1 MiB", (0..16).map(|i| request(i << 20, 1 << 20)).collect()),
        ("stride 128 KiB", replay::stride(SIZE)),
        ("random 4 KiB", scattered(4096, 800)),
        ("random 32 KiB", scattered(32 * KIB, 400)),
        ("zipfian 128 KiB", zipf),
        ("backwards 4 KiB", (0..512).rev().map(|i| request(i * 4096, 4096)).collect()),
    ]
}

#[test]
fn loop_the_page_cache_of_ext4_is_imitated() {
    is_imitated(&EXT4, &[128, 2560, 4096]);
}

#[test]
fn loop_the_page_cache_of_xfs_is_imitated() {
    is_imitated(&XFS, &[128, 4096]);
}

#[test]
fn loop_the_page_cache_of_btrfs_is_imitated() {
    is_imitated(&BTRFS, &[128, 4096]);
}

fn is_imitated(file_system: &'static FileSystem, windows_kib: &[u32]) {
    let image = Image::of(file_system, 320 << 20);
    let path = image.path().join("file");
    interleaved(&path, SIZE, &[SIZE], true).unwrap();
    for kib in windows_kib {
        let readahead = u64::from(*kib) * KIB;
        image.set_readahead(*kib);
        let profile = fragmend_device::under(&path, path.metadata().unwrap().dev()).unwrap();
        assert_eq!(profile.readahead_bytes, readahead);
        let window = Window::of(&profile);
        for (name, requests) in loads() {
            let ours = imitated(window, &requests);
            let bytes = |ranges: &[ByteRange]| ranges.iter().map(|r| r.len()).sum::<u64>() / KIB;
            let near = |a: u64, b: u64| a.abs_diff(b) * 100 <= a.max(b);
            let close = |kernel: &[ByteRange]| {
                near(kernel.len() as u64, ours.len() as u64) && near(bytes(kernel), bytes(&ours))
            };
            // Other programs may need the memory meanwhile, and the kernel drops pages.
            let mut fetched = kernel(&image, &path, &requests);
            for _ in 1..TRIES {
                if close(&fetched) {
                    break;
                }
                fetched = kernel(&image, &path, &requests);
            }
            let same = ours.iter().filter(|r| fetched.contains(r)).count();
            println!(
                "{name}, window {} KiB: {} fetches and {} KiB in the kernel, {} and {} KiB imitated, {same} the same",
                readahead / KIB,
                fetched.len(),
                bytes(&fetched),
                ours.len(),
                bytes(&ours),
            );
            assert!(close(&fetched), "{name}: kernel {fetched:?}\nimitated {ours:?}");
        }
    }
}
