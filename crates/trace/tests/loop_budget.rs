//! What a recording may cost, and what is left out for that: nothing is lost without being counted, and the trace
//! stands for all that was done.

mod support;

use fragmend_testbed::measure::drop_pages;
use fragmend_testbed::{columns, fio};
use fragmend_trace::record::Options;
use fragmend_trace::{Access, FileAccesses, Filter, Op, Recorded, read};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use support::{accesses_of, image_with_file, python, traced};

const MIB: u64 = 1 << 20;

/// How often each offset was accessed by this operation, as the trace has it.
fn counts(file: &FileAccesses, op: Op) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for access in file.accesses.iter().filter(|a| a.op == op) {
        *counts.entry(access.offset).or_default() += u64::from(access.count);
    }
    counts
}

/// Reads each 64 KiB of a file of 64 MiB once from the page cache, and 4 KiB in each directly, four times.
const READS: &str = "
import mmap, os, sys
f, direct = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
for at in range(0, 64 << 20, 65536): os.pread(f, 65536, at)
page = mmap.mmap(-1, 4096)
for _ in range(4):
    for at in range(4096, 64 << 20, 65536): os.preadv(direct, [page], at)
";

/// Of a place that is sampled everything is there that reached the device, of any other nothing; the counts stand for all.
#[test]
fn loop_a_sampled_place_is_complete() {
    let image = image_with_file(64 << 20);
    image.set_readahead(128);
    let recorded = |shift: u32, fold: Option<u32>| {
        drop_pages(&image.path().join("f"));
        let configure = |o: &mut Options| (o.places_shift, o.max_ranges) = (shift, fold);
        let (summary, trace) =
            traced(&image, configure, || python(READS, &[&image.path().join("f")]));
        assert_eq!(summary.meta.lost, 0);
        let file = accesses_of(&trace, "f");
        let direct = |a: &&Access| a.direct;
        let direct: BTreeMap<u64, u64> =
            file.accesses.iter().filter(direct).map(|a| (a.offset, a.count.into())).collect();
        let cached = file.accesses.iter().filter(|a| a.op == Op::Read && !a.direct);
        let cached: u64 = cached.map(|a| u64::from(a.count)).sum();
        (trace.meta.sampling, counts(file, Op::Miss), direct, cached)
    };
    for fold in [None, Some(100_000)] {
        let (sampling, misses, direct, cached) = recorded(0, fold);
        assert_eq!((sampling, direct.len()), (None, 1024));
        for shift in [1, 3] {
            let (sampling, some_misses, some_direct, same) = recorded(shift, fold);
            let sampling = sampling.expect("it is sampled");
            assert_eq!((sampling.region_bytes, sampling.places_ppm), (MIB, 1_000_000 >> shift));
            assert_eq!(same, cached, "what does not reach the device is whole");
            let regions: BTreeSet<u64> = some_direct.keys().map(|at| at / MIB).collect();
            assert!(!regions.is_empty() && regions.len() < 64, "{} places", regions.len());
            let of_regions = |all: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
                let inside = all.iter().filter(|(at, _)| regions.contains(&(*at / MIB)));
                inside.map(|(at, n)| (*at, n << shift)).collect()
            };
            assert_eq!(some_direct, of_regions(&direct));
            assert_eq!(some_misses, of_regions(&misses));
        }
    }
}

