//! A load of one's own, as a TOML file describes it: files grow, are written over and read on a
//! drive, in phases, and each phase is measured. `README.md` of this crate says what a file may hold.

mod play;

use crate::described::{BadFile, Text};
use crate::experiment::Report;
use crate::plot::Plot;
use crate::presets;
use crate::setup::Setup;
use fragmend_flash::drive::Placement;
use serde::Deserialize;
use std::collections::BTreeMap;
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

/// As in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// What it is, in a line.
    about: String,
    /// A drive of the lab, or a drive's file beside this one.
    drive: Spanned<String>,
    /// Where the drive's writes go, one run each; as the drive's file says if there are none.
    placements: Option<Spanned<Vec<Placement>>>,
    /// What the drive holds before; it takes no time.
    precondition: Option<Spanned<Precondition>>,
    /// What is done, one after the other.
    phase: Vec<Phase>,
}

/// What the drive holds before the first phase, below the load's own files too.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Precondition {
    /// So much of it is written in order.
    fill_percent: u32,
    /// And so much of that again, unit by unit, at random.
    #[serde(default)]
    overwrite_percent: u32,
}

/// A part of a load that is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    /// What it is called.
    name: String,
    /// How often its steps are done.
    #[serde(default = "once")]
    repeat: u32,
    /// What they are.
    steps: Vec<Step>,
}

fn once() -> u32 {
    1
}

/// One thing that is done.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    /// A file grows, on the next free units of the drive.
    Append(Spanned<Grow>),
    /// Some of a file is written again.
    Overwrite(Spanned<Touch>),
    /// Some of a file is read.
    Read(Spanned<Touch>),
    /// A file goes, and the drive is told (TRIM).
    Delete(Spanned<Name>),
    /// What was written is made durable.
    Flush,
    /// Nothing is asked for, for so long.
    WaitUs(u64),
}

/// See [`Step::Append`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grow {
    file: String,
    /// By so much, with one call.
    bytes: u64,
    /// Or by as much as this, at random.
    up_to: Option<u64>,
}

/// See [`Step::Overwrite`] and [`Step::Read`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Touch {
    file: String,
    /// With each call.
    bytes: u64,
    /// Calls; as many as the file is long if nobody says.
    calls: Option<u32>,
    /// Which part comes next.
    #[serde(default)]
    order: Order,
}

/// Which part of a file comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// The one behind the last one of this step; from the start again behind the end.
    #[default]
    Sequential,
    /// Any, in steps of as much as a call.
    Random,
}

/// See [`Step::Delete`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    file: String,
}

impl Workload {
    /// Reads a load from its file's text; `path` is the file, `drive` stands for the drive that it
    /// names.
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

    /// Runs it, and says what it came to.
    pub fn report(&self, seed: u64) -> (Report, Vec<Plot>) {
        let (rows, plots) = play::play(self, seed);
        (Report::new(&self.name, &self.source, seed, rows), plots)
    }
}

/// More than any description of a load or a drive, in bytes.
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

/// What a load does must be possible, whatever the random numbers.
fn check(spec: &Spec, setup: &Setup, text: Text<'_>) -> Result<(), BadFile> {
    let at_drive = spec.drive.span();
    if setup.open_zones.is_some() {
        return Err(text.bad(at_drive, "a load needs a drive without zones"));
    }
    if setup.flash.is_none() {
        let only = "is for flash drives only";
        if let Some(placements) = &spec.placements {
            return Err(text.bad(placements.span(), only));
        }
        if let Some(precondition) = &spec.precondition {
            return Err(text.bad(precondition.span(), only));
        }
    }
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
    let (unit, capacity) = (u64::from(setup.unit_bytes()), setup.capacity_bytes());
    let mut files: BTreeMap<&str, u64> = BTreeMap::new();
    let mut used = 0;
    for phase in &spec.phase {
        for step in &phase.steps {
            match step {
                Step::Append(grow) => {
                    let (at, Grow { file, bytes, up_to }) = (grow.span(), grow.get_ref());
                    let most = up_to.unwrap_or(*bytes);
                    whole(*bytes, unit).map_err(|why| text.bad(at.clone(), why))?;
                    whole(most, unit).map_err(|why| text.bad(at.clone(), why))?;
                    if most < *bytes {
                        return Err(text.bad(at, "up_to: less than bytes"));
                    }
                    used += most * u64::from(phase.repeat);
                    if used > capacity {
                        let why = format!("the drive has no more than {capacity} bytes");
                        return Err(text.bad(at, why));
                    }
                    *files.entry(file).or_default() += bytes * u64::from(phase.repeat);
                }
                Step::Overwrite(touch) | Step::Read(touch) => {
                    let (at, Touch { file, bytes, .. }) = (touch.span(), touch.get_ref());
                    whole(*bytes, unit).map_err(|why| text.bad(at.clone(), why))?;
                    if files.get(file.as_str()).is_none_or(|has| has < bytes) {
                        let why = format!("no step before this gives {file} {bytes} bytes");
                        return Err(text.bad(at, why));
                    }
                }
                Step::Delete(name) => {
                    if files.remove(name.get_ref().file.as_str()).is_none() {
                        return Err(text.bad(name.span(), "no step before this writes this file"));
                    }
                    if phase.repeat > 1 && !writes(phase, &name.get_ref().file) {
                        let why = "it is gone after the first repetition";
                        return Err(text.bad(name.span(), why));
                    }
                }
                Step::Flush | Step::WaitUs(_) => {}
            }
        }
    }
    Ok(())
}

