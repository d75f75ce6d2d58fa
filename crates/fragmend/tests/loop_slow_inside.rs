//! What is in one extent and yet slow, from `probe` over `plan --slow` to `apply`: on a drive of the lab, whose own time shows
//! what that brings; and documents that are of something else.

use fragmend_layout::ByteRange;
use fragmend_scan::layout_of;
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::image::Image;
use fragmend_testbed::loop_device::unmount;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{Finished, finish};
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::{Aligned, Mode, open};
use fragmend_testbed::scratch;
use fragmend_testbed::served::ServedDrive;
use fragmend_testbed::tools::Recording;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// The file, and what of it is overwritten.
const SIZE: u64 = 48 * MIB;
const SLOW: ByteRange = ByteRange { start: 16 * MIB, end: 24 * MIB };

/// A verb of fragmend that keeps its profiles in `dir`.
fn fragmend(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.env("FRAGMEND_PROFILES", dir.join("profiles")).args(args);
    command
}

fn last_line(finished: Finished) -> Value {
    let said = finished.expect(&[0]);
    let last = said.lines().next_back().expect("a document");
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {said}"))
}

fn noise(bytes: u64) -> Vec<u8> {
    let mut random = Random::new(24);
    (0..bytes / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

/// A served NVMe drive with an ext4, on which a part of a file is as FAST'24 has it in its worst case.
struct Drive {
    // Unmounted first.
    mounted: MountGuard,
    served: ServedDrive,
    dir: tempfile::TempDir,
    data: Vec<u8>,
}

impl Drive {
    fn new() -> Self {
        let dir = scratch::directory("slow");
        let served = ServedDrive::start(&["nvme-a", "--size", "192M"]);
        // When requests arrive matters only while it is read.
        served.control("settle 1").unwrap();
        EXT4.make(&served.node(), &["-m", "0"]);
        let mount = dir.path().join("mnt");
        fs::create_dir(&mount).unwrap();
        let node = served.node();
        let options = [OsStr::new("-o"), OsStr::new("noatime"), node.as_os_str()];
        let mounted = MountGuard::mount(&options, &mount);
        let drive = Self { mounted, served, dir, data: noise(SIZE) };
        drive.write();
        drive
    }

    fn file(&self) -> PathBuf {
        self.mounted.path().join("file")
    }

    fn sync(&self) {
        rustix::fs::syncfs(File::open(self.mounted.path()).unwrap()).unwrap();
    }

    /// The file in one extent, and then its slow part: each stripe unit of it (32 KiB) is followed by those of all other dies,
    /// of another file.
    fn write(&self) {
        let beside = self.mounted.path().join("other");
        for (path, bytes) in [(self.file(), SIZE), (beside.clone(), 992 * KIB)] {
            let file = File::create(&path).unwrap();
            let how = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, how, 0, bytes).unwrap();
            file.write_all_at(&self.data[..bytes as usize], 0).unwrap();
            file.sync_all().unwrap();
            assert_eq!(layout_of(&file).unwrap().extents().len(), 1, "{}", path.display());
        }
        self.sync();
        let direct = |path: &Path| {
            let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
            File::options().write(true).custom_flags(flags).open(path).unwrap()
        };
        let (file, other) = (direct(&self.file()), direct(&beside));
        let (mut unit, mut rest) = (Aligned::new(32 << 10), Aligned::new(992 << 10));
        for at in (SLOW.start..SLOW.end).step_by(32 << 10) {
            unit.bytes().copy_from_slice(&self.data[at as usize..][..32 << 10]);
            file.write_all_at(unit.bytes(), at).unwrap();
            other.write_all_at(rest.bytes(), 0).unwrap();
        }
        self.sync();
    }

    /// How long reading a range lasts, a MiB after the other past the page cache, in the drive's own nanoseconds: at least, as
    /// something else may read the drive meanwhile.
    fn read_ns(&self, range: ByteRange) -> u64 {
        let file = open(&self.file(), Mode::Direct).unwrap();
        let mut buffer = Aligned::new(MIB as usize);
        let mut once = || {
            let before = self.served.clock();
            for at in (range.start..range.end).step_by(MIB as usize) {
                file.read_exact_at(buffer.bytes(), at).unwrap();
                assert!(buffer.bytes() == &self.data[at as usize..][..MIB as usize]);
            }
            self.served.clock() - before
        };
        (0..3).map(|_| once()).min().unwrap()
    }

    fn probe(&self) -> Value {
        let args = ["probe", "--json", "--no-intervals", "--pace", "max", "--seconds", "10m"];
        last_line(finish(fragmend(self.dir.path(), &args).arg(self.file())))
    }
}

#[test]
fn loop_what_is_slow_in_one_extent_is_planned_and_written_anew() {
    let drive = Drive::new();
    // All of a burst is sent within that time, and half a millisecond would make the probe last minutes.
    drive.served.control("settle 100").unwrap();
    let whole = ByteRange { start: 0, end: SIZE };
    let before = [SLOW, whole].map(|range| drive.read_ns(range));
    let found = drive.probe();
    assert_eq!(found["clock"], "served", "{found}");
    let slow = found["file"]["slow"].as_array().unwrap();
    let figure = |name: &str| slow[0][name].as_u64().unwrap();
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert_eq!((figure("offset"), figure("bytes")), (SLOW.start, SLOW.len()));
    let document = drive.dir.path().join("slow.json");
    fs::write(&document, found.to_string()).unwrap();

    let plan = drive.dir.path().join("plan.json");
    let mut planned = fragmend(drive.dir.path(), &["plan", "--json", "--slow"]);
    let summary = last_line(finish(planned.arg(&document).arg("-o").arg(&plan)));
    let total = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!((total("ranges"), total("bytes_to_move")), (1, SLOW.len()), "{summary}");
    assert_eq!((&summary["worth"], total("slow_bytes")), (&true.into(), SLOW.len()));
    assert!(total("requests_before") > 0 && total("requests_after") > 0, "{summary}");
    let written: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    let range = &written["files"][0]["ranges"][0];
    assert_eq!((&range["offset"], &range["slow_at"]), (&SLOW.start.into(), &slow[0]["physical"]));
    assert!(range["reason"].as_str().unwrap().starts_with("slow-inside"), "{range}");

    // How long it is written does not matter.
    drive.served.control("settle 1").unwrap();
    let mut apply = fragmend(drive.dir.path(), &["apply", "--json"]);
    let done = last_line(finish(apply.arg(&plan)));
    assert_eq!((&done["ranges_moved"], &done["moved_bytes"]), (&1.into(), &SLOW.len().into()));
    drive.sync();
    let mut again = fragmend(drive.dir.path(), &["apply", "--json"]);
    assert_eq!(last_line(finish(again.arg(&plan)))["moved_bytes"], 0);
    drive.served.control("settle 100").unwrap();

    let after = [SLOW, whole].map(|range| drive.read_ns(range));
    let now = drive.probe();
    assert_eq!(now["file"]["slow"], json!([]), "{}", now["file"]);
    let times = |n: usize| before[n] as f64 / after[n] as f64;
    let predicted = figure("ns") as f64 / figure("expected_ns") as f64;
    let saved = [before[1] - after[1], figure("ns") - figure("expected_ns")];
    println!(
        "{} ns before and {} ns after: {:.2} times, {predicted:.2} by the probe; the whole file {} and {} ns, {:.2} times; \
         saved {} ns, {} by the probe, {} by the plan",
        before[0],
        after[0],
        times(0),
        before[1],
        after[1],
        times(1),
        saved[0],
        saved[1],
        summary["seconds_saved"].as_f64().unwrap() * 1e9
    );
    // A MiB is all dies of this drive once, and one of them twice where it begins within a flash page: a probe has the mean.
    assert!((times(0) / predicted - 1.0).abs() < 0.25, "{} {predicted}", times(0));
    assert!(predicted > 3.5);
    assert!(saved[0].abs_diff(saved[1]) * 10 < saved[1], "{saved:?}");
    let seconds = summary["seconds_saved"].as_f64().unwrap();
    assert!((seconds * 1e9 / saved[0] as f64 - 1.0).abs() < 0.15, "{seconds} {saved:?}");
    assert!(fs::read(drive.file()).unwrap() == drive.data);
    let (node, mount) = (drive.served.node(), drive.mounted.path().to_owned());
    unmount(&node, &mount);
    EXT4.check(&node).unwrap();
    drive.served.quit();
}

/// A file of 8 MiB in one extent, and what a probe has printed of it, with these MiB of it made slow by an editor.
fn edited(image: &Image, slow: &[u64]) -> (PathBuf, Value) {
    let path = image.path().join("file");
    fs::write(&path, noise(8 * MIB)).unwrap();
    image.sync();
    let args = ["probe", "--json", "--no-intervals", "--pace", "max"];
    let mut found = last_line(finish(fragmend(image.scratch(), &args).arg(&path)));
    let range = |mib: &u64| {
        let mut range = found["file"]["ranges"][*mib as usize].clone();
        range["ns"] = 50_000_000.into();
        range["expected_ns"] = 10_000_000.into();
        range
    };
    let slow: Value = slow.iter().map(range).collect();
    found["file"]["complete"] = true.into();
    found["file"]["slow"] = slow;
    (path, found)
}

/// The plan by a document, or by several, and what is said of it.
fn plan(image: &Image, documents: &[&Value], args: &[&str]) -> (Value, String, i32) {
    let mut command = fragmend(image.scratch(), &["plan", "--json"]);
    for (n, document) in documents.iter().enumerate() {
        let path = image.scratch().join(format!("slow-{n}.json"));
        fs::write(&path, document.to_string()).unwrap();
        command.arg("--slow").arg(path);
    }
    let output = command.args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let plan = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (plan, said, output.status.code().unwrap())
}

fn why_skipped(plan: &Value) -> Vec<&str> {
    let skipped = plan["skipped"].as_array().unwrap();
    skipped.iter().map(|s| s["reason"].as_str().unwrap()).collect()
}

#[test]
fn loop_a_document_is_used_only_for_the_file_that_was_probed() {
    let image = Image::ext4(128 * MIB);
    let (path, document) = edited(&image, &[1, 5]);
    let bytes = |plan: &Value| plan["slow_bytes"].as_u64().unwrap();
    let (plan_of, text) =
        (|document: &Value| plan(&image, &[document], &[]), path.to_str().unwrap());
    let all = plan_of(&document).0;
    assert_eq!((bytes(&all), &all["ranges"]), (2 * MIB, &2.into()), "{all}");
    assert_eq!(bytes(&plan(&image, &[&document], &[text]).0), 2 * MIB);
    // The price and the budget hold.
    let high = plan(&image, &[&document], &["--min-gain", "50"]).0;
    assert_eq!((bytes(&high), &high["why"]), (0, &"too-rarely-read".into()), "{high}");
    let some = plan(&image, &[&document], &["--budget", "1M"]).0;
    assert_eq!((bytes(&some), &some["over_budget_bytes"]), (MIB, &MIB.into()), "{some}");
    // Twice the same, and another directory.
    let twice = plan(&image, &[&document, &document], &[]).0;
    assert_eq!(bytes(&twice), 2 * MIB);
    assert!(why_skipped(&twice)[0].contains("in an earlier document, too"), "{twice}");
    let mut none = document.clone();
    none["file"]["slow"] = json!([]);
    let none = plan_of(&none).0;
    assert_eq!((bytes(&none), &none["files_considered"]), (0, &1.into()));
    assert!(why_skipped(&none)[0].contains("no range of it that is slow"), "{none}");
    fs::create_dir(image.path().join("empty")).unwrap();
    let below = image.path().join("empty");
    let other = plan(&image, &[&document], &[below.to_str().unwrap()]).0;
    assert_eq!(bytes(&other), 0);
    assert!(why_skipped(&other)[0].contains("not below the paths"), "{other}");
    // Renamed, it is found by its identity.
    let renamed = image.path().join("renamed");
    fs::rename(&path, &renamed).unwrap();
    assert_eq!(bytes(&plan_of(&document).0), 2 * MIB);
    fs::rename(&renamed, &path).unwrap();

    // Where one of the ranges is not what it was, the other one still is.
    let moved = |mib: u64| {
        let mut edited = document.clone();
        edited["file"]["slow"][0]["physical"] = (mib * MIB).into();
        edited
    };
    let changed = plan_of(&moved(3)).0;
    assert_eq!(bytes(&changed), MIB);
    assert!(
        why_skipped(&changed)[0].starts_with("1 of its 2 slow ranges are not where"),
        "{changed}"
    );
    let file = File::options().write(true).open(&path).unwrap();
    let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, how, 5 * MIB, 4096).unwrap();
    assert_eq!(bytes(&plan_of(&document).0), MIB);
    file.set_len(MIB + 5).unwrap();
    drop(file);
    let cut = plan_of(&document).0;
    assert_eq!((bytes(&cut), &cut["ranges"]), (0, &0.into()));
    assert!(why_skipped(&cut)[0].starts_with("2 of its 2 slow ranges"), "{cut}");
    // Another file at its path, and another generation of its number.
    for (name, value) in [("inode", json!(987_654)), ("generation", json!(3))] {
        let mut other = document.clone();
        other["file"]["probed"][name] = value;
        let other = plan_of(&other).0;
        assert_eq!(bytes(&other), 0);
        assert!(why_skipped(&other)[0].contains("not the file that was probed"), "{other}");
    }
    let mut elsewhere = document.clone();
    elsewhere["file"]["probed"]["device"] = 12_345_678.into();
    let elsewhere = plan_of(&elsewhere).0;
    assert!(why_skipped(&elsewhere)[0].contains("not mounted now"), "{elsewhere}");
}

