//! `make pictures`: runs the demo, makes the reports of its two drives, and takes pictures of them in a browser.

use fragmend_testbed::browser::Browser;
use fragmend_testbed::{cleanup, demo, process, scratch, tools};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A picture of a report.
struct Picture {
    name: &'static str,
    drive: &'static str,
    /// Size of the window.
    size: (u32, u32),
    dark: bool,
    /// The section that it begins with; the first one has the head of the page above it.
    section: &'static str,
}

const PICTURES: [Picture; 5] = [
    picture("report-light", "microsd", (1200, 1180), false, "answer"),
    picture("report-dark", "microsd", (1200, 1180), true, "answer"),
    picture("report-files", "microsd", (1200, 760), false, "files"),
    picture("report-not-worth-it", "nvme-b", (1200, 420), false, "answer"),
    picture("report-phone", "microsd", (390, 844), true, "answer"),
];

const fn picture(
    name: &'static str,
    drive: &'static str,
    size: (u32, u32),
    dark: bool,
    section: &'static str,
) -> Picture {
    Picture { name, drive, size, dark, section }
}

fn main() -> ExitCode {
    cleanup::panics_in_one_line("pictures");
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [out] = &args[..] else {
        eprintln!("pictures: give the directory of the pictures; run it as root");
        return ExitCode::from(8);
    };
    let documents = scratch::directory("pictures");
    demo::run(Some(documents.path()));
    let mut browser = Browser::start();
    for Picture { name, drive, size, dark, section } in PICTURES {
        let page = report(documents.path(), drive);
        browser.look(size, dark);
        browser.open(&page);
        if section != "answer" {
            browser.eval(&format!("document.querySelector('#{section}').scrollIntoView()"));
        }
        let path = Path::new(out).join(format!("{name}.png"));
        std::fs::write(&path, browser.picture()).expect("a picture");
        println!("{}", path.display());
    }
    ExitCode::SUCCESS
}

/// The page of all documents of a drive.
fn report(documents: &Path, drive: &str) -> PathBuf {
    let page = documents.join(format!("{drive}.html"));
    let entries = std::fs::read_dir(documents).expect("a directory").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_input = |name: &String| name.starts_with(drive) && name.ends_with(".json");
    let mut inputs: Vec<String> = names.filter(is_input).collect();
    inputs.sort();
    let mut command = Command::new(tools::fragmend());
    command.current_dir(documents).arg("report").args(inputs).arg("-o").arg(&page);
    process::finish(&mut command).expect(&[0]);
    page
}
