//! The documents that a page is made from, each recognised by its content.
//!
//! A text is a sequence of JSON values: one document, or the lines that long verbs print. What a value is shows in its
//! head: `command`, `format`, `event`, `experiment` or `profile_version`.

use crate::done::Run;
use fragmend_apply::Event;
use fragmend_device::profile::Profile;
use fragmend_lab::experiment::Report as LabReport;
use fragmend_layout::{printable, schema};
use fragmend_plan::Plan;
use fragmend_plan::file::FORMAT;
use fragmend_report::plan::PlanReport;
use fragmend_report::probe::ProbeReport;
use fragmend_report::scan::{ScanReport, ScanSpace};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The longest text that is read, in bytes: a scan of a million extents has some 100 MB.
pub const LONGEST: u64 = 1 << 30;
/// The most inputs of one page.
pub const MOST_INPUTS: usize = 256;
/// The longest reason, in characters.
const LONGEST_REASON: usize = 300;

/// Why a text is no input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It is no document of fragmend, or a damaged one.
    #[error("{name} is no document that a report can be made from ({why})")]
    Foreign {
        /// What the text is called.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A fragmend with other formats has written it.
    #[error(
        "{name} has a document of version {found}, this fragmend reads version {known}; make it again"
    )]
    Version {
        /// What the text is called.
        name: String,
        /// Its version.
        found: u64,
        /// The one that is read.
        known: u32,
    },
    /// There are too many.
    #[error("more than {MOST_INPUTS} inputs; make several reports")]
    TooMany,
}

/// A document with the name of the text that it was in.
#[derive(Clone, Debug)]
pub struct Named<T> {
    /// What the text is called, safe to show.
    pub name: String,
    /// The document.
    pub document: T,
}

/// All documents, in the order in which they were given.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// What was given, and what it was.
    pub names: Vec<(String, Vec<&'static str>)>,
    /// Scans.
    pub scans: Vec<Named<ScanReport>>,
    /// Plan files.
    pub plans: Vec<Named<Plan>>,
    /// Summaries of plans.
    pub summaries: Vec<Named<PlanReport>>,
    /// What was moved.
    pub(crate) runs: Vec<Named<Run>>,
    /// Profiles of devices.
    pub profiles: Vec<Named<Profile>>,
    /// Results of the lab.
    pub lab: Vec<Named<LabReport>>,
}

/// What tells a value's kind.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema_version: Option<u64>,
    #[serde(default)]
    profile_version: Option<u64>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    format: Option<String>,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    experiment: Option<String>,
}

/// A kind of document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scan,
    PlanFile,
    Plan,
    Event,
    Probe,
    Profile,
    Lab,
}

impl Kind {
    fn of(head: &Head) -> Option<Self> {
        match head.command.as_deref() {
            Some("scan") => return Some(Self::Scan),
            Some("plan") => return Some(Self::Plan),
            Some("probe") => return Some(Self::Probe),
            _ => {}
        }
        let is_plan = head.format.as_deref() == Some(FORMAT);
        let other = || head.profile_version.map(|_| Self::Profile);
        let lab = || head.experiment.as_ref().map(|_| Self::Lab);
        let event = || head.event.as_ref().map(|_| Self::Event);
        is_plan.then_some(Self::PlanFile).or_else(event).or_else(lab).or_else(other)
    }

    /// What the page calls it.
    fn words(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::PlanFile => "plan file",
            Self::Plan => "summary of a plan",
            Self::Event => "receipts",
            Self::Probe | Self::Profile => "device profile",
            Self::Lab => "results of the lab",
        }
    }

    /// The version that is written in a value of this kind, and the one that is read.
    fn version(self, head: &Head) -> (Option<u64>, u32) {
        match self {
            Self::PlanFile => (head.schema_version, schema::PLAN_FILE),
            Self::Profile => (head.profile_version, schema::PROFILE_FILE),
            // Events of single ranges have none.
            Self::Event if head.schema_version.is_none() => {
                (Some(schema::DOCUMENT.into()), schema::DOCUMENT)
            }
            _ => (head.schema_version, schema::DOCUMENT),
        }
    }
}

