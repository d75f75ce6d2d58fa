//! `bench [--quick | --file-mib N]`: prints the comparison tables; see [`fragmend_testbed::bench`].

use fragmend_testbed::bench::{self, Sizes};
use fragmend_testbed::cleanup;
use std::process::ExitCode;

fn main() -> ExitCode {
    cleanup::panics_in_one_line("bench");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let sizes = match words[..] {
        [] => Sizes::FULL,
        ["--quick"] => Sizes::QUICK,
        ["--file-mib", n] => match n.parse::<u64>() {
            Ok(mib @ 16..=65536) => Sizes { file_bytes: mib << 20, ..Sizes::FULL },
            _ => return usage("--file-mib takes a number from 16 to 65536"),
        },
        _ => return usage("unknown option"),
    };
    if let Err(why) = fragmend_testbed::tools::require(&["e4defrag", "sqlite3", "losetup"]) {
        return usage(&why);
    }
    if bench::run(sizes).all_reached() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(why: &str) -> ExitCode {
    eprintln!("bench: {why}; usage: bench [--quick | --file-mib N], as root");
    ExitCode::from(8)
}
