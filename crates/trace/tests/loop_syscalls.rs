//! Each system call that transfers file data, against exactly known accesses.

mod support;

use fragmend_testbed::file_system::{BTRFS, BTRFS_ZSTD, FileSystem};
use fragmend_testbed::image::{Image, run};
use fragmend_trace::{Level, Op};
use std::collections::BTreeSet;
use std::path::Path;
use support::{accesses_of, image_with_file, python, ranges, traced, volume};

use Op::{Fault, Miss, Read, Write};

#[test]
fn loop_reads_and_writes_are_seen_as_they_were() {
    let image = image_with_file(100_000);
    let (summary, trace) = traced(
        &image,
        |o| o.level = Level::Syscall,
        || {
            python(
                "
import os, sys
os.chdir(sys.argv[1])
f = os.open('f', os.O_RDONLY)
os.pread(f, 5000, 1234)
os.preadv(f, [bytearray(100), bytearray(200)], 777)
os.lseek(f, 100, 0); os.read(f, 50)
os.readv(f, [bytearray(10), bytearray(20)])
os.pread(f, 5000, 98000)                      # short: the file ends
os.pread(f, 5000, 200000)                     # nothing there
g = os.open('g', os.O_RDWR | os.O_CREAT)
os.write(g, b'x' * 1000)
os.pwrite(g, b'x' * 10, 5 << 32)              # beyond 4 GiB, sparse
os.writev(g, [b'x' * 3, b'y' * 4])
os.pwritev(g, [b'x' * 30, b'y' * 40], 5000)
os.pread(g, 4096, (5 << 32) - 4000)
a = os.open('a', os.O_RDWR | os.O_CREAT | os.O_APPEND)
os.write(a, b'x' * 1000)
os.pwrite(a, b'y' * 500, 0)                   # appends, whatever the offset says
h = os.open('h', os.O_RDWR | os.O_CREAT)
os.sendfile(h, f, 4096, 3000)
os.copy_file_range(f, h, 2000, 8192, 0)
os.copy_file_range(f, h, 2000)
r, w = os.pipe()
os.splice(f, w, 600, 7000)
os.splice(r, h, 600)
",
                &[image.path()],
            );
        },
    );
    let f = accesses_of(&trace, "f");
    assert_eq!(
        ranges(f),
        [
            (Read, 1234, 5000),
            (Read, 777, 300),
            (Read, 100, 50),
            (Read, 150, 30),
            (Read, 98_000, 2000),
            (Read, 4096, 3000),
            (Read, 8192, 2000),
            (Read, 180, 2000),
            (Read, 7000, 600),
        ]
    );
    assert!(f.accesses.iter().all(|a| !a.direct && !a.windowed && a.count == 1));
    assert_eq!(
        ranges(accesses_of(&trace, "g")),
        [
            (Write, 0, 1000),
            (Write, 5 << 32, 10),
            (Write, 1000, 7),
            (Write, 5000, 70),
            (Read, (5 << 32) - 4000, 4010),
        ]
    );
    assert_eq!(ranges(accesses_of(&trace, "a")), [(Write, 0, 1000), (Write, 1000, 500)]);
    assert_eq!(
        ranges(accesses_of(&trace, "h")),
        [(Write, 0, 3000), (Write, 0, 2000), (Write, 3000, 2000), (Write, 5000, 600)]
    );
    assert_eq!(summary.meta.lost, 0);
    assert_eq!(summary.rows, summary.events());
}

const MIB: u64 = 1 << 20;

