//! A drive of the lab that `fragmend lab serve` serves.

use crate::cleanup::{self, Ticket, Undo};
use crate::process::{Finished, Running};
use crate::tools;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may need to begin or to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs; ended when dropped.
pub struct ServedDrive {
    running: Option<Running>,
    /// What it printed when it began.
    pub report: Value,
    _tickets: [Ticket; 2],
}

impl ServedDrive {
    /// Serves a drive with these arguments of `fragmend lab serve`.
    pub fn start(args: &[&str]) -> Self {
        let mut command = Command::new(tools::fragmend());
        command.args(["lab", "serve", "--json"]).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut line = String::new();
        let out = running.child().stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("its report");
        if line.is_empty() {
            panic!("{:?}", running.wait());
        }
        let report: Value = serde_json::from_str(&line).expect("JSON");
        let text = |name: &str| report[name].as_str().expect("text").to_owned();
        let tickets = [
            cleanup::register(Undo::Served(text("directory").into())),
            cleanup::register(device(&report)),
        ];
        Self { running: Some(running), report, _tickets: tickets }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    /// The block device.
    pub fn node(&self) -> PathBuf {
        self.report["node"].as_str().expect("text").into()
    }

    /// A file beside the drive.
    pub fn file(&self, name: &str) -> PathBuf {
        Path::new(self.report["directory"].as_str().expect("text")).join(name)
    }

    /// The virtual time.
    pub fn clock(&self) -> u64 {
        let text = fs::read_to_string(self.file("clock")).expect("the clock");
        text.trim_end().parse().expect("nanoseconds")
    }

    /// The statistics.
    pub fn stats(&self) -> Value {
        serde_json::from_slice(&fs::read(self.file("stats")).expect("the file")).expect("JSON")
    }

    /// Lets so much virtual time pass, once nothing is in flight any more.
    ///
    /// # Panics
    /// When something still is after [`PATIENCE`], or the drive is paced.
    pub fn rest(&self, time: Duration) {
        let begun = Instant::now();
        while let Err(e) = self.control(&format!("rest {}", time.as_millis())) {
            let busy = e.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error());
            assert!(busy && begun.elapsed() < PATIENCE, "{e}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes a command to the control file.
    pub fn control(&self, command: &str) -> std::io::Result<()> {
        fs::write(self.file("control"), command)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.running().signal(signal);
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        let child = self.running.as_mut().expect("it runs").child();
        matches!(child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When that lasts too long, with what it said: it names what uses the device.
    pub fn ended(mut self) -> Finished {
        let started = Instant::now();
        while self.runs() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        let in_time = !self.runs();
        let running = self.running.take().expect("it ran");
        if !in_time {
            running.signal(Signal::KILL);
        }
        let ended = running.wait();
        if !in_time {
            device(&self.report).run();
            Undo::Served(self.report["directory"].as_str().expect("text").into()).run();
        }
        assert!(in_time, "it did not end: {}", ended.stderr.trim());
        ended
    }

    /// Ends it tidily.
    pub fn quit(self) {
        self.control("quit\n").expect("a command");
        self.ended().expect(&[0]);
    }
}

/// The drive's loop device.
fn device(report: &Value) -> Undo {
    let text = |name: &str| report[name].as_str().expect("text");
    Undo::LoopOf(text("node").into(), Path::new(text("directory")).join("disk"))
}

impl Drop for ServedDrive {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // A test has failed: its mounts are gone by now, or this ends with errors for them.
        running.signal(Signal::TERM);
        let started = Instant::now();
        while matches!(running.child().try_wait(), Ok(None)) {
            if started.elapsed() > Duration::from_secs(5) {
                running.signal(Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        device(&self.report).run();
        Undo::Served(self.report["directory"].as_str().expect("text").into()).run();
    }
}