/// A reader that never waits, on every processor: the recording keeps to its budget by pauses, and its rows stand for
/// all reads. What reaches the device meanwhile is all there, each access once.
#[test]
fn loop_what_reaches_the_device_is_not_paused() {
    let image = image_with_file(64 << 20);
    image.set_readahead(128);
    let file = image.path().join("f");
    let other = image.path().join("other");
    std::fs::write(&other, vec![1; 8 << 20]).unwrap();
    image.sync();
    let hot = ["rw=randread", "bs=4k", "size=64M", "time_based", "runtime=4", "invalidate=0"];
    let hot = [&hot[..], &["numjobs=2", "group_reporting", "norandommap", "thread"]].concat();
    // Over the whole time, pauses included.
    let device = "
import mmap, os, sys, time
f, direct = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
page = mmap.mmap(-1, 4096)
for at in range(0, 8 << 20, 16384):
    os.pread(f, 4096, at)
    os.preadv(direct, [page], at + 8192)
    time.sleep(0.006)
";
    let (mut folds, mut tries) = (vec![Some(100_000), None], 6);
    while let Some(fold) = folds.pop() {
        let mut figures = fio::JobFigures::default();
        std::fs::read(&file).unwrap();
        let work = || {
            std::thread::scope(|scope| {
                scope.spawn(|| python(device, &[&other]));
                figures = fio::run(&file, &hot);
            });
        };
        let limit = |o: &mut Options| (o.overhead, o.max_ranges) = (Some(1.0), fold);
        let (summary, trace) = traced(&image, limit, work);
        let missed = accesses_of(&trace, "f").accesses.iter().filter(|a| a.op == Op::Miss).count();
        let all = figures.read.bytes / 4096;
        // Something else on this machine has emptied the page cache, so that what reaches the device is not cheap, or
        // has left the readers little of the processors: they read 5 million times where they have them for themselves.
        if (missed > 100 || all < 2_000_000) && tries > 0 {
            println!("again: {all} reads, {missed} places missed");
            tries -= 1;
            folds.push(fold);
            continue;
        }
        let meta = &trace.meta;
        let sampling = meta.sampling.expect("a debug build costs more than 1 %");
        let overhead = meta.overhead.expect("it is measured");
        let watched = sampling.watched_ns as f64 / meta.duration_ns as f64;
        let reads: u64 = counts(accesses_of(&trace, "f"), Op::Read).values().sum();
        println!(
            "{all} reads, {reads} by the trace, {} seen; watched {:.1} %, places {} ppm, cost {} of {} ppm",
            summary.events(),
            watched * 100.0,
            sampling.places_ppm,
            overhead.used_ppm,
            overhead.limit_ppm,
        );
        assert_eq!((overhead.limit_ppm, meta.lost), (10_000, 0));
        assert!(watched < 0.7, "{watched}");
        assert!(overhead.used_ppm > 0 && overhead.used_ppm < 60_000, "{overhead:?}");
        assert!(summary.events() < all / 2, "{}", summary.events());
        // There are few turns, other programs run in some of them, and the reader is slower in them, by half in a debug build.
        assert!(reads >= all / 6 && reads <= all * 3, "{reads} of {all}");
        let other = accesses_of(&trace, "other");
        let misses: BTreeMap<u64, u64> = (0..512).map(|n| (n * 16384, 1)).collect();
        assert_eq!((sampling.places_ppm, counts(other, Op::Miss)), (1_000_000, misses));
        let direct = other.accesses.iter().filter(|a| a.direct);
        let direct: Vec<_> = direct.map(|a| (a.op, a.offset, a.length, a.count)).collect();
        let expected: Vec<_> = (0..512).map(|n| (Op::Read, n * 16384 + 8192, 4096, 1)).collect();
        assert_eq!(direct, expected);
        // The columns say the same to other readers.
        if fold.is_none() {
            let bytes: u64 = columns::bytes(&image.scratch().join("trace.parquet")).iter().sum();
            assert!(bytes >= reads * 4096, "{bytes}");
        }
    }
}

/// Direct I/O that never waits costs more than the least budget: places are left out, other ones in each turn, and the
/// counts stand for all.
#[test]
fn loop_busy_direct_io_is_sampled_by_places_in_turn() {
    let image = image_with_file(64 << 20);
    let file = image.path().join("f");
    let load = ["rw=randread", "bs=4k", "size=64M", "direct=1", "ioengine=io_uring", "iodepth=32"];
    let load = [&load[..], &["time_based", "runtime=5", "norandommap"]].concat();
    let mut figures = fio::JobFigures::default();
    let limit = |o: &mut Options| o.overhead = Some(0.2);
    let (summary, trace) = traced(&image, limit, || figures = fio::run(&file, &load));
    let (all, meta) = (figures.read.bytes / 4096, &trace.meta);
    let sampling = meta.sampling.expect("it is sampled");
    let f = accesses_of(&trace, "f");
    let stands_for: u64 = f.accesses.iter().map(|a| u64::from(a.count)).sum();
    let places: BTreeSet<u64> = f.accesses.iter().map(|a| a.offset / MIB).collect();
    println!("{all} reads, {stands_for} by the trace, {} seen, {sampling:?}", summary.events());
    assert!(sampling.places_ppm < 700_000 && meta.lost == 0, "{sampling:?}");
    assert!(f.accesses.iter().all(|a| a.direct && a.count.is_power_of_two()));
    assert!(stands_for.abs_diff(all) <= all / 5, "{stands_for} of {all}");
    assert_eq!(places.len(), 64, "the part goes round");
}

