//! System calls that any local user can make during a recording: none spoils it. Impossible
//! accesses are dropped and counted, invisible ones are reported, and the trace stays readable to
//! the last row.

mod support;

use fragmend_testbed::columns;
use fragmend_testbed::image::Image;
use fragmend_trace::Level;
use fragmend_trace::Op::{Fault, Read, Write};
use fragmend_trace::record::Options;
use support::{URING, accesses_of, image_with_file, python, ranges, traced};

/// Python: `libc`, and libaio by bare system calls: `submit([iocb(...), ...])` and `reap(n)`.
const AIO: &str = "
import ctypes, fcntl, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
PREAD, PWRITE, PREADV, PWRITEV = 0, 1, 7, 8
context = ctypes.c_ulong(0)
assert libc.syscall(206, 1024, ctypes.byref(context)) == 0
kept = []
def iocb(op, fd, address, nbytes, offset, flags=0):
    raw = struct.pack('<QIIHhIQQqQII', 0, 0, flags, op, 0, fd, address, nbytes, offset, 0, 0, 0)
    kept.append(ctypes.create_string_buffer(raw, len(raw)))
    return ctypes.addressof(kept[-1])
def submit(iocbs):
    pointers = (ctypes.c_void_p * len(iocbs))(*iocbs)
    kept.append(pointers)
    return libc.syscall(209, context, ctypes.c_long(len(iocbs)), pointers)
def reap(n):
    events = (ctypes.c_char * (32 * n))()
    assert libc.syscall(208, context, ctypes.c_long(n), ctypes.c_long(n), events, None) == n
    return [struct.unpack_from('<q', events, 32 * i + 16)[0] for i in range(n)]
os.chdir(sys.argv[1])
";

fn aio(image: &Image, code: &str) {
    python(&format!("{AIO}{code}"), &[image.path()]);
}

/// The kernel accepts the request and fails it afterwards: the file is empty, so the offset that
/// the recorder computes is before its start.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_an_append_that_fails_after_submission_spoils_nothing() {
    let image = image_with_file(100_000);
    let work = || {
        aio(
            &image,
            "
a = os.open('a', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
assert submit([iocb(PWRITE, a, 8, 4096, 0)]) == 1
assert reap(1) == [-14]
f = os.open('f', os.O_RDONLY)
os.pread(f, 100, 0)
",
        );
    };
    for fold in [None, Some(1000)] {
        let (summary, trace) = traced(&image, |o| o.max_ranges = fold, work);
        assert_eq!((summary.meta.dropped, trace.meta.dropped, trace.skipped), (1, 1, 0));
        assert_eq!((summary.events(), summary.rows, summary.meta.lost), (2, 1, 0));
        assert_eq!(ranges(accesses_of(&trace, "f")), [(Read, 0, 100)]);
    }
}

/// Two threads share a file position: one reads, the other moves it back in between. The race is
/// tried until it has happened; the assertions hold either way.
#[test]
fn loop_a_position_that_is_moved_meanwhile_spoils_nothing() {
    let image = image_with_file(100_000);
    let work = || {
        python(
            "
import os, sys, threading, time
f = os.open(sys.argv[1] + '/f', os.O_RDONLY)
end = time.monotonic() + 1
def move():
    while time.monotonic() < end:
        for _ in range(1000): os.lseek(f, 0, 0)
thread = threading.Thread(target=move)
thread.start()
while time.monotonic() < end:
    for _ in range(100): os.readv(f, [bytearray(65536)])
thread.join()
",
            &[image.path()],
        );
    };
    const ROUNDS: u32 = 20;
    for _ in 0..ROUNDS {
        let (summary, trace) = traced(&image, |_| {}, work);
        assert_eq!(summary.rows + summary.meta.dropped + summary.meta.lost, summary.events());
        let rows: usize = trace.files.iter().map(|f| f.accesses.len()).sum();
        assert_eq!((trace.skipped, rows as u64), (0, summary.rows));
        if summary.meta.dropped > 0 {
            return;
        }
    }
    panic!("in {ROUNDS} rounds no read met a moved position: nothing was tried");
}

