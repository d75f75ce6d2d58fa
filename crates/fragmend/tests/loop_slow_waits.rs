//! On a slow disk and with nothing in memory, who opens a file does not wait for all that is read while
//! it is leased.

mod support;

use fragmend_crash::slow::{Kind, SlowBed};
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::process::Running;
use rustix::process::Signal;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::plan;
use support::rewrite::is_stopped;

const SIZE: u64 = 6 << 20;
/// Then it is told to end.
const WHILE: Duration = Duration::from_secs(5);
/// Nothing here takes so long.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The longest time that opening a file took while it is moved, told to end after a while; cold, on a disk
/// of so many reads a second, once the tool has come to `point`.
fn longest_open(options: &[&str], point: &str, reads_a_second: u32) -> Duration {
    let bed = SlowBed::new(&EXT4, 128 << 20, "");
    let path = bed.root().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    bed.sync();
    let plan_file = bed.scratch().join("plan.json");
    plan(&[&path], Policy::WholeFile).write(&plan_file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--rate", "max"]).args(options).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", format!("{point}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_until(is_stopped);
    // By now others have needed the memory.
    cache::drop_clean(File::open(&path).unwrap(), 0..SIZE).unwrap();
    bed.gate().pace(Kind::Read, Some(reads_a_second));
    running.signal(Signal::CONT);
    let (mut until, mut longest) = (Some(Instant::now() + WHILE), Duration::ZERO);
    let begun = Instant::now();
    while running.child().try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < TOO_LONG, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        drop(File::open(&path).unwrap());
        longest = longest.max(started.elapsed());
        // Told twice, it ends at once.
        if until.take_if(|until| *until < Instant::now()).is_some() {
            running.signal(Signal::INT);
        }
    }
    bed.gate().pace(Kind::Read, None);
    running.wait().expect(&[0, 2, 16]);
    assert!(is_intact(&path, SIZE).unwrap());
    longest
}

#[test]
fn loop_who_opens_a_file_does_not_wait_for_the_comparison() {
    let longest = longest_open(&["--engine", "rewrite"], "copied", 400);
    assert!(longest < Duration::from_millis(700), "{longest:?}");
}

#[test]
fn loop_who_opens_a_file_on_ext4_does_not_wait_for_what_is_read() {
    let longest = longest_open(&[], "staged", 100);
    assert!(longest < Duration::from_millis(400), "{longest:?}");
}