/// What is read in a trace is what counts, as often as it was read.
#[test]
fn loop_with_a_trace_slow_ranges_count_as_often_as_they_were_read() {
    let image = Image::ext4(128 * MIB);
    let (path, document) = edited(&image, &[1, 5]);
    let trace = image.scratch().join("trace.parquet");
    let recording = Recording::start(&trace, &[&path]);
    let (file, mut buffer) = (open(&path, Mode::Direct).unwrap(), Aligned::new(MIB as usize));
    for at in [1, 1, 2, 1] {
        file.read_exact_at(buffer.bytes(), at * MIB).unwrap();
    }
    recording.finish();
    let args = ["-t", trace.to_str().unwrap()];
    let traced = plan(&image, &[&document], &args).0;
    // 40 ms each time, one read after the other but for what else reads the device; the second slow range was not read.
    assert_eq!((&traced["slow_bytes"], &traced["ranges"]), (&MIB.into(), &1.into()), "{traced}");
    let figure = |name: &str| traced[name].as_f64().unwrap();
    assert!((figure("seconds_saved") * figure("depth") - 0.12).abs() < 0.01, "{traced}");
    let copy = image.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    image.sync();
    let mut of_copy = document.clone();
    let inode = std::os::unix::fs::MetadataExt::ino(&copy.metadata().unwrap());
    of_copy["file"]["probed"]["inode"] = inode.into();
    let unread = plan(&image, &[&of_copy], &args).0;
    assert_eq!((&unread["slow_bytes"], &unread["ranges"]), (&0.into(), &0.into()), "{unread}");
    assert!(why_skipped(&unread)[0].contains("no access to it is in the trace"), "{unread}");
}

