//! Record, plan and apply as a user runs them: the predictions come true on the device, a stopped
//! run can be continued, and bad input ends in one line with nothing touched.

use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE};
use fragmend_testbed::fragment::{FRAGPICKER_EXTENTS, interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::replay::{self, Mode};
use fragmend_testbed::tools::{WATCHING, extents};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

fn fragmend(args: &[&str]) -> Finished {
    finish(Command::new(FRAGMEND).args(args))
}

fn json(text: &str) -> Value {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(parse).next_back().expect("a line of JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a test's own path")
}

/// An image with FragPicker's file on it.
fn image_with_file(bytes: u64) -> (Image, PathBuf) {
    image_with_file_on(&EXT4, bytes)
}

fn image_with_file_on(file_system: &'static FileSystem, bytes: u64) -> (Image, PathBuf) {
    let image = Image::of(file_system, 512 * MIB);
    // Costs are guessed as those of a disk, whatever the one under the image is: each break is waited for.
    image.set_queue("rotational", "1");
    let path = image.path().join("file");
    interleaved(&path, bytes, &FRAGPICKER_EXTENTS, true).unwrap();
    image.sync();
    (image, path)
}

/// Records `requests` as they are replayed on `path`.
fn record(image: &Image, path: &Path, requests: &[replay::Request], mode: Mode) -> PathBuf {
    let trace = image.scratch().join("trace.parquet");
    let mut command = Command::new(FRAGMEND);
    command.args(["record", "--overhead", "100", "--json", "-o"]).arg(&trace).arg(image.path());
    let recorder = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let recorder = recorder.wait_until_it_says(WATCHING);
    replay::replay(path, requests, mode).unwrap();
    recorder.signal(rustix::process::Signal::INT);
    let said = json(&recorder.wait().expect(&[0]));
    assert_eq!(said["schema_version"], 1, "{said}");
    trace
}

/// The requests to the device for a direct replay; the file's own metadata is read before.
fn requests_issued(image: &Image, path: &Path, requests: &[replay::Request]) -> u64 {
    image.remount();
    extents(path);
    let before = image.counters();
    replay::replay(path, requests, Mode::Direct).unwrap();
    let issued = image.counters() - before;
    issued.reads + issued.reads_merged
}

#[test]
fn loop_predictions_come_true() {
    predictions_come_true(&EXT4);
}

#[test]
fn loop_predictions_come_true_elsewhere() {
    [&XFS, &XFS_EXCHANGE, &BTRFS].into_iter().for_each(predictions_come_true);
}

fn predictions_come_true(file_system: &'static FileSystem) {
    println!("on {}", file_system.name);
    let (image, path) = image_with_file_on(file_system, 64 * MIB);
    let requests = replay::stride(64 * MIB);
    let measured_before = requests_issued(&image, &path, &requests);
    let trace = record(&image, &path, &requests, Mode::Direct);
    let recorded = path.metadata().unwrap().dev();
    let plan_file = image.scratch().join("plan.json");
    let planned = fragmend(&[
        "plan",
        "--json",
        "-t",
        text(&trace),
        "-o",
        text(&plan_file),
        text(image.path()),
    ]);
    let planned = json(&planned.expect(&[0]));
    let figure = |v: &Value, name: &str| v[name].as_u64().unwrap_or_else(|| panic!("{name}: {v}"));
    let (before, after) = (figure(&planned, "requests_before"), figure(&planned, "requests_after"));
    assert!(figure(&planned, "bytes_to_move") < 64 * MIB / 3, "{planned}");
    // Exact, but for a few requests of the file system's own; Btrfs reads checksums, too.
    // An exchange logs both files' mappings, extent by extent, and their reverse mappings.
    let (own, metadata) = match file_system.name {
        "btrfs" => (40, 2),
        "xfs-exchange" => (4, 5),
        _ => (4, 20),
    };
    let close = |measured: u64, predicted: u64| (predicted..predicted + own).contains(&measured);
    assert!(close(measured_before, before), "{measured_before} requests, {before} predicted");

    let written = image.counters().written_bytes;
    let applied = fragmend(&["apply", "--json", text(&plan_file)]).expect(&[0]);
    image.sync();
    let written = image.counters().written_bytes - written;
    let summary = json(&applied);
    assert_eq!(summary["event"], "summary");
    assert_eq!(figure(&summary, "moved_bytes"), figure(&planned, "bytes_to_move"));
    assert_eq!(figure(&summary, "ranges_moved"), figure(&planned, "ranges"));
    assert!(figure(&summary, "written_bytes") >= figure(&summary, "moved_bytes"));
    assert_eq!(summary["skipped"], Value::Array(Vec::new()));
    let moved = figure(&summary, "moved_bytes");
    assert!(written >= moved && written < moved + moved / metadata + MIB, "{written} for {moved}");

    let measured_after = requests_issued(&image, &path, &requests);
    assert!(close(measured_after, after), "{measured_after} requests, {after} predicted");
    assert_eq!(after, requests.len() as u64, "one request each");
    image.fsck();
    assert!(is_intact(&path, 64 * MIB).unwrap());

    // Nothing is left to do, and that is reported. A Btrfs that is mounted again may have another device number than
    // the trace has: then the same is recorded once more.
    let device = || path.metadata().unwrap().dev();
    let trace =
        if device() == recorded { trace } else { record(&image, &path, &requests, Mode::Direct) };
    let again = ["plan", "--check", "--json", "-t", text(&trace), text(image.path())];
    let again = json(&fragmend(&again).expect(&[0]));
    assert_eq!(again["worth"], false);
    assert!(again["verdict"].as_str().unwrap().starts_with("not worth it"), "{again}");
}

/// A finding is no failure: the exit status reports it with `--check` alone.
#[test]
fn loop_a_script_that_ends_at_the_first_error_goes_through() {
    let (image, path) = image_with_file(8 * MIB);
    let plan = image.scratch().join("plan.json");
    let (fragmented, script) = (
        extents(&path),
        r#"set -e
"$1" scan -q "$2" >"$3.scan"
"$1" plan -q --policy bypass -o "$3" "$2" >"$3.text"
"$1" plan -q --policy bypass --check "$2" >"$3.text" || answer=$?
test "$answer" = 2
"$1" apply -q "$3" >"$3.text"
"$1" plan -q --policy bypass --check "$2" >"$3.text"
echo through"#,
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash", FRAGMEND, text(image.path()), text(&plan)]);
    assert_eq!(finish(&mut bash).expect(&[0]), "through\n");
    assert!(extents(&path) < fragmented / 4, "{} of {fragmented}", extents(&path));
    assert!(is_intact(&path, 8 * MIB).unwrap());
}

/// Keeping to a budget is what was asked for, and no failure.
#[test]
fn loop_a_script_goes_through_where_a_budget_is_spent() {
    let (image, path) = image_with_file(8 * MIB);
    let plan = image.scratch().join("plan.json");
    let (fragmented, script) = (
        extents(&path),
        r#"set -e
"$1" plan -q --policy bypass --budget 2M -o "$3" "$2" >"$3.text"
"$1" plan -q --policy bypass --budget 2M --check "$2" >"$3.text" || answer=$?
test "$answer" = 18
"$1" apply -q "$3" >"$3.text"
echo through"#,
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash", FRAGMEND, text(image.path()), text(&plan)]);
    assert_eq!(finish(&mut bash).expect(&[0]), "through\n");
    let left = extents(&path);
    assert!(left < fragmented && left > fragmented / 2, "{left} of {fragmented}");
    assert!(is_intact(&path, 8 * MIB).unwrap());
}

#[test]
fn loop_a_stopped_apply_goes_on() {
    let (image, path) = image_with_file(48 * MIB);
    let plan_file = image.scratch().join("plan.json");
    fragmend(&["plan", "--policy", "bypass", "-o", text(&plan_file), text(image.path())])
        .expect(&[0]);
    let before = extents(&path);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--json", "--rate", "8M"]).arg(&plan_file);
        let apply = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        std::thread::sleep(Duration::from_millis(1500));
        apply.signal(signal);
        let summary = json(&apply.wait().expect(&[16, 18]));
        assert_eq!(summary["interrupted"], true, "{summary}");
        assert!(summary["ranges_left"].as_u64().unwrap() > 0, "{summary}");
        let moved = summary["moved_bytes"].as_u64().unwrap();
        // 8 MB/s for a second and a half, and no more than a step beyond.
        assert!(moved > 4 * MIB && moved < 16 * MIB, "{moved}");
        assert!(extents(&path) < before);
        assert!(is_intact(&path, 48 * MIB).unwrap());
    }
    let summary = json(&fragmend(&["apply", "--json", text(&plan_file)]).expect(&[0]));
    assert!(summary["skipped"].to_string().contains("already_contiguous"), "{summary}");
    let left =
        json(&fragmend(&["plan", "--json", "--policy", "bypass", text(image.path())]).expect(&[0]));
    assert_eq!(left["ranges"], 0, "{left}");
    image.fsck();
    assert!(is_intact(&path, 48 * MIB).unwrap());
}

#[test]
fn loop_auto_does_it_all_and_asks_first() {
    let (image, path) = image_with_file(32 * MIB);
    let requests = replay::sequential(32 * MIB);
    let auto = |extra: &[&str]| {
        let mut command = Command::new(FRAGMEND);
        command.args(["auto", "--duration", "4s"]).args(extra).arg(image.path());
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running::start(command).wait_until_it_says(WATCHING);
        replay::replay(&path, &requests, Mode::Direct).unwrap();
        running.wait()
    };
    let before = extents(&path);
    let asked = fragmend(&["auto", "--duration", "1s", text(image.path())]);
    assert_eq!(asked.status.code(), Some(8));
    assert!(asked.stderr.contains("--yes"), "{}", asked.stderr);
    auto(&["--dry-run"]).expect(&[2]);
    // On a disk the head goes to what has moved and back: a small part of a sequential read is not worth that.
    auto(&["--dry-run", "--budget", "16M"]).expect(&[18]);
    assert_eq!(extents(&path), before, "a dry run moves nothing");
    auto(&["--yes", "--budget", "16M"]).expect(&[16]);
    let out = auto(&["--yes", "--json"]).expect(&[0]);
    let events: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let summary = events.iter().find(|e| e["event"] == "summary").expect("a summary");
    assert!(summary["ranges_moved"].as_u64().unwrap() > 0, "{summary}");
    assert!(extents(&path) < before / 10, "{} of {before}", extents(&path));
    image.fsck();
    assert!(is_intact(&path, 32 * MIB).unwrap());
}

/// Runs a command that must fail with `code`, in one line that contains `what`.
fn refused(args: &[&str], code: i32, what: &str) {
    let finished = fragmend(args);
    let said = finished.stderr.trim();
    assert_eq!(finished.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(what), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert_eq!(finished.stdout, "", "{args:?}");
}

#[test]
fn loop_bad_plans_and_traces_touch_nothing() {
    let (image, path) = image_with_file(8 * MIB);
    let scratch = image.scratch();
    let good = scratch.join("good.json");
    fragmend(&["plan", "--policy", "whole-file", "-o", text(&good), text(image.path())])
        .expect(&[0]);
    let whole = fs::read_to_string(&good).unwrap();
    let bad = scratch.join("bad.json");
    let before = extents(&path);
    let with = |content: &[u8], what: &str| {
        fs::write(&bad, content).unwrap();
        refused(&["apply", text(&bad)], 4, what);
    };
    with(b"", "not a fragmend plan");
    with(b"{}", "not a fragmend plan");
    with(b"PAR1\0\xff", "not a fragmend plan");
    with(&whole.as_bytes()[..whole.len() / 2], "not a fragmend plan");
    with(whole.replace("\"schema_version\": 1", "\"schema_version\": 7").as_bytes(), "version 7");
    with(whole.replace("\"offset\": 0", "\"offset\": 1").as_bytes(), "whole blocks");
    with(whole.replace("\"offset\": 0", "\"offset\": -4096").as_bytes(), "line");
    with(whole.replace("\"offset\": 0", "\"offset\": 1073741824").as_bytes(), "beyond");
    with(whole.replace("\"ranges\": [", "\"rangs\": [").as_bytes(), "ranges");
    refused(&["apply", text(&scratch.join("missing.json"))], 4, "missing.json");
    refused(&["apply", text(image.path())], 4, "not a regular file");

    let trace = scratch.join("trace.parquet");
    fs::write(&trace, b"PAR1 but not really").unwrap();
    refused(&["plan", "-t", text(&trace), text(image.path())], 4, "trace.parquet");
    refused(&["plan", "-t", text(&good)], 4, "not a trace");
    refused(&["plan", "--policy", "bypass", text(&scratch.join("nowhere"))], 4, "nowhere");
    refused(&["plan", text(image.path())], 8, "record");
    // The output is a file of the user's: it stays.
    fs::write(&bad, b"precious").unwrap();
    refused(&["plan", "--policy", "bypass", "-o", text(&bad), text(image.path())], 4, "is no plan");
    assert_eq!(fs::read(&bad).unwrap(), b"precious");
    assert_eq!(extents(&path), before);
    assert!(is_intact(&path, 8 * MIB).unwrap());
}

#[test]
fn loop_file_systems_that_must_not_be_mended() {
    let (image, path) = image_with_file(8 * MIB);
    let plan_file = image.scratch().join("plan.json");
    let before = extents(&path);
    fragmend(&["plan", "--policy", "whole-file", "-o", text(&plan_file), text(image.path())])
        .expect(&[0]);
    let remounted = |options: &str| {
        image.unmount();
        image.mount_with(options);
    };
    remounted("data=writeback");
    refused(&["apply", text(&plan_file)], 4, "data=writeback");
    remounted("data=journal");
    refused(&["apply", "--force", text(&plan_file)], 4, "data=journal");
    remounted("ro");
    refused(&["apply", text(&plan_file)], 4, "read-only");
    image.unmount();
    refused(&["apply", text(&plan_file)], 4, "not mounted");
    run("tune2fs", ["-O", "^has_journal", image.device()]);
    image.mount_with("");
    refused(&["apply", text(&plan_file)], 4, "no journal");
    assert_eq!(extents(&path), before);
    // With `--force`, it is done all the same.
    fragmend(&["apply", "--force", "--quiet", text(&plan_file)]).expect(&[0]);
    assert!(extents(&path) < 3);
    image.fsck();
    assert!(is_intact(&path, 8 * MIB).unwrap());
}

#[test]
fn loop_an_unsupported_file_system_is_refused_by_name() {
    let (image, _) = image_with_file(MIB);
    let plan_file = image.scratch().join("plan.json");
    fragmend(&["plan", "--policy", "whole-file", "-o", text(&plan_file), text(image.path())])
        .expect(&[0]);
    // The same plan, edited so that the file is on the tmpfs of /dev/shm.
    use std::os::unix::fs::MetadataExt;
    let here = fs::metadata(image.path()).unwrap().dev().to_string();
    let there = fs::metadata("/dev/shm").unwrap().dev().to_string();
    let plan = fs::read_to_string(&plan_file).unwrap();
    let plan = plan.replace(&format!("\"device\": {here}"), &format!("\"device\": {there}"));
    fs::write(&plan_file, plan).unwrap();
    refused(&["apply", text(&plan_file)], 4, "tmpfs");
}
