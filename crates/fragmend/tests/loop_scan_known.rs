//! `fragmend scan` says what fragmented files are to their programs, and what prevents the fragments.

use fragmend_report::plan::PlanReport;
use fragmend_report::scan::ScanReport;
use fragmend_testbed::fragment;
use fragmend_testbed::image::{Image, run};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

fn scan(path: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fragmend")).arg("scan").arg(path).args(args).output().unwrap()
}

#[test]
fn loop_a_fragmented_database_is_named_with_what_prevents_that() {
    let image = Image::ext4(256 << 20);
    let made = image.scratch().join("made.db");
    run("sqlite3", [made.to_str().unwrap(), "CREATE TABLE t (a); INSERT INTO t VALUES (1);"]);
    let database = fs::read(&made).unwrap();
    // Their content is that of the database, where they are.
    for name in ["orders.db", "customers.db"] {
        let path = image.path().join(name);
        fragment::interleaved(&path, 4 << 20, &fragment::FRAGPICKER_EXTENTS, true).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&database, 0).unwrap();
    }
    fs::write(image.path().join("whole.db"), &database).unwrap();

    let shown = scan(image.path(), &[]);
    let out = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(0), "{out}");
    let (_, known) = out.split_once("What is known of these files:\n").unwrap();
    let count = |text: &str| known.matches(text).count();
    assert_eq!(count("SQLite: database in pages of 4096 bytes\n"), 2, "{out}");
    assert_eq!(count("SQLITE_FCNTL_CHUNK_SIZE"), 1, "{out}");
    assert!(!known.contains("whole.db"), "{out}");

    // So does a plan, of the files that it lists.
    let plan = |args: &[&str]| {
        let mut plan = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        plan.args(["plan", "--policy", "bypass", "--top", "1"]).args(args).arg(image.path());
        plan.output().unwrap().stdout
    };
    let out = String::from_utf8(plan(&[])).unwrap();
    let (listed, rest) = out.split_once("What is known of these files:\n").unwrap();
    let named = ["orders.db", "customers.db"].map(|name| listed.contains(name));
    assert_ne!(named[0], named[1], "{out}");
    assert_eq!(rest.matches("     SQLite: database in pages of 4096 bytes\n").count(), 1, "{out}");

    let report: PlanReport = serde_json::from_slice(&plan(&["--json"])).unwrap();
    let [listed] = &report.known[..] else { panic!("{report:?}") };
    assert!(listed.known.program == "SQLite" && listed.path.path.ends_with(".db"), "{listed:?}");

    let document = scan(image.path(), &["--json"]);
    let report: ScanReport = serde_json::from_slice(&document.stdout).unwrap();
    for file in &report.files {
        let is_known = file.known.as_ref().is_some_and(|known| {
            let advice = known.advice.as_ref().unwrap();
            known.program == "SQLite" && advice.source.starts_with("https://www.sqlite.org/")
        });
        let is_database =
            file.path.path.ends_with("orders.db") || file.path.path.ends_with("customers.db");
        assert_eq!(is_known, is_database, "{file:?}");
    }
    assert_eq!(report.files.iter().filter(|file| file.known.is_some()).count(), 2);
}
