//! What the disks answered: against the kernel's own counters, and against fio.

mod support;

use fragmend_layout::{ObservedLoad, ObservedRequests};
use fragmend_sys::block::Counters;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS};
use fragmend_testbed::fio;
use fragmend_testbed::image::Image;
use fragmend_trace::Trace;
use fragmend_trace::record::{Options, Summary};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use support::{image_with_file, python, traced};

/// The sum of a field over the requests of one direction.
fn sum(load: &ObservedLoad, write: bool, field: fn(&ObservedRequests) -> u64) -> u64 {
    load.requests.iter().filter(|r| r.write == write).map(field).sum()
}

/// The load of the image's disk, which is the only one.
fn load_of(image: &Image, trace: &Trace) -> ObservedLoad {
    let [load] = &trace.meta.loads[..] else { panic!("{:?}", trace.meta.loads) };
    let node = std::fs::metadata(image.device()).unwrap();
    assert_eq!(
        (load.device, load.name.as_str()),
        (node.rdev(), image.block_device().name().as_str())
    );
    assert_eq!(trace.meta.devices[0].disks, [node.rdev()]);
    for class in &load.requests {
        assert!(class.count > 0 && class.up_to_bytes.is_power_of_two(), "{class:?}");
        let mean = |total: u64| total as f64 / class.count as f64;
        let (bytes, depth) = (class.up_to_bytes as f64, f64::from(class.up_to_in_flight));
        assert!((bytes / 2.0 < mean(class.bytes) || bytes == 512.0) && mean(class.bytes) <= bytes);
        assert!((depth / 2.0 < mean(class.in_flight) || depth == 1.0), "{class:?}");
        assert!(mean(class.in_flight) <= depth, "{class:?}");
    }
    load.clone()
}

/// What the recorder knows that it has not seen.
fn lost(summary: &Summary) -> u64 {
    summary.meta.lost + summary.meta.loads_lost
}

/// Whoever reads and writes, and however: the histogram counts what the kernel counts.
#[test]
fn loop_requests_are_counted_as_the_kernel_counts_them() {
    for file_system in [&EXT4, &XFS, &BTRFS] {
        let image = Image::of(file_system, 384 << 20);
        let file = image.path().join("f");
        std::fs::write(&file, vec![7; 32 << 20]).unwrap();
        image.remount();
        let name = file_system.name;
        let one = || {
            let mut counted = Counters::default();
            let work = || {
                let before = image.counters();
                for args in [
                    ["rw=randrw", "bsrange=4k-256k", "direct=1"],
                    ["rw=read", "bs=64k", "invalidate=1"],
                    ["rw=randwrite", "bs=12k", "fsync=64"],
                ] {
                    fio::run(&file, &[&args[..], &["size=16M"]].concat());
                }
                image.sync();
                counted = image.counters() - before;
            };
            let (summary, trace) = traced(&image, |_| {}, work);
            let load = load_of(&image, &trace);
            let reads = (sum(&load, false, |r| r.count), sum(&load, false, |r| r.bytes));
            let writes = (sum(&load, true, |r| r.count), sum(&load, true, |r| r.bytes));
            let lost = lost(&summary);
            println!("{name}: {reads:?} read, {writes:?} written, {lost} lost, {counted:?}");
            // The kernel counts flushes among the writes.
            let alike = reads == (counted.reads, counted.read_bytes)
                && writes.0.abs_diff(counted.writes) <= counted.writes / 50 + counted.flushes
                && writes.1 >= counted.written_bytes;
            (lost == 0 && alike).then_some(counted)
        };
        // The recording lasts a little longer, in which something else may read the device, as `mkfs.btrfs` does with
        // all of the machine; and the kernel may skip the recorder, which counts that: then it is tried again.
        let counted = (0..5).find_map(|_| one()).expect("nothing else reads it for a moment");
        assert!(counted.written_bytes >= 16 << 20, "{name}");
    }
}