fn writes(phase: &Phase, name: &str) -> bool {
    let appends = |step: &Step| matches!(step, Step::Append(grow) if grow.get_ref().file == name);
    phase.steps.iter().any(appends)
}

fn whole(bytes: u64, unit: u64) -> Result<(), String> {
    match bytes > 0 && bytes.is_multiple_of(unit) {
        true => Ok(()),
        false => Err(format!("bytes: must be whole mapping units of {unit}, and not 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: &str = r#"
about = "two logs"
drive = "nvmevirt-fast24"
placements = ["round-robin", "die-affine"]

[precondition]
fill_percent = 1

[[phase]]
name = "grow"
repeat = 64
steps = [
    { append = { file = "a", bytes = 32_768 } },
    "flush",
    { append = { file = "b", bytes = 32_768, up_to = 262_144 } },
]

[[phase]]
name = "use"
steps = [
    { wait-us = 1000 },
    { overwrite = { file = "a", bytes = 4096, calls = 10, order = "random" } },
    { read = { file = "a", bytes = 131_072 } },
    { delete = { file = "b" } },
]
"#;

    fn parse(text: &str) -> Result<Workload, BadFile> {
        Workload::parse(text, Path::new("a/load.toml"), None)
    }

    #[test]
    fn a_load_runs_for_each_placement_and_gives_the_same_again() {
        let load = parse(LOAD).unwrap();
        let (report, plots) = load.report(1);
        assert_eq!(report.experiment, "load");
        let row = |name: &str| {
            let row = report.rows.iter().find(|row| row.name == name);
            row.unwrap_or_else(|| panic!("no {name} in {:?}", report.rows)).ours
        };
        assert_eq!(row("round-robin, grow: requests"), 64.0 * 2.0);
        assert!(row("die-affine, use: read") > row("round-robin, use: read"));
        // All but the first of each file.
        assert_eq!(row("die-affine, grow: hints taken"), 63.0 * 2.0);
        assert_eq!(plots.len(), 1);
        assert_eq!(load.report(1).0.rows, report.rows);
        assert_ne!(load.report(2).0.rows, report.rows);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |from: &str, to: &str| {
            let text = LOAD.replacen(from, to, 1);
            assert_ne!(text, LOAD);
            parse(&text).unwrap_err().to_string()
        };
        let has = |error: String, what: &str| assert!(error.contains(what), "{error}");
        has(error("nvmevirt-fast24", "nvmevirt"), "a/load.toml:3: no drive is named nvmevirt;");
        has(error("nvmevirt-fast24", "my.toml"), "a/load.toml:3: a/my.toml: No such file");
        has(error("\"die-affine\"", "\"die\""), "a/load.toml:4: unknown variant `die`");
        has(error("fill_percent = 1", "fill_percent = 101"), "load.toml:6: fill_percent");
        has(error("bytes = 32_768", "bytes = 32_000"), "load.toml:13: bytes: must be whole");
        has(error("up_to = 262_144", "up_to = 4096"), "load.toml:15: up_to: less");
        has(
            error("read = { file = \"a\"", "read = { file = \"c\""),
            "load.toml:23: no step before",
        );
        has(error("repeat = 64", "repeat = 4_000_000"), "load.toml:13: the drive has no more");
        has(error("\"flush\",", "\"sync\","), "load.toml:14: unknown variant `sync`");
        has(error("calls = 10", "times = 10"), "load.toml:22: unknown field `times`");
        has(error("about = \"two logs\"", "about = "), "load.toml:2: ");
    }
}
