//! Who opens a file while its range is compared with the copy, on a slow disk and with nothing in memory,
//! does not wait for all of that.

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

#[test]
fn loop_who_opens_a_file_does_not_wait_for_the_comparison() {
    let bed = SlowBed::new(&EXT4, 128 << 20, "");
    let path = bed.root().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    bed.sync();
    let plan_file = bed.scratch().join("plan.json");
    plan(&[&path], Policy::WholeFile).write(&plan_file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--engine", "rewrite", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "copied=stop").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_until(is_stopped);
    // The range was copied; by the time it is leased, others have needed the memory.
    cache::drop_clean(File::open(&path).unwrap(), 0..SIZE).unwrap();
    bed.gate().pace(Kind::Read, Some(400));
    running.signal(Signal::CONT);
    let mut longest = Duration::ZERO;
    while running.child().try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        drop(File::open(&path).unwrap());
        longest = longest.max(started.elapsed());
    }
    println!("{longest:?}");
    bed.gate().pace(Kind::Read, None);
    assert!(longest < Duration::from_millis(700), "{longest:?}");
    running.wait().expect(&[0, 2]);
    assert!(is_intact(&path, SIZE).unwrap());
}
