//! A disk with less space than its size (thin provisioning): new places cannot be written although the
//! file system has free space. Nothing is lost, however the file system reacts.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::thin::ThinDisk;
use fragmend_testbed::tools::extents;
use rustix::fs::FallocateFlags;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use support::rewrite::{go_on, go_on_throughout, is_stopped, outcomes, recover, rewrite};
use support::{holder, plan, write_plan};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;
const HOLE: std::ops::Range<u64> = 4 * MIB..4 * MIB + (400 << 10);

/// Checks that the events of `apply` report how the file is now.
fn the_report_is_true(events: &str, before: u64, path: &Path) {
    let events: Vec<Value> = events.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let (now, figure) = (extents(path), |v: &Value, name: &str| v[name].as_u64().unwrap_or(0));
    // A range that could not be made durable is reported once more.
    let last: BTreeMap<u64, &Value> = (events.iter().filter(|e| e["event"] == "range"))
        .map(|range| (figure(range, "offset"), range))
        .collect();
    let ranges: Vec<&Value> = last.into_values().collect();
    let summary = events.last().expect("a summary");
    let moved = ranges.iter().filter(|r| r["outcome"] == "moved").count() as u64;
    assert_eq!(figure(summary, "ranges_moved"), moved, "{summary}");
    let bytes: u64 = ranges.iter().map(|r| figure(r, "moved_bytes")).sum();
    assert_eq!(figure(summary, "moved_bytes"), bytes, "{summary}");
    let by_all = summary["moved_by_primitive"].as_object().unwrap().values();
    assert_eq!(by_all.map(|v| v.as_u64().unwrap()).sum::<u64>(), bytes, "{summary}");
    if now >= before {
        assert!(moved == 0, "nothing is better, and a range was reported as moved: {ranges:?}");
    }
    for range in ranges {
        assert!(figure(range, "extents_after") <= now, "{now} extents: {range}");
        if range["outcome"] != "moved" && now >= before {
            assert_eq!(range["extents_after"], range["extents_before"], "{range}");
        }
    }
}

#[test]
fn loop_a_thin_disk_that_is_full_loses_nothing() {
    for file_system in [&XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS, &EXT4] {
        let thin = ThinDisk::new(file_system);
        let path = thin.path().join("file");
        interleaved(&path, SIZE, &[4096], true).unwrap();
        // In several ranges: an error of one must still be known at the next.
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let hole = HOLE.end - HOLE.start;
        rustix::fs::fallocate(
            File::options().write(true).open(&path).unwrap(),
            how,
            HOLE.start,
            hole,
        )
        .unwrap();
        let before = fs::read(&path).unwrap();
        rustix::fs::syncfs(File::open(thin.path()).unwrap()).unwrap();
        let plan_file = thin.pool().scratch().join("plan.json");
        let made = plan(&[&path], Policy::WholeFile);
        assert!(made.files[0].ranges.len() > 1, "{made:?}");
        write_plan(&made, &plan_file);
        let filler = thin.fill();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        let was = extents(&path);
        let done = finish(command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file));
        the_report_is_true(&done.stdout, was, &path);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        let done = finish(command.args(["apply", "--rate", "max"]).arg(&plan_file));
        let left = done.stdout.lines().find(|l| l.starts_with("left alone")).expect("why");
        println!("{}: {} {left}", file_system.name, done.status);
        assert!(left.contains("No space left"), "{left}");
        fs::remove_file(filler).unwrap();
        thin.unmount();
        thin.mount();
        assert!(fs::read(&path).unwrap() == before, "{}", file_system.name);
    }
}

