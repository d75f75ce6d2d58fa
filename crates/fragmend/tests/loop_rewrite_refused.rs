//! Data that a program has written and the disk refused is in the page cache and nowhere else, and the kernel
//! marks it clean. However often `--engine rewrite` and `recover` run, it stays, and is reported.

mod support;

use fragmend_crash::refusing::{REFUSED, RefusingDisk};
use fragmend_layout::ByteRange;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running, finish};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::rewrite::{FRAGMEND, go_on, is_stopped, outcomes, recover};
use support::{plan, write_plan};

const SIZE: u64 = 2 << 20;
/// The bytes that are planned for.
const FIRST_HALF: u64 = SIZE / 2;
const EIO: i32 = 5;

/// A fragmented file on a disk that refuses a block, a plan for its first half, and another disk for
/// records.
struct Refusing {
    disk: RefusingDisk,
    records: Image,
    plan: PathBuf,
}

impl Refusing {
    fn new(file_system: &'static FileSystem) -> Self {
        let disk = RefusingDisk::new(file_system, 320 << 20, SIZE, |_| ());
        let plan_file = disk.slow().scratch().join("plan.json");
        // One range, however far this device is read ahead.
        let mut made = plan(&[disk.path()], Policy::WholeFile);
        let [range] = &mut made.files[0].ranges[..] else { panic!("{:?}", made.files) };
        assert_eq!(range.range(), ByteRange { start: 0, end: SIZE });
        range.length = FIRST_HALF;
        write_plan(&made, &plan_file);
        Self { disk, records: Image::ext4(64 << 20), plan: plan_file }
    }

    /// Writes at `at`, waits until the disk has refused it, wherever it was to go, and closes the file.
    fn write(&self, at: u64) {
        self.disk.refuse_data();
        self.write_to_its_place(at);
    }

    /// The same, but only its present place on the disk refuses it.
    fn write_to_refused_place(&self, at: u64) {
        self.disk.refuse_place(at);
        self.write_to_its_place(at);
    }

    fn write_to_its_place(&self, at: u64) {
        self.disk.write(&File::options().write(true).open(self.disk.path()).unwrap(), at);
    }

    /// Whether the file shows what was last written to it.
    fn is_whole(&self, at: u64) -> bool {
        self.disk.shows_refused(at)
    }

    fn rewrite(&self, stop_at: &str) -> Command {
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--engine", "rewrite", "--rate", "max", "--json", "--journal"]);
        command.arg(self.records.path()).arg(&self.plan).env("FRAGMEND_STOP_AT", stop_at);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn killed_at(&self, step: &str) {
        let ended = finish(&mut self.rewrite(&format!("{step}=kill")));
        assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
    }

    fn recover(&self, more: &[&str]) -> (Value, i32) {
        let (journal, root) = (self.records.path(), self.disk.slow().root());
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"--journal", &journal];
        args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        args.push(&root);
        recover(&args)
    }

    /// Recovers three times: what was written at `at` stays, each has this outcome and exit code, and the next program that syncs the
    /// file gets the error. Returns what the last one reported.
    fn stays_refused(&self, at: u64, (outcome, exit): (&str, i32), what: &str) -> String {
        let mut reported = String::new();
        for time in 1..=3 {
            let (told, code) = self.recover(&[]);
            let found = fs::read(self.disk.path()).unwrap();
            let shown = found[at as usize..][..4096] == REFUSED;
            assert!(shown, "what the disk refused is gone: {what} {time}: {told}");
            assert_eq!(
                (outcomes(&told), code),
                (vec![outcome.to_owned()], exit),
                "{what} {time}: {told}"
            );
            reported = told.to_string();
            assert!(reported.contains("disk has refused"), "{what} {time}: {told}");
        }
        let later = File::open(self.disk.path()).unwrap();
        let error = later.sync_all().err().and_then(|e| e.raw_os_error());
        assert_eq!(error, Some(EIO), "{what}: the next open reports");
        reported
    }

    fn is_reported(&self, ended: &Finished) {
        let code = ended.status.code().expect("an exit code");
        assert!(code & 4 != 0 && ended.stdout.contains("disk has refused"), "{code}: {ended:?}");
    }
}

