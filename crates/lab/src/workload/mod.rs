//! A load as a TOML file describes it: files are appended to, overwritten and read on a drive, in phases, and
//! each phase is measured. The format is in `README.md` of this crate.

mod play;

use crate::described::{BadFile, Text};
use crate::experiment::Report;
use crate::plot::Plot;
use crate::presets;
use crate::setup::{DriveKind, Setup};
use fragmend_flash::drive::Placement;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// A load, and the drive that it runs on.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    source: String,
    spec: Spec,
    setup: Setup,
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
    /// A file is deleted, and its units are trimmed.
    Delete(Spanned<Name>),
    /// Everything written so far is made durable.
    Flush,
    /// The host is idle for this many microseconds.
    WaitUs(u64),
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
        check(&spec, &setup, text)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, source: file, spec, setup })
    }

    /// Runs the load; returns its figures.
    pub fn report(&self, seed: u64) -> (Report, Vec<Plot>) {
        let (rows, plots) = play::play(self, seed);
        (Report::new(&self.name, &self.source, seed, rows), plots)
    }
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

/// Checks that a load can be run, whatever the random numbers are.
fn check(spec: &Spec, setup: &Setup, text: Text<'_>) -> Result<(), BadFile> {
    check_drive(spec, &setup.drive, text)?;
    if let Some(precondition) = &spec.precondition
        && precondition.get_ref().fill_percent > 100
    {
        return Err(text.bad(precondition.span(), "fill_percent: at most 100"));
    }
    if let Some(none) = spec.placements.as_ref().filter(|p| p.get_ref().is_empty()) {
        return Err(text.bad(none.span(), "placements: name at least one, or leave it out"));
    }
    if spec.phase.is_empty() {
        return Err(text.bad(0..0, "a load has at least one [[phase]]"));
    }
    let mut files = FilesSoFar {
        text,
        unit_bytes: setup.unit_bytes().into(),
        capacity_bytes: setup.capacity_bytes(),
        used_bytes: 0,
        bytes: BTreeMap::new(),
    };
    for phase in &spec.phase {
        for step in &phase.steps {
            files.check_step(phase, step)?;
        }
    }
    Ok(())
}

/// Checks that the load is for a drive of this kind.
fn check_drive(spec: &Spec, drive: &DriveKind, text: Text<'_>) -> Result<(), BadFile> {
    let only = "is for flash drives only";
    match drive {
        DriveKind::Flash(_) => {}
        DriveKind::Zoned { .. } => {
            return Err(text.bad(spec.drive.span(), "a load needs a drive without zones"));
        }
        DriveKind::InPlace(_) => {
            if let Some(placements) = &spec.placements {
                return Err(text.bad(placements.span(), only));
            }
            if let Some(precondition) = &spec.precondition {
                return Err(text.bad(precondition.span(), only));
            }
        }
    }
    Ok(())
}

/// The files of a load after some of its steps.
struct FilesSoFar<'a> {
    text: Text<'a>,
    unit_bytes: u64,
    capacity_bytes: u64,
    /// The most bytes of the drive that all appends so far may need.
    used_bytes: u64,
    /// The fewest bytes that each file may have.
    bytes: BTreeMap<&'a str, u64>,
}

impl<'a> FilesSoFar<'a> {
    fn check_step(&mut self, phase: &Phase, step: &'a Step) -> Result<(), BadFile> {
        match step {
            Step::Append(grow) => self.check_append(phase, grow),
            Step::Overwrite(touch) | Step::Read(touch) => {
                let Touch { file, bytes, .. } = touch.get_ref();
                self.check_whole(touch.span(), *bytes)?;
                if self.bytes.get(file.as_str()).is_none_or(|has| has < bytes) {
                    let why = format!("no step before this gives {file} {bytes} bytes");
                    return Err(self.text.bad(touch.span(), why));
                }
                Ok(())
            }
            Step::Delete(name) => {
                let file = &name.get_ref().file;
                if self.bytes.remove(file.as_str()).is_none() {
                    let why = "no step before this writes this file";
                    return Err(self.text.bad(name.span(), why));
                }
                if phase.repeat > 1 && !appends_to(phase, file) {
                    let why = "it is gone after the first repetition";
                    return Err(self.text.bad(name.span(), why));
                }
                Ok(())
            }
            Step::Flush | Step::WaitUs(_) => Ok(()),
        }
    }

    fn check_append(&mut self, phase: &Phase, grow: &'a Spanned<Grow>) -> Result<(), BadFile> {
        let Grow { file, bytes, up_to } = grow.get_ref();
        let most = up_to.unwrap_or(*bytes);
        self.check_whole(grow.span(), *bytes)?;
        self.check_whole(grow.span(), most)?;
        if most < *bytes {
            return Err(self.text.bad(grow.span(), "up_to: less than bytes"));
        }
        let repeat = u64::from(phase.repeat);
        self.used_bytes = self.used_bytes.saturating_add(most.saturating_mul(repeat));
        if self.used_bytes > self.capacity_bytes {
            let why = format!("the drive has no more than {} bytes", self.capacity_bytes);
            return Err(self.text.bad(grow.span(), why));
        }
        *self.bytes.entry(file).or_default() += bytes * repeat;
        Ok(())
    }

    fn check_whole(&self, at: Range<usize>, bytes: u64) -> Result<(), BadFile> {
        if bytes > 0 && bytes.is_multiple_of(self.unit_bytes) {
            return Ok(());
        }
        let unit = self.unit_bytes;
        let why = format!("bytes: must be whole mapping units of {unit}, and not 0");
        Err(self.text.bad(at, why))
    }
}

fn appends_to(phase: &Phase, file: &str) -> bool {
    let appends = |step: &Step| matches!(step, Step::Append(grow) if grow.get_ref().file == file);
    phase.steps.iter().any(appends)
}

#[cfg(test)]
mod tests;
