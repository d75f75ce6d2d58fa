//! What the pace goes by, as the summary says it: nothing, the waits of other programs, or the disk's statistics. What it
//! does then is tested on virtual clocks, and measured by the bench (`bench beside`).

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::finish;
use fragmend_testbed::reader::Reader;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use support::rewrite::FRAGMEND;
use support::{fragmented, plan, write_plan};

/// An image with a file to move, one that others read, and the plan for the former.
fn image() -> (Image, PathBuf, PathBuf) {
    let image = Image::ext4(256 << 20);
    let path = fragmented(&image, "file");
    let other = image.path().join("other");
    std::fs::write(&other, vec![5; 16 << 20]).unwrap();
    image.sync();
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    (image, other, plan_file)
}

/// The summary of a run.
fn summary(command: &mut Command) -> Value {
    // 2: a dry run leaves something as it is.
    let events = finish(command).expect(&[0, 2]);
    let last = events.lines().last().expect("a summary");
    serde_json::from_str(last).unwrap()
}

#[test]
fn loop_pace_says_what_it_went_by() {
    let (_image, other, plan_file) = image();
    let apply = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).args(["apply", "--json"]).arg(&plan_file);
        command
    };
    // Nothing has moved after a dry run, so that each of these could.
    let alone = summary(apply(FRAGMEND, &[]).arg("--dry-run"));
    assert_eq!(alone["paced"], Value::Null, "a dry run moves nothing");
    let reader = Reader::start(&other, 16 << 10, Duration::from_micros(100), 3);
    let without = ["--bounding-set", "-bpf,-perfmon,-sys_admin", "--inh-caps"];
    let without = [&without[..], &["-bpf,-perfmon,-sys_admin", "--", FRAGMEND]].concat();
    let less = summary(apply("setpriv", &without).args(["--rate", "auto"]));
    println!("{} beside {} reads", less["paced"], reader.finish().requests());
    assert_eq!(less["paced"]["by"], "disk_statistics", "{less}");
    assert!(less["paced"]["why"].as_str().unwrap().contains("CAP_BPF"), "{less}");
}

#[test]
fn loop_pace_measures_the_waits_of_others() {
    let (_image, other, plan_file) = image();
    let reader = Reader::start(&other, 16 << 10, Duration::from_micros(100), 3);
    let beside = summary(Command::new(FRAGMEND).args(["apply", "--json"]).arg(&plan_file));
    println!("{} beside {} reads", beside["paced"], reader.finish().requests());
    assert_eq!(beside["paced"], serde_json::json!({ "by": "block_tracepoints" }), "{beside}");
    assert!(beside["ranges_moved"].as_u64().unwrap() > 0, "{beside}");
}

#[test]
fn loop_pace_waits_for_nobody_where_nobody_reads() {
    let (_image, _, plan_file) = image();
    let alone = summary(Command::new(FRAGMEND).args(["apply", "--json"]).arg(&plan_file));
    assert_eq!(alone["paced"], serde_json::json!({ "by": "nobody_read" }), "{alone}");
    assert_eq!(alone["paused_seconds"], 0.0, "{alone}");
    let max =
        summary(Command::new(FRAGMEND).args(["apply", "--json", "--rate", "max"]).arg(&plan_file));
    assert_eq!(max["paced"], Value::Null, "nothing yields: {max}");
}
