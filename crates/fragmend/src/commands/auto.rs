//! `fragmend auto`: record, plan and apply in one go, asking before anything is written.

use super::{Sharing, apply, plan};
use crate::exit::{Exit, Usage};
use crate::interrupt;
use crate::ui::{Ui, heard};
use anyhow::Context;
use fragmend_report::{Unit, human};
use fragmend_sys::signals::Waiting;
use fragmend_sys::{directory, mounts};
use fragmend_trace::Filter;
use fragmend_trace::record::{Options as RecordOptions, record};
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Options of `fragmend auto`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long to watch, for example 60s or 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::record::duration)]
    duration: Duration,
    /// How ranges are chosen, and how many
    #[command(flatten)]
    choice: plan::Choice,
    /// How to move
    #[command(flatten)]
    pace: apply::Pace,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// Do not ask before writing
    #[arg(short, long)]
    yes: bool,
    /// Record and plan, move nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep the trace and the plan in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Directories, files or mount points of the service
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// How often somebody who is asked may ask for the end instead.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let may_ask = std::io::stdin().is_terminal() && !ui.json;
    if !args.yes && !args.dry_run && !may_ask {
        return Err(Usage("nobody to ask: use --yes to move data, or --dry-run".into()).into());
    }
    // Refuse before watching for a minute, not after.
    let options = args.pace.options(args.sharing, false)?;
    for path in &args.paths {
        let mount = mounts::of_path(path).with_context(|| path.display().to_string())?;
        fragmend_apply::engine::volume_for(&mount, &options.engine, options.force)?;
    }
    let kept = |name| args.keep.as_ref().map(|dir| dir.join(name));
    let (trace, plan_file) = (kept("trace.parquet"), kept("plan.json"));
    if let Some(dir) = &args.keep {
        directory::create(dir, true).with_context(|| dir.display().to_string())?;
    }

    let stop = interrupt::install()?;
    let mut options =
        RecordOptions::new(trace.as_deref().unwrap_or(Path::new("the trace")), args.paths.clone());
    if trace.is_none() {
        // Without a name: in a directory of somebody else's he could put anything in its place.
        options.unnamed = Some(tempfile::tempfile().context("a temporary file")?.into());
    }
    let (output, unnamed) = (options.output.clone(), options.unnamed.clone());
    let read = || match &unnamed {
        Some(file) => fragmend_trace::read_open(file, &output, &Filter::default()),
        None => fragmend_trace::read(&output, &Filter::default()),
    };
    options.duration = Some(args.duration);
    let bar = ui.progress(Some(args.duration.as_secs()), "{wide_bar} {eta} left, {msg}");
    let mut begun = false;
    let seen = record(&options, stop, &mut |p| {
        if !std::mem::replace(&mut begun, true) {
            let long = humantime::format_duration(args.duration);
            bar.suspend(|| ui.announce(format!("watching for {long}")));
        }
        bar.set_position(p.elapsed.as_secs());
        bar.set_message(format!("{} accesses", human(p.events as f64, Unit::Count)));
    });
    bar.finish_and_clear();
    seen?;
    if stop.load(Ordering::Relaxed) {
        ui.note("stopped while watching; nothing was moved");
        return Ok(Exit::INCOMPLETE);
    }

    let settings = args.choice.settings(args.sharing);
    let make = |trace| {
        // Nothing is half done: who asks for the end in the middle of a long walk gets it.
        let _waits = Waiting::begin();
        plan::make(Some(trace), &args.paths, &settings, ui)
    };
    let trace = read()?;
    plan::warn(&trace, ui);
    let planned = make(trace)?;
    if !heard(plan::show(&planned, plan_file.as_deref(), 10, ui))? {
        return Ok(Exit::INCOMPLETE);
    }
    if let Some(file) = &plan_file {
        planned.write(file)?;
    }
    let spent = Exit::INCOMPLETE.when(planned.summary.over_budget_bytes > 0);
    if planned.summary.ranges == 0 {
        return Ok(spent);
    }
    if !planned.summary.worth && !args.dry_run {
        ui.note("nothing was moved; `fragmend plan` and `fragmend apply` do it all the same");
        return Ok(spent);
    }
    if args.dry_run {
        ui.note("nothing was moved (--dry-run)");
        return Ok(Exit::IMPROVABLE | spent);
    }
    let stopped = || stop.load(Ordering::Relaxed);
    if !args.yes && !stopped() && !ask(&planned.summary, stopped)? && !stopped() {
        ui.note("nothing was moved");
        return Ok(Exit::IMPROVABLE | spent);
    }
    if stopped() {
        ui.note("stopped; nothing was moved");
        return Ok(Exit::INCOMPLETE);
    }

    let summary = apply::carry_out(&planned, &args.pace.options(args.sharing, false)?, ui)?;
    // The same accesses on the layout as it is now: not a promise any more.
    let after = make(read()?)?;
    ui.note(format!(
        "the same accesses cost {} requests before, {} on the layout as it is now ({} were predicted)",
        planned.summary.requests_before, after.summary.requests_before, planned.summary.requests_after,
    ));
    if summary.interrupted {
        ui.note("stopped; what has moved is safe and stays");
    }
    Ok(apply::exit_of(&summary) | spent)
}

/// Whether the answer is yes; no longer waited for once it is `stopped`.
fn ask(summary: &fragmend_plan::Summary, stopped: impl Fn() -> bool) -> anyhow::Result<bool> {
    let bytes = human(summary.bytes_to_move as f64, Unit::Bytes);
    let cost = match summary.space_cost_bytes {
        0 => String::new(),
        cost => format!(", which takes {} of space", human(cost as f64, Unit::Bytes)),
    };
    let mut asked = std::io::stderr();
    write!(asked, "Move {bytes} in {} ranges{cost}? [y/N] ", summary.ranges)?;
    asked.flush()?;
    let (tell, told) = channel();
    // Ends with the process, where nobody answers.
    std::thread::spawn(move || {
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer).map(|_| answer);
        tell.send(read)
    });
    loop {
        match told.recv_timeout(LOOK) {
            Ok(answer) => return Ok(matches!(answer?.trim(), "y" | "Y" | "yes")),
            Err(RecvTimeoutError::Timeout) if !stopped() => {}
            Err(_) => return Ok(false),
        }
    }
}
