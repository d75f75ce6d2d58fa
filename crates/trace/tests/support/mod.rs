//! Recording what other programs do on an image: the recorder never sees its own process.

#![allow(dead_code)] // each test uses some of it

use fragmend_testbed::image::{Image, run};
use fragmend_trace::record::{Options, Summary, record};
use fragmend_trace::{Access, FileAccesses, Filter, Op, Trace, read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// An ext4 with the file `f`, which contains `bytes` bytes of 7.
pub fn image_with_file(bytes: usize) -> Image {
    let image = Image::ext4(512 << 20);
    std::fs::write(image.path().join("f"), vec![7; bytes]).unwrap();
    image.sync();
    image
}

/// A recording of what `work` does, read back.
pub fn traced(
    image: &Image,
    configure: impl FnOnce(&mut Options),
    work: impl FnOnce(),
) -> (Summary, Trace) {
    let output = image.scratch().join("trace.parquet");
    let mut options = Options::new(&output, vec![image.path().to_owned()]);
    // Whatever that costs.
    options.overhead = None;
    configure(&mut options);
    recorded(&options, Box::new(work))
}

/// The same for options that are complete: built once for a test program, whatever the work is.
fn recorded(options: &Options, work: Box<dyn FnOnce() + '_>) -> (Summary, Trace) {
    let stop = AtomicBool::new(false);
    let (begun, begins) = mpsc::channel();
    let summary = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            record(options, &stop, &mut |_| {
                let _ = begun.send(());
            })
        });
        {
            // Ends the recording also when the work panics; otherwise the scope would wait for it without
            // end.
            let _ends = Ends(&stop);
            if begins.recv().is_ok() {
                work();
            }
        }
        recorder.join().expect("the recorder does not panic").expect("it records")
    });
    (summary, read(&options.output, &Filter::default()).expect("the trace is readable"))
}

/// Ends a recording when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs Python with `f` and further arguments in `sys.argv`.
pub fn python(code: &str, args: &[&Path]) {
    let mut all: Vec<PathBuf> = vec!["-c".into(), code.into()];
    all.extend(args.iter().map(|p| p.to_path_buf()));
    run("python3", all);
}

/// Python: one io_uring of 8 entries by bare system calls; `go(sqe)` returns the result.
pub const URING: &str = "
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
params = (ctypes.c_char * 120)()
ring = libc.syscall(425, 8, params)
assert ring >= 0
sq, cq = struct.unpack_from('<10I', params, 40), struct.unpack_from('<10I', params, 80)
rings = mmap.mmap(ring, max(sq[6] + 32, cq[5] + 16 * 16) + 4096, offset=0)
sqes = mmap.mmap(ring, 8 * 64, offset=0x10000000)
def word(at, value=None):
    if value is None: return struct.unpack_from('<I', rings, at)[0]
    struct.pack_into('<I', rings, at, value & 0xffffffff)
def submit(sqe, wait=0):
    tail = word(sq[1])
    index = tail & word(sq[2])
    sqes[index * 64:index * 64 + 64] = sqe.ljust(64, b'\\0')
    word(sq[6] + 4 * index, index)
    word(sq[1], tail + 1)
    assert libc.syscall(426, ring, 1, wait, wait, None, 0) == 1
def go(sqe):
    submit(sqe, 1)
    head = word(cq[0])
    result = struct.unpack_from('<i', rings, cq[5] + 16 * (head & word(cq[2])) + 8)[0]
    word(cq[0], head + 1)
    return result
FIXED = 1 << 31
def splice(fd_in, off_in, fd_out, off_out, length, flags=0):
    return go(struct.pack('<BBHiqqIIQHHi', 30, 0, 0, fd_out, off_out, off_in, length, flags, 0, 0, 0, fd_in))
";

/// The accesses that were seen on the file called `name`.
pub fn accesses_of<'a>(trace: &'a Trace, name: &str) -> &'a FileAccesses {
    let named = |f: &&FileAccesses| f.path.as_ref().is_some_and(|p| p.ends_with(name));
    trace.files.iter().find(named).unwrap_or_else(|| panic!("{name} is not in the trace"))
}

/// Operation, offset and length of each access, in order.
pub fn ranges(file: &FileAccesses) -> Vec<(Op, u64, u32)> {
    file.accesses.iter().map(|a| (a.op, a.offset, a.length)).collect()
}

/// Accesses and bytes, counts included.
pub fn volume(accesses: &[Access]) -> (u64, u64) {
    accesses.iter().fold((0, 0), |(n, bytes), a| {
        (n + u64::from(a.count), bytes + u64::from(a.count) * u64::from(a.length))
    })
}