/// Lengths that no call transfers: they are shortened as the kernel does, to the end of the file or to
/// the maximum of one call, and not otherwise.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_lengths_of_libaio_are_those_that_the_kernel_takes() {
    const MOST: u32 = 0x7fff_f000;
    let image = image_with_file(100_000);
    let work = || {
        aio(
            &image,
            "
os.close(os.open('huge', os.O_CREAT | os.O_RDWR))
os.truncate('huge', 1 << 43)
h, f = os.open('huge', os.O_RDONLY), os.open('f', os.O_RDONLY)
# 1,024 reads that fail: nothing is at that address.
for _ in range(8):
    assert submit([iocb(PREAD, h, 8, 1 << 62, 4096 * i) for i in range(128)]) == 128
    assert all(result < 0 for result in reap(128))
page = mmap.mmap(-1, 1 << 17)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
assert submit([iocb(PREAD, f, address, (1 << 32) + 5, 1000)]) == 1
reap(1)
# 1,024 vectors of 90 bytes: more than the 256 that were summed up once.
vectors = (ctypes.c_uint64 * 2048)(*[address, 90] * 1024)
assert submit([iocb(PREADV, f, ctypes.addressof(vectors), 1024, 0)]) == 1
assert reap(1) == [92160]
",
        );
    };
    let (summary, trace) = traced(&image, |o| o.level = Level::Syscall, work);
    let huge = accesses_of(&trace, "huge");
    assert_eq!(huge.accesses.len(), 1024);
    assert!(huge.accesses.iter().all(|a| (a.op, a.length) == (Read, MOST)));
    // An `nbytes` of 4 GiB and 5 bytes must not be recorded as 5.
    assert_eq!(ranges(accesses_of(&trace, "f")), [(Read, 1000, 99_000), (Read, 0, 92_160)]);
    assert_eq!((summary.meta.dropped, summary.meta.lost), (0, 0));
    // This kernel shows all sources, and counts the runs of programs that it skips.
    assert_eq!(summary.meta.unseen_sources, [""; 0]);
}

/// A vector that cannot be read at the end of `io_submit`, because its page has just been unmapped, leaves the
/// length unknown.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_vectors_that_cannot_be_read_are_counted() {
    const READS: u64 = 20_000;
    let image = image_with_file(100_000);
    let work = || {
        aio(
            &image,
            "
import threading
f = os.open('f', os.O_RDONLY)
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
os.write(os.open('../vectors', os.O_RDWR | os.O_CREAT), struct.pack('<QQ', address, 4096).ljust(4096, b'\\0'))
vectors = mmap.mmap(os.open('../vectors', os.O_RDWR), 4096)
vector = ctypes.addressof(ctypes.c_char.from_buffer(vectors))
ends = False
def unmap():
    while not ends: libc.madvise(ctypes.c_void_p(vector), ctypes.c_size_t(4096), 4)
thread = threading.Thread(target=unmap)
thread.start()
for _ in range(20000):
    assert submit([iocb(PREADV, f, vector, 1, 0)]) == 1
    assert reap(1) == [4096]
    kept.clear()
ends = True
thread.join()
",
        );
    };
    const ROUNDS: u32 = 10;
    for _ in 0..ROUNDS {
        let (summary, trace) = traced(&image, |_| {}, work);
        assert!(accesses_of(&trace, "f").accesses.iter().all(|a| a.length == 4096));
        assert_eq!(summary.rows + summary.meta.lost, READS);
        if summary.meta.lost > 0 {
            return;
        }
    }
    panic!("in {ROUNDS} rounds every vector was read: nothing was tried");
}

