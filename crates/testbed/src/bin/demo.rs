//! `make demo`; see [`fragmend_testbed::demo`].

use fragmend_testbed::{cleanup, demo, tools};
use std::process::ExitCode;

fn main() -> ExitCode {
    cleanup::panics_in_one_line("demo");
    if std::env::args_os().len() > 1 {
        eprintln!("demo: it takes no options; run it as root");
        return ExitCode::from(8);
    }
    let programs = ["mkfs.ext4", "losetup", "mount", "sqlite3", "filefrag", "sha256sum", "e2fsck"];
    if let Err(why) = tools::require(&programs) {
        eprintln!("demo: {why}");
        return ExitCode::from(8);
    }
    let verdict = demo::run(None);
    println!("\n{}", verdict.table());
    let complaints = verdict.complaints();
    for complaint in &complaints {
        eprintln!("demo: FAILED: {complaint}");
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(4) }
}
