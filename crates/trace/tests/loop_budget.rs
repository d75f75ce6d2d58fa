//! What a recording may cost, and what is left out for that: nothing is lost without being counted, and the trace
//! stands for all that was done.

mod support;

use fragmend_testbed::fio;
use fragmend_testbed::image::Image;
use fragmend_trace::record::{Options, Summary};
use fragmend_trace::{ALL_PLACES, FileAccesses, Filter, Op, Trace, place_hash, read};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use support::{accesses_of, bytes_column, image_with_file, python, traced};

const MIB: u64 = 1 << 20;

/// How often each offset was accessed by this operation, as the trace has it.
fn counts(file: &FileAccesses, op: Op) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for access in file.accesses.iter().filter(|a| a.op == op) {
        *counts.entry(access.offset).or_default() += u64::from(access.count);
    }
    counts
}

/// Reads a file of 64 MiB once from the device and then at random places, 20,000 times.
const READS: &str = "
import os, random, sys
random.seed(3)
f = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
for at in range(0, 64 << 20, 65536): os.pread(f, 65536, at)
for _ in range(20000): os.pread(f, 4096, random.randrange(16384) * 4096)
";

fn recorded(image: &Image, shift: u32, configure: impl FnOnce(&mut Options)) -> (Summary, Trace) {
    let work = || python(READS, &[&image.path().join("f")]);
    traced(
        image,
        |o| {
            o.places_shift = shift;
            configure(o);
        },
        work,
    )
}

/// Of a place that is sampled everything is there, of any other nothing; and the counts stand for all.
#[test]
fn loop_a_sampled_place_is_complete() {
    let image = image_with_file(64 << 20);
    image.set_readahead(128);
    let inode = std::fs::metadata(image.path().join("f")).unwrap().ino();
    let (whole, trace) = recorded(&image, 0, |_| {});
    assert_eq!((whole.meta.sampling, whole.meta.overhead), (None, None));
    let all = accesses_of(&trace, "f");
    for (shift, fold) in [(1, None), (3, None), (3, Some(100_000))] {
        let (summary, trace) = recorded(&image, shift, |o| o.max_ranges = fold);
        let sampling = trace.meta.sampling.expect("it is sampled");
        assert_eq!((sampling.region_bytes, sampling.requests_below), (MIB, ALL_PLACES >> shift));
        assert_eq!(sampling.misses_below, ALL_PLACES >> shift);
        let part = accesses_of(&trace, "f");
        let of_region = |region: u64| place_hash(inode, region) < sampling.requests_below;
        let sampled = (0..64).filter(|r| of_region(*r)).count();
        assert!(sampled > 0 && sampled < 64, "{sampled} places");
        for op in [Op::Read, Op::Miss] {
            let (all, part) = (counts(all, op), counts(part, op));
            assert!(part.keys().all(|at| of_region(at / MIB)), "{op:?}");
            let volume = |of: &BTreeMap<u64, u64>, in_sampled: bool| -> u64 {
                of.iter().filter(|(at, _)| of_region(*at / MIB) == in_sampled).map(|(_, n)| n).sum()
            };
            if fold.is_none() && op == Op::Read {
                let expected: BTreeMap<u64, u64> = all
                    .iter()
                    .filter(|(at, _)| of_region(*at / MIB))
                    .map(|(at, n)| (*at, n << shift))
                    .collect();
                assert_eq!(part, expected);
            }
            // Misses depend on what else the machine keeps in memory.
            let (there, here) = (volume(&all, true) << shift, volume(&part, true));
            assert!(here.abs_diff(there) <= there / 20, "{op:?}: {here} instead of {there}");
        }
        assert_eq!(summary.meta.lost, 0);
        assert!(summary.events() < whole.events());
    }
}

