//! On a slow disk and with a cold cache, a program that opens a file does not wait until all is read that
//! is read while the file is leased, nor until all that has moved is written.

mod support;

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::fragment::{content, interleaved, is_intact};
use fragmend_testbed::process::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::rewrite::is_stopped;
use support::{plan, write_plan};

const SIZE: u64 = 6 << 20;
/// After this time, the end is requested.
const WHILE: Duration = Duration::from_secs(5);
/// Nothing here lasts that long.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The longest time that opening a file lasted while it was moved, until the end was requested; from `point`
/// on with a cold cache, on a disk of this many reads a second.
fn longest_open(options: &[&str], point: &str, reads_a_second: u32) -> Duration {
    longest_open_of(options, point, (Kind::Read, reads_a_second), |_| ())
}

/// The same on a disk of this many requests of a kind a second, for a program that uses the file like this.
fn longest_open_of(
    options: &[&str],
    point: &str,
    (kind, a_second): (Kind, u32),
    uses: impl Fn(File),
) -> Duration {
    let slow_mount = SlowMount::new(&EXT4, 128 << 20, "");
    let path = slow_mount.root().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    slow_mount.sync();
    let plan_file = slow_mount.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--rate", "max"]).args(options).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", format!("{point}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_until(is_stopped);
    // As if other programs had needed the memory.
    cache::drop_clean(File::open(&path).unwrap(), 0..SIZE).unwrap();
    slow_mount.gate().pace(kind, Some(a_second));
    running.signal(Signal::CONT);
    let (mut until, mut longest) = (Some(Instant::now() + WHILE), Duration::ZERO);
    let begun = Instant::now();
    while running.child().try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < TOO_LONG, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        let file = File::open(&path).unwrap();
        longest = longest.max(started.elapsed());
        uses(file);
        // Only once: a second signal would end it at once.
        if until.take_if(|until| *until < Instant::now()).is_some() {
            running.signal(Signal::INT);
        }
    }
    slow_mount.gate().pace(kind, None);
    running.wait().expect(&[0, 2, 16]);
    assert!(is_intact(&path, SIZE).unwrap());
    longest
}

/// The longest wait is at most this in one of three runs: another program may take the processors in one of them.
fn assert_at_most(ms: u64, longest: impl Fn() -> Duration) {
    let mut waits = Vec::new();
    while waits.len() < 3 {
        waits.push(longest());
        if waits.last() < Some(&Duration::from_millis(ms)) {
            return;
        }
    }
    panic!("longer than {ms} ms: {waits:?}");
}

#[test]
fn loop_an_open_does_not_wait_for_the_comparison() {
    assert_at_most(700, || longest_open(&["--engine", "rewrite"], "copied", 400));
}

#[test]
fn loop_an_open_on_ext4_does_not_wait_for_what_is_read() {
    assert_at_most(400, || longest_open(&[], "staged", 100));
}

/// They are read one by one while blocks change places.
#[test]
fn loop_an_open_on_ext4_does_not_wait_for_pages_that_others_dropped() {
    assert_at_most(600, || {
        longest_open_of(&[], "staged", (Kind::Read, 100), |file| {
            cache::drop_clean(file, 0..SIZE).unwrap();
        })
    });
}

/// What others read ahead is in large folios, under which each block that changes places waits for a flush.
#[test]
fn loop_an_open_on_ext4_does_not_wait_for_flushes() {
    assert_at_most(600, || {
        longest_open_of(&[], "staged", (Kind::Flush, 50), |file| {
            let mut bytes = [0; 64 << 10];
            for at in (0..1 << 20).step_by(bytes.len()) {
                file.read_exact_at(&mut bytes, at).unwrap();
            }
        })
    });
}

/// Write requests that the disk completes in a second, each of at most 1 MiB or so.
const WRITES_A_SECOND: u32 = 12;

/// The longest time for which a program that opens a file waits while it moves, how long the end lasts after
/// Ctrl-C, and the longest wait that `apply` reports; `beside` is called in the middle of it.
fn beside_slow_writes(beside: impl Fn(&Path)) -> (Duration, Duration, Duration) {
    const MOVED: u64 = 56 << 20;
    let slow_mount = SlowMount::new(&EXT4, 320 << 20, "");
    let path = slow_mount.root().join("file");
    interleaved(&path, MOVED, &[256 << 10], true).unwrap();
    slow_mount.sync();
    let plan_file = slow_mount.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--rate", "max", "--json"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "staged=stop");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_until(is_stopped);
    slow_mount.gate().pace(Kind::Write, Some(WRITES_A_SECOND));
    running.signal(Signal::CONT);
    let (started, mut longest) = (Instant::now(), Duration::ZERO);
    // What has moved meanwhile is in flight, unless it was waited for.
    std::thread::sleep(Duration::from_millis(700));
    while started.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        drop(File::open(&path).unwrap());
        longest = longest.max(asked.elapsed());
        beside(&path);
        std::thread::sleep(Duration::from_millis(300));
    }
    let stopped = Instant::now();
    running.signal(Signal::INT);
    while running.child().try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ctrl_c = stopped.elapsed();
    slow_mount.gate().pace(Kind::Write, None);
    let told = running.wait().expect(&[0, 2, 16, 18]);
    assert!(is_intact(&path, MOVED).unwrap());
    let summary: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let moved = summary["moved_bytes"].as_u64().unwrap();
    assert!(moved > 0, "{told}");
    let said = Duration::from_secs_f64(summary["longest_step_seconds"].as_f64().unwrap());
    println!("open {longest:?}, Ctrl-C {ctrl_c:?}, said {said:?}, moved {} KiB", moved >> 10);
    (longest, ctrl_c, said)
}

#[test]
fn loop_an_open_on_ext4_does_not_wait_for_all_that_has_moved() {
    let (longest, ctrl_c, said) = beside_slow_writes(|_| ());
    assert!(longest < Duration::from_millis(1500), "{longest:?}");
    assert!(ctrl_c < Duration::from_millis(1500), "{ctrl_c:?}");
    assert!(said * 2 > longest, "said {said:?}, and it was {longest:?}");
}

/// Each page of it that other programs dirty is a request of its own.
#[test]
fn loop_an_open_on_ext4_does_not_wait_for_what_others_wrote_where_it_has_moved() {
    let (longest, ctrl_c, _) = beside_slow_writes(|path| {
        let file = File::options().write(true).open(path).unwrap();
        let mut page = [0; 4096];
        for at in (0..256 << 10).step_by(2 * page.len()) {
            content(at, &mut page);
            file.write_all_at(&page, at).unwrap();
        }
    });
    assert!(longest < Duration::from_millis(1500), "{longest:?}");
    assert!(ctrl_c < Duration::from_millis(2500), "{ctrl_c:?}");
}