/// Times and numbers in flight are those that fio measures, and Little's law holds.
#[test]
fn loop_times_and_depths_are_those_of_the_reader() {
    let image = image_with_file(64 << 20);
    let file = image.path().join("f");
    // What the file system itself writes would be in flight besides, for as long as the machine's disk takes.
    image.unmount();
    image.mount_with("ro");
    for (depth, args) in [
        (1.0, &["ioengine=psync", "iodepth=1"][..]),
        (32.0, &["ioengine=libaio", "iodepth=32"]),
        (32.0, &["ioengine=io_uring", "iodepth=32"]),
        (8.0, &["ioengine=psync", "numjobs=8", "group_reporting"]),
    ] {
        let measured = || {
            let (mut figures, mut lasted) = (fio::JobFigures::default(), Duration::ZERO);
            let work = || {
                let start = Instant::now();
                let common =
                    ["rw=randread", "bs=4k", "direct=1", "size=64M", "time_based", "runtime=1"];
                figures = fio::run(&file, &[&common[..], args].concat());
                lasted = start.elapsed();
            };
            let (summary, trace) = traced(&image, |_| {}, work);
            let load = load_of(&image, &trace);
            let count = sum(&load, false, |r| r.count);
            let (lost, before) = (lost(&summary), load.in_flight_before);
            println!("{args:?}: {count} reads, {before} in flight before bursts, {lost} lost");
            (figures, lasted, load, count)
        };
        // What else reads the device, as `mkfs.btrfs` does with all of the machine, reads much at a time, and on a busy
        // machine fio waits for the processor most of the time: then it is tried again.
        let others = |count: u64| count / 20;
        let is_alone = |load: &ObservedLoad, count| load.in_flight_before <= others(count);
        let mean_ns = |load: &ObservedLoad, count: u64| {
            sum(load, false, |r| r.total_ns) as f64 / count as f64
        };
        let runs = |figures: &fio::JobFigures, load: &ObservedLoad, count| {
            mean_ns(load, count) >= figures.read.p50.as_nanos() as f64 * 0.2
        };
        let (figures, lasted, load, count) = (0..5)
            .map(|_| measured())
            .find(|(figures, _, load, count)| {
                runs(figures, load, *count) && (depth > 1.0 || is_alone(load, *count))
            })
            .expect("nothing else reads it, and fio runs, for a second");
        let ns = mean_ns(&load, count);
        let in_flight = sum(&load, false, |r| r.in_flight) as f64 / count as f64;
        let (p50, mean) = (figures.read.p50.as_nanos() as f64, figures.read.mean.as_nanos() as f64);
        let law = ns * figures.read.iops / 1e9;
        let seen = load.depth(count as f64).unwrap();
        println!(
            "{args:?}: {count} reads in {lasted:?}, {ns:.0} ns each (fio's median {p50:.0}, mean {mean:.0}), {in_flight:.1} in \
             flight, by Little's law {law:.1}, {:.1} when a burst began, {} bursts",
            seen, load.read_bursts
        );
        // fio's time includes the system call, and waiting for the processor.
        assert!(ns <= mean * 1.1, "{args:?}: {ns} ns, {mean} ns for fio");
        assert!(in_flight <= depth + 1.0 && in_flight >= law * 0.4, "{args:?}: {in_flight}, {law}");
        // A reader that refills its queue at once begins a burst when little is in flight.
        assert!((1.0..=depth + 1.0).contains(&seen), "{args:?}: {seen}");
        if depth == 1.0 {
            assert!(load.read_bursts + others(count) >= count, "{args:?}: {load:?}");
        } else {
            assert!(in_flight > 1.5, "{args:?}: {in_flight}");
        }
    }
}

/// A read of which a part is done is in flight as a whole.
#[test]
fn loop_reads_in_flight_are_counted_whole() {
    let image = image_with_file(64 << 20);
    image.set_queue("max_sectors_kb", "64");
    let file = image.path().join("f");
    let args = ["rw=randread", "bs=1M", "direct=1", "size=64M", "ioengine=psync", "numjobs=4"];
    let one = || {
        let work = || {
            let _ = fio::run(&file, &[&args[..], &["time_based", "runtime=1"]].concat());
        };
        let (_, trace) = traced(&image, |_| {}, work);
        let load = load_of(&image, &trace);
        let requests = sum(&load, false, |r| r.count) as f64;
        let reads = requests / 16.0;
        let by_requests = 1.0 + load.in_flight_before as f64 / load.read_bursts as f64 / 16.0;
        // Where requests are done before the last one of a read is issued, a read is several bursts.
        let bursts = load.read_bursts as f64 / reads;
        let depth = load.depth(reads).unwrap();
        println!(
            "{reads} reads, {bursts:.2} bursts each, depth {depth:.2}, by requests {by_requests:.2}"
        );
        // A read of several bursts counts as often.
        (bursts < 1.5).then_some(depth / bursts.max(1.0))
    };
    let depth =
        (0..10).find_map(|_| one()).expect("a read is issued as a whole before a part is done");
    assert!((2.5..=5.0).contains(&depth), "{depth}");
}

/// Requests into which one read is split are one burst.
#[test]
fn loop_a_split_read_is_one_burst() {
    const READS: u64 = 50;
    let image = image_with_file(64 << 20);
    image.set_queue("max_sectors_kb", "64");
    let work = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
for n in range(50): assert os.preadv(f, [buffer], n << 20) == 1 << 20
";
    let (summary, trace) = traced(&image, |_| {}, || python(work, &[&image.path().join("f")]));
    let load = load_of(&image, &trace);
    let reads = sum(&load, false, |r| r.count);
    // The kernel may skip a program in an interrupt of the same one, and it does not call any program for some ends of
    // requests (seen with two recorders, of which both lacked the same eight of 175,000): its own count shows these.
    let lost = lost(&summary);
    let all = READS * 16;
    let few = all / 20;
    assert!(lost <= few && reads >= all - few, "{reads} of {all} seen, {lost} lost");
    assert!(load.counted_reads >= Some(all), "{load:?}");
    // A request may be done before the last one is issued: then there are more bursts, but nothing else is in flight.
    let depth = load.depth(READS as f64).unwrap();
    println!("{reads} requests in {} bursts, depth {depth:.2}", load.read_bursts);
    assert!((READS..=reads).contains(&load.read_bursts), "{}", load.read_bursts);
    assert!((1.0..2.0).contains(&depth), "{depth}");
    let together = load.requests.iter().map(|r| r.up_to_in_flight).max();
    assert!(load.read_bursts == reads || together > Some(1), "{together:?}");
}

#[test]
fn loop_a_kernel_without_the_tracepoints_is_reported() {
    let image = image_with_file(1 << 20);
    let without = |o: &mut Options| o.without = vec!["block_rq_complete"];
    let (_, trace) = traced(&image, without, || {});
    assert!(trace.meta.loads.is_empty());
    let [what] = &trace.meta.unseen_sources[..] else { panic!("{:?}", trace.meta.unseen_sources) };
    assert!(what.contains("answered") && what.contains(&image.block_device().name()), "{what}");
}
