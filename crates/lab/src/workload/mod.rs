//! A load as a TOML file describes it: files are appended to, overwritten and read on a drive, in phases, and
//! each phase is measured. The format is in `README.md` of this crate.

mod check;
mod play;

use crate::described::{BadFile, Text};
use crate::experiment::Report;
use crate::plot::Plot;
use crate::presets;
use crate::scan::{Placed, Scan};
use crate::setup::Setup;
use crate::trace::Requests;
use crate::trace::replay::Speed;
use fragmend_flash::drive::Placement;
use fragmend_sys::input;
use serde::Deserialize;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A load, and the drive that it runs on.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    source: String,
    spec: Spec,
    setup: Setup,
    /// The directory of the file, in which those are that it names.
    directory: PathBuf,
    /// The files of the scan that it names.
    placed: Option<Placed>,
}

/// A load as it is in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// What it is, in a line.
    about: String,
    /// A drive of the lab, or a drive's file beside this one.
    drive: Spanned<String>,
    /// The placements that are compared, each in a run of its own; by default that of the drive's file.
    placements: Option<Spanned<Vec<Placement>>>,
    /// The drive's content before the first phase; preconditioning does not advance the clock.
    precondition: Option<Spanned<Precondition>>,
    /// A scan of a real file system, beside this file: its files are there before the first phase.
    layout: Option<Spanned<String>>,
    /// The phases, in order.
    phase: Vec<Phase>,
}

/// The drive's content before the first phase, also in the units that the load's files will have.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Precondition {
    /// The share of the drive that is written in order.
    fill_percent: u32,
    /// The share of that which is overwritten, unit by unit, at random.
    #[serde(default)]
    overwrite_percent: u32,
}

/// A part of a load that is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    /// Its name.
    name: String,
    /// How many times its steps are run.
    #[serde(default = "once")]
    repeat: u32,
    /// Its steps, in order.
    steps: Vec<Step>,
}

fn once() -> u32 {
    1
}

/// A step of a phase.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    /// A file grows, in the next free units of the drive.
    Append(Spanned<Grow>),
    /// A part of a file is overwritten.
    Overwrite(Spanned<Touch>),
    /// A part of a file is read.
    Read(Spanned<Touch>),
    /// Every file is read from its start to its end, in the order of their names.
    ReadAll(Spanned<Calls>),
    /// A block trace is replayed on the drive, whatever is there.
    Trace(Spanned<Replay>),
    /// A file is deleted, and its units are trimmed.
    Delete(Spanned<Name>),
    /// Everything written so far is made durable.
    Flush,
    /// The host is idle for this many microseconds.
    WaitUs(Spanned<u64>),
}

/// See [`Step::Append`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grow {
    file: String,
    /// Bytes by which it grows, with one call.
    bytes: u64,
    /// The most bytes by which it grows: the number is random, from `bytes` to this.
    up_to: Option<u64>,
}

/// See [`Step::Overwrite`] and [`Step::Read`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Touch {
    file: String,
    /// Bytes of each call.
    bytes: u64,
    /// How many calls; by default as many as cover the file.
    calls: Option<u32>,
    /// Which part of the file comes next.
    #[serde(default)]
    order: Order,
}

/// Which part of a file comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// The part after the last one of this step; from the start again after the end.
    #[default]
    Sequential,
    /// Random, at multiples of a call's length.
    Random,
}

/// See [`Step::ReadAll`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    /// Bytes of each call.
    bytes: u64,
}

/// See [`Step::Trace`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    /// The trace, a file beside this one.
    file: String,
    /// When its requests arrive.
    #[serde(default)]
    speed: Speed,
}

/// See [`Step::Delete`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    file: String,
}

impl Workload {
    /// Parses a load; `path` is its file, `drive` overrides the drive that it names.
    ///
    /// # Errors
    /// The first thing that is wrong, and in which line.
    pub fn parse(text: &str, path: &Path, drive: Option<Setup>) -> Result<Self, BadFile> {
        let file = path.display().to_string();
        let text = Text { text, file: &file };
        let spec: Spec = text.parse()?;
        let setup = match drive {
            Some(setup) => setup,
            None => drive_named(&spec.drive, text, path)?,
        };
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let placed =
            spec.layout.as_ref().map(|scan| placed(scan, &setup, text, &directory)).transpose()?;
        check::check(&spec, &setup, placed.as_ref(), text, &directory)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, source: file, spec, setup, directory, placed })
    }

    /// Runs the load; returns its figures.
    ///
    /// # Errors
    /// A trace that it replays has changed since it was parsed, and is wrong now, or the drive refuses one of its requests.
    pub fn report(&self, seed: u64) -> Result<(Report, Vec<Plot>), BadFile> {
        let (rows, plots) = play::play(self, seed)?;
        Ok((Report::new(&self.name, &self.source, seed, rows), plots))
    }
}

/// The files of a scan on the load's drive.
fn placed(
    scan: &Spanned<String>,
    setup: &Setup,
    text: Text<'_>,
    directory: &Path,
) -> Result<Placed, BadFile> {
    let path = directory.join(scan.get_ref());
    let bad = |why: String| text.bad(scan.span(), format!("layout: {why}"));
    let read = Scan::read(&path).map_err(|e| bad(e.to_string()))?;
    let units = setup.capacity_bytes() / u64::from(setup.unit_bytes());
    let placed = read.onto(setup.unit_bytes(), units as u32);
    placed.map_err(|misfit| bad(format!("{}: {misfit}", path.display())))
}

/// The requests of a trace in the directory of a load.
///
/// # Errors
/// The file cannot be opened.
fn requests(directory: &Path, replay: &Replay) -> std::io::Result<Requests<BufReader<File>>> {
    let path = directory.join(&replay.file);
    Ok(Requests::new(BufReader::new(input::open(&path)?), path.display().to_string()))
}

/// The largest file of a load or a drive that is read, in bytes.
pub const LARGEST_FILE: u64 = 1 << 20;

fn drive_named(name: &Spanned<String>, text: Text<'_>, path: &Path) -> Result<Setup, BadFile> {
    let (at, name) = (name.span(), name.get_ref());
    if !name.ends_with(".toml") {
        return presets::named(name).map_err(|e| text.bad(at, e.to_string()));
    }
    let beside = path.parent().unwrap_or(Path::new("")).join(name);
    let read = fragmend_sys::input::read_text(&beside, LARGEST_FILE);
    let read = read.map_err(|e| text.bad(at, format!("{}: {e}", beside.display())))?;
    Setup::parse(&read, &beside.display().to_string())
}

#[cfg(test)]
mod tests;
