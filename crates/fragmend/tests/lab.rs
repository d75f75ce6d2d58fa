//! `fragmend lab` as a user calls it: exit codes, documents, pictures, errors.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn lab(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.arg("lab").args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn every_experiment_and_drive_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let list = json(&text(&lab(&["list", "--json"], dir.path()).stdout));
    assert_eq!(list["schema_version"], 1);
    let names = |kind: &str| -> Vec<String> {
        let entries = list[kind].as_array().unwrap();
        entries.iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect()
    };
    let plain = text(&lab(&["list"], dir.path()).stdout);
    for name in names("experiments").iter().chain(&names("drives")) {
        assert!(plain.contains(name), "{name} is not in {plain}");
    }
    for name in names("drives") {
        let shown = lab(&["drive", &name], dir.path());
        assert_eq!(shown.status.code(), Some(0));
        // The output is a drive's file again.
        let file = dir.path().join(format!("{name}.toml"));
        std::fs::write(&file, &shown.stdout).unwrap();
        let again = lab(&["drive", file.to_str().unwrap()], dir.path());
        assert_eq!(text(&again.stdout), text(&shown.stdout));
    }
}

#[test]
fn a_run_prints_rows_and_draws_pictures_and_exits_by_its_bands() {
    let dir = tempfile::tempdir().unwrap();
    for (name, expected) in [("D-fig4-6", 0), ("D-fig12", 2)] {
        let run = lab(&["run", name, "--json", "--seed", "42", "--out", "pictures"], dir.path());
        let report = json(&text(&run.stdout));
        assert_eq!((&report["experiment"], &report["seed"]), (&name.into(), &42.into()));
        let rows = report["rows"].as_array().unwrap();
        for row in rows {
            let has = |field: &str| row.get(field).is_some();
            assert!(["name", "unit", "paper", "ours", "band", "within"].into_iter().all(has));
            assert!(row["within"] == true || row["reason"].is_string(), "{row}");
        }
        let all = rows.iter().all(|row| row["within"] == true);
        assert_eq!((run.status.code(), all), (Some(expected), expected == 0));
    }
    for picture in ["D-fig4", "D-fig12"] {
        let picture = dir.path().join(format!("pictures/{picture}.svg"));
        assert!(std::fs::read_to_string(picture).unwrap().contains("</svg>"));
    }
    // With `--json`, pictures are drawn only if `--out` is given.
    let run = lab(&["run", "d-fig7", "--json"], dir.path());
    assert_eq!((run.status.code(), dir.path().join("lab-results").exists()), (Some(0), false));
    let run = lab(&["run", "d-fig7"], dir.path());
    assert!(text(&run.stdout).contains("figures are in band"));
    assert!(dir.path().join("lab-results/D-fig7.svg").exists());
}

/// `docs/lab.md` contains the output of `fragmend lab run all`, between two lines of ```. What is long is not run here, but must
/// be there. After a change that is meant to change figures: `GOLDEN=write cargo test --release --test lab`.
#[test]
fn the_page_of_results_is_current() {
    let dir = tempfile::tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let old = std::fs::read_to_string(&page).unwrap();
    let writes = std::env::var_os("GOLDEN").is_some_and(|what| what == "write");
    let run = lab(&["run", if writes { "all" } else { "short" }], dir.path());
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
    let found = text(&run.stdout);
    let mut parts: Vec<&str> = old.split("```\n").collect();
    assert_eq!(parts.len(), 3);
    if writes {
        parts[1] = &found;
        std::fs::write(&page, parts.join("```\n")).unwrap();
        return;
    }
    let list = json(&text(&lab(&["list", "--json"], dir.path()).stdout));
    let names = list["experiments"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap());
    let (written, found) = (sections(parts[1]), sections(&found));
    assert!(names.eq(written.iter().map(|section| section.0)), "{written:?}");
    for section in &found {
        assert!(written.contains(section), "docs/lab.md has not what is printed:\n{}", section.1);
    }
}

/// The reports in an output, each with the name of its experiment.
fn sections(output: &str) -> Vec<(&str, &str)> {
    let (reports, _) = output.rsplit_once("\n\n").unwrap();
    let begins = |line: &str| line.ends_with(", seed 42");
    let starts = reports.lines().filter(|line| begins(line)).map(|line| line.as_ptr());
    let mut starts: Vec<usize> =
        starts.map(|start| start as usize - reports.as_ptr() as usize).collect();
    starts.push(reports.len());
    let sections = starts.windows(2).map(|ends| reports[ends[0]..ends[1]].trim_end());
    sections.map(|section| (section.split(':').next().unwrap(), section)).collect()
}

