//! A load runs for each placement; an error names the line.

use super::*;

const LOAD: &str = r#"
about = "two logs"
drive = "nvmevirt-fast24"
placements = ["round-robin", "die-affine"]

[precondition]
fill_percent = 1

[[phase]]
name = "grow"
repeat = 64
steps = [
    { append = { file = "a", bytes = 32_768 } },
    "flush",
    { append = { file = "b", bytes = 32_768, up_to = 262_144 } },
]

[[phase]]
name = "use"
steps = [
    { wait-us = 1000 },
    { overwrite = { file = "a", bytes = 4096, calls = 10, order = "random" } },
    { read = { file = "a", bytes = 131_072 } },
    { delete = { file = "b" } },
]
"#;

fn parse(text: &str) -> Result<Workload, BadFile> {
    Workload::parse(text, Path::new("a/load.toml"), None)
}

#[test]
fn a_load_runs_for_each_placement_and_gives_the_same_again() {
    let load = parse(LOAD).unwrap();
    let (report, plots) = load.report(1).unwrap();
    assert_eq!(report.experiment, "load");
    let row = |name: &str| {
        let row = report.rows.iter().find(|row| row.name == name);
        row.unwrap_or_else(|| panic!("no {name} in {:?}", report.rows)).ours
    };
    assert_eq!(row("round-robin, grow: requests"), 64.0 * 2.0);
    assert!(row("die-affine, use: read") > row("round-robin, use: read"));
    // All but the first of each file.
    assert_eq!(row("die-affine, grow: hints taken"), 63.0 * 2.0);
    assert_eq!(plots.len(), 1);
    assert_eq!(load.report(1).unwrap().0.rows, report.rows);
    assert_ne!(load.report(2).unwrap().0.rows, report.rows);
}

#[test]
fn errors_name_the_line() {
    let error = |from: &str, to: &str| {
        let text = LOAD.replacen(from, to, 1);
        assert_ne!(text, LOAD);
        parse(&text).unwrap_err().to_string()
    };
    let has = |error: String, what: &str| assert!(error.contains(what), "{error}");
    has(error("nvmevirt-fast24", "nvmevirt"), "a/load.toml:3: no drive is named nvmevirt;");
    has(error("nvmevirt-fast24", "my.toml"), "a/load.toml:3: a/my.toml: No such file");
    has(error("\"die-affine\"", "\"die\""), "a/load.toml:4: unknown variant `die`");
    has(error("fill_percent = 1", "fill_percent = 101"), "load.toml:6: fill_percent");
    has(error("bytes = 32_768", "bytes = 32_000"), "load.toml:13: bytes: must be whole");
    has(error("up_to = 262_144", "up_to = 4096"), "load.toml:15: up_to: less");
    has(error("read = { file = \"a\"", "read = { file = \"c\""), "load.toml:23: no step before");
    has(error("repeat = 64", "repeat = 4_000_000"), "load.toml:13: the drive has no more");
    has(error("\"flush\",", "\"sync\","), "load.toml:14: unknown variant `sync`");
    has(error("calls = 10", "times = 10"), "load.toml:22: unknown field `times`");
    has(error("about = \"two logs\"", "about = "), "load.toml:2: ");
    // The virtual clock has 64 bits of nanoseconds.
    let longest = format!("wait-us = {}", i64::MAX);
    has(error("wait-us = 1000", &longest), "load.toml:21: waits and traces so far last longer");
}

/// A load, a trace and a scan in a directory.
fn beside(load: &str, trace: &str) -> (tempfile::TempDir, Result<Workload, BadFile>) {
    let dir = tempfile::tempdir().unwrap();
    let scan = r#"{"files": [
        {"path": "/a", "bytes": 8192, "layout": {"device": 1, "extents": [
            {"logical": 0, "physical": 409600, "length": 4096, "kind": "data"},
            {"logical": 4096, "physical": 8192, "length": 4096, "kind": "data"}]}},
        {"path": "/b", "bytes": 1048576, "layout": {"device": 1, "extents": [
            {"logical": 0, "physical": 4194304, "length": 1048576, "kind": "shared"}]}}]}"#;
    std::fs::write(dir.path().join("scan.json"), scan).unwrap();
    std::fs::write(dir.path().join("t.csv"), trace).unwrap();
    let parsed = Workload::parse(load, &dir.path().join("load.toml"), None);
    (dir, parsed)
}

