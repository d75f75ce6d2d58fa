//! `fragmend auto`: record, plan and apply in one go, and ask before anything is written; then measure what was predicted.

mod meet;

use super::plan::refuse_to_overwrite;
use super::surveys::Surveys;
use super::timed::{self, Timed};
use crate::exit::{Exit, Usage};
use crate::interrupt;
use crate::options::{Choice, Pace, Sharing, duration};
use crate::ui::{Ui, has_reader};
use crate::view;
use anyhow::Context;
use fragmend_apply::Summary;
use fragmend_pipeline::measure::{Moved, Watched, may_time, nothing_moved};
use fragmend_pipeline::{Error, Event, Recording, Survey, plan_file};
use fragmend_plan::{CurvePoint, Plan, Policy, Settings};
use fragmend_report::{Unit, human};
use fragmend_sys::directory;
use fragmend_sys::signals::Waiting;
use meet::Before;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Options of `fragmend auto`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long to watch, for example 60s or 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,
    /// How ranges are chosen, and how many
    #[command(flatten)]
    choice: Choice,
    /// How to move
    #[command(flatten)]
    pace: Pace,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// Do not ask before writing
    #[arg(short, long)]
    yes: bool,
    /// Record and plan, move nothing
    #[arg(long)]
    dry_run: bool,
    /// Afterwards watch the service again, for as long as it was recorded, and compare the time of its disks; without
    /// this, a sample of the recorded reads is replayed before and after
    #[arg(long, conflicts_with = "dry_run")]
    watch_again: bool,
    /// Keep the trace and the plan in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Directories, files or mount points of the service
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// A plan and its curve.
type Planned = (Plan, Vec<CurvePoint>);

/// How often the flag of the signals is checked while an answer is awaited.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let may_ask = std::io::stdin().is_terminal() && !ui.json;
    if !args.yes && !args.dry_run && !may_ask {
        return Err(Usage("standard input is no terminal, or --json is given, so no question can be asked: use --yes to move data, or --dry-run".into()).into());
    }
    // Refuse before recording for a minute, not after.
    let settings = args.choice.settings(args.sharing)?;
    if settings.policy == Policy::Segments {
        return Err(Usage(
            "the policy segments needs no recording: use fragmend plan, and fragmend apply".into(),
        )
        .into());
    }
    let wanted = args.pace.wanted()?;
    fragmend_pipeline::can_move(&args.paths, &wanted)?;
    let kept = |name| args.keep.as_ref().map(|dir| dir.join(name));
    if let Some(dir) = &args.keep {
        directory::create(dir, true).with_context(|| dir.display().to_string())?;
    }
    let stop = interrupt::install()?;
    let stopped = || stop.load(Ordering::Relaxed);

    let (trace, kept_plan) = (kept("trace.parquet"), kept("plan.json"));
    if let Some(plan) = &kept_plan {
        refuse_to_overwrite(plan, plan_file::is_at, "plan")?;
    }
    let mut recording = Recording::new(args.paths.clone(), args.duration, trace.as_deref())?;
    let mut watched = args.watch_again.then(|| Watched::begin(&args.paths));
    let disks = watched.as_mut().and_then(|watched| watched.as_mut().ok());
    watch(&mut recording, disks, args.duration, stop, ui)?;
    if stopped() {
        ui.note("stopped while watching; nothing was moved");
        return Ok(Exit::INCOMPLETE);
    }
    let watched = watched.map(|watched| watched.and_then(|watched| watched.end(&recording)));

    let read = || recording.trace(settings.assume_cold);
    let trace = read()?;
    view::record::warn(&trace, ui);
    let mut surveys = Surveys::new(trace, read, &args.paths, ui);
    let first = plan(surveys.survey()?, &mut surveys, &settings, None, ui);
    let ((planned, curve), timed) =
        with_times(first, &mut surveys, watched.is_none(), args, stop, ui)?;
    view::wear::warn_of(planned.summary.wear.as_ref(), ui);
    if !has_reader(view::plan::show(&planned, &curve, kept_plan.as_deref(), 10, ui))? {
        return Ok(Exit::INCOMPLETE);
    }
    if let Some(file) = &kept_plan {
        plan_file::write(&planned, file)?;
    }
    let spent = Exit::INCOMPLETE.when(planned.summary.over_budget_bytes > 0);
    if let Some(exit) = leave(&planned, args, stopped, ui)? {
        return Ok(exit | spent);
    }

    let options = args.pace.options(args.sharing, false);
    let before = match (watched, timed) {
        (Some(seen), _) => Before::Watched(seen),
        (None, Some(timed)) => Before::replayed(timed),
        (None, None) => Before::Nothing(nothing_moved()),
    };
    let mut before = Some(before);
    let mut measure = |summary: &Summary, moved: &Moved| {
        let before = before.take().expect("it is measured once");
        before.meets(summary, (&planned, moved), args, stop, ui)
    };
    let summary = view::apply::carry_out(&planned, &wanted, &options, Some(&mut measure), ui)?;
    // The same accesses by the same costs, on the layout as it is now.
    let (after, _) = plan(surveys.survey_again()?, &mut surveys, &settings, None, ui);
    let seconds = |s| human(s, Unit::Seconds);
    ui.note(format!(
        "the same accesses cost {} and {} requests before, {} and {} on the layout as it is now ({} and {} were predicted)",
        seconds(planned.summary.seconds_before),
        planned.summary.requests_before,
        seconds(after.summary.seconds_before),
        after.summary.requests_before,
        seconds(planned.summary.seconds_after),
        planned.summary.requests_after,
    ));
    if summary.interrupted {
        ui.note("stopped; what has moved is safe and stays");
    }
    Ok(view::apply::exit_of(&summary) | spent)
}

