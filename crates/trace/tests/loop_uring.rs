//! Requests of io_uring whose completion the kernel does not report: they are not recorded, but each is
//! counted. Only processes of one name are watched: registered files of others would be counted, too.

#![cfg(target_arch = "x86_64")]

mod support;

use fragmend_trace::Op::Read;
use support::{URING, accesses_of, image_with_file, python, ranges, traced};

/// Python: `rw(op, fd, length, offset, flags)`, a request on `page`.
const URING_RW: &str = "
READ, WRITE, FIXED_FILE, SKIP = 22, 23, 1, 1 << 6
page = mmap.mmap(-1, 1 << 16)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
def rw(op, fd, length, offset, flags=0):
    return struct.pack('<BBHiQQI', op, flags, 0, fd, offset, address, length)
";

/// The kernel reports no completion of a request that wants none: counted, if it is on a watched
/// file, or on a registered one, of which that is not known.
#[test]
fn loop_requests_of_io_uring_that_want_no_completion_are_counted() {
    let image = image_with_file(100_000);
    let elsewhere = image.scratch().join("elsewhere");
    std::fs::write(&elsewhere, [1; 1000]).unwrap();
    let work = || {
        python(
            &format!(
                "{URING}{URING_RW}
libc.prctl(15, b'wants-none')
os.chdir(sys.argv[1])
f = os.open('f', os.O_RDWR)
assert go(rw(READ, f, 600, 7000)) == 600
page[0] = 0
for _ in range(5): submit(rw(READ, f, 4096, 0, SKIP))
assert page[0] == 7
for _ in range(2): submit(rw(WRITE, f, 10, 50, SKIP))
r, w = os.pipe()
submit(struct.pack('<BBHiqqIIQHHi', 30, SKIP, 0, w, -1, 0, 60, 0, 0, 0, 0, f))
assert len(os.read(r, 100)) == 60
submit(rw(READ, os.open(sys.argv[2], os.O_RDONLY), 100, 0, SKIP))
# What fails is completed.
assert go(rw(READ, 999, 100, 0, SKIP)) == -9
files = (ctypes.c_int * 1)(f)
assert libc.syscall(427, ring, 2, files, 1) == 0
submit(rw(READ, 0, 100, 0, SKIP | FIXED_FILE))
assert go(rw(READ, f, 5, 1)) == 5
"
            ),
            &[image.path(), &elsewhere],
        );
    };
    let (summary, trace) = traced(&image, |o| o.comm = Some("wants-none".into()), work);
    assert_eq!((summary.meta.unseen_uring, trace.meta.unseen_uring), (9, 9));
    assert_eq!(ranges(accesses_of(&trace, "f")), [(Read, 7000, 600), (Read, 1, 5)]);
    assert_eq!((summary.meta.lost, summary.meta.unseen_sources.len()), (0, 0));
    let (summary, _) = traced(&image, |o| o.comm = Some("nobody".into()), work);
    assert_eq!(summary.meta.unseen_uring, 0, "of processes that are not watched");
}

/// 40 requests on a ring of 16 completions that nobody takes. Rings that are used for other files
/// alone are not counted.
#[test]
fn loop_requests_of_io_uring_that_find_the_ring_full_are_counted() {
    let image = image_with_file(100_000);
    let elsewhere = image.scratch().join("f");
    std::fs::write(&elsewhere, [1; 1000]).unwrap();
    let code = format!(
        "{URING}{URING_RW}
libc.prctl(15, b'fills-ring')
f = os.open(sys.argv[1], os.O_RDONLY)
for at in range(40): submit(rw(READ, f, 100, at))
"
    );
    let work = || {
        python(&code, &[&image.path().join("f")]);
        python(&code, &[&elsewhere]);
    };
    let (summary, trace) = traced(&image, |o| o.comm = Some("fills-ring".into()), work);
    let seen = accesses_of(&trace, "f").accesses.len() as u64;
    assert_eq!((seen, summary.meta.unseen_uring), (16, 24));
}
