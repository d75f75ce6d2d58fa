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
    let (report, plots) = load.report(1);
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
    assert_eq!(load.report(1).0.rows, report.rows);
    assert_ne!(load.report(2).0.rows, report.rows);
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
}
