//! `fragmend report` as a user calls it: from a mounted file system and what the other verbs have written of it, and what it
//! refuses. What the page looks like is tested in `fragmend-page`.

use fragmend_page::map::State;
use fragmend_page::{PageReport, html};
use fragmend_testbed::fragment;
use fragmend_testbed::image::Image;
use fragmend_testbed::tools;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

fn fragmend<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn loop_a_mounted_file_system_and_its_plan_and_receipts_are_one_page() {
    let image = Image::ext4(256 << 20);
    let file = image.path().join("data");
    fragment::interleaved(&file, 4 << 20, &[64 << 10], false).unwrap();
    let extents = tools::extents(&file);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mount = image.path().to_str().unwrap();
    let run = |args: &[&str], codes: &[i32]| {
        let output = fragmend(args, dir);
        assert!(
            codes.contains(&output.status.code().unwrap()),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let keep = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    keep("scan.json", &run(&["scan", "--layouts", "--json", mount], &[0]));
    let plan = ["plan", "--policy", "whole-file", "-o", "plan.json", "--json", mount];
    keep("summary.json", &run(&plan, &[0]));
    keep("events.jsonl", &run(&["apply", "plan.json", "--json"], &[0, 2]));

    // Before, with the plan: what is to be moved is on the map. The receipts say that it was.
    let report = |inputs: &[&str]| -> PageReport {
        let args = [&["report", "--json"], inputs].concat();
        serde_json::from_str(&run(&args, &[0])).unwrap()
    };
    let marked = |report: &PageReport, state: State| report.maps[0].totals[state as usize];
    let planned = report(&["scan.json", "plan.json", "summary.json"]);
    assert_eq!(planned.files[0].path.path, file.to_str().unwrap());
    assert_eq!(planned.files[0].figures.extents, Some(extents));
    assert_eq!(marked(&planned, State::ToMove), planned.plans[0].summary.bytes_to_move);
    assert_eq!((planned.plans.len(), planned.maps[0].ranges_elsewhere), (1, 0));
    assert!(!planned.plans[0].curve.is_empty());
    let moved = report(&["scan.json", "plan.json", "events.jsonl"]);
    assert_eq!((marked(&moved, State::ToMove), marked(&moved, State::Moved)), (0, 4 << 20));

    // What is free is on the map, byte for byte; its figures are shown without a map, too.
    keep("free.json", &run(&["scan", "--free", "--json", mount], &[0]));
    let free = |report: &PageReport| report.free_space[0].space.figures.clone().unwrap();
    assert_eq!(marked(&planned, State::Free), free(&planned).free_bytes);
    assert_eq!(planned.maps[0].mount.as_ref().unwrap().path, mount);
    let without_map = report(&["free.json"]);
    assert!(without_map.maps.is_empty() && free(&without_map).free_runs > 0);

    // Scanned now, it is in order.
    let now = report(&[mount]);
    assert_eq!((now.files.len(), marked(&now, State::Fragmented)), (0, 0));
    assert!(marked(&now, State::Used) >= 4 << 20);

    // The page is that of the data, its owner's alone, and replaces an older one.
    let all = [
        "report",
        "scan.json",
        "plan.json",
        "summary.json",
        "events.jsonl",
        "-o",
        "page.html",
        "--json",
    ];
    for _ in 0..2 {
        let data: PageReport = serde_json::from_str(&run(&all, &[0])).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("page.html")).unwrap(), html(&data));
    }
    assert_eq!(dir.join("page.html").metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn what_is_no_input_and_no_output_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("other.json"), "{\"command\": \"record\", \"schema_version\": 1}")
        .unwrap();
    std::fs::write(dir.join("mine.html"), "<!DOCTYPE html><title>mine</title>").unwrap();
    std::fs::write(
        dir.join("lab.json"),
        r#"{"schema_version":1,"experiment":"x","source":"y","seed":1,"rows":[]}"#,
    )
    .unwrap();
    for (args, code, why) in [
        (vec!["report"], 8, "INPUT"),
        (vec!["report", "lab.json"], 8, "-o FILE"),
        (vec!["report", "lab.json", "--json", "-o", "-"], 8, "standard output"),
        (vec!["report", "other.json", "-o", "new.html"], 4, "other.json is no document"),
        (vec!["report", "absent", "-o", "new.html"], 4, "absent"),
        (vec!["report", "lab.json", "-o", "mine.html"], 4, "mine.html exists"),
        (vec!["report", "lab.json", "-o", "."], 4, "directory"),
    ] {
        let output = fragmend(&args, dir);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{args:?}: {said}");
    }
    assert!(!dir.join("new.html").exists());
    assert_eq!(
        std::fs::read_to_string(dir.join("mine.html")).unwrap(),
        "<!DOCTYPE html><title>mine</title>"
    );
    let page = fragmend(["report", "lab.json", "-o", "-"], dir);
    assert!(page.stdout.starts_with(b"<!DOCTYPE html>"));
    let document: Value =
        serde_json::from_slice(&fragmend(["report", "lab.json", "--json"], dir).stdout).unwrap();
    assert_eq!((&document["schema_version"], &document["command"]), (&1.into(), &"report".into()));
}
