//! What another program has written to a file that is being moved, and closed, is not waited for while
//! programs are kept out of the file: on a slow disk, that may last for any time.

mod support;

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_plan::{Plan, PlannedRange, Policy};
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::process::{Finished, Running};
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::rewrite::{FRAGMEND, is_stopped};
use support::{plan, write_plan};

const SIZE: u64 = 4 << 20;
/// Bytes that are written behind it: seconds of work, on a disk of this many requests a second.
const BESIDE: usize = 64 << 20;
const WRITES: u32 = 12;

/// Stops `apply` at a point, writes to the file, and returns how long a program that opens it waits then, with
/// `again`, after `apply` has stopped there a second time; and what `apply` said.
fn waits(
    file_system: &'static FileSystem,
    planned: fn(&Path) -> Plan,
    args: &[&str],
    at: &str,
    again: bool,
) -> (Duration, Finished) {
    let slow_mount = SlowMount::new(file_system, 320 << 20, "");
    let path = slow_mount.root().join("file");
    interleaved(&path, SIZE, &[64 << 10], true).unwrap();
    slow_mount.sync();
    let plan_file = slow_mount.scratch().join("plan.json");
    write_plan(&planned(&path), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max"]).args(args).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", format!("{at}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_until(is_stopped);
    slow_mount.gate().pace(Kind::Write, Some(WRITES));
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(&vec![7; BESIDE], SIZE).unwrap();
    drop(writer);
    if again {
        running.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(50));
        running = running.wait_until(is_stopped);
    }
    running.signal(Signal::CONT);
    let waited = longest_open(&mut running, &path);
    println!("{}: {waited:?}", file_system.name);
    slow_mount.gate().pace(Kind::Write, None);
    running.signal(Signal::TERM);
    let ended = running.wait();
    File::options().write(true).open(&path).unwrap().set_len(SIZE).unwrap();
    assert!(is_intact(&path, SIZE).unwrap());
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    (waited, ended)
}

/// The longest time that opening the file lasts, until the process ends or one open has lasted for a second.
fn longest_open(running: &mut Running, path: &Path) -> Duration {
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(1) && running.child().try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        drop(File::open(path).unwrap());
        waited = waited.max(started.elapsed());
    }
    waited
}

fn whole(path: &Path) -> Plan {
    plan(&[path], Policy::WholeFile)
}

fn halves(path: &Path) -> Plan {
    let mut plan = whole(path);
    let all = plan.files[0].ranges.remove(0);
    let half = |n| PlannedRange { offset: n * SIZE / 2, length: SIZE / 2, ..all.clone() };
    plan.files[0].ranges = vec![half(0), half(1)];
    plan
}

#[test]
fn loop_what_others_have_just_written_keeps_nobody_out_of_a_move_on_ext4() {
    let (waited, ended) = waits(&EXT4, whole, &[], "staged", false);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    // It is not even leased.
    assert!(ended.stdout.contains("others have just written much to it"), "{ended:?}");
}

#[test]
fn loop_what_others_have_just_written_keeps_nobody_out_of_a_swap() {
    waits(&XFS_RMAP, whole, &["--force"], "filled", false);
}

#[test]
fn loop_what_others_have_just_written_keeps_nobody_out_of_an_exchange() {
    waits(&XFS_EXCHANGE, whole, &[], "staged", false);
}

/// The write happens while the first half is moved; the second is copied after that.
#[test]
fn loop_what_others_have_just_written_keeps_nobody_out_of_a_rewrite() {
    waits(&EXT4, halves, &["--engine", "rewrite"], "copied", true);
}

#[test]
fn loop_what_others_have_just_written_keeps_nobody_out_of_a_recovery() {
    let slow_mount = SlowMount::new(&EXT4, 320 << 20, "");
    let path = slow_mount.root().join("file");
    interleaved(&path, SIZE, &[64 << 10], true).unwrap();
    slow_mount.sync();
    let plan_file = slow_mount.scratch().join("plan.json");
    write_plan(&whole(&path), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--engine", "rewrite", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "sealed=kill").stdin(Stdio::null());
    Running::start(&mut command).wait();
    slow_mount.gate().pace(Kind::Write, Some(WRITES));
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(&vec![7; BESIDE], SIZE).unwrap();
    drop(writer);
    let mut command = Command::new(FRAGMEND);
    command.arg("recover").arg(slow_mount.root()).stdin(Stdio::null()).stdout(Stdio::piped());
    let waited = longest_open(&mut Running::start(&mut command), &path);
    slow_mount.gate().pace(Kind::Write, None);
    println!("recover: {waited:?}");
    assert!(waited < Duration::from_secs(4), "{waited:?}");
}
