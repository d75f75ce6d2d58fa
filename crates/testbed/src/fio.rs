//! fio, with its JSON output as a type: the reference for loads that are not replayed.

use crate::process::finish;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The figures of one direction of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Requests a second.
    pub iops: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// The mean latency.
    pub mean: Duration,
    /// The median latency.
    pub p50: Duration,
    /// The 99th percentile of the latency.
    pub p99: Duration,
}

/// The figures of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFigures {
    /// Its reads.
    pub read: Figures,
    /// Its writes.
    pub write: Figures,
}

/// Runs one job on `file` with further options, each as on fio's command line without the
/// dashes: `fio::run(path, &["rw=randread", "bs=4k", "direct=1", "runtime=2", "time_based"])`.
///
/// # Panics
/// When fio is missing or fails, verification included.
pub fn run(file: &Path, options: &[&str]) -> JobFigures {
    parse(&finish(&mut command(file, options)).expect(&[0]))
}

/// The same as a command, for a job that runs beside something ([`crate::process::Running`]).
pub fn command(file: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("fio");
    let mut name = std::ffi::OsString::from("--filename=");
    name.push(file);
    // No state file in the current directory.
    command.args(["--name=job", "--output-format=json", "--ioengine=psync"]).arg(name);
    command.arg("--verify_state_save=0");
    command.args(options.iter().map(|o| format!("--{o}")));
    command
}

/// Reads what a job started with [`command`] printed.
///
/// # Panics
/// When it is not fio's output.
pub fn parse(text: &str) -> JobFigures {
    // fio prints notes before the document.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let document: Document = serde_json::from_str(json).expect("fio's JSON output");
    let job = document.jobs.into_iter().next().expect("fio ran one job");
    JobFigures { read: job.read.into(), write: job.write.into() }
}

#[derive(Deserialize)]
struct Document {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Side,
    write: Side,
}

#[derive(Deserialize)]
struct Side {
    iops: f64,
    io_bytes: u64,
    clat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
    /// Absent when nothing was done in this direction.
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, u64>,
}

impl From<Side> for Figures {
    fn from(side: Side) -> Self {
        let at = |percent: &str| {
            Duration::from_nanos(side.clat_ns.percentile.get(percent).copied().unwrap_or(0))
        };
        Self {
            iops: side.iops,
            bytes: side.io_bytes,
            mean: Duration::from_nanos(side.clat_ns.mean as u64),
            p50: at("50.000000"),
            p99: at("99.000000"),
        }
    }
}