impl Inputs {
    /// Adds all documents of a text, which messages and the page call `name`. If one is refused, none is added.
    ///
    /// # Errors
    /// [`InputError`], each in one line.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), InputError> {
        if self.names.len() == MOST_INPUTS {
            return Err(InputError::TooMany);
        }
        let name = printable(name).to_string();
        let foreign = |why: String| InputError::Foreign { name: name.clone(), why };
        let mut found = Self::default();
        let mut kinds = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Head>();
        let mut start = 0;
        while let Some(head) = values.next() {
            let head = head.map_err(|e| foreign(short(&e)))?;
            let value = &text[start..values.byte_offset()];
            start = values.byte_offset();
            let Some(kind) = Kind::of(&head) else {
                return Err(foreign("it is none of fragmend's that a report shows".into()));
            };
            let (version, known) = kind.version(&head);
            match version {
                Some(found) if found == u64::from(known) => {}
                Some(found) => return Err(InputError::Version { name, found, known }),
                None => return Err(foreign("no schema_version".into())),
            }
            if kind == Kind::Event {
                let event = parse::<Event>(value).map_err(&foreign)?;
                // Several runs may have been added to one file.
                if runs.is_empty() || matches!(event, Event::Start(_)) {
                    runs.push(Run::default());
                }
                if let Some(run) = runs.last_mut() {
                    run.add(event);
                }
            } else {
                found.take(&name, kind, value).map_err(&foreign)?;
            }
            if !kinds.contains(&kind.words()) {
                kinds.push(kind.words());
            }
        }
        if kinds.is_empty() {
            return Err(foreign("it is empty".into()));
        }
        let named = |document| Named { name: name.clone(), document };
        found.runs.extend(runs.into_iter().map(named));
        found.names.push((name, kinds));
        self.append(found);
        Ok(())
    }

    /// Reads a value of a known kind.
    fn take(&mut self, name: &str, kind: Kind, value: &str) -> Result<(), String> {
        fn named<T>(name: &str, document: T) -> Named<T> {
            Named { name: name.to_owned(), document }
        }
        match kind {
            Kind::Scan => {
                let scan: ScanReport = parse(value)?;
                scan.spaces.iter().try_for_each(sensible)?;
                self.scans.push(named(name, scan));
            }
            Kind::PlanFile => self.plans.push(named(name, parse(value)?)),
            Kind::Plan => self.summaries.push(named(name, parse(value)?)),
            Kind::Probe | Kind::Profile => {
                let profile = match kind {
                    Kind::Probe => parse::<ProbeReport>(value)?.profile,
                    _ => parse(value)?,
                };
                profile.senseless().map_or(Ok(()), |why| Err(why.to_owned()))?;
                self.profiles.push(named(name, profile));
            }
            Kind::Lab => self.lab.push(named(name, parse(value)?)),
            Kind::Event => {}
        }
        Ok(())
    }

    fn append(&mut self, other: Self) {
        let Self { names, scans, plans, summaries, runs, profiles, lab } = other;
        self.names.extend(names);
        self.scans.extend(scans);
        self.plans.extend(plans);
        self.summaries.extend(summaries);
        self.runs.extend(runs);
        self.profiles.extend(profiles);
        self.lab.extend(lab);
    }
}

fn parse<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|e| short(&e))
}

/// Whether the runs of an address space are in order, and within it.
fn sensible(space: &ScanSpace) -> Result<(), String> {
    let bytes = space.figures.as_ref().map_or(0, |figures| figures.bytes);
    let mut end = 0;
    for run in space.runs.iter().flatten() {
        if run.range.start < end || run.range.is_empty() || run.range.end > bytes {
            return Err(format!(
                "the run at {} of an address space makes no sense",
                run.range.start
            ));
        }
        end = run.range.end;
    }
    Ok(())
}

/// An error's text, which quotes what the document contains, of any length.
fn short(error: &serde_json::Error) -> String {
    printable(&error.to_string()).to_string().chars().take(LONGEST_REASON).collect()
}

#[cfg(test)]
#[path = "inputs_tests.rs"]
mod tests;
