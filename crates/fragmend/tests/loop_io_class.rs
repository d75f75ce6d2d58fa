//! How `apply` lets others go first. While it keeps others out of a file, its I/O is not of the idle class, and otherwise it is:
//! a program that waits for the file would wait for every other user of the disk. And it says what it has moved beside readers,
//! and in which of the two manners.

mod support;

use fragmend_plan::Policy;
use fragmend_sys::priority;
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::reader::Reader;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::rewrite::{FRAGMEND, is_stopped};
use support::{fragmented, fragmented_of, plan, write_plan};

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

#[test]
fn loop_beside_a_reader_it_says_how_it_has_moved() {
    const BYTES: u64 = 4 << 20;
    for (file_system, is_gentle) in [(&EXT4, true), (&XFS, false)] {
        let image = Image::of(file_system, 512 << 20);
        let path = fragmented_of(&image, "file", BYTES);
        let readers = image.path().join("readers");
        fs::write(&readers, vec![1; 16 << 20]).unwrap();
        image.sync();
        let plan_file = image.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let reader = Reader::start(&readers, 16 << 10, Duration::ZERO, 1);
        let applied = finish(Command::new(FRAGMEND).args(["apply", "--json"]).arg(&plan_file));
        reader.finish();
        let applied = applied.expect(&[0]);
        let summary: Value = serde_json::from_str(applied.lines().last().unwrap()).unwrap();
        assert_eq!(summary["moved_bytes"], BYTES, "{summary}");
        let [gently, with_pauses] =
            ["moved_gently_bytes", "moved_with_pauses_bytes"].map(|key| summary[key].as_u64());
        let (gently, with_pauses) = (gently.unwrap(), with_pauses.unwrap());
        // A device that is slow for a moment has ext4's engine pause as well.
        assert_eq!(gently > 0, is_gentle, "{}: {summary}", file_system.name);
        assert!(with_pauses > 0 || is_gentle, "{}: {summary}", file_system.name);
        assert!(gently + with_pauses <= BYTES, "{summary}");
    }
}
