//! What a page shows, as a document: each list has a longest length, and what is beyond it is counted.

use crate::answer::{Answer, answer};
use crate::done::Done;
use crate::inputs::{Inputs, Named};
use crate::map::{BlockMap, maps};
use crate::plans::{PlanPart, plans};
use crate::worst::{WorstFile, worst};
use fragmend_apply::Measurement;
use fragmend_device::profile::Profile;
use fragmend_lab::experiment::Report as LabReport;
use fragmend_layout::{printable, schema};
use fragmend_report::scan::{ScanReport, ScanSpace, ScanTotals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most profiles, runs, scans and results of the lab of each kind that are shown.
pub const MOST_OF_A_KIND: usize = 64;
/// The most figures of a result of the lab, and of a list of a profile.
const MOST_ROWS: usize = 512;
/// The most errors of a scan that are shown.
const MOST_ERRORS: usize = 20;

/// The document of `fragmend report --json`: what the page is made from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PageReport {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Always `report`.
    pub command: String,
    /// What it was made from.
    pub inputs: Vec<Input>,
    /// All of it in a sentence, and what a reader asks.
    pub answer: Answer,
    /// The address spaces of file systems that were scanned with layouts.
    pub maps: Vec<BlockMap>,
    /// File systems of the scans for which there is no map: those beyond the first four.
    pub maps_left_out: u64,
    /// The files that cost most, the worst first.
    pub files: Vec<WorstFile>,
    /// Files of the inputs that are planned for, or in more extents than necessary.
    pub files_in_all: u64,
    /// Plans.
    pub plans: Vec<PlanPart>,
    /// Scans.
    pub scans: Vec<ScanPart>,
    /// What was moved.
    pub runs: Vec<Done>,
    /// Prediction and measurement side by side.
    pub measurements: Vec<MeasurementPart>,
    /// How free space is divided, by file system.
    pub free_space: Vec<FreePart>,
    /// What reads cost on the devices.
    pub profiles: Vec<Profile>,
    /// Results of the lab.
    pub lab: Vec<LabReport>,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Input {
    /// What it is called.
    pub name: String,
    /// What it was found to be.
    pub kinds: Vec<String>,
}

/// What a scan comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScanPart {
    /// Which input it is.
    pub input: String,
    /// All files together.
    pub totals: ScanTotals,
    /// Extents that it has the places of.
    pub extents_placed: u64,
    /// Files and directories that it left out, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Paths that could not be scanned at all: the first 20.
    pub errors: Vec<String>,
}

/// Prediction and measurement of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasurementPart {
    /// Which input has it.
    pub input: String,
    /// Both.
    pub measurement: Measurement,
}

/// How the free space of a file system is divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FreePart {
    /// Which input has it.
    pub input: String,
    /// Its space, without the runs themselves.
    #[serde(flatten)]
    pub space: ScanSpace,
}

impl PageReport {
    /// What the page of these inputs shows.
    pub fn of(inputs: &Inputs) -> Self {
        let (maps, maps_left_out) = maps(inputs);
        let (files, files_in_all) = worst(inputs);
        let spaces = inputs.scans.iter().flat_map(|scan| {
            scan.document.spaces.iter().map(|space| FreePart {
                input: scan.name.clone(),
                space: ScanSpace { runs: None, ..space.clone() },
            })
        });
        let measured = inputs.runs.iter().filter_map(|run| {
            let measurement = run.document.summary.as_ref()?.measurement.clone()?;
            Some(MeasurementPart { input: run.name.clone(), measurement })
        });
        let profiles = inputs.profiles.iter().map(|profile| few_figures(&profile.document));
        let mut report = Self {
            schema_version: schema::DOCUMENT,
            command: "report".into(),
            inputs: inputs.names.iter().map(input).collect(),
            answer: Answer::default(),
            maps,
            maps_left_out,
            files,
            files_in_all,
            plans: few(plans(inputs)),
            scans: few(inputs.scans.iter().map(scan_part)),
            runs: few(inputs.runs.iter().map(|run| Done::of(&run.name, &run.document))),
            measurements: few(measured),
            free_space: few(spaces),
            profiles: few(profiles),
            lab: few(inputs.lab.iter().map(|report| few_rows(&report.document))),
        };
        report.answer = answer(&report);
        report
    }
}

fn few<T>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    all.into_iter().take(MOST_OF_A_KIND).collect()
}

/// An experiment with its first rows: none of ours has half as many.
fn few_rows(report: &LabReport) -> LabReport {
    let rows = report.rows.iter().take(MOST_ROWS).cloned().collect();
    LabReport { rows, ..report.clone() }
}

/// A profile with the first of its figures that are drawn; a probe makes fewer.
fn few_figures(profile: &Profile) -> Profile {
    let mut few = profile.clone();
    few.intervals.truncate(MOST_ROWS);
    few.one_more_request.truncate(MOST_ROWS);
    few
}

fn input((name, kinds): &(String, Vec<&'static str>)) -> Input {
    Input { name: name.clone(), kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect() }
}

fn scan_part(scan: &Named<ScanReport>) -> ScanPart {
    let report = &scan.document;
    let layouts = report.files.iter().filter_map(|file| file.layout.as_ref());
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    report.skipped.iter().for_each(|s| *left_out.entry(s.code.to_string()).or_default() += 1);
    let errors = report.errors.iter().take(MOST_ERRORS);
    ScanPart {
        input: scan.name.clone(),
        totals: report.totals.clone(),
        extents_placed: layouts.map(|layout| layout.extents.len() as u64).sum(),
        left_out,
        errors: errors.map(|error| printable(error).to_string()).collect(),
    }
}