#[test]
fn a_load_of_ones_own_runs_on_a_drive_of_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let load = include_str!("../../../docs/examples/two-logs.toml");
    std::fs::write(dir.path().join("two-logs.toml"), load).unwrap();
    let run =
        |args: &[&str]| lab(&[&["run", "two-logs.toml", "--json"], args].concat(), dir.path());
    let named = run(&[]);
    assert_eq!(named.status.code(), Some(0), "{}", text(&named.stderr));
    assert_eq!(json(&text(&named.stdout))["experiment"], "two-logs");
    let drive = lab(&["drive", "nvme-b"], dir.path()).stdout;
    std::fs::write(dir.path().join("mine.toml"), drive).unwrap();
    let other = run(&["--drive", "mine.toml"]);
    assert_eq!(text(&other.stdout), text(&run(&["--drive", "nvme-b"]).stdout));
    assert_ne!(text(&other.stdout), text(&named.stdout));
    assert_eq!(text(&run(&["--jobs", "1"]).stdout), text(&named.stdout));
}

#[test]
fn the_examples_run_and_say_what_was_folded() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let run = lab(&["run", "replay.toml", "real-layout.toml", "--json"], &examples);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let shown = text(&run.stdout);
    let [replay, real] = shown.lines().map(json).collect::<Vec<_>>().try_into().unwrap();
    let row = |report: &Value, name: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"))["ours"].as_f64().unwrap()
    };
    let msr = "round-robin, as recorded (MSR Cambridge): ";
    assert_eq!(row(&replay, &format!("{msr}requests of traces")), 40.0);
    assert_eq!(row(&replay, &format!("{msr}of these, folded onto the smaller drive")), 4.0);
    assert!(row(&real, "layout: extents") > row(&real, "layout: files with data"));
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let load = |step: &str| {
        format!("about = 'x'\ndrive = 'hdd'\n[[phase]]\nname = 'y'\nsteps = [{step}]\n")
    };
    std::fs::write(dir.path().join("trace.toml"), load("{ trace = { file = 't' } }")).unwrap();
    std::fs::write(dir.path().join("t"), "fio version 3 iolog\n1 f add\n2 f red 0 4096\n").unwrap();
    let scan = load("'flush'").replace("[[phase]]", "layout = 's.json'\n[[phase]]");
    std::fs::write(dir.path().join("scan.toml"), scan).unwrap();
    let extent = r#"{"logical":0,"physical":0,"length":9000000000000,"kind":"data"}"#;
    let large = format!(
        r#"{{"files":[{{"path":"/a","bytes":1,"layout":{{"device":1,"extents":[{extent}]}}}}]}}"#
    );
    std::fs::write(dir.path().join("s.json"), large).unwrap();
    std::fs::write(dir.path().join("bad.toml"), "about = 'x'\ndrive = 'y'\nphase = []\n").unwrap();
    let shown = lab(&["drive", "nvme-b"], dir.path()).stdout;
    let broken = text(&shown).replacen("channels = ", "channels = 0 # ", 1);
    std::fs::write(dir.path().join("broken.toml"), &broken).unwrap();
    let line = broken.lines().position(|line| line.starts_with("channels")).unwrap() + 1;
    for (args, code, said) in [
        (vec!["run", "d-fig99"], 8, "no experiment is named d-fig99".to_owned()),
        (vec!["run", "bad.toml"], 8, "bad.toml:2: no drive is named y".to_owned()),
        (vec!["run", "trace.toml"], 8, "t:3: action: add, open".to_owned()),
        (vec!["run", "scan.toml"], 8, "scan.toml:3: layout: s.json: the files have 9".to_owned()),
        (vec!["run", "gone.toml"], 4, "gone.toml: No such file".to_owned()),
        (vec!["run", "d-fig8", "--drive", "nvme-b"], 8, "--drive is for loads".to_owned()),
        (vec!["drive", "broken.toml"], 8, format!("broken.toml:{line}: channels: must not be 0")),
        (vec!["run", "d-fig8", "--out", "bad.toml"], 4, "bad.toml".to_owned()),
    ] {
        let run = lab(&args, dir.path());
        let stderr = text(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(&said) && stderr.lines().count() == 1, "{args:?}: {stderr}");
    }
}