#[test]
fn loop_documents_of_something_else_are_refused_in_a_line() {
    let image = Image::ext4(128 * MIB);
    let (_, document) = edited(&image, &[1]);
    let refused = |document: &Value, why: &str| {
        let (plan, said, code) = plan(&image, &[document], &[]);
        assert_eq!((plan, code), (Value::Null, 4), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{why}: {said}");
    };
    let mut of_device = document.clone();
    of_device["file"] = Value::Null;
    refused(&of_device, "is of a device");
    let mut newer = document.clone();
    newer["schema_version"] = 7.into();
    refused(&newer, "version 7");
    let mut older = document.clone();
    older["file"].as_object_mut().unwrap().remove("probed");
    refused(&older, "older fragmend");
    let mut endless = document.clone();
    endless["file"]["slow"][0]["ns"] = u64::MAX.into();
    refused(&endless, "which cannot be");
    let mut beyond = document.clone();
    beyond["file"]["slow"][0]["offset"] = (u64::MAX - MIB + 1).into();
    refused(&beyond, "has no end");
    refused(&json!({ "event": "summary" }), "no document of that verb");
    refused(&json!("\u{1b}[31m"), "is not what");
    // Without any, the policies need what they needed before.
    let (_, said, code) = plan(&image, &[], &[image.path().to_str().unwrap()]);
    assert!(code == 8 && said.contains("give a trace with -t"), "{said}");
}
