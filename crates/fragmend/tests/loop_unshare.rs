//! Data that a snapshot shares on Btrfs: what the verbs report before they move it, and what they move.

mod support;

use fragmend_testbed::file_system::BTRFS;
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::replay::{self, Mode};
use fragmend_testbed::tools::{WATCHING, extents, sha256};
use std::path::Path;
use std::process::{Command, Stdio};
use support::SIZE;
use support::btrfs::{data_used, half_shared};
use support::conformance::{looks, shared_bytes};

#[test]
fn loop_what_unsharing_costs_is_said_before_it_is_done() {
    let image = &Image::of(&BTRFS, 512 << 20);
    let (file, _) = half_shared(image);
    let plan_file = image.scratch().join("plan.json");
    let fragmend = |args: &[&str], path: &Path| -> (String, String, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        let ended = finish(command.args(args).arg(path));
        (ended.stdout, ended.stderr, ended.status.code().unwrap())
    };
    let plan = ["plan", "--policy", "whole-file", "-o", plan_file.to_str().unwrap()];
    let (said, notes, _) = fragmend(&plan, &file);
    assert!(!said.contains("space: ") && !said.contains("unshare"), "{said}");
    assert!(notes.contains("512.0 KiB") && notes.contains("--unshare"), "{notes}");
    let (said, notes, code) = fragmend(&[&plan[..], &["--unshare"]].concat(), &file);
    assert!(said.contains("it would unshare 512.0 KiB"), "{said}");
    assert!(said.contains("space: 512.0 KiB more"), "{said}");
    assert!(notes.contains("next: fragmend apply --unshare "), "{notes}");
    assert_eq!(code, 0);
    let fragments = extents(&file);
    let (said, _, code) = fragmend(&["apply", "--rate", "max"], &plan_file);
    assert!(said.contains("with --unshare it moves, for 524288 bytes of space"), "{said}");
    assert_eq!((code, extents(&file)), (2, fragments));
    let (said, _, code) = fragmend(&["apply", "--unshare", "--rate", "max", "--json"], &plan_file);
    assert!(said.lines().last().unwrap().contains("\"space_cost_bytes\":524288"), "{said}");
    assert_eq!((code, extents(&file)), (0, 1));
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_auto_unshares_only_where_that_is_asked_for() {
    let image = &Image::of(&BTRFS, 512 << 20);
    let (file, snap) = half_shared(image);
    let (used, before) = (data_used(image), (sha256(&snap), looks(&snap), extents(&snap)));
    let auto = |further: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(["auto", "--duration", "3s", "--yes", "--json", "--rate", "max"]);
        command.args(["--policy", "whole-file"]).args(further).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running::start(&mut command).wait_until_it_says(WATCHING);
        replay::replay(&file, &replay::sequential(SIZE), Mode::Direct).unwrap();
        let said = running.wait().expect(&[0]);
        let events = said.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let is_summary = |event: &serde_json::Value| event["event"] == "summary";
        let summary = { events }.find(is_summary).expect("a summary");
        ["moved_bytes", "space_cost_bytes"].map(|name| summary[name].as_u64().expect("a number"))
    };
    assert_eq!(auto(&[]), [SIZE / 2, 0]);
    assert!(data_used(image) <= used && shared_bytes(&file) == SIZE / 2);
    assert_eq!(auto(&["--unshare"]), [SIZE, SIZE / 2]);
    assert_eq!((data_used(image), shared_bytes(&file), extents(&file)), (used + SIZE / 2, 0, 1));
    assert_eq!((sha256(&snap), looks(&snap), extents(&snap)), before);
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap() && is_intact(&snap, SIZE).unwrap());
}
