//! A session of the sqlite3 command-line program, which runs one batch at a time.

use crate::process::Running;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

/// A session; its process ends with it.
pub struct Shell {
    running: Running,
    answers: BufReader<ChildStdout>,
    /// It has ended with an error, which was reported.
    gave_up: bool,
}

impl Shell {
    /// Opens a database, with further options of the program; its standard error is inherited.
    ///
    /// # Panics
    /// When sqlite3 cannot be started.
    pub fn open(path: &Path, options: &[&str]) -> Self {
        let mut command = Command::new("sqlite3");
        command.args(["-batch", "-bail"]).args(options).arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut running = Running::start(&mut command);
        let answers = BufReader::new(running.child().stdout.take().expect("its output is piped"));
        Self { running, answers, gave_up: false }
    }

    /// Runs a batch to its end and returns what it printed.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] or [`io::ErrorKind::UnexpectedEof`] when sqlite3 ended with an error.
    pub fn run(&mut self, sql: &str) -> io::Result<String> {
        let printed = self.ask(sql);
        self.gave_up |= printed.is_err();
        printed
    }

    fn ask(&mut self, sql: &str) -> io::Result<String> {
        const DONE: &str = "batch done";
        let input = self.running.child().stdin.as_mut().expect("its input is piped");
        writeln!(input, "{sql}\nSELECT '{DONE}';")?;
        let mut printed = String::new();
        loop {
            let before = printed.len();
            if self.answers.read_line(&mut printed)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if printed[before..].trim_end() == DONE {
                printed.truncate(before);
                return Ok(printed);
            }
        }
    }

    /// Ends the session.
    ///
    /// # Panics
    /// When sqlite3 fails, unless that was reported before.
    pub fn close(mut self) {
        drop(self.running.child().stdin.take());
        let ended = self.running.wait();
        if !self.gave_up {
            ended.expect(&[0]);
        }
    }
}
