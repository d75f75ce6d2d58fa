//! What missed the page cache, beside what programs asked for: against what the block layer has read.

mod support;

use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::image::{Image, run};
use fragmend_trace::record::{Options, Summary, record};
use fragmend_trace::{FileAccesses, Level, Misses, Op, Trace};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use support::{accesses_of, image_with_file, python, traced, volume};

const MIB: u64 = 1 << 20;
const FILE: u64 = 12 * MIB;

/// Python: the file `f`, of which nothing is cached, and some ways to read it.
const READS: &str = "
import mmap, os, random, sys, threading
random.seed(5)
f = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(f).st_size
pages = size // 4096
def mapped():
    return mmap.mmap(f, 0, prot=mmap.PROT_READ)
def evict(g, stop):
    while not stop.is_set():
        os.posix_fadvise(g, random.randrange(pages) * 4096, 1 << 20, os.POSIX_FADV_DONTNEED)
";

/// Each way to read, in Python.
const WAYS: [(&str, &str); 9] = [
    ("sequential, 4 KiB", "while os.read(f, 4096): pass"),
    ("sequential, 1 MiB", "while os.read(f, 1 << 20): pass"),
    ("stride", "for at in range(0, size, 256 << 10): os.pread(f, 65536, at)"),
    ("random, 4 KiB", "for _ in range(1500): os.pread(f, 4096, random.randrange(pages) * 4096)"),
    ("random, 40 KiB", "for _ in range(500): os.pread(f, 40000, random.randrange(pages) * 4096)"),
    ("mapped", "m = mapped(); sum(m[i] for i in range(0, size, 4096))"),
    (
        "mapped, random",
        "m = mapped(); m.madvise(mmap.MADV_RANDOM); [m[random.randrange(size)] for _ in range(1000)]",
    ),
    (
        "four threads",
        "
def some():
    for _ in range(300): os.pread(f, 20000, random.randrange(pages) * 4096)
    for at in range(0, size, 128 << 10): os.pread(f, 128 << 10, at)
all = [threading.Thread(target=some) for _ in range(4)]
[t.start() for t in all]; [t.join() for t in all]
",
    ),
    (
        "a cache that is too small",
        "
stop = threading.Event()
evicts = threading.Thread(target=evict, args=[f, stop]); evicts.start()
for _ in range(2000): os.pread(f, 16384, random.randrange(pages) * 4096)
stop.set(); evicts.join()
",
    ),
];

/// Reads the file once, and drops it from the page cache: what describes it is cached then, its data is not.
fn forget(file: &Path) {
    python(
        "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
while os.read(f, 1 << 20): pass
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
",
        &[file],
    );
}

/// The bytes of one operation, as the rows have them.
fn bytes_of(file: &FileAccesses, op: Op) -> u64 {
    let accesses: Vec<_> = file.accesses.iter().filter(|a| a.op == op).copied().collect();
    volume(&accesses).1
}

/// Records a way to read; returns the bytes that the disk read meanwhile as well.
fn beside(image: &Image, way: &str, configure: impl FnOnce(&mut Options)) -> (Summary, Trace, u64) {
    let file = image.path().join("f");
    forget(&file);
    let mut device = 0;
    let work = || {
        let before = image.counters();
        python(&format!("{READS}{way}"), &[&file]);
        device = (image.counters() - before).read_bytes;
    };
    let (summary, trace) = traced(image, configure, work);
    (summary, trace, device)
}

/// Every byte that the disk reads for the page cache is a miss, and every miss is read.
fn misses_are_what_the_disk_reads(file_system: &'static FileSystem, ways: &[(&str, &str)]) {
    let image = Image::of(file_system, 384 << 20);
    std::fs::write(image.path().join("f"), vec![7; FILE as usize]).unwrap();
    image.remount();
    for (name, way) in ways {
        let (summary, trace, device) = beside(&image, way, |_| {});
        let meta = &trace.meta;
        assert_eq!((meta.level, meta.misses), (Level::Both, Misses::Recorded));
        let file = accesses_of(&trace, "f");
        let missed = bytes_of(file, Op::Miss);
        let off = missed as f64 / device as f64 - 1.0;
        println!(
            "{}, {name}: the disk read {device} bytes, {missed} were missed ({:+.2} %), in {} misses",
            file_system.name,
            off * 100.0,
            file.accesses.iter().filter(|a| a.op == Op::Miss).count(),
        );
        assert!(off.abs() < 0.02, "{name}: the disk read {device} bytes, {missed} were missed");
        assert_eq!(missed, summary.bytes(Op::Miss));
        let asked = if name.starts_with("mapped") { Op::Fault } else { Op::Read };
        assert!(bytes_of(file, asked) > 0, "{name}");
        assert_eq!(meta.lost, 0);
    }
}

#[test]
fn loop_misses_on_ext4_are_what_the_disk_reads() {
    misses_are_what_the_disk_reads(&EXT4, &WAYS);
}

#[test]
fn loop_misses_on_xfs_are_what_the_disk_reads() {
    misses_are_what_the_disk_reads(&XFS, &WAYS[4..]);
}

#[test]
fn loop_misses_on_btrfs_are_what_the_disk_reads() {
    misses_are_what_the_disk_reads(&BTRFS, &WAYS[4..]);
}