/// `O_APPEND` decides where a direct write goes, too.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_direct_appends_are_placed_where_they_went_or_counted() {
    let image = image_with_file(100_000);
    let work = || {
        aio(
            &image,
            "
page = mmap.mmap(-1, 8192)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
a = os.open('a', os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
os.write(a, page)
assert libc.pwrite(a, ctypes.c_void_p(address), ctypes.c_size_t(4096), ctypes.c_long(0)) == 4096
assert os.fstat(a).st_size == 12288
# Only submitted: the file may grow later.
assert submit([iocb(PWRITE, a, address, 4096, 0)]) == 1
assert reap(1) == [4096]
",
        );
    };
    let (summary, trace) = traced(&image, |_| {}, work);
    let [first, second, third] = [(Write, 0, 8192), (Write, 8192, 4096), (Write, 12288, 4096)];
    assert_eq!(ranges(accesses_of(&trace, "a")), [first, second, third]);
    assert_eq!(summary.meta.dropped, 0);
    // Where only the submission is seen, the last one is counted.
    std::fs::remove_file(image.path().join("a")).unwrap();
    let (summary, trace) = traced(&image, |o| o.without = vec!["iomap_dio_rw_begin"], work);
    assert_eq!(ranges(accesses_of(&trace, "a")), [first, second]);
    assert_eq!(summary.meta.dropped, 1);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn loop_splices_of_io_uring_are_reads_and_writes() {
    let image = image_with_file(100_000);
    let work = || {
        python(
            &format!(
                "{URING}
os.chdir(sys.argv[1])
f = os.open('f', os.O_RDONLY)
h = os.open('h', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
r, w = os.pipe()
assert splice(f, 7000, w, -1, 600) == 600
assert splice(r, -1, h, 50, 600) == 600
os.lseek(f, 300, 0)
assert splice(f, -1, w, -1, 40) == 40
assert splice(r, -1, h, -1, 40) == 40
# A registered file.
files = (ctypes.c_int * 1)(f)
assert libc.syscall(427, ring, 2, files, 1) == 0
assert splice(0, 9000, w, -1, 70, FIXED) == 70
"
            ),
            &[image.path()],
        );
    };
    let (summary, trace) = traced(&image, |_| {}, work);
    assert_eq!(
        ranges(accesses_of(&trace, "f")),
        [(Read, 7000, 600), (Read, 300, 40), (Read, 9000, 70)]
    );
    assert_eq!(ranges(accesses_of(&trace, "h")), [(Write, 50, 600), (Write, 0, 40)]);
    assert_eq!((summary.meta.unseen_splices, summary.meta.lost), (0, 0));
}

/// Every call of the 32-bit table that transfers is counted, whichever argument is the file.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_every_32_bit_call_that_transfers_is_counted() {
    let image = image_with_file(100_000);
    let work = || {
        python(
            "
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
page = libc.mmap(None, 16384, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, -1, 0)
data = page + 4096
def int80(number, *args):
    code = b'\\x53\\x55\\x56\\x57\\xbd\\0\\0\\0\\0\\xb8' + struct.pack('<I', number)
    for load, value in zip((b'\\xbb', b'\\xb9', b'\\xba', b'\\xbe', b'\\xbf'), args):
        code += load + struct.pack('<I', value & 0xffffffff)
    code += b'\\xcd\\x80\\x5f\\x5e\\x5d\\x5b\\xc3'
    ctypes.memmove(page, code, len(code))
    return ctypes.CFUNCTYPE(ctypes.c_int)(page)()
os.chdir(sys.argv[1])
f = os.open('f', os.O_RDONLY)
null = os.open('/dev/null', os.O_WRONLY)
r, w = os.pipe()
ctypes.memmove(data, struct.pack('<II', data + 64, 100), 8)
assert int80(3, f, data + 64, 100) == 100              # read
assert int80(145, f, data, 1) == 100                   # readv
assert int80(180, f, data + 64, 100, 0, 0) == 100      # pread64
assert int80(187, w, f, 0, 100) == 100                 # sendfile
assert int80(239, w, f, 0, 100) == 100                 # sendfile64
assert int80(313, f, 0, w, 0, 100) == 100              # splice
# io_submit: a context, an array of 32-bit pointers, an iocb.
ctypes.memset(data, 0, 4)
assert int80(245, 8, data) == 0                        # io_setup
context = struct.unpack('<I', ctypes.string_at(data, 4))[0]
iocb = struct.pack('<QIIHhIQQqQII', 0, 0, 0, 0, 0, f, data + 512, 100, 0, 0, 0, 0)
ctypes.memmove(data + 256, iocb, len(iocb))
ctypes.memmove(data + 128, struct.pack('<I', data + 256), 4)
assert int80(248, context, 1, data + 128) == 1         # io_submit
assert int80(3, os.open('/dev/zero', os.O_RDONLY), data + 64, 100) == 100 # elsewhere
os.pread(f, 10, 0)
",
            &[image.path()],
        );
    };
    let (summary, trace) = traced(&image, |_| {}, work);
    assert_eq!((summary.meta.unseen_compat, trace.meta.unseen_compat), (7, 7));
    assert_eq!(ranges(accesses_of(&trace, "f")), [(Read, 0, 10)]);
}

/// Directories may be nested arbitrarily deep: an access whose path is not followed is counted.
#[test]
fn loop_files_under_many_directories_are_below_the_path_or_counted() {
    let image = image_with_file(1000);
    let inside = image.path().join("in");
    std::fs::create_dir(&inside).unwrap();
    let make = "
import os, sys
os.chdir(sys.argv[1])
for depth in range(1, 1201):
    os.mkdir('d'); os.chdir('d')
    if depth in (200, 1000, 1200):
        with open(f'deep{depth}', 'wb') as f: f.write(b'x' * 100)
";
    python(make, &[&inside]);
    let work = || {
        python(
            "
import os, sys
os.chdir(sys.argv[1])
for depth in range(1, 1201):
    os.chdir('d')
    if depth in (200, 1000, 1200):
        f = os.open(f'deep{depth}', os.O_RDONLY)
        for _ in range(3): os.pread(f, 100, 0)
        os.close(f)
f = os.open(sys.argv[1] + '/../f', os.O_RDONLY); os.pread(f, 1, 0)
",
            &[&inside],
        );
    };
    let (summary, trace) = traced(&image, |o| o.paths = vec![inside.clone()], work);
    let sizes: Vec<_> = trace.files.iter().map(|f| f.accesses.len()).collect();
    assert_eq!((sizes, summary.meta.unplaced, trace.meta.unplaced), (vec![3, 3], 3, 3));
    let (summary, trace) = traced(&image, |_| {}, work);
    assert_eq!((trace.files.len(), summary.meta.unplaced), (4, 0), "no filter, no walk");
}

/// A file that was opened by handle is disconnected until it is looked up by name.
#[cfg(target_arch = "x86_64")]
#[test]
fn loop_files_opened_by_handle_are_counted_or_nameless() {
    let image = image_with_file(1000);
    let inside = image.path().join("in");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("g"), [1; 1000]).unwrap();
    let handle = image.scratch().join("handle");
    let calls = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(136)
";
    let name = "
buffer[0] = 128
mount = ctypes.c_int(0)
assert libc.syscall(303, -100, sys.argv[1].encode(), buffer, ctypes.byref(mount), 0) == 0
open(sys.argv[2], 'wb').write(buffer.raw)
";
    let open = "
ctypes.memmove(buffer, open(sys.argv[2], 'rb').read(), 136)
top = os.open(sys.argv[1], os.O_RDONLY)
g = libc.syscall(304, top, buffer, 0)
assert g >= 0
for _ in range(3): os.pread(g, 100, 0)
";
    python(&format!("{calls}{name}"), &[&inside.join("g"), &handle]);
    let work = || {
        image.remount();
        python(&format!("{calls}{open}"), &[image.path(), &handle]);
    };
    let inside = |o: &mut Options| {
        o.paths = vec![inside.clone()];
        o.level = Level::Syscall;
    };
    let (summary, trace) = traced(&image, inside, work);
    assert_eq!((trace.files.len(), summary.meta.unplaced, summary.events()), (0, 3, 0));
    let (summary, trace) = traced(&image, |o| o.level = Level::Syscall, work);
    assert_eq!((summary.meta.unplaced, summary.meta.files_without_path), (0, 1));
    assert_eq!(trace.files[0].path, None);
    assert_eq!(ranges(&trace.files[0]), [(Read, 0, 100); 3]);
}

