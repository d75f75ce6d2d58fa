//! The progress of a survey, and the summary of a plan.

use crate::ui::Ui;
use fragmend_known::Recogniser;
use fragmend_lab::plot::Plot;
use fragmend_pipeline::{Error, Event, Observer};
use fragmend_plan::{CurvePoint, Plan, Survey};
use fragmend_report::plan::{KnownFile, PlanReport, text};
use fragmend_report::{Unit, human, known};
use fragmend_trace::Trace;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Surveys with progress.
///
/// # Errors
/// As [`fragmend_pipeline::survey`].
pub fn survey(trace: Option<Trace>, paths: &[PathBuf], ui: &Ui) -> Result<Survey, Error> {
    with_progress(ui, |observe| fragmend_pipeline::survey(trace, paths, observe))
}

/// Surveys the same files once more with progress.
///
/// # Errors
/// As [`fragmend_pipeline::survey::again`].
pub fn survey_again(earlier: Survey, paths: &[PathBuf], ui: &Ui) -> Result<Survey, Error> {
    with_progress(ui, |observe| fragmend_pipeline::survey::again(earlier, paths, observe))
}

fn with_progress<T>(ui: &Ui, survey: impl FnOnce(&Observer) -> T) -> T {
    let bar = ui.progress(None, "{spinner} looking at files: {human_pos}");
    let surveyed = survey(&|event| match event {
        Event::ToSurvey(files) => bar.set_length(files),
        Event::Surveyed(files) => bar.inc(files),
        _ => {}
    });
    bar.finish_and_clear();
    surveyed
}

/// Prints the summary of a plan; its curve is in the document alone.
pub fn show(
    plan: &Plan,
    curve: &[CurvePoint],
    file: Option<&Path>,
    top: usize,
    ui: &Ui,
) -> anyhow::Result<()> {
    let mut out = ui.out();
    let mut recogniser = Recogniser::default();
    let known = plan.files.iter().take(top).filter_map(|file| {
        let path = file.path.to_path()?;
        Some(KnownFile { known: recogniser.at(&path, file.file.inode)?, path: file.path.clone() })
    });
    if ui.json {
        let file = file.map(|f| f.display().to_string());
        let report = PlanReport::of(plan, curve.to_vec(), file, known.collect());
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    let known = known.map(|file| (file.path.printable(), file.known));
    writeln!(out, "{}", text(plan, top, &known::text(known)))?;
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

/// Draws bytes written against time saved, with the plan itself as a point.
///
/// # Errors
/// When the file cannot be written.
pub fn picture(plan: &Plan, curve: &[CurvePoint], file: &Path) -> anyhow::Result<()> {
    let most = curve.iter().map(|p| p.seconds_saved).fold(plan.summary.seconds_saved, f64::max);
    let (unit, per_second) = match most {
        m if m >= 10.0 => ("s", 1.0),
        m if m >= 1e-2 => ("ms", 1e3),
        _ => ("us", 1e6),
    };
    let of = |bytes: u64, seconds: f64| (bytes as f64 / f64::from(1 << 20), seconds * per_second);
    let curve = curve.iter().map(|p| of(p.bytes, p.seconds_saved)).collect();
    let this = of(plan.summary.bytes_to_move, plan.summary.seconds_saved);
    let plot = Plot::Lines {
        name: "plan".into(),
        title: "What writing saves, in one replay of what was recorded".into(),
        axes: ["MiB written".into(), format!("{unit} saved (predicted)")],
        logarithmic: false,
        lines: vec![
            ("best choice for these bytes".into(), curve),
            ("this plan".into(), vec![this]),
        ],
    };
    Ok(plot.draw_to(file)?)
}
