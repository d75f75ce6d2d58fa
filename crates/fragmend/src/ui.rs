//! What is printed beside the results: progress, hints and errors, all on stderr.
//!
//! The verbs print results, to stdout. Progress is shown on a terminal only, and not with `--quiet`;
//! hints are printed neither with `--quiet` nor with `--json`. indicatif honours `NO_COLOR`.

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

/// How results and messages are printed, by the options of the command line.
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

    /// Escapes control characters in results that go to `to`.
    pub fn safe<W: io::Write>(&self, to: W) -> Safe<W> {
        Safe::new(to, if self.json { Flavour::Json } else { Flavour::Text })
    }

    /// A line for a person: what was done, what to do next. It stays one line, whatever a path in it
    /// contains.
    pub fn note(&self, line: impl std::fmt::Display) {
        if !self.quiet && !self.json {
            say(format_args!("{}", printable(&line.to_string())));
        }
    }

    /// A line that reports that something has begun, for scripts as well: also with `--json`. It waits for a
    /// reader for a second at most.
    pub fn announce(&self, line: impl std::fmt::Display) {
        if !self.quiet {
            say_within(
                Some(Duration::from_secs(1)),
                format_args!("{}", printable(&line.to_string())),
            );
        }
    }

    /// A line that is printed even with `--quiet`.
    pub fn warn(&self, line: impl std::fmt::Display) {
        say(format_args!("fragmend: warning: {}", one_line(&line.to_string())));
    }

    /// An error and its causes in one line.
    pub fn error(&self, error: &anyhow::Error) {
        // An I/O error without context is one of our own output.
        let bare = error.chain().next().is_some_and(|e| e.is::<io::Error>());
        let what = if bare { "cannot write the output: " } else { "" };
        let limit = |e: &io::Error| e.kind() == io::ErrorKind::FileTooLarge;
        let is_limit = error.chain().any(|c| c.downcast_ref::<io::Error>().is_some_and(limit));
        let remedy = if is_limit { "; files are limited here (ulimit -f), raise that" } else { "" };
        say(format_args!("fragmend: {what}{}{remedy}", one_line(&format!("{error:#}"))));
    }
}

/// Writes a line to standard error, and waits for a slow reader until Ctrl-C. Errors are ignored, because
/// there is nowhere to report them; `eprintln!` would panic.
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

/// Whether our output still has a reader, by the result of writing to it.
///
/// # Errors
/// Any other error of the write.
pub fn has_reader(written: anyhow::Result<()>) -> anyhow::Result<bool> {
    match written {
        Err(e) if is_broken_pipe(&e) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Whether the reader has closed our output (`fragmend scan | head`), which is no error.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
