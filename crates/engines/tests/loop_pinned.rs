//! Pages that a device writes to: a program reads from another disk directly into a shared mapping of a file,
//! and removes the mapping and closes the file while that read is in flight. Nothing has the file open then,
//! and its pages are clean, but the kernel keeps them pinned for the device. What the program is told that it
//! read must be in the file, whatever moves meanwhile.

mod support;

use fragmend_apply::{Receipt, Summary};
use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_engines::Choice;
use fragmend_engines::begin::Wanted;
use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_sys::mapping::Mapping;
use fragmend_testbed::file_system::{
    BTRFS, EXT4, EXT4_1K, FileSystem, XFS, XFS_EXCHANGE, XFS_EXCHANGE_ALONE, XFS_RMAP,
};
use fragmend_testbed::fragment::{content, interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::older::without_cachestat;
use fragmend_testbed::process::Running;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{UNPACED, apply_on, fragmented_of, plan};

const SIZE: u64 = 4 << 20;
/// Where in the file the read goes, mostly, and how many bytes it has.
const AT: usize = 1 << 20;
const BYTES: usize = 64 << 10;
const DIRTYING: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(20);
/// Why a range is left on a machine that is too busy for anything else.
const TOO_BUSY: &str = "cannot be compared in time";

/// Reads the second file directly into a mapping of the first one. On the first line of its input it removes
/// the mapping and closes the file, and reports that; when the read is over, it prints how many bytes it has
/// read.
const READER: &str = "
import ctypes, mmap, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
at, size = int(sys.argv[3]), int(sys.argv[4])
f = os.open(sys.argv[1], os.O_RDWR)
source = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT)
place = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, f, at)
assert place != ctypes.c_void_p(-1).value
into = (ctypes.c_char * size).from_address(place)
touched = sum(ord(into[n]) for n in range(0, size, 4096))
got = []
reader = threading.Thread(target=lambda: got.append(os.preadv(source, [into], 0)))
reader.start()
sys.stdin.readline()
assert libc.munmap(place, size) == 0
os.close(f)
print('gone', flush=True)
reader.join()
print(got[0], flush=True)
";

/// A read in flight into a mapping of a file.
struct InFlight {
    reader: Running,
    hold: fragmend_crash::slow::Hold,
}

impl InFlight {
    /// One into a file that nothing has open.
    fn begin(source: &SlowMount, path: &Path, at: usize) -> Self {
        let mut read = Self::begin_open(source, path, at);
        read.close();
        read
    }

