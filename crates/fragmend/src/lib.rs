//! The command line of fragmend as a library, so that man pages, completions and tests use the
//! definitions that the binary runs.
//!
//! | module | its job |
//! |---|---|
//! | [`cli`] | the verbs and the options that all of them share |
//! | [`commands`] | one file per verb |
//! | [`exit`] | the exit code's bits |
//! | [`interrupt`] | Ctrl-C, SIGTERM and SIGHUP |
//! | [`options`] | options that several verbs have |
//! | [`outlet`] | output whose reader may be slow, or never read |
//! | [`threads`] | the threads that work on many files at once |
//! | [`terminal`] | nothing that is printed has power over a terminal |
//! | [`ui`] | progress, colour, messages |
//! | [`view`] | how the stages of the pipeline are shown |
//!
//! What the verbs do is in libraries: `fragmend_pipeline` has the stages from record to apply.

pub mod cli;
pub mod commands;
pub mod exit;
pub mod interrupt;
pub mod options;
pub mod outlet;
pub mod terminal;
pub mod threads;
pub mod ui;
pub mod view;

use clap::Parser;
use cli::{Cli, Command};
use exit::{Exit, Usage};
use fragmend_layout::printable;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Prints the help, or the error in the command line: in colours, unless an argument (a name that a
/// shell put there for `*`) contains control characters or a line break, which are escaped then.
fn say(error: &clap::Error) -> std::io::Result<()> {
    let args: Vec<_> = std::env::args_os().collect();
    let shown: Vec<_> = args.iter().map(|a| printable(a.as_bytes()).to_string()).collect();
    let plain = |(a, shown): (&std::ffi::OsString, &String)| a.as_bytes() == shown.as_bytes();
    if !error.use_stderr() || args.iter().zip(&shown).skip(1).all(plain) {
        return error.print();
    }
    // The same error, from the escaped arguments. If only the bytes of an argument were invalid,
    // the escaped one is valid.
    let text = match Cli::try_parse_from(shown) {
        Err(same) => same.render().to_string(),
        Ok(_) => error.kind().to_string(),
    };
    text.lines().try_for_each(|line| writeln!(std::io::stderr(), "{}", printable(line)))
}

/// Runs a parsed command line, prints an error in one line, and returns the exit code.
pub fn run(parsed: Result<Cli, clap::Error>) -> ExitCode {
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) => {
            let unsaid = say(&e).is_err_and(|io| io.kind() != ErrorKind::BrokenPipe);
            return (Exit::USAGE.when(e.use_stderr()) | Exit::FAILED.when(unsaid)).into();
        }
    };
    // A write beyond the limit of file sizes is reported like any other error; it does not end the process.
    let _ = fragmend_sys::signals::no_end_by_file_size();
    let ui = ui::Ui::new(&cli.global);
    // The daemon drops privileges first, and starts them itself.
    let starts_them = matches!(
        cli.command,
        Command::Apply(_) | Command::Recover(_) | Command::Top(_) | Command::Watch(_)
    );
    if !starts_them {
        threads::start();
    }
    let result = match cli.command {
        Command::Scan(args) => commands::scan::run(&args, &ui),
        Command::Record(args) => commands::record::run(&args, &ui),
        Command::Plan(args) => commands::plan::run(&args, &ui),
        Command::Apply(args) => commands::apply::run(&args, &ui),
        Command::Auto(args) => commands::auto::run(&args, &ui),
        Command::Top(args) => commands::top::run(&args, &ui),
        Command::Probe(args) => commands::probe::run(&args, &ui),
        Command::Recover(args) => commands::recover::run(&args, &ui),
        Command::Report(args) => commands::report::run(&args, &ui),
        Command::Watch(args) => commands::watch::run(&args, &ui),
        Command::Lab(args) => commands::lab::run(&args, &ui),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(e) if ui::is_broken_pipe(&e) => Exit::DONE.into(),
        Err(e) => {
            ui.error(&e);
            let exit = if e.is::<Usage>() { Exit::USAGE } else { Exit::FAILED };
            exit.into()
        }
    }
}
