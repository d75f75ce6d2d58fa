//! `fragmend plan`: choose what is worth moving, and explain it. Touches no data.

use super::surveys::Surveys;
use super::timed::{self, Timed};
use crate::exit::{Exit, Usage};
use crate::interrupt;
use crate::options::{Check, Choice, Sharing};
use crate::ui::{Ui, has_reader};
use crate::view;
use anyhow::Context;
use fragmend_layout::{printable_path, shell_word};
use fragmend_pipeline::survey::WhichSlow;
use fragmend_pipeline::{Error, Survey, plan_file, survey};
use fragmend_plan::{Policy, Settings, SlowFile};
use fragmend_report::slow;
use fragmend_sys::signals::Waiting;
use fragmend_sys::{input, output};
use fragmend_trace::{Filter, Order, Trace};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Options of `fragmend plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace of `fragmend record`; needed by the policies `fragpicker`, `gain` and `iodp`
    #[arg(short, long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// What `fragmend probe --json FILE` has printed of a file: its ranges that are in one extent and yet slow are considered,
    /// too, and written anew where that is worth it. May be given more than once. Without a trace, one read of these files
    /// is planned for
    #[arg(long, value_name = "FILE")]
    slow: Vec<PathBuf>,
    /// The plan file to write (JSON); without it, only the summary is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Time a sample of the recorded reads where the data is now, past the page cache, and plan with what fragments cost
    /// there: at most 64 MiB, three times
    #[arg(long, requires = "trace")]
    measure: bool,
    /// How ranges are chosen, and how many
    #[command(flatten)]
    choice: Choice,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// Draw what each amount of writing would save to this file (SVG)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// How many files to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// What the exit status says
    #[command(flatten)]
    check: Check,
    /// Consider only files below these paths; with a trace or --slow, all of their files if none is given
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let settings = args.choice.settings(args.sharing)?;
    has_input(args, &settings)?;
    // Before the survey, which may last long.
    if let Some(output) = &args.output {
        refuse_to_overwrite(output, plan_file::is_at, "plan")?;
    }
    if let Some(picture) = &args.picture {
        refuse_picture(picture, args.output.as_deref())?;
    }
    let segments = if settings.policy == Policy::Segments {
        survey::segments(&args.paths).map_err(usage_of)?
    } else {
        BTreeMap::new()
    };
    let slow = args.slow.iter().map(|path| read_slow(path)).collect::<Result<Vec<_>, _>>()?;
    let read = |path: &PathBuf| {
        let order = if args.measure {
            // Reads are repeated in their order.
            Some(Order { up_to: survey::MOST_ORDERED, cold: settings.assume_cold })
        } else {
            survey::order(&fragmend_trace::read_meta(path)?, settings.assume_cold)
        };
        let fold_if_misses = !settings.assume_cold;
        let filter = Filter { fold_if_misses, order, turns: true, ..Filter::default() };
        fragmend_trace::read(path, &filter)
    };
    let trace = args.trace.as_ref().map(read).transpose()?;
    if let Some(trace) = &trace {
        view::record::warn(trace, ui);
        can_be_cold(trace, &settings)?;
    }
    let mut survey = match (trace, &args.trace) {
        (Some(trace), Some(path)) if args.measure => {
            let surveys = Surveys::new(trace, || Ok(read(path)?), &args.paths, ui);
            match timed_survey(surveys, &settings, ui)? {
                Some(survey) => survey,
                None => return Ok(no_plan(ui)),
            }
        }
        (trace, _) => surveyed(args, trace, !slow.is_empty(), settings.policy, ui)?,
    };
    survey.segments = segments;
    if !slow.is_empty() {
        let which = if args.trace.is_some() { WhichSlow::Surveyed } else { WhichSlow::All };
        survey::add_slow(&mut survey, slow, &args.paths, which)?;
    }
    let wanted = ui.json || args.picture.is_some();
    let (plan, curve) = {
        // Nothing would be left half done: a signal may end the process meanwhile.
        let _waits = Waiting::begin();
        survey.drives = fragmend_pipeline::drives(&survey.devices);
        fragmend_pipeline::plan_with_curve(survey, &settings, wanted)
    };
    if interrupt::flag().load(Ordering::Relaxed) {
        return Ok(no_plan(ui));
    }
    view::wear::warn_of(plan.summary.wear.as_ref(), ui);
    if let Some(output) = &args.output {
        plan_file::write(&plan, output)?;
    }
    // A plan on standard output is the result, and nothing else may be written there.
    if !args.output.as_deref().is_some_and(output::is_stdout) {
        // A closed output is no error: the plan is written, and the exit code has the result.
        has_reader(view::plan::show(&plan, &curve, args.output.as_deref(), args.top, ui))?;
    }
    if let Some(picture) = &args.picture {
        view::plan::picture(&plan, &curve, picture)?;
    }
    match &args.output {
        Some(output) if plan.summary.ranges > 0 && !output::is_stdout(output) => {
            let native = fragmend_pipeline::moves_natively(&plan.devices);
            let how = if native { "" } else { "--engine rewrite " };
            let sharing = if plan.summary.space_cost_bytes > 0 { "--unshare " } else { "" };
            ui.note(format!("next: fragmend apply {how}{sharing}{}", shell_word(output)));
        }
        None if plan.summary.ranges > 0 => ui.note("next: the same with -o PLAN, to apply it"),
        _ => {}
    }
    // That a budget was kept to is what was asked for: what it left out is reported with --check alone.
    let over_budget = args.check.check && plan.summary.over_budget_bytes > 0;
    Ok(args.check.exit(plan.summary.worth) | Exit::INCOMPLETE.when(over_budget))
}

/// That the policy is for other file systems is an error of the command line.
fn usage_of(error: Error) -> anyhow::Error {
    match error {
        Error::NoSegments { .. } => Usage(error.to_string()).into(),
        error => error.into(),
    }
}

/// The slow ranges of a probe's document.
fn read_slow(path: &Path) -> anyhow::Result<SlowFile> {
    let named = || printable_path(path).to_string();
    let text = input::read_text(path, slow::LONGEST).with_context(named)?;
    Ok(slow::parse(&text, &named())?)
}

/// The files of a trace with what one more request of them costs, which is timed; `None` if a signal came meanwhile.
fn timed_survey(
    mut surveys: Surveys,
    settings: &Settings,
    ui: &Ui,
) -> anyhow::Result<Option<Survey>> {
    let stop = interrupt::install()?;
    let first = fragmend_pipeline::plan(surveys.survey()?, settings);
    let timed = Timed::of(surveys.survey()?, &first, stop, ui);
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut survey = surveys.survey()?;
    timed::enter(&mut survey, &timed);
    Ok(Some(survey))
}

/// Reports that a signal came before a plan was written.
fn no_plan(ui: &Ui) -> Exit {
    ui.note("stopped; no plan was written");
    Exit::INCOMPLETE
}

/// The files to plan for: those of the trace, or below the paths. Where slow ranges were measured, `gain` is for the files of
/// these alone without a trace: it needs to know what is read.
fn surveyed(
    args: &Args,
    trace: Option<Trace>,
    has_slow: bool,
    policy: Policy,
    ui: &Ui,
) -> anyhow::Result<Survey> {
    let only_slow = trace.is_none() && (args.paths.is_empty() || policy == Policy::Gain);
    if only_slow && has_slow {
        return Ok(Survey::default());
    }
    Ok(view::plan::survey(trace, &args.paths, ui)?)
}

/// Whether there is what the policy chooses from.
fn has_input(args: &Args, settings: &Settings) -> anyhow::Result<()> {
    let measured = !args.slow.is_empty();
    if settings.policy == Policy::Segments && (measured || args.trace.is_some()) {
        return Err(Usage(
            "the policy segments chooses by where data is, and uses neither a trace nor slow ranges: give it paths alone".into(),
        )
        .into());
    }
    match &args.trace {
        None if settings.policy.needs_trace() && !(measured && settings.policy == Policy::Gain) => {
            return Err(Usage(
                "this policy chooses from what was seen: give a trace with -t (`fragmend record` makes one), or use --policy bypass or whole-file".into(),
            )
            .into());
        }
        None if args.paths.is_empty() && !measured => {
            return Err(Usage("give a trace with -t, or the paths to plan for".into()).into());
        }
        None if settings.hot_fraction < 1.0 => {
            return Err(Usage("--hot needs a trace: without one nothing is hot".into()).into());
        }
        None if settings.assume_cold => {
            return Err(Usage(
                "--assume-cold needs a trace: without one, every file is read cold".into(),
            )
            .into());
        }
        _ => {}
    }
    Ok(())
}

/// A cold start is imitated from what programs asked for; a trace of misses alone does not have that.
pub fn can_be_cold(trace: &Trace, settings: &Settings) -> Result<(), Usage> {
    if settings.assume_cold && !trace.meta.level.has_requests() {
        return Err(Usage(
            "--assume-cold starts from what programs ask for, and this trace has misses alone: record without --level miss".into(),
        ));
    }
    Ok(())
}

/// Refuses a picture that would replace something else, or be mixed with something else.
fn refuse_picture(picture: &Path, plan: Option<&Path>) -> anyhow::Result<()> {
    if output::is_stdout(picture) {
        return Err(Usage("--picture needs a file: standard output has the summary".into()).into());
    }
    let is_plan = plan.map_or(Ok(false), |plan| output::are_same(plan, picture));
    if is_plan.with_context(|| picture.display().to_string())? {
        return Err(Usage("-o and --picture name the same file".into()).into());
    }
    refuse_to_overwrite(picture, is_picture, "SVG")
}

/// Whether a file begins as an SVG does.
fn is_picture(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = fragmend_sys::input::open(path).and_then(|mut f| f.read_exact(&mut first));
    read.is_ok() && first == *b"<svg"
}

/// An output may replace an older one of its kind, and nothing else: it is easily given the wrong name.
///
/// # Errors
/// A file of another kind, or what [`output::replaces`] refuses.
pub fn refuse_to_overwrite(
    path: &Path,
    is_one: fn(&Path) -> bool,
    kind: &str,
) -> anyhow::Result<()> {
    let exists = output::replaces(path).with_context(|| path.display().to_string())?;
    if exists && path.metadata().is_ok_and(|m| m.len() > 0) && !is_one(path) {
        anyhow::bail!(
            "{} exists and is no {kind}; choose another name or remove it",
            path.display()
        );
    }
    Ok(())
}
