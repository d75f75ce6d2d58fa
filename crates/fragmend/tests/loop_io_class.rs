//! While `apply` keeps others out of a file, its I/O is not of the idle class, and otherwise it is: a program
//! that waits for the file would wait for every other user of the disk.

mod support;

use fragmend_plan::Policy;
use fragmend_sys::priority;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;
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
    assert_eq!(outside, [Some(&true); 2], "it waits for no other program: {idle:?}");
    assert!(!leased.is_empty() && leased.iter().all(|idle| !idle), "others wait: {idle:?}");
}
