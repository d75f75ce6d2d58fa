//! Checks that a load can be run, whatever its random numbers are.

use super::{Grow, Phase, Replay, Spec, Step, Touch, requests};
use crate::described::{BadFile, Text};
use crate::scan::Placed;
use crate::setup::{DriveKind, Setup};
use crate::trace::LATEST_NS;
use crate::trace::replay::Speed;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// Checks a load whose scan's files are `placed`, and that lies in this directory.
pub(super) fn check(
    spec: &Spec,
    setup: &Setup,
    placed: Option<&Placed>,
    text: Text<'_>,
    directory: &Path,
) -> Result<(), BadFile> {
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
    let unit_bytes = u64::from(setup.unit_bytes());
    let bytes_of = |units: u32| u64::from(units) * unit_bytes;
    let files = placed.into_iter().flat_map(|placed| &placed.files);
    let mut files = FilesSoFar {
        text,
        directory,
        unit_bytes,
        capacity_bytes: setup.capacity_bytes(),
        used_bytes: placed.map_or(0, |placed| bytes_of(placed.end())),
        idle_ns: 0,
        bytes: files.map(|(path, file)| (path.as_str(), bytes_of(file.units()))).collect(),
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
    directory: &'a Path,
    unit_bytes: u64,
    capacity_bytes: u64,
    /// The most bytes of the drive that all appends so far may need.
    used_bytes: u64,
    /// The nanoseconds of all waits and traces so far.
    idle_ns: u64,
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
            Step::ReadAll(calls) => {
                if self.bytes.is_empty() {
                    return Err(self.text.bad(calls.span(), "no step before this writes a file"));
                }
                self.check_whole(calls.span(), calls.get_ref().bytes)
            }
            Step::Trace(replay) => {
                let last_ns = self.check_trace(replay)?;
                let is_timed = replay.get_ref().speed == Speed::Recorded;
                self.check_time(phase, replay.span(), if is_timed { last_ns } else { 0 })
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
            Step::WaitUs(us) => {
                self.check_time(phase, us.span(), us.get_ref().saturating_mul(1000))
            }
            Step::Flush => Ok(()),
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

    /// Checks that all waits so far, and the times of all traces, are within the virtual clock.
    fn check_time(&mut self, phase: &Phase, at: Range<usize>, ns: u64) -> Result<(), BadFile> {
        self.idle_ns = self.idle_ns.saturating_add(ns.saturating_mul(phase.repeat.into()));
        if self.idle_ns <= LATEST_NS {
            return Ok(());
        }
        let why = format!("waits and traces so far last longer than {LATEST_NS} ns");
        Err(self.text.bad(at, why))
    }

    /// Reads the whole trace once: an error in its last line is one before anything has run. Returns the time of its last request.
    fn check_trace(&self, replay: &Spanned<Replay>) -> Result<u64, BadFile> {
        let file = self.directory.join(&replay.get_ref().file);
        let bad = |why: String| self.text.bad(replay.span(), format!("{}: {why}", file.display()));
        let trace = requests(self.directory, replay.get_ref()).map_err(|e| bad(e.to_string()))?;
        let mut last = None;
        for request in trace {
            last = last.max(Some(request?.at_ns));
        }
        last.ok_or_else(|| bad("no request is in it".into()))
    }

    fn check_whole(&self, at: Range<usize>, bytes: u64) -> Result<(), BadFile> {
        if bytes > self.capacity_bytes {
            let why = format!("the drive has no more than {} bytes", self.capacity_bytes);
            return Err(self.text.bad(at, why));
        }
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