const REAL: &str = r#"
about = "real files, and a trace"
drive = "nvme-a"
layout = "scan.json"

[[phase]]
name = "read"
steps = [{ read-all = { bytes = 131_072 } }, { read = { file = "/a", bytes = 4096 } }]

[[phase]]
name = "replay"
steps = [{ trace = { file = "t.csv" } }, { append = { file = "c", bytes = 4096 } }]
"#;
const TRACE: &str = "10000,h,0,Read,8192,4096,1\n20000,h,0,Write,409600,8192,1\n";

fn row_of(report: &Report, name: &str) -> f64 {
    let row = report.rows.iter().find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("no {name} in {:?}", report.rows)).ours
}

#[test]
fn real_layouts_are_read_and_traces_replayed() {
    let (dir, load) = beside(REAL, TRACE);
    let (report, _) = load.unwrap().report(1).unwrap();
    let row = |name: &str| row_of(&report, name);
    assert_eq!((row("layout: files with data"), row("layout: extents")), (2.0, 3.0));
    // /a with two requests, /b with one for each call, /a again.
    assert_eq!(row("round-robin, read: requests"), 2.0 + 8.0 + 2.0);
    // The data is in the flash: it is sensed.
    assert!(row("round-robin, read: busiest die over an even share") >= 100.0);
    // The recorded millisecond is over before the append.
    assert!(row("round-robin, replay: time") > 1.0);
    assert_eq!(row("round-robin, replay: requests of traces"), 2.0);
    assert_eq!(row("round-robin, replay: of these, folded onto the smaller drive"), 0.0);
    assert_eq!(row("round-robin, replay: extents of c"), 1.0);
    assert!(!report.rows.iter().any(|row| row.name.ends_with("extents of /a")));

    let fastest = REAL.replace("\"t.csv\"", "\"t.csv\", speed = \"fastest\"");
    let (_dir, load) = beside(&fastest, TRACE);
    let (report, _) = load.unwrap().report(1).unwrap();
    assert!(row_of(&report, "round-robin, replay: time") < 1.0);

    // A trace that has become wrong is an error of that file.
    let (dir2, load) = beside(REAL, TRACE);
    std::fs::write(dir2.path().join("t.csv"), "1,2\n").unwrap();
    let bad = load.unwrap().report(1).unwrap_err();
    assert!(bad.file.ends_with("t.csv") && bad.line == 1, "{bad}");
    drop(dir);
}

#[test]
fn what_is_wrong_with_a_scan_or_a_trace_is_said_before_anything_runs() {
    let error = |load: &str, trace: &str| beside(load, trace).1.unwrap_err().to_string();
    let has = |error: String, what: &str| assert!(error.contains(what), "{error}");
    has(error(REAL, "1,h,0,Read,0,4096,1\n1,h,0,Red,0,1,1\n"), "t.csv:2: Type: Read or Write");
    has(error(REAL, ""), "t.csv: no request is in it");
    has(error(&REAL.replace("t.csv", "none"), TRACE), "load.toml:12: ");
    has(error(&REAL.replace("scan.json", "none"), TRACE), "load.toml:4: layout: ");
    has(error(&REAL.replace("scan.json", "t.csv"), TRACE), "t.csv:1: ");
    has(
        error(&REAL.replace("\"/a\"", "\"/c\""), TRACE),
        "load.toml:8: no step before this gives /c",
    );
    has(error(&REAL.replace("layout", "# "), TRACE), "load.toml:8: no step before this writes");
    // A length whose units do not fit in 32 bits.
    let long = REAL.replace("131_072", "17_592_186_044_416");
    has(error(&long, TRACE), "load.toml:8: the drive has no more than");
    // A million times half an hour.
    let often = REAL.replace("name = \"replay\"", "name = \"replay\"\nrepeat = 1_000_000");
    let late = "0,h,0,Read,0,512,1\n18000000000,h,0,Read,0,512,1\n";
    has(error(&often, late), "load.toml:13: waits and traces so far last longer");
    has(error(&REAL.replace("nvme-a", "femu-indef"), TRACE), "load.toml:3: a load needs a drive");
}
