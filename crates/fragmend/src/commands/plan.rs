//! `fragmend plan`: choose what is worth moving, and explain it. Touches no data.

use super::{Sharing, record};
use crate::exit::{Exit, Usage};
use crate::ui::{Ui, heard};
use crate::{gather, size};
use anyhow::Context;
use fragmend_apply::engine;
use fragmend_layout::shell_word;
use fragmend_plan::{Plan, PlanFile, Policy, Settings};
use fragmend_report::plan::{PlanReport, text};
use fragmend_report::{Unit, human};
use fragmend_sys::output;
use fragmend_trace::{Filter, Trace};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `fragmend plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What was recorded; needed by the policies `fragpicker` and `gain`
    #[arg(short, long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The plan file to write (JSON); without it, only the summary is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How ranges are chosen, and how many
    #[command(flatten)]
    choice: Choice,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// Show so many files
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Consider only files below these; with a trace, all that it saw if none is given
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// The options that decide what is chosen; `auto` has them too.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// How ranges are chosen
    #[arg(long, value_enum, default_value_t = PolicyArg::Gain)]
    policy: PolicyArg,
    /// Move at most so many bytes, for example 500M; where more is worth moving, the exit status has 16 in it
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    budget: Option<u64>,
    /// Consider only the hottest fraction of what was accessed, for example 0.5
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, value_parser = fraction)]
    hot: f64,
    /// Requests that a move must save per replay of the trace and per MiB moved
    #[arg(long, value_name = "REQUESTS", default_value_t = Settings::default().min_gain_per_mib,
          value_parser = not_negative)]
    min_gain: f64,
}

/// Values of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PolicyArg {
    /// Fewest bytes for the most requests saved
    Gain,
    /// Accessed, hot, fragmented windows, as FragPicker chooses them
    Fragpicker,
    /// Every fragmented readahead window; needs no trace
    Bypass,
    /// Every fragmented file, whole; needs no trace
    WholeFile,
}

impl Choice {
    /// As the planner wants it.
    pub fn settings(&self, sharing: Sharing) -> Settings {
        Settings {
            policy: match self.policy {
                PolicyArg::Gain => Policy::Gain,
                PolicyArg::Fragpicker => Policy::Fragpicker,
                PolicyArg::Bypass => Policy::Bypass,
                PolicyArg::WholeFile => Policy::WholeFile,
            },
            budget_bytes: self.budget,
            hot_fraction: self.hot,
            min_gain_per_mib: self.min_gain,
            unshare: sharing.unshare,
        }
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|f| *f > 0.0 && *f <= 1.0);
    value.ok_or_else(|| "a fraction above 0 and up to 1".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|f: &f64| *f >= 0.0 && f.is_finite());
    value.ok_or_else(|| "a number that is not negative".into())
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let settings = args.choice.settings(args.sharing);
    match &args.trace {
        None if settings.policy.needs_trace() => {
            return Err(Usage(
                "this policy chooses from what was seen: give a trace with -t (`fragmend record` makes one), or use --policy bypass or whole-file".into(),
            )
            .into());
        }
        None if args.paths.is_empty() => {
            return Err(Usage("give a trace with -t, or the paths to plan for".into()).into());
        }
        None if settings.hot_fraction < 1.0 => {
            return Err(Usage("--hot needs a trace: without one nothing is hot".into()).into());
        }
        _ => {}
    }
    // Before the files are looked at, which may take a while.
    if let Some(output) = &args.output {
        refuse_to_overwrite(output)?;
    }
    let trace = args.trace.as_deref().map(|path| read(path, ui)).transpose()?;
    let plan = make(trace, &args.paths, &settings, ui)?;
    if let Some(output) = &args.output {
        plan.write(output)?;
    }
    // A plan on standard output is the result, and nothing may come between.
    if !args.output.as_deref().is_some_and(output::is_stdout) {
        // The plan is there, and the exit code says the rest.
        heard(show(&plan, args.output.as_deref(), args.top, ui))?;
    }
    match &args.output {
        Some(output) if plan.summary.ranges > 0 && !output::is_stdout(output) => {
            let native = |d: &fragmend_plan::Device| engine::is_native(d.file_system);
            let how = if plan.devices.iter().all(native) { "" } else { "--engine rewrite " };
            let sharing = if plan.summary.space_cost_bytes > 0 { "--unshare " } else { "" };
            ui.note(format!("next: fragmend apply {how}{sharing}{}", shell_word(output)));
        }
        None if plan.summary.ranges > 0 => ui.note("next: the same with -o PLAN, to apply it"),
        _ => {}
    }
    let spent = plan.summary.over_budget_bytes > 0;
    Ok(Exit::IMPROVABLE.when(plan.summary.worth) | Exit::INCOMPLETE.when(spent))
}

/// Reads a trace, and warns of what is not in it.
///
/// # Errors
/// A trace that cannot be read.
fn read(path: &Path, ui: &Ui) -> anyhow::Result<Trace> {
    let trace = fragmend_trace::read(path, &Filter::default())?;
    warn(&trace, ui);
    Ok(trace)
}

/// Warns of what is not in a trace.
pub fn warn(trace: &Trace, ui: &Ui) {
    if trace.meta.lost > 0 {
        ui.warn(format!("the recording lost {} accesses", trace.meta.lost));
    }
    for missing in record::missing(&trace.meta) {
        ui.warn(missing);
    }
    if trace.skipped > 0 {
        ui.warn(format!("{} rows of the trace cannot be true: left out", trace.skipped));
    }
}

/// Looks at the files, and plans.
///
/// # Errors
/// A path that does not exist.
pub fn make(
    trace: Option<Trace>,
    paths: &[PathBuf],
    settings: &Settings,
    ui: &Ui,
) -> anyhow::Result<Plan> {
    let bar = ui.progress(None, "{spinner} looking at files: {human_pos}");
    let mut found = match trace {
        Some(trace) => gather::traced(trace.files, &trace.meta.paths, paths, &bar)?,
        None => gather::walked(paths, &bar)?,
    };
    bar.finish_and_clear();
    if let (true, Some(first)) = (found.files.is_empty(), found.unsupported.first()) {
        anyhow::bail!("{}: {}", first.path.path, first.reason);
    }
    found.left_alone.append(&mut found.unsupported);
    Ok(fragmend_plan::make(found.files, found.devices, found.left_alone, settings))
}

/// Prints what the plan comes to.
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

/// An old plan may be replaced, anything else may not: `-o` is easily given the wrong name.
fn refuse_to_overwrite(path: &Path) -> anyhow::Result<()> {
    let exists = output::replaces(path).with_context(|| path.display().to_string())?;
    if exists && path.metadata().is_ok_and(|m| m.len() > 0) && !PlanFile::is_at(path) {
        anyhow::bail!("{} exists and is no plan; choose another name or remove it", path.display());
    }
    Ok(())
}