/// Records with progress, and looks at `disks` for as long.
fn watch(
    recording: &mut Recording,
    disks: Option<&mut Watched>,
    length: Duration,
    stop: &AtomicBool,
    ui: &Ui,
) -> Result<(), Error> {
    let bar = ui.progress(Some(length.as_secs()), "{wide_bar} {eta} left, {msg}");
    let disks = Mutex::new(disks);
    let with_disks = |what: fn(&mut Watched)| {
        let mut disks = disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.as_deref_mut().map(what)
    };
    let recorded = recording.run(stop, &|event| match event {
        Event::Watching => {
            with_disks(Watched::begin_anew);
            let long = humantime::format_duration(length);
            bar.suspend(|| ui.announce(format!("watching for {long}")));
        }
        Event::Recorded(progress) => {
            with_disks(Watched::look);
            bar.set_position(progress.elapsed.as_secs());
            bar.set_message(format!("{} accesses", human(progress.events as f64, Unit::Count)));
        }
        _ => {}
    });
    bar.finish_and_clear();
    recorded.map(drop)
}

/// Plans for one of `surveys`; with what fragments cost where they are, if that was timed.
fn plan(
    mut survey: Survey,
    surveys: &mut Surveys,
    settings: &Settings,
    timed: Option<&Timed>,
    ui: &Ui,
) -> Planned {
    // Nothing would be left half done: a signal may end the process meanwhile.
    let _waits = Waiting::begin();
    timed.inspect(|timed| timed::enter(&mut survey, timed));
    surveys.enter_drives(&mut survey);
    fragmend_pipeline::plan_with_curve(survey, settings, ui.json)
}

/// Times recorded reads, if that may change the plan, or if they are to be repeated after it was carried out; and makes the
/// plan with what their fragments cost.
fn with_times(
    (planned, curve): Planned,
    surveys: &mut Surveys,
    will_repeat: bool,
    args: &Args,
    stop: &AtomicBool,
    ui: &Ui,
) -> Result<(Planned, Option<Timed>), Error> {
    let may_change = may_time(&planned);
    let moves = planned.summary.ranges > 0 && planned.summary.worth && !args.dry_run;
    if !(may_change || moves && will_repeat) {
        return Ok(((planned, curve), None));
    }
    let mut timed = Timed::of(surveys.survey()?, &planned, stop, ui);
    if !may_change || stop.load(Ordering::Relaxed) {
        return Ok(((planned, curve), Some(timed)));
    }
    let settings = planned.settings.clone();
    let (planned, curve) = plan(surveys.survey()?, surveys, &settings, Some(&timed), ui);
    timed.predict_for(&planned);
    Ok(((planned, curve), Some(timed)))
}

/// The exit code if nothing is to be moved.
fn leave(
    planned: &Plan,
    args: &Args,
    stopped: impl Fn() -> bool,
    ui: &Ui,
) -> anyhow::Result<Option<Exit>> {
    if planned.summary.ranges == 0 {
        return Ok(Some(Exit::DONE));
    }
    if !planned.summary.worth && !args.dry_run {
        ui.note("nothing was moved; `fragmend plan` and `fragmend apply` do it all the same");
        return Ok(Some(Exit::DONE));
    }
    if args.dry_run {
        ui.note("nothing was moved (--dry-run)");
        return Ok(Some(Exit::IMPROVABLE));
    }
    if !args.yes && !stopped() && !ask(&planned.summary, &stopped)? && !stopped() {
        ui.note("nothing was moved");
        return Ok(Some(Exit::IMPROVABLE));
    }
    if stopped() {
        ui.note("stopped; nothing was moved");
        return Ok(Some(Exit::INCOMPLETE));
    }
    Ok(None)
}

/// Asks, and returns whether the answer is yes; once `stopped`, it waits no longer.
fn ask(summary: &fragmend_plan::Summary, stopped: impl Fn() -> bool) -> anyhow::Result<bool> {
    let bytes = human(summary.bytes_to_move as f64, Unit::Bytes);
    let cost = match summary.space_cost_bytes {
        0 => String::new(),
        cost => format!(", which needs {} of space", human(cost as f64, Unit::Bytes)),
    };
    let mut asked = std::io::stderr();
    let saved = human(summary.seconds_saved, Unit::Seconds);
    write!(asked, "Write {bytes} in {} ranges{cost} to save {saved}? [y/N] ", summary.ranges)?;
    asked.flush()?;
    let (tell, told) = channel();
    // Ends with the process, where no answer comes.
    let wait = move || {
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer).map(|_| answer);
        tell.send(read)
    };
    let thread = std::thread::Builder::new().spawn(wait);
    thread.context("no thread can be started to wait for an answer; use --yes")?;
    loop {
        match told.recv_timeout(LOOK) {
            Ok(answer) => return Ok(matches!(answer?.trim(), "y" | "Y" | "yes")),
            Err(RecvTimeoutError::Timeout) if !stopped() => {}
            Err(_) => return Ok(false),
        }
    }
}