/// Runs fio on `f` and compares numbers, bytes, directness and the set of blocks.
fn fio(image: &Image, args: &[&str], op: Op, direct: bool) {
    const BLOCK: u64 = 16 * 1024;
    let filename = format!("--filename={}", image.path().join("f").display());
    let (summary, trace) = traced(
        image,
        |_| {},
        || {
            let mut all = vec!["--name=job", "--size=16M", "--bs=16k", "--minimal", &filename];
            all.extend(args);
            run("fio", all);
        },
    );
    let f = accesses_of(&trace, "f");
    let accesses: Vec<_> = f.accesses.iter().filter(|a| a.op == op).copied().collect();
    assert_eq!(volume(&accesses), (1024, 16 * MIB), "{args:?}");
    assert!(accesses.iter().all(|a| a.direct == direct), "{args:?}");
    let blocks: BTreeSet<u64> = accesses.iter().map(|a| a.offset / BLOCK).collect();
    assert_eq!(blocks, (0..1024).collect(), "{args:?}");
    assert_eq!(summary.meta.lost, 0);
}

#[test]
fn loop_every_fio_engine_is_seen_exactly() {
    let image = image_with_file(16 << 20);
    for engine in ["sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring"] {
        for direct in [false, true] {
            let ioengine = format!("--ioengine={engine}");
            let directness = format!("--direct={}", u8::from(direct));
            let depth = "--iodepth=16";
            fio(&image, &[&ioengine, &directness, depth, "--rw=randread"], Read, direct);
            fio(&image, &[&ioengine, &directness, depth, "--rw=randwrite"], Write, direct);
        }
    }
    fio(&image, &["--ioengine=splice", "--rw=read"], Read, false);
    let uring = ["--ioengine=io_uring", "--direct=1", "--iodepth=8", "--rw=randread"];
    for extra in ["--sqthread_poll=1", "--fixedbufs=1", "--registerfiles=1"] {
        fio(&image, &[&uring[..], &[extra]].concat(), Read, true);
    }
}

/// What the file system does through the page cache, although the file was opened with `O_DIRECT`.
fn through_the_cache(file_system: &'static FileSystem, rw: &str, op: Op) {
    let image = Image::of(file_system, 384 << 20);
    std::fs::write(image.path().join("f"), vec![7; 16 << 20]).unwrap();
    image.sync();
    for engine in ["psync", "libaio", "io_uring"] {
        let ioengine = format!("--ioengine={engine}");
        fio(&image, &[&ioengine, "--direct=1", "--iodepth=16", rw], op, false);
    }
}

/// Btrfs writes data with checksums so.
#[test]
fn loop_direct_writes_that_go_through_the_cache_are_seen() {
    through_the_cache(&BTRFS, "--rw=randwrite", Write);
}

/// It reads compressed data so.
#[test]
fn loop_direct_reads_that_go_through_the_cache_are_seen() {
    through_the_cache(&BTRFS_ZSTD, "--rw=randread", Read);
}

