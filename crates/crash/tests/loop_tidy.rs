//! `scripts/tidy` removes what a killed test left behind. The test waited for a disk that it served itself,
//! so no process answers its request any more, and it cannot end.

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::process::{Running, run};
use fragmend_testbed::usage::Process;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const READY: &str = "waits below ";

/// Set in the process that is to be killed, which runs this same test.
const IS_KILLED: &str = "FRAGMEND_TEST_IS_KILLED";

fn wait_for_a_disk_of_its_own() {
    let slow = SlowMount::new(&EXT4, 64 << 20, "");
    let _hold = slow.gate().hold(|request| request.kind == Kind::Write);
    std::fs::write(slow.root().join("data"), vec![1; 1 << 20]).unwrap();
    println!("{READY}{}", slow.scratch().display());
    slow.sync();
}

fn mounted(dir: &str) -> bool {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(dir)
}

/// Where sysfs names the file behind the loop device that is attached to a file below `dir`.
fn loop_device_below(dir: &str) -> PathBuf {
    let block = std::fs::read_dir("/sys/block").unwrap();
    let mut files = block.map(|entry| entry.unwrap().path().join("loop/backing_file"));
    let is_below = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|f| f.starts_with(dir));
    files.find(is_below).expect("a loop device")
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn loop_what_a_killed_test_left_is_removed() {
    if std::env::var_os(IS_KILLED).is_some() {
        return wait_for_a_disk_of_its_own();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "loop_what_a_killed_test_left_is_removed", "--nocapture"]);
    let mut killed = Running::start(command.env(IS_KILLED, "").stdout(Stdio::piped()));
    let lines = BufReader::new(killed.child().stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let said = lines.find_map(|line| line.split_once(READY).map(|(_, dir)| dir.to_owned()));
    let dir = said.expect("a directory");
    let attached = loop_device_below(&dir);
    let state = || Process::Id(killed.id()).state();
    // Until the test's thread waits in syncfs.
    std::thread::sleep(Duration::from_millis(300));
    killed.signal(Signal::KILL);
    std::thread::sleep(Duration::from_millis(300));
    assert!(mounted(&dir), "nothing was left behind");
    let tidy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tidy");
    run("timeout", ["--kill-after=5", "30", tidy]);
    wait_until("it can end", || state().is_none_or(|state| state == 'Z'));
    assert!(!mounted(&dir), "still mounted");
    let backing = || std::fs::read_to_string(&attached).unwrap_or_default();
    wait_until("its loop device is detached", || backing().is_empty());
    assert!(!Path::new(&dir).exists(), "{dir} is still there");
}
