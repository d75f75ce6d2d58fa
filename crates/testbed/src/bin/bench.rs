//! `bench [--quick] [TABLE...]`: prints the comparison tables; see [`fragmend_testbed::bench`].

use fragmend_testbed::bench::{self, Sizes, TABLES};
use fragmend_testbed::{cleanup, guest, tools};
use std::process::ExitCode;

fn main() -> ExitCode {
    cleanup::panics_in_one_line("bench");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (options, mut tables): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    let sizes = match options[..] {
        [] => Sizes::FULL,
        ["--quick"] => Sizes::QUICK,
        _ => return refuse(&format!("unknown option {}", options.join(" "))),
    };
    if let Some(unknown) = tables.iter().find(|t| !TABLES.contains(t)) {
        return refuse(&format!("there is no table {unknown}"));
    }
    if tables.is_empty() {
        tables = TABLES.to_vec();
    }
    if guest::inside() {
        println!("{}", bench::f2fs::measure(sizes));
        return ExitCode::SUCCESS;
    }
    if let Err(why) =
        tools::require(&["e4defrag", "xfs_fsr", "btrfs", "sqlite3", "linux.uml", "losetup"])
    {
        return refuse(&why);
    }
    if bench::run(sizes, &tables).all_reached() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("bench: {why}; usage, as root: bench [--quick] [{}]...", TABLES.join("|"));
    ExitCode::from(8)
}
