//! While `apply` keeps others out of a file, its I/O is not of the idle class, and otherwise it is: a program
//! that waits for the file would wait for every other user of the disk. On the processor, it gives way until a
//! program does wait.

mod support;

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_plan::Policy;
use fragmend_sys::priority;
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use rustix::process::{Pid, Signal};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::rewrite::{FRAGMEND, is_stopped};
use support::{fragmented, plan, write_plan};

/// For each stop of a process, whether one of its threads is in the idle class.
fn idle_at_stops(mut running: Running) -> Vec<bool> {
    let mut idle = Vec::new();
    while running.child().try_wait().unwrap().is_none() {
        if is_stopped(running.id()) {
            let threads = fs::read_dir(format!("/proc/{}/task", running.id())).unwrap();
            let number = |t: fs::DirEntry| t.file_name().to_str().unwrap().parse().unwrap();
            let mut threads = threads.map(|t| number(t.unwrap()));
            idle.push(threads.any(|thread| priority::is_idle(thread) == Some(true)));
            running.signal(Signal::CONT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    running.wait().expect(&[0]);
    idle
}

#[test]
fn loop_io_class_is_best_effort_while_others_are_kept_out() {
    let image = Image::ext4(128 << 20);
    let path = fragmented(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "staged=stop,moved=stop,settled=stop");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let idle = idle_at_stops(Running::start(&mut command));
    println!("{idle:?}");
    let (outside, leased) = ([idle.first(), idle.last()], &idle[1..idle.len() - 1]);
    assert_eq!(outside, [Some(&true); 2], "it waits for nobody: {idle:?}");
    assert!(!leased.is_empty() && leased.iter().all(|idle| !idle), "others wait: {idle:?}");
}

#[test]
fn loop_processor_time_is_given_up_until_a_program_waits() {
    let bed = SlowMount::new(&EXT4, 128 << 20, "");
    let path = bed.root().join("file");
    interleaved(&path, 6 << 20, &[4096], true).unwrap();
    bed.sync();
    let plan_file = bed.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "staged=stop,settled=stop");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::start(&mut command).wait_until(is_stopped);
    let nice = || priority::nice(Pid::from_raw(running.id() as i32)).unwrap();
    let usual = priority::nice(None).unwrap();
    assert_eq!(nice(), 10.max(usual));
    // A step and its commit last long enough to be seen.
    bed.gate().pace(Kind::Write, Some(12));
    running.signal(Signal::CONT);
    let (seen, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(30));
    let goes_on = || !seen.load(Ordering::Relaxed) && Instant::now() < until;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on() {
                drop(fs::File::open(&path).unwrap());
            }
        });
        while goes_on() {
            seen.store(nice() == usual, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    bed.gate().pace(Kind::Write, None);
    let running = running.wait_until(is_stopped);
    assert!(seen.into_inner(), "it was as low while a program waited");
    assert_eq!(priority::nice(Pid::from_raw(running.id() as i32)), Some(10.max(usual)));
    running.signal(Signal::CONT);
    running.wait().expect(&[0]);
}
