//! After Ctrl-C, SIGTERM or SIGHUP, `apply` ends soon, whatever it waits for.

mod support;

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running, finish, is_handled};
use fragmend_testbed::tools::extents;
use rustix::fs::FallocateFlags;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{SIZE, fragmented, holder, plan, write_plan};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// A program that has to permit opens of the file (fanotify), and never answers.
const SILENT: &str = "
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
fd = libc.fanotify_init(5, 0)
assert libc.fanotify_mark(fd, 1, 0x10000, -100, sys.argv[1].encode()) == 0, ctypes.get_errno()
print('!', flush=True)
sys.stdin.read()
";

/// `apply` of all of one file, at this rate.
fn apply(scratch: &Path, path: &Path, rate: &str) -> Command {
    let plan_file = scratch.join("plan.json");
    write_plan(&plan(&[path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json", "--rate", rate]).arg(&plan_file);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a process, and checks that it lasts no longer than `most`.
fn ended_within(most: Duration, running: Running) -> Finished {
    let started = Instant::now();
    let id = running.id();
    let killer = std::thread::spawn(move || {
        let is_there = || Path::new(&format!("/proc/{id}/status")).exists();
        while is_there() && started.elapsed() < most + Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = rustix::process::Pid::from_raw(id as i32).filter(|_| is_there());
        pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL))
    });
    let ended = running.wait();
    let took = started.elapsed();
    killer.join().unwrap();
    assert!(took < most, "it took {took:?}: {ended:?}");
    ended
}

#[test]
fn loop_apply_ends_while_an_open_is_never_answered() {
    let image = Image::of(&XFS, 320 * MIB);
    let path = fragmented(&image, "file");
    let was = extents(&path);
    for (signal, times) in
        [(Signal::TERM, 2), (Signal::HUP, 2), (Signal::INT, 2), (Signal::TERM, 1)]
    {
        // The plan is made before: planning would wait as well.
        let mut command = apply(image.scratch(), &path, "auto");
        let silent = holder(&path, SILENT);
        let running = Running::start(&mut command).wait_until(|pid| is_handled(pid, signal));
        // Until it waits. The signals are so far apart that they count as two requests.
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..times {
            running.signal(signal);
            std::thread::sleep(Duration::from_millis(700));
        }
        let ended = ended_within(Duration::from_secs(5), running);
        drop(silent);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{ended:?}");
    }
    assert_eq!(extents(&path), was);
    image.fsck();
}

/// Closing the terminal is a request like any other. At this rate the file would take over a minute; how soon
/// `apply` ends depends on the disk, which other tests keep busy: `make waits` measures that.
#[test]
fn loop_a_hangup_ends_apply_in_order() {
    for file_system in [&EXT4, &XFS_EXCHANGE, &BTRFS] {
        let image = Image::of(file_system, 320 * MIB);
        let path = fragmented(&image, "file");
        let running = Running::start(&mut apply(image.scratch(), &path, "100K"));
        let running = running.wait_until(|pid| is_handled(pid, Signal::HUP));
        running.signal(Signal::HUP);
        let ended = ended_within(Duration::from_secs(30), running);
        assert!(ended.stdout.contains("\"interrupted\":true"), "{ended:?}");
        image.fsck();
    }
}

/// A swap moves all ranges of a file: if the end is requested right after it, there is a receipt for each.
#[test]
fn loop_the_end_right_after_a_swap_leaves_no_range_untold() {
    let image = Image::of(&XFS_RMAP, 320 * MIB);
    let path = fragmented(&image, "file");
    let file = File::options().write(true).open(&path).unwrap();
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, how, SIZE / 2, 64 << 10).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut command = apply(image.scratch(), &path, "max");
    command.env("FRAGMEND_STOP_AT", format!("moved={}", Signal::INT.as_raw()));
    let ended = finish(&mut command);
    let events: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ranges: Vec<&Value> = events.iter().filter(|e| e["event"] == "range").collect();
    assert!(ranges.len() == 2 && ranges.iter().all(|r| r["outcome"] == "moved"), "{ended:?}");
    let summary = events.last().expect("a summary");
    assert_eq!(summary["moved_bytes"], SIZE - (64 << 10), "{ended:?}");
    image.fsck();
}

/// What others have just written is written back step by step: on a slow disk, a request to end takes effect
/// before all of it is on the disk.
#[test]
fn loop_what_others_have_written_does_not_delay_the_end() {
    for file_system in [&EXT4, &XFS, &XFS_RMAP, &BTRFS] {
        let slow_mount = SlowMount::new(file_system, 320 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, 24 * MIB, &[64 << 10], true).unwrap();
        slow_mount.sync();
        let mut command = apply(slow_mount.scratch(), &path, "max");
        slow_mount.gate().pace(Kind::Write, Some(12));
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&vec![7; 24 << 20], 0).unwrap();
        drop(file);
        let running = Running::start(&mut command);
        let running = running.wait_until(|pid| is_handled(pid, Signal::TERM));
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::TERM);
        let ended = ended_within(Duration::from_secs(5), running);
        println!("{}: {ended:?}", file_system.name);
        slow_mount.gate().pace(Kind::Write, None);
        assert!(ended.stdout.contains("\"interrupted\":true"), "{ended:?}");
    }
}

/// Sets the flag when it is dropped.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A program keeps writing a little to every part of the file, so that some of it is dirty at any instant.
#[test]
fn loop_a_writer_without_end_delays_neither_the_end_nor_the_run() {
    for file_system in [&EXT4, &XFS, &XFS_RMAP, &BTRFS] {
        let slow_mount = SlowMount::new(file_system, 320 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, 4 * MIB, &[4096], true).unwrap();
        slow_mount.sync();
        let mut told = apply(slow_mount.scratch(), &path, "max");
        let mut left_alone = apply(slow_mount.scratch(), &path, "max");
        slow_mount.gate().pace(Kind::Write, Some(200));
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let file = File::options().write(true).open(&path).unwrap();
                while !ends.load(Ordering::Relaxed) {
                    for at in (8192..4 * MIB).step_by(1 << 20) {
                        file.write_all_at(&[7; 64], at).unwrap();
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            // Also if an assertion fails.
            let _end = Set(&ends);
            std::thread::sleep(Duration::from_millis(100));
            let running = Running::start(&mut told);
            let running = running.wait_until(|pid| is_handled(pid, Signal::TERM));
            std::thread::sleep(Duration::from_millis(300));
            running.signal(Signal::TERM);
            let ended = ended_within(Duration::from_secs(2), running);
            println!("{}: {ended:?}", file_system.name);
            let ended = ended_within(Duration::from_secs(8), Running::start(&mut left_alone));
            println!("{}: {ended:?}", file_system.name);
        });
        slow_mount.gate().pace(Kind::Write, None);
    }
}