/// A buffered read is a read, what the page cache fetched for it a miss; a hit is a read alone.
#[test]
fn loop_a_cached_read_is_no_miss_and_a_direct_one_is_seen_once() {
    let image = image_with_file(FILE as usize);
    let cached = || {
        let (_, trace, device) = beside(&image, "os.preadv(f, [bytearray(size)], 0)", |_| {});
        let first = bytes_of(accesses_of(&trace, "f"), Op::Miss);
        assert_eq!(bytes_of(accesses_of(&trace, "f"), Op::Read), FILE);
        assert!(first >= FILE && first <= device + MIB / 4, "{first} of {device}");
        let again = || {
            python(
                &format!("{READS}os.preadv(f, [bytearray(size)], 0)"),
                &[&image.path().join("f")],
            )
        };
        let (_, trace) = traced(&image, |_| {}, again);
        assert_eq!(bytes_of(accesses_of(&trace, "f"), Op::Read), FILE);
        bytes_of(accesses_of(&trace, "f"), Op::Miss)
    };
    // Other programs may need the memory meanwhile: one undisturbed read is enough.
    assert!((0..5).any(|_| cached() == 0));

    let filename = format!("--filename={}", image.path().join("f").display());
    let fio = || {
        let args = ["--name=job", "--size=12M", "--rw=randread", "--bs=16k", "--direct=1"];
        run("fio", args.into_iter().chain(["--minimal", &filename]));
    };
    let (summary, trace) = traced(&image, |_| {}, fio);
    let direct = &accesses_of(&trace, "f").accesses;
    assert!(direct.iter().all(|a| a.op == Op::Read && a.direct));
    assert_eq!(volume(direct), (768, 12 * MIB));
    assert_eq!((summary.rows, summary.bytes(Op::Miss)), (768, 0));
}

/// What a program writes is added to the page cache without being read.
#[test]
fn loop_written_pages_are_no_misses() {
    let image = image_with_file(MIB as usize);
    let write = "
f = os.open(sys.argv[1] + '2', os.O_RDWR | os.O_CREAT)
for n in range(256): os.write(f, bytes(4096)); os.pread(f, 4096, n * 4096)
os.fsync(f)
";
    let (summary, ..) = beside(&image, write, |_| {});
    assert_eq!((summary.bytes(Op::Write), summary.bytes(Op::Read)), (MIB, MIB));
    assert_eq!(summary.bytes(Op::Miss), 0);
}

/// Pages that a program writes after it has read them from the device once.
#[test]
fn loop_pages_that_are_written_anew_are_no_misses() {
    for file_system in [&EXT4, &XFS, &BTRFS] {
        let image = Image::of(file_system, 384 << 20);
        std::fs::write(image.path().join("f"), vec![7; MIB as usize]).unwrap();
        image.remount();
        let way = "
while os.read(f, 65536): pass
g = os.open(sys.argv[1], os.O_RDWR)
for _ in range(30):
    os.ftruncate(g, 0)
    for n in range(16): os.pwrite(g, bytes(65536), n * 65536)
# Readahead that finds a part in the cache is not over.
for _ in range(30):
    os.fsync(g)
    os.posix_fadvise(g, 0, 32768, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(g, 0, 65536, os.POSIX_FADV_WILLNEED)
    os.ftruncate(g, 0)
    for n in range(16): os.pwrite(g, bytes(65536), n * 65536)
";
        let (summary, trace, device) = beside(&image, way, |_| {});
        let missed = bytes_of(accesses_of(&trace, "f"), Op::Miss);
        let off = missed.abs_diff(device) as f64 / device as f64;
        let name = file_system.name;
        assert!(off < 0.03, "{name}: the disk read {device} bytes, {missed} were missed");
        assert_eq!((summary.bytes(Op::Write), summary.meta.lost), (60 * MIB, 0), "{name}");
    }
}

#[test]
fn loop_a_folded_recording_has_the_same_misses() {
    let image = image_with_file(FILE as usize);
    for (name, way) in WAYS.into_iter().step_by(3) {
        let (summary, trace, device) = beside(&image, way, |o| o.max_ranges = Some(100_000));
        let file = accesses_of(&trace, "f");
        let missed = bytes_of(file, Op::Miss);
        let off = missed.abs_diff(device) as f64 / device as f64;
        assert!(off < 0.02, "{name}: the disk read {device} bytes, {missed} were missed");
        assert!(trace.meta.folded && trace.meta.level == Level::Both && summary.meta.lost == 0);
        let misses = file.accesses.iter().filter(|a| a.op == Op::Miss);
        assert!(misses.clone().all(|a| !a.windowed && !a.direct));
        if name.starts_with("random") {
            assert!(file.accesses.iter().any(|a| a.op == Op::Read), "{name}");
        }
    }
}

/// Where the kernel does not show what misses the page cache, only what programs ask for is recorded, and that is
/// said.
#[test]
fn loop_without_its_tracepoints_misses_are_reported_as_not_recorded() {
    let image = image_with_file(MIB as usize);
    let way = "os.preadv(f, [bytearray(size)], 0)";
    let tracepoints =
        ["page_cache_ra_order", "page_cache_ra_unbounded", "mm_filemap_add_to_page_cache"];
    for tracepoint in tracepoints {
        let without = |o: &mut Options| o.without = vec![tracepoint];
        let (summary, trace, device) = beside(&image, way, without);
        let meta = &trace.meta;
        assert_eq!((meta.level, meta.misses), (Level::Syscall, Misses::NotRecorded));
        assert!(device >= MIB && !meta.has_misses());
        assert_eq!((summary.bytes(Op::Read), summary.bytes(Op::Miss)), (MIB, 0));
        let [what] = &meta.unseen_sources[..] else { panic!("{:?}", meta.unseen_sources) };
        assert!(what.contains("what missed the page cache") && what.contains(tracepoint), "{what}");
    }
    // Who asks for misses alone gets none of the rest.
    let mut options = Options::new(image.scratch().join("t"), vec![image.path().to_owned()]);
    options.level = Level::Miss;
    options.without = vec!["page_cache_ra_order"];
    let refused = record(&options, &AtomicBool::new(true), &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("page_cache_ra_order"), "{refused}");
}
