//! Output that has a reader which does not read: no program waits for a file because of that, Ctrl-C takes
//! effect, and once it is read, all is there, in order.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use support::{SIZE, fragmented, plan, write_plan};

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
/// Bytes of a range: each has a receipt, and a pipe of two pages holds some twenty of them.
const RANGE: u64 = 8 << 10;
/// This long after the first output, the pipe has been full for some time.
const UNREAD: Duration = Duration::from_millis(700);
/// The longest time for which a program may wait because of output that is not read.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A plan for `path` in many short ranges.
fn short_ranges(image: &Image, path: &Path) -> PathBuf {
    let mut made = plan(&[path], Policy::WholeFile);
    let whole = made.files[0].ranges[0].clone();
    made.files[0].ranges = (0..SIZE / RANGE)
        .map(|n| {
            let mut part = whole.clone();
            (part.offset, part.length) = (n * RANGE, RANGE);
            part
        })
        .collect();
    let plan_file = image.scratch().join("plan.json");
    write_plan(&made, &plan_file);
    plan_file
}

/// `apply --json` into a pipe of two pages that is not read, once that has been full for some time.
fn unread(image: &Image, path: &Path) -> (Running, ChildStdout) {
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json", "--rate", "max"]).arg(short_ranges(image, path));
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let out = running.child().stdout.take().unwrap();
    fcntl_setpipe_size(&out, 8192).unwrap();
    let started = Instant::now();
    while ioctl_fionread(&out).unwrap() < 4096 {
        assert!(started.elapsed() < Duration::from_secs(30), "it says nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(UNREAD);
    assert!(running.child().try_wait().unwrap().is_none(), "it did not wait to be read");
    (running, out)
}

/// Opens a file for writing, which waits for a lease, and returns how long that lasted.
fn open(path: &Path) -> Duration {
    let started = Instant::now();
    drop(File::options().write(true).open(path).unwrap());
    started.elapsed()
}

/// The events of the output.
fn events(told: &str) -> Vec<Value> {
    told.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn nobody_waits_for_a_reader(fs: &'static FileSystem, bytes: u64) {
    let image = Image::of(fs, bytes);
    let path = fragmented(&image, "file");
    let (running, mut out) = unread(&image, &path);
    let took = open(&path);
    assert!(took < AT_ONCE, "{}: {took:?}", fs.name);
    let mut told = String::new();
    out.read_to_string(&mut told).unwrap();
    let ended = running.wait();
    assert_eq!(ended.stderr, "", "{}", fs.name);
    ended.expect(&[0, 2]);
    let events = events(&told);
    let offsets: Vec<_> = events.iter().filter_map(|e| e["offset"].as_u64()).collect();
    assert!(offsets.iter().copied().eq((0..SIZE).step_by(RANGE as usize)), "{offsets:?}");
    assert_eq!(events[0]["event"], "start");
    assert_eq!(events.last().unwrap()["event"], "summary");
    assert!(events.iter().any(|e| e["outcome"] == "moved"), "{}: {told}", fs.name);
}

#[test]
fn loop_nobody_waits_for_a_reader_on_ext4() {
    nobody_waits_for_a_reader(&EXT4, 128 << 20);
}

#[test]
fn loop_nobody_waits_for_a_reader_on_xfs() {
    nobody_waits_for_a_reader(&XFS, 320 << 20);
}

#[test]
fn loop_a_run_whose_output_is_not_read_can_be_told_to_end() {
    let image = Image::ext4(128 << 20);
    let path = fragmented(&image, "file");
    let (mut running, mut out) = unread(&image, &path);
    let asked = Instant::now();
    running.signal(Signal::INT);
    while running.child().try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = asked.elapsed();
    let ended = running.wait();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("the output is not read"), "{ended:?}");
    assert!(matches!(ended.status.code(), Some(16 | 18)), "{ended:?}");
    let mut told = String::new();
    out.read_to_string(&mut told).unwrap();
    // The last line may be incomplete; all others are valid.
    let whole = &told[..told.rfind('\n').unwrap() + 1];
    let moved = |e: &&Value| e["outcome"] == "moved";
    assert!(events(whole).iter().filter(moved).count() > 2, "{told}");
    assert!(extents(&path) < 256, "{}", extents(&path));
}

/// Progress on a terminal that Ctrl-S has stopped; prints the exit code, or that it did not end.
const STOPPED: &str = "
import os, subprocess, sys, termios
master, slave = os.openpty()
termios.tcflow(slave, termios.TCOOFF)
running = subprocess.Popen(sys.argv[1:], stderr=slave, stdout=subprocess.DEVNULL)
try:
    print(running.wait(20))
except subprocess.TimeoutExpired:
    running.kill()
    print('it waits')
";

#[test]
fn loop_a_stopped_terminal_stops_nothing() {
    let image = Image::ext4(128 << 20);
    let path = fragmented(&image, "file");
    let mut command = Command::new("timeout");
    command.args(["60", "python3", "-c", STOPPED, FRAGMEND, "apply", "--json", "--rate", "1M"]);
    let told = finish(command.arg(short_ranges(&image, &path))).expect(&[0]);
    assert!(["0", "2"].contains(&told.trim()), "{told}");
}
