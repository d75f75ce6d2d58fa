//! Chores of the workspace: `cargo run -p xtask -- generate [--check]`.

use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use xtask::generate;

/// Chores of the workspace.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write man pages, shell completions and JSON schemas
    Generate {
        /// Write nothing; fail if a file is not as it would be written
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let Chore::Generate { check } = Cli::parse().chore;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let result = generate::files().and_then(|files| {
        if check { generate::check(&root, &files) } else { generate::write(&root, &files) }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}
