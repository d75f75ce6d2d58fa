//! On a slow disk Ctrl-C takes effect soon, and a program that opens a file that is copied is let in soon,
//! however much is in flight: both wait for the next step or two of the copy at most, and for nothing that
//! others wrote.

mod support;

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_plan::{PlannedRange, Policy};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::process::Running;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::rewrite::{FRAGMEND, is_stopped};
use support::{holder, plan, write_plan};

const MIB: u64 = 1 << 20;
/// After this time, the process is killed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Write requests that the disk completes in a second, each of [`REQUEST`] KiB at most.
const WRITES: u32 = 16;
const REQUEST: &str = "256";

/// A file on a slow disk that is about to be moved.
struct Slow {
    slow_mount: SlowMount,
    path: PathBuf,
    size: u64,
    running: Running,
}

impl Slow {
    /// With the mover stopped at a point.
    fn new(file_system: &'static FileSystem, size: u64, args: &[&str], point: &str) -> Self {
        let slow_mount = SlowMount::new(file_system, 400 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, size, &[64 << 10], true).unwrap();
        slow_mount.sync();
        fs::write(queue(&slow_mount).join("max_sectors_kb"), REQUEST).unwrap();
        // Nor does the block layer bound what is in flight, as it does for some disks (writeback throttling).
        fs::write(queue(&slow_mount).join("wbt_lat_usec"), "0").unwrap();
        // It is cached.
        fs::read(&path).unwrap();
        let plan_file = slow_mount.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--rate", "max"]).args(args).arg(&plan_file);
        command.env("FRAGMEND_STOP_AT", format!("{point}=stop"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let running = Running::start(&mut command).wait_until(is_stopped);
        Self { slow_mount, path, size, running }
    }

    /// Continues it for this time, and returns how long it needs to end after the signal.
    fn ends_within(self, after: Duration) -> Duration {
        let Self { slow_mount, path, size, running } = self;
        slow_mount.gate().pace(Kind::Write, Some(WRITES / 2));
        running.signal(Signal::CONT);
        std::thread::sleep(after);
        let took = ends(running);
        slow_mount.gate().pace(Kind::Write, None);
        assert!(is_intact(&path, size).unwrap());
        took
    }

    /// Continues it, and returns the longest time for which a program that opens the file waits.
    fn opens_within(mut self, most: Duration) -> Duration {
        self.slow_mount.gate().pace(Kind::Write, Some(WRITES));
        self.running.signal(Signal::CONT);
        let until = Instant::now() + most;
        let mut longest = Duration::ZERO;
        while Instant::now() < until && self.running.child().try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(300));
            let started = Instant::now();
            drop(File::open(&self.path).unwrap());
            longest = longest.max(started.elapsed());
        }
        ends(self.running);
        self.slow_mount.gate().pace(Kind::Write, None);
        assert!(is_intact(&self.path, self.size).unwrap());
        longest
    }
}

/// The settings of a disk's queue.
fn queue(slow_mount: &SlowMount) -> PathBuf {
    Path::new("/sys/block").join(slow_mount.node().file_name().unwrap()).join("queue")
}