/// A reader that never waits, on every processor: the recording keeps to its budget by pauses, and its rows stand for
/// all reads; misses are all there.
#[test]
fn loop_an_expensive_recording_is_paused_and_stands_for_the_whole() {
    let image = image_with_file(64 << 20);
    image.set_readahead(128);
    let file = image.path().join("f");
    let inode = std::fs::metadata(&file).unwrap().ino();
    let hot = [
        "rw=randread",
        "bs=4k",
        "size=64M",
        "time_based",
        "runtime=4",
        "invalidate=0",
        "numjobs=2",
    ];
    let hot = [&hot[..], &["group_reporting", "norandommap", "thread"]].concat();
    for fold in [None, Some(100_000)] {
        let mut figures = fio::JobFigures::default();
        let mut missed = 0;
        let work = || {
            let before = image.counters();
            let miss = "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
while os.read(f, 1 << 20): pass
";
            python(miss, &[&file]);
            figures = fio::run(&file, &hot);
            missed = (image.counters() - before).read_bytes;
        };
        let limit = |o: &mut Options| {
            o.overhead = Some(1.0);
            o.max_ranges = fold;
        };
        let (summary, trace) = traced(&image, limit, work);
        let meta = &trace.meta;
        let sampling = meta.sampling.expect("a debug build costs more than 1 %");
        let overhead = meta.overhead.expect("it is measured");
        let watched = sampling.watched_ns as f64 / meta.duration_ns as f64;
        let reads: u64 = counts(accesses_of(&trace, "f"), Op::Read).values().sum();
        let all = figures.read.bytes / 4096;
        println!(
            "{all} reads, {reads} by the trace, {} seen; watched {:.1} %, places {}, cost {} of {} ppm",
            summary.events(),
            watched * 100.0,
            ALL_PLACES / sampling.requests_below,
            overhead.used_ppm,
            overhead.limit_ppm,
        );
        assert_eq!(overhead.limit_ppm, 10_000);
        assert!(watched < 0.6, "{watched}");
        assert!(overhead.used_ppm > 0 && overhead.used_ppm < 30_000, "{overhead:?}");
        assert!(summary.events() < all / 2, "{}", summary.events());
        // Of a file of few places, a part has more or fewer than its share.
        assert_eq!(sampling.region_bytes, MIB);
        let kept =
            (0..64).filter(|r| place_hash(inode, *r) < sampling.requests_below).count() as u64;
        let expected = all * kept * u64::from(sampling.one_of(Op::Read)) / 64;
        // There are few turns, and other programs run in some of them.
        assert!(reads >= expected / 3 && reads <= expected * 3, "{reads} of {expected} of {all}");
        assert_eq!(
            (sampling.misses_below, meta.lost),
            (ALL_PLACES, 0),
            "misses are not thinned out"
        );
        let seen = summary.bytes(Op::Miss);
        assert!(missed >= 64 * MIB && seen.abs_diff(missed) <= MIB, "{seen} of {missed}");
        // The columns say the same to other readers.
        if fold.is_none() {
            let bytes: u64 = bytes_column(&image.scratch().join("trace.parquet")).iter().sum();
            let times = u64::from(ALL_PLACES / sampling.requests_below);
            assert!(bytes * times >= reads * 4096, "{bytes}");
        }
    }
}

/// What costs little is recorded whole, within any budget.
#[test]
fn loop_a_cheap_recording_is_whole() {
    let image = image_with_file(MIB as usize);
    let slow = "
import os, sys, time
f = os.open(sys.argv[1], os.O_RDONLY)
for n in range(300): os.pread(f, 100, n); time.sleep(0.005)
";
    let work = || python(slow, &[&image.path().join("f")]);
    let (summary, trace) = traced(&image, |o| o.overhead = Some(80.0), work);
    assert_eq!(trace.meta.sampling, None);
    assert!(trace.meta.overhead.is_some_and(|o| o.limit_ppm == 800_000 && o.used_ppm < 400_000));
    assert_eq!(counts(accesses_of(&trace, "f"), Op::Read).len(), 300);
    assert_eq!(summary.meta.lost, 0);
    let again = read(&image.scratch().join("trace.parquet"), &Filter::default()).unwrap();
    assert_eq!(again.meta, trace.meta);
}