/// Copies that the disk refused are in the page cache only. Pages are dropped there for the next step, and
/// one of them is mapped by another program.
#[test]
fn loop_copies_that_could_not_be_written_stay_in_memory() {
    // One page, in the second step of `apply`.
    const MAPPED: &str = "import mmap,os,sys\nfile=open(sys.argv[1],'r+b')\n\
        os.posix_fadvise(file.fileno(),0,0,os.POSIX_FADV_DONTNEED)\n\
        all=mmap.mmap(file.fileno(),0)\nall.madvise(mmap.MADV_RANDOM)\n\
        print(all[300<<10]>=0 and '.',flush=True)\nsys.stdin.read()";
    let thin = ThinDisk::new(&EXT4);
    let path = thin.path().join("file");
    interleaved(&path, MIB, &[4096], true).unwrap();
    thin.allocate_used();
    let plan_file = thin.pool().scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mapped = holder(&path, MAPPED);
    let filler = thin.fill();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    let done = finish(command.args(["apply", "--force", "--rate", "max"]).arg(&plan_file));
    assert!(done.stdout.contains("what could not be written is back where it was"), "{done:?}");
    fs::remove_file(filler).unwrap();
    drop(mapped);
    thin.unmount();
    thin.mount();
    assert!(is_intact(&path, MIB).unwrap(), "{done:?}");
}

/// The page cache has a range that the disk refused, and reads return it: `recover` reads from the
/// disk.
#[test]
fn loop_what_never_reached_a_thin_disk_is_put_back() {
    for file_system in [&EXT4, &XFS] {
        let (thin, records) = (ThinDisk::new(file_system), Image::ext4(64 * MIB));
        let path = thin.path().join("file");
        interleaved(&path, MIB, &[4096], true).unwrap();
        thin.allocate_used();
        let mut command = rewrite(thin.pool(), &path, "written=stop");
        command.arg("--journal").arg(records.path());
        let stopped = Running::start(&mut command).wait_until(is_stopped);
        let filler = thin.fill();
        // It tries twice.
        stopped.signal(Signal::CONT);
        let ended = go_on(stopped.wait_until(is_stopped));
        assert!(ended.stdout.contains("\"reason\":\"needs_recovery\""), "{ended:?}");
        fs::remove_file(filler).unwrap();
        // No cut is needed: once the pages are dropped, reads return zeroes.
        assert!(is_intact(&path, MIB).unwrap(), "{}: in memory", file_system.name);
        let args: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"--journal", &records.path(), &thin.path()];
        let (told, code) = recover(&args);
        thin.unmount();
        thin.mount();
        let name = file_system.name;
        assert!(is_intact(&path, MIB).unwrap(), "{name}: {told}, and then bytes are missing");
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    }
}

/// The kernel passes over a hole that a program has punched since the file was inspected, exchanges what is behind
/// it, and counts that alone. With a lease, the hole is found before the exchange; without one (`--force`, and the
/// file stays open), what was exchanged is looked up. In either case all that could not be written goes back.
#[test]
fn loop_behind_a_hole_that_was_punched_meanwhile_nothing_is_lost() {
    for (hole, force) in [(4, false), (16, false), (32, false), (60, false), (16, true), (32, true)]
    {
        let hole = hole << 10;
        let thin = ThinDisk::new(&EXT4);
        let path = thin.path().join("file");
        interleaved(&path, MIB, &[4096], true).unwrap();
        thin.allocate_used();
        let plan_file = thin.pool().scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
        // Forced, it is past the look for holes when it stops.
        let stop_at = if force { "checked=stop" } else { "staged=stop" };
        command.args(force.then_some("--force")).env("FRAGMEND_STOP_AT", stop_at);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that has it open keeps the lease from being taken.
        let open = force.then(|| File::open(&path).unwrap());
        let running = Running::start(&mut command).wait_until(is_stopped);
        let punching = File::options().write(true).open(&path).unwrap();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&punching, how, 0, hole).unwrap();
        punching.sync_all().unwrap();
        drop(punching);
        let mut expected = fs::read(&path).unwrap();
        expected[..hole as usize].fill(0);
        let filler = thin.fill();
        let ended = go_on_throughout(running, || ());
        drop(open);
        fs::remove_file(filler).unwrap();
        thin.unmount();
        thin.mount();
        let found = fs::read(&path).unwrap();
        let lost: Vec<usize> =
            (0..256).filter(|n| found[n << 12..][..4096] != expected[n << 12..][..4096]).collect();
        assert_eq!(lost, [0; 0], "hole of {hole}, forced: {force}: {ended:?}");
        let reasons = ["layout_changed", "size_changed", "failed"];
        let reasons = reasons.map(|why| format!("\"reason\":\"{why}\""));
        assert!(reasons.iter().any(|why| ended.stdout.contains(why)), "{ended:?}");
    }
}
