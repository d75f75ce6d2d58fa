//! What a person sees beside the results: progress, hints and errors, all on stderr; and Ctrl-C.
//!
//! Results go to stdout and are the verbs' own business. Progress shows on a terminal only,
//! `--quiet` and `--json` silence it, and indicatif honours `NO_COLOR`.

mod screen;

use crate::cli::Global;
use crate::interrupt;
use crate::outlet::Outlet;
use crate::terminal::{Flavour, Safe};
use fragmend_layout::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use screen::Screen;
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How to talk, decided once from the command line and the terminal.
pub struct Ui {
    /// Results as JSON.
    pub json: bool,
    quiet: bool,
}

impl Ui {
    /// From the shared options.
    pub fn new(global: &Global) -> Self {
        Self { json: global.json, quiet: global.quiet }
    }

    /// A progress bar over `total` units shown by `template` (indicatif's language); hidden off
    /// a terminal. With no total it is a spinner.
    pub fn progress(&self, total: Option<u64>, template: &str) -> ProgressBar {
        let shown = !self.quiet && io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::term_like_with_hz(Box::new(Screen::new()), 10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(total, target);
        let style = ProgressStyle::with_template(template).expect("template is a literal");
        bar.set_style(style);
        bar
    }

    /// Where results go.
    pub fn out(&self) -> Safe<io::Stdout> {
        self.safe(io::stdout())
    }

    /// The last gate before results go to `to`.
    pub fn safe<W: io::Write>(&self, to: W) -> Safe<W> {
        Safe::new(to, if self.json { Flavour::Json } else { Flavour::Text })
    }

    /// A line for a person: what was done, what to do next. It stays one line, whatever a path in it
    /// holds.
    pub fn note(&self, line: impl std::fmt::Display) {
        if !self.quiet && !self.json {
            say(format_args!("{}", printable(&line.to_string())));
        }
    }

    /// A line for whoever waits until something has begun, a script too: also with `--json`. Nobody who
    /// does not read it holds up for long what has begun.
    pub fn announce(&self, line: impl std::fmt::Display) {
        if !self.quiet {
            say_within(
                Some(Duration::from_secs(1)),
                format_args!("{}", printable(&line.to_string())),
            );
        }
    }

    /// A line that must be seen even with `--quiet`.
    pub fn warn(&self, line: impl std::fmt::Display) {
        say(format_args!("fragmend: warning: {}", one_line(&line.to_string())));
    }

    /// An error and its causes in one line.
    pub fn error(&self, error: &anyhow::Error) {
        // Only our own output fails without saying what it was about.
        let what = if error.is::<io::Error>() { "cannot write the output: " } else { "" };
        let limit = |e: &io::Error| e.kind() == io::ErrorKind::FileTooLarge;
        let is_limit = error.chain().any(|c| c.downcast_ref::<io::Error>().is_some_and(limit));
        let remedy = if is_limit { "; files are limited here (ulimit -f), raise that" } else { "" };
        say(format_args!("fragmend: {what}{}{remedy}", one_line(&format!("{error:#}"))));
    }
}

/// A line on standard error. Where that is full, or nobody reads it, there is nobody to tell: no reason
/// to end, as `eprintln!` does. A reader who is slow is waited for until Ctrl-C.
fn say(line: fmt::Arguments<'_>) {
    say_within(None, line);
}

fn say_within(within: Option<Duration>, line: fmt::Arguments<'_>) {
    static ERROR: OnceLock<Mutex<Outlet>> = OnceLock::new();
    let error = ERROR.get_or_init(|| Mutex::new(Outlet::error()));
    let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
    error.put(format!("{line}\n").as_bytes());
    let _ = error.flush(within, interrupt::flag());
}

/// Folds line breaks, so that an error stays one line whatever a path or a parser puts in it.
fn one_line(text: &str) -> String {
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|l| !l.is_empty());
    printable(&lines.collect::<Vec<_>>().join(" ")).to_string()
}

/// Whether somebody still reads our output, as the end of writing to it tells.
///
/// # Errors
/// What else kept it from being written.
pub fn heard(written: anyhow::Result<()>) -> anyhow::Result<bool> {
    match written {
        Err(e) if is_broken_pipe(&e) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Whether the reader of our output went away (`fragmend scan | head`): no error at all.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
