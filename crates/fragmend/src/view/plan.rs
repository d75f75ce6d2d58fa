//! The progress of a survey, and the summary of a plan.

use crate::ui::Ui;
use fragmend_pipeline::{Error, Event};
use fragmend_plan::{Plan, Survey};
use fragmend_report::plan::{PlanReport, text};
use fragmend_report::{Unit, human};
use fragmend_trace::Trace;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Surveys with progress.
///
/// # Errors
/// As [`fragmend_pipeline::survey`].
pub fn survey(trace: Option<Trace>, paths: &[PathBuf], ui: &Ui) -> Result<Survey, Error> {
    let bar = ui.progress(None, "{spinner} looking at files: {human_pos}");
    let survey = fragmend_pipeline::survey(trace, paths, &|event| match event {
        Event::ToSurvey(files) => bar.set_length(files),
        Event::Surveyed(files) => bar.inc(files),
        Event::Watching | Event::Recorded(_) => {}
    });
    bar.finish_and_clear();
    survey
}

/// Prints the summary of a plan.
pub fn show(plan: &Plan, file: Option<&Path>, top: usize, ui: &Ui) -> anyhow::Result<()> {
    let mut out = ui.out();
    if ui.json {
        let report = PlanReport::of(plan, file.map(|f| f.display().to_string()));
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    writeln!(out, "{}", text(plan, top))?;
    if plan.summary.left_shared_bytes > 0 {
        let bytes = human(plan.summary.left_shared_bytes as f64, Unit::Bytes);
        ui.note(format!("left alone: {bytes} in fragmented files that others share (--unshare)"));
    }
    for left in plan.left_alone.iter().take(top) {
        ui.note(format!("left alone: {}: {}", left.path.printable(), left.reason));
    }
    if plan.left_alone.len() > top {
        ui.note(format!("left alone: {} more files", plan.left_alone.len() - top));
    }
    Ok(())
}