/// Files that are read once each, and one that is read again and again, in an eighth of the places at a time. What stands
/// for others is told from what was read so often.
#[test]
fn loop_files_that_are_read_once_are_told_from_one_that_is_read_again() {
    let image = image_with_file(16 << 20);
    let (once, f) = (image.path().join("once"), image.path().join("f"));
    let inode = std::fs::metadata(&f).unwrap().ino();
    std::fs::create_dir(&once).unwrap();
    (0..FILES).for_each(|n| std::fs::write(once.join(format!("{n}")), [1; 4096]).unwrap());
    image.sync();
    let work = format!(
        "
import mmap, os, sys, time
page = mmap.mmap(-1, 4096)
for n in range({FILES}):
    f = os.open(f'{{sys.argv[1]}}/{{n}}', os.O_RDONLY | os.O_DIRECT)
    assert os.preadv(f, [page], 0) == 4096
    os.close(f)
f, end, n = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT), time.time() + 1.5, 0
while time.time() < end or n % 16:
    os.preadv(f, [page], n % 16 << 20)
    n += 1
"
    );
    for fold in [None, Some(100_000)] {
        let configure = |o: &mut Options| {
            (o.overhead, o.places_shift, o.max_ranges) = (Some(100.0), 3, fold);
        };
        let (summary, whole) = traced(&image, configure, || python(&work, &[&once, &f]));
        assert_eq!(summary.meta.lost, 0);
        assert!(whole.files.iter().all(|file| file.recorded.is_empty()), "nobody asked for it");
        let turns = Filter { turns: true, fold_if_misses: true, ..Filter::default() };
        let trace = read(&image.scratch().join("trace.parquet"), &turns).unwrap();
        // By its number: the recorder does not look up every path on a busy machine.
        let of = |is_f: bool| -> Vec<(u32, Recorded)> {
            let files = trace.files.iter().filter(|file| (file.file.inode == inode) == is_f);
            let both = files.flat_map(|file| file.accesses.iter().zip(&file.recorded));
            both.filter(|(a, _)| a.direct).map(|(a, recorded)| (a.count, *recorded)).collect()
        };
        // Each that was seen was seen once, and stands for eight.
        let once = of(false);
        assert!(
            once.iter().all(|(count, recorded)| (*count, recorded.times) == (8, 1)),
            "{once:?}"
        );
        // In the turn of its place, however long it lasted.
        for file in trace.files.iter().filter(|file| file.file.inode != inode) {
            for (access, how) in file.accesses.iter().zip(&file.recorded).filter(|(a, _)| a.direct)
            {
                let place = (file.file.inode, access.offset / MIB);
                assert!(has_turn(place, how.turn.into(), 8), "{place:?}: {how:?}");
            }
        }
        let all = 8 * once.len() as u64;
        println!("{all} files, {:?}", whole.meta.sampling);
        assert!(all.abs_diff(FILES) < FILES / 4, "{all}");
        // Each of 16 places was seen in many turns, none of which has half of it. A folded trace has it in two rows, each of whose
        // times is rounded up.
        let again = of(true);
        let is_in_many = |(count, recorded): &(u32, Recorded)| {
            recorded.turn == Recorded::MANY
                && recorded.times - *count / 8 <= 1
                && recorded.most >= 8
                && recorded.most < *count / 2
        };
        assert_eq!((again.len(), again.iter().all(is_in_many)), (16, true), "{again:?}");
    }
}

/// Whether this turn is that of a place (inode and region) where one in so many has one (`bpf/sampling.h`).
fn has_turn((inode, region): (u64, u64), turn: u64, one_in: u64) -> bool {
    let round = (turn & !(one_in - 1)).wrapping_mul(0xd134_2543_de82_ef95);
    let x = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(region).wrapping_add(round);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 40 ^ turn) & (one_in - 1) == 0
}

/// Files that are read once each.
const FILES: u64 = 3000;

/// Where the kernel does not show direct I/O by itself, it is taken from system calls and io_uring, and that is said.
#[test]
fn loop_without_its_tracepoints_direct_io_is_a_request_like_others() {
    let image = image_with_file(64 << 20);
    let work = || python(READS, &[&image.path().join("f")]);
    let (summary, trace) = traced(&image, |o| o.without = vec!["iomap_dio_complete"], work);
    let direct = accesses_of(&trace, "f").accesses.iter().filter(|a| a.direct).count();
    assert_eq!((direct, summary.meta.lost), (4096, 0));
    let told = summary.meta.unseen_sources.iter().any(|s| s.contains("direct I/O during pauses"));
    assert!(told, "{:?}", summary.meta.unseen_sources);
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
