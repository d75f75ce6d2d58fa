//! Chores of the workspace: `cargo run -p xtask -- generate [--check]`, `mutate [NAME]`
//! and `test [-- ARGUMENT...]`.

use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use xtask::{generate, mutate, suite};

/// Chores of the workspace.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write man pages, shell completions, JSON schemas and the list of dependencies' licences
    Generate {
        /// Write nothing; fail if a file is not as it would be written
        #[arg(long)]
        check: bool,
    },
    /// Remove what crash arguments rely on, one thing at a time; a test must fail for each
    Mutate {
        /// Only those whose names contain this
        #[arg(default_value = "")]
        only: String,
    },
    /// Build every test and run it, and name the slowest
    Test {
        /// Arguments of each test binary
        #[arg(last = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two above").to_owned();
    let result = match Cli::parse().chore {
        Chore::Generate { check } => generate::files(&root).and_then(|files| {
            if check { generate::check(&root, &files) } else { generate::write(&root, &files) }
        }),
        Chore::Mutate { only } => mutate::run(&root, &only),
        Chore::Test { args } => suite::run(&root, &args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}
