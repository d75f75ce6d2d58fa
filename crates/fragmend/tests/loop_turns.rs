//! Copies are taken over in turns, and while the kernel has a file locked nothing is read from the
//! device: if the page cache was dropped before, the engine has read it again by then.
//!
//! `apply` is stopped right before and right after each call that locks the file, and the device's
//! reads in between are counted.

mod support;

use fragmend_engines::primitive::{BTRFS_DEFRAG, COMMIT_RANGE, DEDUPE};
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_sys::lease::is_leased;
use fragmend_testbed::file_system::{BTRFS, BTRFS_ZSTD, FileSystem, XFS, XFS_EXCHANGE};
use fragmend_testbed::fragment::{compressible, holds, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::btrfs::squeezed;
use support::rewrite::{FRAGMEND, is_stopped};
use support::{SIZE, fragmented, plan, write_plan};

const DISK: u64 = 320 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// The reads from the device before each call, and during it.
#[derive(Debug, Default)]
struct Reads {
    before: Vec<u64>,
    during: Vec<u64>,
}

/// Moves a file; at the first stop and after each call, `between` is called with the id of the stopped
/// process and the number of calls so far. Returns the reads and the receipts.
fn step_by_step(
    image: &Image,
    file: &Path,
    mut between: impl FnMut(u32, u64),
) -> (Reads, Vec<Value>) {
    let plan_file = image.scratch().join("plan.json");
    let receipts = image.scratch().join("receipts");
    write_plan(&plan(&[file], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max", "--json"]).arg(plan_file);
    command.env("FRAGMEND_STOP_AT", "staged=stop,filled=stop,moved=stop").stdin(Stdio::null());
    command.stdout(File::create(&receipts).unwrap()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut reads = Reads::default();
    let mut stops = 0;
    let mut last = 0;
    while stopped(&mut running) {
        let now = read_requests(image);
        match stops {
            0 => {}
            n if n % 2 == 1 => reads.before.push(now - last),
            _ => reads.during.push(now - last),
        }
        if stops % 2 == 0 {
            between(running.id(), stops / 2);
        }
        stops += 1;
        last = read_requests(image);
        running.signal(Signal::CONT);
    }
    running.wait().expect(&[0, 2]);
    let said = fs::read_to_string(receipts).unwrap();
    let events = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (reads, events.filter(|event| event["event"] == "range").collect())
}

/// Read requests so far, however busy the disk's queue was.
fn read_requests(image: &Image) -> u64 {
    let counters = image.counters();
    counters.reads + counters.reads_merged
}

/// Waits until it stops itself, or ends; returns whether it stopped.
fn stopped(running: &mut Running) -> bool {
    let started = Instant::now();
    loop {
        if is_stopped(running.id()) {
            return true;
        }
        if running.child().try_wait().unwrap().is_some() {
            return false;
        }
        assert!(started.elapsed() < PATIENCE, "neither stops nor ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops all pages of the files that a process has open on the file system of `file`; but not of one
/// that it has leased, because opening it would wait: an exchange needs no pages of that.
fn drop_pages(pid: u32, file: &Path) {
    let device = file.metadata().unwrap().dev();
    for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let can =
            |m: &Metadata| m.is_file() && m.dev() == device && !is_leased(device, m.ino(), true);
        let Some(open) = fs::metadata(fd.path()).ok().filter(can) else {
            continue;
        };
        let opened = File::open(fd.path()).unwrap();
        cache::write_and_wait(&opened, 0..open.len()).unwrap();
        cache::drop_clean(&opened, 0..open.len().next_multiple_of(4096)).unwrap();
    }
}

fn nothing_is_read_under_locks(file_system: &'static FileSystem, by: &str, reads_before: bool) {
    let read = reads_under_locks(file_system, by, reads_before);
    assert!(read <= 1, "{}: read under locks: {read}", file_system.name);
}

/// Moves a file in turns; returns how much was read under locks: at most one block of a tree that was not read since the
/// mount.
fn reads_under_locks(file_system: &'static FileSystem, by: &str, reads_before: bool) -> u64 {
    let image = Image::of(file_system, DISK);
    let zstd = file_system.name == BTRFS_ZSTD.name;
    let file = if zstd { squeezed(&image, "file") } else { fragmented(&image, "file") };
    // Cold from the first stop on, but for the mappings.
    let drop_all = |pid, _| drop_pages(pid, &file);
    let (reads, receipts) = step_by_step(&image, &file, drop_all);
    let name = file_system.name;
    for receipt in &receipts {
        assert_eq!(receipt["outcome"], "moved", "{name}: {receipt}");
        assert_eq!(receipt["primitive"], by, "{name}: {receipt}");
        assert_eq!(receipt["fallback"], Value::Null, "{name}: {receipt}");
    }
    assert_eq!(receipts.len(), 1, "{name}");
    // Plain Btrfs takes a range over at once, or a kill would leave some of its new extent behind.
    let turns = if name == BTRFS.name { 1 } else { 3 };
    assert!(reads.during.len() >= turns, "{name}: in turns: {reads:?}");
    println!("{name}: {reads:?}");
    let read = reads.before.iter().filter(|n| **n > 0).count();
    assert!(!reads_before || read >= turns, "{name}: dropped, and read again: {reads:?}");
    image.fsck();
    assert!(if zstd {
        holds(&file, SIZE, compressible).unwrap()
    } else {
        is_intact(&file, SIZE).unwrap()
    });
    reads.during.iter().sum()
}

#[test]
fn loop_nothing_is_read_while_xfs_shares() {
    nothing_is_read_under_locks(&XFS, DEDUPE, true);
}

#[test]
fn loop_nothing_is_read_while_xfs_exchanges() {
    nothing_is_read_under_locks(&XFS_EXCHANGE, COMMIT_RANGE, false);
}

#[test]
fn loop_nothing_is_read_while_btrfs_shares() {
    nothing_is_read_under_locks(&BTRFS, DEDUPE, true);
}

#[test]
fn loop_nothing_is_read_while_btrfs_compresses() {
    nothing_is_read_under_locks(&BTRFS_ZSTD, BTRFS_DEFRAG, true);
}

/// What has moved is cached, what follows is not, except for some pages that a program has just
/// written: the kernel would treat its own reads as sequential, and read megabytes ahead.
#[test]
fn loop_nothing_is_read_ahead_while_btrfs_compresses() {
    const STEP: u64 = 128 << 10;
    let image = Image::of(&BTRFS_ZSTD, DISK);
    let path = squeezed(&image, "file");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let (reads, receipts) = step_by_step(&image, &path, |pid, calls| {
        drop_pages(pid, &path);
        let moved = calls * STEP;
        let mut cached = vec![0; moved as usize];
        file.read_exact_at(&mut cached, 0).unwrap();
        let mut block = vec![0; 4096];
        let middle = moved + STEP / 2;
        compressible(middle, &mut block);
        if middle < SIZE {
            file.write_all_at(&block, middle).unwrap();
        }
    });
    assert_eq!(receipts[0]["primitive"], BTRFS_DEFRAG, "{receipts:?}");
    assert_eq!(reads.during.len() as u64, SIZE / STEP, "step by step: {reads:?}");
    let under_locks: u64 = reads.during.iter().sum();
    assert_eq!(under_locks, 0, "read in calls, or ahead of them: {reads:?}");
    drop(file);
    image.fsck();
    assert!(holds(&path, SIZE, compressible).unwrap());
}

/// What was brought in before a step is evicted before the call: the step is tried again.
#[test]
fn loop_a_step_waits_for_what_the_kernel_would_read_ahead() {
    const STEPS: u64 = SIZE / (128 << 10);
    /// Before this step the kernel finds enough in the page cache to read ahead of it.
    const EVICTED: u64 = 3;
    let image = Image::of(&BTRFS_ZSTD, DISK);
    let path = squeezed(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max", "--json"]).arg(plan_file).stdin(Stdio::null());
    command.env("FRAGMEND_STOP_AT", "checked=stop").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let file = File::open(&path).unwrap();
    let mut stops = 0;
    while stopped(&mut running) {
        if stops == EVICTED {
            let ahead = (stops + 1) * (SIZE / STEPS)..SIZE;
            cache::drop_clean(&file, ahead.clone()).unwrap();
            assert!(!cache::is_resident(&file, ahead).unwrap());
        }
        stops += 1;
        running.signal(Signal::CONT);
    }
    let told = running.wait().expect(&[0]);
    assert_eq!(stops, STEPS + 1, "one step was tried twice: {told}");
    drop(file);
    image.fsck();
    assert!(holds(&path, SIZE, compressible).unwrap());
}
