//! `concurrency [--quick] [ENGINE...]`: prints the latencies of programs whose files are moved;
//! see [`fragmend_testbed::concurrency`].

use fragmend_testbed::concurrency::{self, ENGINES, Engine, Goals, table};
use fragmend_testbed::guest::{self, Guest};
use fragmend_testbed::{cleanup, tools};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Decides every operation.
const SEED: u64 = 0x00F2_7AB1;

const PROGRAMS: [&str; 6] =
    ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs", "sqlite3", "losetup"];

fn main() -> ExitCode {
    cleanup::panics_in_one_line("concurrency");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (options, names): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    let goals = match options[..] {
        [] => Goals::FULL,
        ["--quick"] => Goals::TEST,
        _ => return refuse(&format!("unknown option {}", options.join(" "))),
    };
    if let Some(unknown) = names.iter().find(|name| concurrency::engine(name).is_none()) {
        return refuse(&format!("there is no engine {unknown}"));
    }
    if let Err(why) = tools::require(&PROGRAMS) {
        return refuse(&why);
    }
    let chosen = ENGINES.iter().filter(|e| names.is_empty() || names.contains(&e.name));
    let cells: Vec<Vec<String>> =
        chosen.flat_map(|engine| cells(engine, goals, &options)).collect();
    if guest::inside() {
        println!("{}", serde_json::to_string(&cells).expect("text"));
    } else {
        println!("{}", table::table(cells));
    }
    ExitCode::SUCCESS
}

/// The rows of one engine, measured in a guest if it needs one.
fn cells(engine: &Engine, goals: Goals, options: &[&str]) -> Vec<Vec<String>> {
    if !engine.is_in_guest() || guest::inside() {
        let rows = concurrency::on(engine, goals, SEED);
        if !guest::inside() {
            eprintln!("{}", table::told(engine.name, &rows));
        }
        return rows.iter().map(|row| row.cells(engine.name)).collect();
    }
    let mut this = Command::new(std::env::current_exe().expect("this program"));
    this.args(options).arg(engine.name).env("FRAGMEND", tools::fragmend());
    let run = Guest::new().time_limit(Duration::from_secs(2400)).run(&this);
    let printed = run.unwrap_or_else(|lost| panic!("{lost}")).expect(&[0]);
    serde_json::from_str(printed.trim()).expect("the rows that the guest printed")
}

fn refuse(why: &str) -> ExitCode {
    let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
    eprintln!(
        "concurrency: {why}; usage, as root: concurrency [--quick] [ENGINE...], of \"{}\"",
        names.join("\", \"")
    );
    ExitCode::from(8)
}
