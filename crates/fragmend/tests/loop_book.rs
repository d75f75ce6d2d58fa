//! The pages of the documentation, executed: each with a drive of its own, a memory card of the lab, on which a service
//! reads a database. Its mount point stands for `/srv/data`. Pages about programs have an aged ext4, on which these have written.
//!
//! No page shows a command of fragmend that is not executed here or in `loop_walkthrough`.

#[path = "support/integrations.rs"]
mod integrations;
#[path = "support/page.rs"]
mod page;

use fragmend_testbed::demo::drive::Drive;
use fragmend_testbed::scratch;
use page::{blocks, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the pages' service has its data.
const DATA: &str = "/srv/data";

/// What every page begins with: the drive has been probed, and a service reads the database: 40 parts of 128 KiB past the
/// page cache, in an order that jumps, and again after a pause.
const MACHINE: &str = r#"
    mkdir work
    cd work
    fragmend probe --no-intervals --pace max --seconds 10m "$DATA" > /dev/null
    service() {
        while :; do
            for n in $(seq 0 39); do
                dd if="$DATA/service.db" of=/dev/null bs=128K count=1 skip=$((n * 37 % 200)) iflag=direct status=none
            done
            sleep 2
        done
    }
    service &
    service=$!
    trap 'kill $service; wait' EXIT
"#;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(page: &str) -> String {
    fs::read_to_string(root().join(page)).expect(page)
}

/// Runs the blocks of a page.
fn page(name: &str) {
    let dir = scratch::directory("book");
    let drive = Drive::serve("microsd", dir.path(), None);
    let data = drive.mount_point();
    let blocks = blocks(&text(name).replace(DATA, data.to_str().unwrap()));
    assert!(!blocks.is_empty(), "{name} has no commands");
    let _database = drive.grow();
    let mut shell = Command::new("bash");
    shell.env("DATA", data).env("FRAGMEND_PROFILES", dir.path().join("profiles"));
    run(&blocks, shell, (MACHINE, ""), dir.path(), true);
    drive.end();
}

/// Runs the blocks of a page about a program.
fn about_a_program(name: &str) {
    let machine = integrations::Machine::aged();
    let data = machine.data();
    let blocks = blocks(&text(name).replace(DATA, data.to_str().unwrap()));
    assert!(!blocks.is_empty(), "{name} has no commands");
    let mut shell = Command::new("bash");
    shell.env("DATA", &data).env("FRAGMEND_PROFILES", machine.dir().join("profiles"));
    let before = integrations::written_before(name);
    // Which file comes first depends on where the file system has put them.
    for printed in run(&blocks, shell, (before, ""), machine.dir(), false) {
        println!("{printed}");
    }
}

macro_rules! pages {
    ($pages:ident, $run:ident: $($test:ident: $page:literal,)*) => {
        /// Pages that are executed here.
        const $pages: &[&str] = &[$($page),*];
        $(#[test]
        fn $test() {
            $run($page);
        })*
    };
}

pages! { PROGRAMS, about_a_program:
    loop_sqlite_page: "docs/integrations/sqlite.md",
    loop_postgresql_page: "docs/integrations/postgresql.md",
    loop_mysql_page: "docs/integrations/mysql.md",
    loop_disks_page: "docs/integrations/vm-images.md",
    loop_journald_page: "docs/integrations/journald.md",
    loop_downloads_page: "docs/integrations/downloads.md",
}

pages! { PAGES, page:
    loop_readme: "README.md",
    loop_quick_start: "docs/quick-start.md",
    loop_policies: "docs/policies.md",
    loop_operating: "docs/operating.md",
    loop_formats: "docs/formats.md",
    loop_planning: "docs/planning.md",
    loop_probe: "docs/probe.md",
    loop_serve: "docs/serve.md",
    loop_report_page: "docs/report.md",
    loop_watch_page: "docs/watch.md",
    loop_metrics_page: "docs/metrics.md",
    loop_lab: "crates/lab/README.md",
}

/// All pages, as paths from the root of the repository.
fn all_pages() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "crates/lab/README.md".to_owned()];
    let mut directories = vec!["docs".to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{directory}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                directories.push(name);
            } else if name.ends_with(".md") {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_command_on_a_page_is_executed() {
    let executed: BTreeSet<&str> =
        [PAGES, PROGRAMS].concat().into_iter().chain(["docs/walkthrough.md"]).collect();
    for name in all_pages() {
        let text = text(&name);
        assert!(!text.contains("\n```sh") || executed.contains(name.as_str()), "{name}");
        let mut is_fenced = false;
        for line in text.lines() {
            is_fenced ^= line.starts_with("```");
            let is_command = line.starts_with("    fragmend ");
            assert!(is_fenced || !is_command, "{name}: {line:?} is executed by no test");
        }
    }
}

#[test]
fn every_make_target_on_a_page_exists() {
    let makefile = text("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '.']))
        .filter_map(|line| line.split_once(':'))
        .map(|(target, _)| target)
        .collect();
    for name in all_pages() {
        for line in text(&name).lines() {
            let Some(command) = line.strip_prefix("    make ") else { continue };
            let target = command.split_whitespace().find(|word| !word.contains('='));
            assert!(target.is_some_and(|target| targets.contains(target)), "{name}: {line}");
        }
    }
}

/// The table of contents names every page of `docs/`, and every link of a page leads to a file.
#[test]
fn the_book_is_complete_and_its_links_lead_somewhere() {
    let summary = text("docs/SUMMARY.md");
    for name in all_pages() {
        let directory = Path::new(&name).parent().unwrap().to_owned();
        if let Some(chapter) = name.strip_prefix("docs/") {
            let is_named = chapter == "SUMMARY.md" || summary.contains(&format!("({chapter})"));
            assert!(is_named, "SUMMARY.md does not name {chapter}");
        }
        let text = text(&name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let target = link.0.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = root().join(&directory).join(target);
            assert!(path.exists(), "{name}: {target}");
        }
    }
}