/// In the range, right behind it, and far from it.
const PLACES: [u64; 3] = [300 << 10, FIRST_HALF, SIZE - 4096];

#[test]
fn loop_what_the_disk_refused_is_not_rewritten_away() {
    for file_system in [&EXT4, &XFS] {
        for at in PLACES {
            let disk = Refusing::new(file_system);
            disk.write_to_refused_place(at);
            for time in 1..=3 {
                let ended = finish(&mut disk.rewrite(""));
                let what = format!("{} {at} {time}: {ended:?}", file_system.name);
                assert!(disk.is_whole(at), "what the disk refused is gone: {what}");
                disk.is_reported(&ended);
            }
            // The error is reported to the next descriptor.
            let later = File::open(disk.disk.path()).unwrap();
            let told = later.sync_all().err().and_then(|e| e.raw_os_error());
            drop(later);
            assert_eq!(told, Some(EIO), "{} {at}", file_system.name);
            // Although the error was reported, the data is not dropped.
            for _ in 1..=2 {
                let ended = finish(&mut disk.rewrite(""));
                assert!(disk.is_whole(at), "{} {at}: {ended:?}", file_system.name);
                disk.is_reported(&ended);
            }
            disk.disk.accept();
            let owner = File::options().write(true).open(disk.disk.path()).unwrap();
            owner.write_all_at(&REFUSED, at).unwrap();
            owner.sync_all().unwrap();
            drop(owner);
            let ended = finish(&mut disk.rewrite(""));
            assert!(ended.status.code() == Some(0) && disk.is_whole(at), "{ended:?}");
        }
    }
}

/// Between the copy and the lease.
#[test]
fn loop_what_the_disk_refuses_meanwhile_is_not_rewritten_away() {
    for file_system in [&EXT4, &XFS] {
        for at in PLACES {
            let disk = Refusing::new(file_system);
            let stopped = Running::start(&mut disk.rewrite("copied=stop")).wait_until(is_stopped);
            disk.write(at);
            let ended = go_on(stopped);
            let what = format!("{} {at}: {ended:?}", file_system.name);
            assert!(disk.is_whole(at), "what the disk refused is gone: {what}");
            assert!(ended.status.code() != Some(0), "{what}");
            disk.is_reported(&finish(&mut disk.rewrite("")));
            assert!(disk.is_whole(at), "{what}");
        }
    }
}

/// Recovering compares with the disk, which has the old bytes, or none.
#[test]
fn loop_what_the_disk_refused_is_not_recovered_away() {
    for file_system in [&EXT4, &XFS] {
        for (step, at) in [("sealed", PLACES[0]), ("punched", PLACES[0])] {
            let disk = Refusing::new(file_system);
            disk.killed_at(step);
            disk.write(at);
            let what = format!("{} {step}", file_system.name);
            let told = disk.stays_refused(at, ("changed", 1), &what);
            assert!(told.contains("--prefer record"), "{what}: {told}");
        }
    }
}

/// A range that is whole, or a hole that could be filled: until the user decides, the file is not synced, and the next
/// program that opens it gets the error.
#[test]
fn loop_what_the_disk_refused_elsewhere_is_reported_to_the_next_program() {
    for file_system in [&EXT4, &XFS] {
        for (step, at) in [("sealed", PLACES[1]), ("punched", PLACES[1]), ("punched", PLACES[2])] {
            let disk = Refusing::new(file_system);
            disk.killed_at(step);
            disk.write(at);
            let what = format!("{} {step} {at}", file_system.name);
            let told = disk.stays_refused(at, ("failed", 5), &what);
            assert!(
                told.contains(&format!("outside of the range it holds data at {at} ")),
                "{told}"
            );
            // The error was consumed above. What the user decides becomes of the range, and not of what is beside it.
            let (told, code) = disk.recover(&["--prefer", "record"]);
            let outcome = if step == "sealed" { "whole" } else { "restored" };
            assert_eq!((outcomes(&told), code), (vec![outcome.to_owned()], 0), "{what}: {told}");
            assert!(disk.is_whole(at), "{what}: {told}");
        }
    }
}