/// Requests its end, and returns how long that lasts; it may stop itself meanwhile.
fn ends(mut running: Running) -> Duration {
    let started = Instant::now();
    running.signal(Signal::INT);
    while running.child().try_wait().unwrap().is_none() && started.elapsed() < PATIENCE {
        running.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}

const KINDS: [(&FileSystem, u64, &[&str]); 4] = [
    (&XFS, 16 * MIB, &[]),
    (&XFS_EXCHANGE, 16 * MIB, &[]),
    (&XFS_RMAP, 40 * MIB, &["--force"]),
    (&BTRFS, 16 * MIB, &[]),
];

#[test]
fn loop_a_copy_that_is_on_its_way_to_a_slow_disk_ends_soon() {
    for (file_system, size, args) in KINDS {
        let slow = Slow::new(file_system, 2 * size, args, "staged");
        let took = slow.ends_within(Duration::from_secs(1));
        println!("{}: {took:?}", file_system.name);
        assert!(took < Duration::from_secs(2), "{}: {took:?}", file_system.name);
    }
}

/// Cached data beside a range, in many fragments on the disk, is compared with the disk before the file is
/// touched.
#[test]
fn loop_a_comparison_of_what_is_beside_on_a_slow_disk_ends_soon() {
    const READS: u32 = 400;
    const HELD: &str = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
while os.read(f, 1 << 20): pass
m = mmap.mmap(f, 0, prot=mmap.PROT_READ)
sum(m[i] for i in range(0, len(m), 4096))
print('!', flush=True)
sys.stdin.read()
";
    for (file_system, args, point, held) in
        [(&XFS, &[][..], "staged", true), (&EXT4, &["--engine", "rewrite"][..], "copied", false)]
    {
        let mut slow_mount = SlowMount::new(file_system, 400 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, 8 * MIB, &[4096], true).unwrap();
        let mut plan = plan(&[&path], Policy::WholeFile);
        let all = plan.files[0].ranges.remove(0);
        // In the middle of what one folio may be.
        let offset = 3 * MIB + (20 << 10);
        plan.files[0].ranges = vec![PlannedRange { offset, length: MIB / 4, ..all }];
        let plan_file = slow_mount.scratch().join("plan.json");
        write_plan(&plan, &plan_file);
        // So that reads cache it in the largest possible folios.
        slow_mount.unmount();
        fs::write(queue(&slow_mount).join("read_ahead_kb"), "2048").unwrap();
        slow_mount.mount();
        let _holder = held.then(|| holder(&path, HELD));
        fs::read(&path).unwrap();
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--json", "--rate", "max"]).args(args).arg(&plan_file);
        command.env("FRAGMEND_STOP_AT", format!("{point}=stop"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let running = Running::start(&mut command).wait_until(is_stopped);
        slow_mount.gate().pace(Kind::Read, Some(READS));
        running.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(500));
        let took = ends(running);
        slow_mount.gate().pace(Kind::Read, None);
        println!("{}: {took:?}", file_system.name);
        assert!(is_intact(&path, 8 * MIB).unwrap());
        assert!(took < Duration::from_secs(1), "{}: {took:?}", file_system.name);
    }
}

/// Pages that pipes hold stay in the page cache, and each look for what holds them compares them with the disk.
#[test]
fn loop_a_look_at_pages_that_stay_on_a_slow_disk_ends_soon() {
    const READS: u32 = 100;
    const SIZE: u64 = 4 * MIB;
    const HELD: &str = "
import fcntl, os, sys
f, pipes, at = os.open(sys.argv[1], os.O_RDONLY), [], 0
size = os.fstat(f).st_size
while at < size:
    pipes.append(os.pipe())
    fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)
    end = at + (1 << 20)
    while at < end:
        at += os.splice(f, pipes[-1][1], min(65536, end - at), offset_src=at)
os.close(f)
print('!', flush=True)
sys.stdin.read()
";
    for args in [&[][..], &["--engine", "rewrite"]] {
        let slow_mount = SlowMount::new(&EXT4, 128 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, SIZE, &[4096], true).unwrap();
        slow_mount.sync();
        let plan_file = slow_mount.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let _holder = holder(&path, HELD);
        slow_mount.gate().pace(Kind::Read, Some(READS));
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--json", "--rate", "max"]).args(args).arg(&plan_file);
        let running = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        std::thread::sleep(Duration::from_millis(1500));
        let took = ends(running);
        slow_mount.gate().pace(Kind::Read, None);
        println!("{args:?}: {took:?}");
        assert!(is_intact(&path, SIZE).unwrap());
        assert!(took < Duration::from_secs(1), "{args:?}: {took:?}");
    }
}

#[test]
fn loop_an_open_of_what_is_copied_on_a_slow_disk_is_let_in_soon() {
    for (file_system, size, args) in [KINDS[1], KINDS[2]] {
        let took =
            Slow::new(file_system, size, args, "staged").opens_within(Duration::from_secs(4));
        println!("{}: {took:?}", file_system.name);
        assert!(took < Duration::from_secs(3), "{}: {took:?}", file_system.name);
    }
}

/// What other programs write behind the range that moves is not waited for.
#[test]
fn loop_a_commit_waits_for_nothing_that_others_wrote() {
    for (file_system, size, args) in KINDS {
        let slow = Slow::new(file_system, size, args, "moved");
        let writer = OpenOptions::new().write(true).open(&slow.path).unwrap();
        writer.write_all_at(&vec![7; 48 << 20], size).unwrap();
        drop(writer);
        let path: &Path = &slow.path.clone();
        let gate = slow.slow_mount.gate().clone();
        // What they wrote is still dirty.
        gate.pace(Kind::Write, Some(WRITES));
        let Slow { slow_mount, running, .. } = slow;
        let took = ends(running);
        gate.pace(Kind::Write, None);
        println!("{}: {took:?}", file_system.name);
        OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
        assert!(is_intact(path, size).unwrap());
        drop(slow_mount);
        assert!(took < Duration::from_secs(3), "{}: {took:?}", file_system.name);
    }
}