#[test]
fn remedies_are_compared_and_what_is_unknown_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cell = ["compare", "--load", "sqlite", "--drive", "nvme-b", "--remedy", "fragpicker"];
    let small = [&cell[..], &["--scale", "16", "--json", "--out", "compared"]].concat();
    let run = lab(&small, dir.path());
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let comparison = json(&text(&run.stdout));
    let table = &comparison["tables"][0];
    assert_eq!((&table["load"], &table["drive"]), (&"sqlite".into(), &"nvme-b".into()));
    let rows = table["rows"].as_array().unwrap();
    let cells = rows.iter().map(|row| [&row["file_system"], &row["remedy"]]);
    let cells: Vec<_> = cells.map(|cell| cell.map(|name| name.as_str().unwrap())).collect();
    let each = |fs| [[fs, "nothing"], [fs, "fragpicker"]];
    assert_eq!(cells, ["ext4", "btrfs", "f2fs"].map(each).concat());
    for row in rows {
        let lost = row.get("power_cuts").map(|cuts| &cuts["lost"]);
        let is_moved = row["remedy"] == "fragpicker";
        assert_eq!(lost, is_moved.then_some(&Value::from(0)), "{row}");
    }
    let page = std::fs::read_to_string(dir.path().join("compared/compare.md")).unwrap();
    assert!(page.contains("## sqlite on nvme-b"));
    assert!(dir.path().join("compared/compare-sqlite-nvme-b-btrfs.svg").exists());
    let list = json(&text(&lab(&["list", "--json"], dir.path()).stdout));
    for (option, name) in [("--load", "loads"), ("--remedy", "remedies"), ("--drive", "drives")] {
        let known = list[name][0]["name"].as_str().unwrap();
        let run = lab(&["compare", option, "none"], dir.path());
        let said = text(&run.stderr);
        assert!(run.status.code() == Some(8) && said.contains(known), "{said}");
    }
}

/// Before anything is computed.
#[test]
fn what_cannot_be_compared_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let shown = lab(&["drive", "nvme-b"], dir.path()).stdout;
    for below in ["one", "two"] {
        std::fs::create_dir(dir.path().join(below)).unwrap();
        std::fs::write(dir.path().join(below).join("mine.toml"), &shown).unwrap();
    }
    let broken = text(&shown).replacen("channels = ", "channels = 0 # ", 1);
    std::fs::write(dir.path().join("broken.toml"), broken).unwrap();
    for (args, code, said) in [
        (vec!["--load", "sqlite", "--load", "SQLite"], 8, "load SQLite is given twice"),
        (vec!["--remedy", "janusd", "--remedy", "janusd"], 8, "remedy janusd is given twice"),
        (vec!["--drive", "nvme-b", "--drive", "nvme-b"], 8, "two drives are named nvme-b"),
        (vec!["--drive", "one/mine.toml", "--drive", "two/mine.toml"], 8, "drives are named mine"),
        (vec!["--drive", "broken.toml"], 8, "channels: must not be 0"),
        (vec!["--drive", "gone.toml"], 4, "gone.toml: No such file"),
        (vec!["--out", "broken.toml"], 4, "broken.toml"),
        (vec!["--scale", "0"], 8, "0 is not in 1..=1000"),
        (vec!["--scale", "1001"], 8, "1001 is not in 1..=1000"),
        (vec!["--scale", "18446744073709551616"], 8, "number too large"),
    ] {
        let run = lab(&[&["compare"], &args[..]].concat(), dir.path());
        let stderr = text(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.lines().next().unwrap_or_default().contains(said), "{args:?}: {stderr}");
        assert!(run.stdout.is_empty(), "{args:?}");
    }
}

/// A comparison may have lasted minutes: what was to be written is written, whether or not somebody reads the output.
#[test]
fn what_was_compared_is_written_though_nobody_reads_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["lab", "compare", "--load", "sqlite", "--drive", "nvme-b", "--scale", "1000"]);
    command.args(["--remedy", "fragpicker", "--json", "--out", "compared"]);
    let ended = command.current_dir(dir.path()).stdout(writer).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    let page = std::fs::read_to_string(dir.path().join("compared/compare.md")).unwrap();
    assert!(page.contains("## sqlite on nvme-b"), "{page}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["lab", "run", "d-fig7", "--json", "--out", "pictures"]).stdout(writer);
    let ended = command.current_dir(dir.path()).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(dir.path().join("pictures/D-fig7.svg").exists());
}