    /// One into a file that is mapped.
    fn begin_open(source: &SlowMount, path: &Path, at: usize) -> Self {
        let hold = source.gate().hold(|r| r.kind == Kind::Read);
        let mut command = Command::new("python3");
        command.args(["-c", READER]).arg(path).arg(source.root().join("source"));
        command.args([at, BYTES].map(|n| n.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let reader = Running::start(&mut command);
        assert!(hold.wait_for(1, PATIENCE), "the read has not arrived");
        Self { reader, hold }
    }

    /// Has the mapping removed and the file closed.
    fn close(&mut self) {
        let input = self.reader.child().stdin.as_mut().expect("its input");
        input.write_all(b"\n").unwrap();
        let mut gone = [0; 5];
        self.reader.child().stdout.as_mut().expect("its output").read_exact(&mut gone).unwrap();
        assert_eq!(&gone, b"gone\n");
    }

    /// Lets the read complete.
    fn end(self) {
        assert!(self.hold.held() > 0, "it is not in flight any more");
        self.hold.release();
        assert_eq!(self.reader.wait().expect(&[0]).trim(), BYTES.to_string());
    }
}

/// What the source holds: other bytes than any part of a fragmented file.
fn source_bytes() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    content(1 << 40, &mut bytes);
    bytes
}

fn stays(file_system: &'static FileSystem, engine: &Choice) {
    stays_at(file_system, engine, AT);
}

/// Whether a file with such pages is left alone, or moves with them, be it open or not.
#[derive(PartialEq)]
enum Then {
    Leaves,
    Moves,
    MovesOpen,
}

fn stays_at(file_system: &'static FileSystem, engine: &Choice, at: usize) {
    stays_then(file_system, engine, at, Then::Leaves);
}

fn stays_then(file_system: &'static FileSystem, engine: &Choice, at: usize, then: Then) {
    let name = file_system.name;
    let source = SlowMount::new(&EXT4, 64 << 20, "");
    std::fs::write(source.root().join("source"), source_bytes()).unwrap();
    source.sync();
    let image = Image::of(file_system, 640 << 20);
    let path = fragmented_of(&image, "file", SIZE);
    let moved = || -> (Summary, Vec<Receipt>) {
        let wanted = Wanted { engine: engine.clone(), force: false };
        apply_on(&plan(&[&path], Policy::WholeFile), &wanted, &UNPACED)
    };

    let mut read = InFlight::begin_open(&source, &path, at);
    if then != Then::MovesOpen {
        read.close();
    }
    let (summary, receipts) = moved();
    if then == Then::MovesOpen {
        read.close();
    }
    read.end();
    // The kernel marks pages that were written back meanwhile dirty only after the call has returned
    // (`bio_dirty_fn()`, block/bio.c); an unmount before that would lose them whatever moves.
    // Btrfs writes such pages in the background, after a sync that finds them.
    for _ in 0..2 {
        std::thread::sleep(DIRTYING);
        image.sync();
    }
    image.remount();
    let mut expected = vec![0; SIZE as usize];
    content(0, &mut expected);
    expected[at..at + BYTES].copy_from_slice(&source_bytes());
    assert!(std::fs::read(&path).unwrap() == expected, "{name}: lost: {summary:?}");
    if then == Then::Leaves {
        // What lies before those pages may have moved.
        assert!(summary.moved_bytes < SIZE, "{name}: {summary:?}");
        let left_alone = summary.skipped.iter().all(|s| s.reason == SkipReason::Busy);
        assert!(left_alone, "{name}: {summary:?}");
        let mut why = receipts.iter().filter_map(|r| r.detail.as_deref());
        let is_why = |why: &str| why.contains("in use elsewhere") || why.contains(TOO_BUSY);
        assert!(why.any(is_why), "{name}: {receipts:?}");

        // Once nothing is in flight, it moves.
        let (summary, receipts) = moved();
        assert!(summary.ranges_moved > 0 && summary.ranges_skipped == 0, "{name}: {receipts:?}");
        image.remount();
        assert!(std::fs::read(&path).unwrap() == expected, "{name}");
    } else {
        assert_eq!(
            (summary.moved_bytes, summary.ranges_skipped),
            (SIZE, 0),
            "{name}: {receipts:?}"
        );
    }
    image.fsck();

    // Nor does a file stay that was only read, mapped and written before.
    let other = fragmented_of(&image, "other", SIZE);
    let wanted = Wanted { engine: engine.clone(), force: false };
    let (summary, receipts) = apply_on(&plan(&[&other], Policy::WholeFile), &wanted, &UNPACED);
    assert!(summary.ranges_moved > 0 && summary.ranges_skipped == 0, "{name}: {receipts:?}");
    assert!(is_intact(&other, SIZE).unwrap(), "{name}");
}

#[test]
fn loop_what_a_device_writes_into_pages_stays_on_ext4() {
    stays(&EXT4, &Choice::Native);
    stays(&EXT4_1K, &Choice::Native);
}

#[test]
fn loop_what_a_device_writes_into_pages_stays_beside_a_rewrite() {
    stays(&EXT4, &Choice::Rewrite { journal: None });
    stays(&XFS, &Choice::Rewrite { journal: None });
}

#[test]
fn loop_what_a_device_writes_into_pages_stays_beside_an_exchange() {
    stays(&XFS_EXCHANGE, &Choice::Native);
    for file_system in [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE] {
        // Also in the block of the dry run.
        stays_at(file_system, &Choice::Native, 0);
    }
}

#[test]
fn loop_what_a_device_writes_into_pages_stays_beside_sharing_on_xfs() {
    stays(&XFS, &Choice::Native);
}

/// Btrfs drops no pages where it shares, and writes those elsewhere afterwards.
#[test]
fn loop_what_a_device_writes_into_pages_stays_beside_sharing_on_btrfs() {
    for at in [0, AT, SIZE as usize - BYTES] {
        for then in [Then::Moves, Then::MovesOpen] {
            stays_then(&BTRFS, &Choice::Native, at, then);
        }
    }
}

#[test]
fn loop_what_a_device_writes_into_pages_stays_beside_a_swap() {
    stays(&XFS_RMAP, &Choice::Native);
}

/// Pages that a program has mapped stay in the page cache as well: that is no reason to leave its file alone.
#[test]
fn loop_what_others_have_mapped_is_shared() {
    for file_system in [&XFS, &BTRFS] {
        let image = Image::of(file_system, 640 << 20);
        let path = fragmented_of(&image, "file", SIZE);
        let plan = plan(&[&path], Policy::WholeFile);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapped = Mapping::new(&file, SIZE as usize).unwrap();
        mapped.read(0, &mut vec![0; SIZE as usize]);
        let (summary, receipts) = apply_on(&plan, &Wanted::default(), &UNPACED);
        let name = file_system.name;
        assert!(summary.ranges_moved > 0 && summary.ranges_skipped == 0, "{name}: {receipts:?}");
        assert!(is_intact(&path, SIZE).unwrap(), "{name}");
    }
}

/// Before Linux 6.5 it is known page by page what is cached, and on Btrfs not what the device has.
#[test]
fn loop_without_cachestat_what_a_device_writes_into_pages_stays() {
    without_cachestat("loop_without_cachestat_what_a_device_writes_into_pages_stays", || {
        let file = File::open("/proc/self/exe").unwrap();
        let counted = fragmend_sys::cache::cached_pages(file, 0..1);
        assert_eq!(counted.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
        stays(&EXT4, &Choice::Native);
        stays(&EXT4, &Choice::Rewrite { journal: None });
        stays(&XFS, &Choice::Native);
        stays(&XFS_EXCHANGE, &Choice::Native);
        stays(&XFS_RMAP, &Choice::Native);
    });
}

/// Pages that were not pinned at first are, while the disk reads slowly and no lease is held.
#[test]
fn loop_what_a_device_begins_to_write_into_pages_meanwhile_stays() {
    begins_meanwhile(&Choice::Native, 20, "in use elsewhere");
    // The fault that pins a page for writing looks like a write.
    begins_meanwhile(&Choice::Rewrite { journal: None }, 400, "written to while it was copied");
}

fn begins_meanwhile(engine: &Choice, reads_a_second: u32, because: &str) {
    let source = SlowMount::new(&EXT4, 64 << 20, "");
    std::fs::write(source.root().join("source"), source_bytes()).unwrap();
    source.sync();
    let mut slow = SlowMount::new(&EXT4, 128 << 20, "");
    let path = slow.root().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    slow.sync();
    cache::drop_clean(File::open(&path).unwrap(), 0..SIZE).unwrap();
    let plan = plan(&[&path], Policy::WholeFile);
    // Its times are so old by then that a change shows.
    std::thread::sleep(Duration::from_millis(3200));
    slow.gate().pace(Kind::Read, Some(reads_a_second));
    let wanted = Wanted { engine: engine.clone(), force: false };
    let (read, receipts) = std::thread::scope(|scope| {
        let moved = scope.spawn(|| apply_on(&plan, &wanted, &UNPACED).1);
        std::thread::sleep(Duration::from_millis(500));
        let read = InFlight::begin(&source, &path, 0);
        assert!(!moved.is_finished(), "it was over before");
        slow.gate().pace(Kind::Read, None);
        (read, moved.join().unwrap())
    });
    read.end();
    std::thread::sleep(DIRTYING);
    slow.sync();
    slow.unmount();
    slow.mount();
    let mut expected = vec![0; SIZE as usize];
    content(0, &mut expected);
    expected[..BYTES].copy_from_slice(&source_bytes());
    assert!(std::fs::read(&path).unwrap() == expected, "lost: {receipts:?}");
    let mut why = receipts.iter().filter_map(|r| r.detail.as_deref());
    let is_why = |why: &str| why.contains(because) || why.contains(TOO_BUSY);
    assert!(why.any(is_why), "{receipts:?}");
}

/// While it is looked for such pages, a program that opens the file waits for a read or two, and not until they
/// have been looked for.
#[test]
fn loop_beside_what_a_device_writes_into_pages_an_open_on_ext4_does_not_wait() {
    const READS_A_SECOND: u32 = 500;
    let source = SlowMount::new(&EXT4, 64 << 20, "");
    std::fs::write(source.root().join("source"), source_bytes()).unwrap();
    source.sync();
    let slow = SlowMount::new(&EXT4, 128 << 20, "");
    let path = slow.root().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    slow.sync();
    let plan = plan(&[&path], Policy::WholeFile);

    let read = InFlight::begin(&source, &path, AT);
    slow.gate().pace(Kind::Read, Some(READS_A_SECOND));
    let mut longest = Duration::ZERO;
    let receipts = std::thread::scope(|scope| {
        let moved = scope.spawn(|| apply_on(&plan, &Wanted::default(), &UNPACED).1);
        while !moved.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            let started = Instant::now();
            drop(File::open(&path).unwrap());
            longest = longest.max(started.elapsed());
        }
        moved.join().unwrap()
    });
    slow.gate().pace(Kind::Read, None);
    read.end();
    println!("an open lasted {longest:?} at most");
    let why: Vec<_> = receipts.iter().filter_map(|r| r.detail.as_deref()).collect();
    assert!(!why.is_empty(), "{receipts:?}");
    assert!(longest < Duration::from_millis(250), "{longest:?}: {why:?}");
}