/// A fault on cached pages is kept back until the thread's next one. None is lost when 20,000 threads
/// begin and end with one fault each.
#[test]
fn loop_faults_of_threads_that_end_are_kept() {
    const THREADS: usize = 20_000;
    let image = image_with_file(4096);
    let work = || {
        python(
            "
import _thread, mmap, os, sys
f = os.open(sys.argv[1] + '/f', os.O_RDONLY)
done = _thread.allocate_lock()
def touch():
    with mmap.mmap(f, 0, prot=mmap.PROT_READ) as m: m[0]
    done.release()
for _ in range(20000):
    done.acquire()
    _thread.start_new_thread(touch, ())
done.acquire()
",
            &[image.path()],
        );
    };
    let (summary, trace) = traced(&image, |_| {}, work);
    let faults = &accesses_of(&trace, "f").accesses;
    assert!(faults.iter().all(|a| (a.op, a.offset, a.length) == (Fault, 0, 4096)));
    assert_eq!((faults.len(), summary.meta.lost), (THREADS, 0));
}

/// Many short streams: each enters two readahead windows and reads little of them.
#[test]
fn loop_a_folded_recording_knows_the_bytes_really_read() {
    let image = image_with_file(16 << 20);
    let file = image.path().join("f");
    let load = "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
for at in range(0, 16 << 20, 256 << 10):
    for chunk in range(3): os.pread(f, 1000, at + 1000 * chunk)
os.lseek(f, 0, 0)
for _ in range(1000): os.read(f, 1000)
";
    let read_bytes = (64 * 3 + 1000) * 1000;
    for ranges in [100_000, 200, 4] {
        let (summary, trace) =
            traced(&image, |o| o.max_ranges = Some(ranges), || python(load, &[&file]));
        let output = image.scratch().join("trace.parquet");
        let bytes: u64 = columns::bytes(&output).iter().sum();
        assert_eq!(summary.bytes(Read), read_bytes);
        if ranges == 4 {
            assert!(summary.meta.lost > 0 && bytes < read_bytes);
            continue;
        }
        assert_eq!((bytes, summary.meta.lost), (read_bytes, 0), "{ranges} ranges");
        let wide: u64 = accesses_of(&trace, "f")
            .accesses
            .iter()
            .map(|a| u64::from(a.length) * u64::from(a.count))
            .sum();
        assert!(wide > 2 * read_bytes, "{wide} bytes of windows: widened no more?");
    }
    let (_, _) = traced(&image, |_| {}, || python(load, &[&file]));
    let bytes: u64 = columns::bytes(&image.scratch().join("trace.parquet")).iter().sum();
    assert_eq!(bytes, read_bytes);
}
