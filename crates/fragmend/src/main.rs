//! The `fragmend` command. Thin: each verb is one file in [`commands`].

use clap::Parser;
use fragmend::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    fragmend::run(Cli::try_parse())
}