fn touch_all(image: &Image) {
    python(
        "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(f, 0, prot=mmap.PROT_READ)
assert sum(m[i] for i in range(0, len(m), 4096)) == 7 * (len(m) // 4096)
",
        &[&image.path().join("f")],
    );
}

fn touch_some(image: &Image) {
    python(
        "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(f, 0, prot=mmap.PROT_READ)
m.madvise(mmap.MADV_RANDOM)
for i in range(0, 100): m[(i * 37 + 11) * 4096]
",
        &[&image.path().join("f")],
    );
}

#[test]
fn loop_faults_on_a_mapping_show_what_was_read() {
    let image = image_with_file(16 << 20);
    image.remount();
    let (_, trace) = traced(&image, |o| o.level = Level::Syscall, || touch_all(&image));
    let f = accesses_of(&trace, "f");
    assert!(f.accesses.iter().all(|a| a.op == Fault));
    // Every byte is covered, and next to none twice.
    let mut covered: Vec<_> = f.accesses.iter().map(|a| a.range()).collect();
    covered.sort_by_key(|r| r.start);
    let mut to = 0;
    for range in &covered {
        assert!(range.start <= to, "a hole in what was seen at {to}");
        to = to.max(range.end);
    }
    assert_eq!(to, 16 * MIB);
    let (_, bytes) = volume(&f.accesses);
    assert!(bytes < 17 * MIB, "{bytes} bytes of faults on a file of 16 MiB");

    image.remount();
    let (_, trace) = traced(&image, |o| o.level = Level::Syscall, || touch_some(&image));
    let touched: Vec<_> = (0..100).map(|i| (Fault, (i * 37 + 11) * 4096, 4096)).collect();
    assert_eq!(ranges(accesses_of(&trace, "f")), touched);
}

#[test]
fn loop_misses_are_what_the_device_read() {
    let image = image_with_file(16 << 20);
    let f = image.path().join("f");
    let filename = format!("--filename={}", f.display());
    let fio = |args: &[&str]| {
        let mut all = vec!["--name=job", "--size=16M", "--invalidate=0", "--minimal", &filename];
        all.extend(args);
        run("fio", all);
    };
    let works: [(&str, &dyn Fn()); 6] = [
        ("sequential", &|| drop(run("cat", [&f]))),
        ("a part", &|| drop(run("head", [Path::new("-c300000"), &f]))),
        ("random", &|| fio(&["--rw=randread", "--bs=4k", "--io_size=4M", "--ioengine=psync"])),
        ("io_uring", &|| fio(&["--rw=randread", "--bs=64k", "--ioengine=io_uring"])),
        ("mapped", &|| touch_all(&image)),
        ("mapped, random", &|| touch_some(&image)),
    ];
    for (name, work) in works {
        image.remount();
        // The inode and its extents are metadata: they are read beforehand.
        std::fs::metadata(&f).unwrap();
        run("filefrag", [&f]);
        let before = image.counters();
        let (_, trace) = traced(&image, |o| o.level = Level::Miss, work);
        let device = (image.counters() - before).read_bytes;
        let file = accesses_of(&trace, "f");
        assert!(file.accesses.iter().all(|a| a.op == Miss && !a.direct), "{name}");
        let (_, seen) = volume(&file.accesses);
        let off = device.abs_diff(seen);
        assert!(off <= 64 * 1024, "{name}: the device read {device} bytes, {seen} were seen");
    }
    // A second, cached read misses nothing; direct I/O always does.
    let missed = || {
        run("cat", [&f]);
        traced(&image, |o| o.level = Level::Miss, || drop(run("cat", [&f]))).0.events()
    };
    // Other processes may evict pages or drop the caches: one undisturbed read is enough.
    assert!((0..5).any(|_| missed() == 0));
    let (_, trace) = traced(
        &image,
        |o| o.level = Level::Miss,
        || {
            fio(&["--rw=randread", "--bs=16k", "--ioengine=libaio", "--direct=1"]);
        },
    );
    let direct = &accesses_of(&trace, "f").accesses;
    assert!(direct.iter().all(|a| a.op == Read && a.direct));
    assert_eq!(volume(direct), (1024, 16 * MIB));
}

/// `int 0x80` enters the kernel as a 32-bit program does, also from a 64-bit one.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_calls_of_32_bit_programs_are_counted_as_unseen() {
    let image = image_with_file(100_000);
    let (summary, trace) = traced(
        &image,
        |_| {},
        || {
            python(
                "
import ctypes, mmap, os, struct, sys
f = os.open(sys.argv[1], os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
MAP_32BIT = 0x40
page = libc.mmap(None, 8192, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT, -1, 0)
code = (b'\\x53\\xb8' + struct.pack('<I', 3) + b'\\xbb' + struct.pack('<I', f)
        + b'\\xb9' + struct.pack('<I', page + 4096) + b'\\xba' + struct.pack('<I', 512)
        + b'\\xcd\\x80\\x5b\\xc3')
ctypes.memmove(page, code, len(code))
assert ctypes.CFUNCTYPE(ctypes.c_int)(page)() == 512
os.pread(f, 10, 0)
",
                &[&image.path().join("f")],
            );
        },
    );
    assert_eq!(summary.meta.unseen_compat, 1);
    assert_eq!(ranges(accesses_of(&trace, "f")), [(Read, 0, 10)]);
}
