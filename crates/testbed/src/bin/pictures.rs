//! `make pictures`: runs the demo, makes the reports of its two drives, and takes pictures of them in a browser.

use fragmend_testbed::browser::Browser;
use fragmend_testbed::{cleanup, demo, process, scratch, tools};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A picture: its name, the drive, the size of the window, whether it is dark, the section that it begins with.
const PICTURES: [(&str, &str, (u32, u32), bool, &str); 4] = [
    ("report-light", "microsd", (1200, 1150), false, "answer"),
    ("report-dark", "microsd", (1200, 1150), true, "answer"),
    ("report-not-worth-it", "nvme-b", (1200, 700), false, "answer"),
    ("report-phone", "microsd", (390, 844), true, "answer"),
];

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
    for (name, drive, size, dark, section) in PICTURES {
        let page = report(documents.path(), drive);
        browser.look(size, dark);
        browser.open(&page);
        browser.eval(&format!("document.querySelector('#{section}').scrollIntoView()"));
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
    let is_input = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(drive) && name.ends_with(".json")
    };
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_input).collect();
    inputs.sort();
    let mut command = Command::new(tools::fragmend());
    command.current_dir(documents).arg("report").args(inputs).arg("-o").arg(&page);
    process::finish(&mut command).expect(&[0]);
    page
}
