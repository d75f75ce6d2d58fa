//! `fragmend record`: trace what programs read and write, into a file.
//!
//! The recording is the `trace` crate's; here are the options, the progress and the summary.

use crate::exit::{Exit, Usage};
use crate::interrupt;
use crate::options::duration;
use crate::ui::{Ui, has_reader};
use crate::view;
use fragmend_layout::{schema, shell_word};
use fragmend_pipeline::{Error, Event};
use fragmend_report::record::{
    RecordBudget, RecordLoad, RecordOperation, RecordReport, RecordTotals,
};
use fragmend_report::size;
use fragmend_report::{Unit, figures, human, table};
use fragmend_sys::output;
use fragmend_trace::record::{
    COMM_BYTES, DEFAULT_BUFFER_BYTES, DEFAULT_MAX_RANGES, DEFAULT_OVERHEAD, OpTotal, Options,
    Progress, Summary,
};
use fragmend_trace::{Existing, Level, Meta, Op, Overhead, Sampling, TraceError};
use indicatif::ProgressBar;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Options of `fragmend record`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace file to write (Parquet), readable by its owner alone; an older trace of this name is
    /// replaced at the end. - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long, for example 90s, 5m or 1h 30m; until Ctrl-C if not given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// What to watch
    #[arg(long, value_enum, default_value_t = LevelArg::Both)]
    level: LevelArg,
    /// Only this process and its children; may be repeated
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Only threads of this command name
    #[arg(long, value_name = "NAME", value_parser = comm)]
    comm: Option<String>,
    /// Only processes of this user
    #[arg(long, value_name = "NAME|UID")]
    user: Option<String>,
    /// Only processes in this cgroup v2 directory and below
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Count equal accesses in the kernel instead of storing each: bounded memory for long
    /// recordings
    #[arg(long)]
    fold: bool,
    /// Ranges that --fold distinguishes; some 100 bytes of kernel memory each
    #[arg(long, value_name = "N", requires = "fold", default_value_t = DEFAULT_MAX_RANGES,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    max_ranges: u32,
    /// Size of the buffer between kernel and recorder, for example 64M
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_BUFFER_BYTES, value_parser = buffer_bytes)]
    buffer: u32,
    /// What the recording may cost, in per cent of the machine's processor time: where everything would cost more,
    /// requests are watched in turns with pauses, and then in a part of all places; 100 records everything
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_OVERHEAD, value_parser = percent)]
    overhead: f64,
    /// Replace the output even if it is not a trace
    #[arg(long)]
    force: bool,
    /// Directories, files or mount points to watch, each within its own file system
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Values of `--level`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LevelArg {
    /// Both of the following, side by side; where the kernel does not show what misses the page cache, as syscall
    Both,
    /// Reads, writes and page faults as programs issue them
    Syscall,
    /// What the page cache reads from the device, and direct I/O
    Miss,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    if output::is_stdout(&args.output) {
        if ui.json {
            return Err(
                Usage("--json and the trace cannot both go to standard output".into()).into()
            );
        }
        if std::io::stdout().is_terminal() {
            return Err(
                Usage("a trace is no text for a terminal: give a file, or a pipe".into()).into()
            );
        }
    }
    let options = options(args)?;
    let stop = interrupt::install()?;
    let bar = progress_bar(ui, options.duration);
    let result = fragmend_pipeline::record(&options, stop, &|event| match event {
        Event::Watching => bar.suspend(|| ui.announce(watching(args))),
        Event::Recorded(progress) => show(&bar, &options, progress),
        _ => {}
    });
    bar.finish_and_clear();
    let summary = match result {
        Err(Error::Trace(unread @ TraceError::Unread { .. })) => {
            ui.error(&unread.into());
            return Ok(Exit::INCOMPLETE);
        }
        result => result?,
    };
    // A closed output is no error: the trace is written, and the exit code has the result.
    has_reader(print_summary(args, &summary, ui))?;
    for missing in view::record::missing(&summary.meta) {
        ui.warn(missing);
    }
    if summary.meta.lost > 0 {
        let remedy =
            if args.fold { "a larger --max-ranges" } else { "a larger --buffer, or --fold" };
        let (lost, seen) = (summary.meta.lost, summary.events());
        ui.warn(format!("{lost} of {seen} accesses were LOST: record again with {remedy}"));
    }
    if summary.meta.files_without_path > 0 {
        let (without, all) = (summary.meta.files_without_path, summary.files);
        let not_looked_up = summary.meta.files_not_looked_up;
        ui.note(format!(
            "{without} of {all} files are in the trace by their identity alone: deleted, or their path \
             was not known any more, or ({not_looked_up} of them) there was no time to look it up"
        ));
    }
    if summary.meta.coarsened > 0 {
        ui.warn(format!(
            "{} accesses were counted by whole 128 KiB for want of ranges: see --max-ranges",
            summary.meta.coarsened
        ));
    }
    suggest(args, &summary, ui);
    let asked = options.duration.unwrap_or_default().as_nanos();
    let is_cut = stop.load(Ordering::Relaxed) && u128::from(summary.meta.duration_ns) < asked;
    Ok(Exit::INCOMPLETE.when(summary.meta.lost > 0 || is_cut))
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut options = Options::new(&args.output, args.paths.clone());
    options.existing = if args.force { Existing::Replace } else { Existing::ReplaceTrace };
    options.duration = args.duration;
    options.level = match args.level {
        LevelArg::Both => Level::Both,
        LevelArg::Syscall => Level::Syscall,
        LevelArg::Miss => Level::Miss,
    };
    options.pids.clone_from(&args.pid);
    options.comm.clone_from(&args.comm);
    options.uid = args.user.as_deref().map(uid).transpose()?;
    options.cgroup.clone_from(&args.cgroup);
    options.max_ranges = args.fold.then_some(args.max_ranges);
    options.buffer_bytes = args.buffer;
    options.overhead = (args.overhead < 100.0).then_some(args.overhead);
    Ok(options)
}

fn uid(user: &str) -> anyhow::Result<u32> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    match fragmend_sys::users::uid_of(user)? {
        Some(uid) => Ok(uid),
        None => Err(Usage(format!("--user {user}: there is no such user")).into()),
    }
}

/// Checks a command name, for clap: a longer one would match nothing.
fn comm(name: &str) -> Result<String, String> {
    if name.len() > COMM_BYTES {
        return Err(format!("the kernel keeps {COMM_BYTES} bytes of a name: give only those"));
    }
    Ok(name.to_owned())
}

/// Parses a part of the machine's processor time, for clap.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse() {
        Ok(percent) if (0.1..=100.0).contains(&percent) => Ok(percent),
        _ => Err("between 0.1 and 100 per cent".to_owned()),
    }
}

/// Parses the size of the buffer between kernel and recorder, for clap.
fn buffer_bytes(text: &str) -> Result<u32, String> {
    match size::bytes(text)? {
        bytes @ 1..=0x4000_0000 => Ok(bytes as u32),
        _ => Err("between 1 byte and 1G".to_owned()),
    }
}

fn progress_bar(ui: &Ui, duration: Option<Duration>) -> ProgressBar {
    match duration {
        Some(d) => {
            let ms = u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
            ui.progress(Some(ms), "{bar:30} {msg}")
        }
        None => ui.progress(None, "{spinner} {elapsed} recorded, {msg}, Ctrl-C ends"),
    }
}

fn show(bar: &ProgressBar, options: &Options, progress: &Progress) {
    let seconds = progress.elapsed.as_secs_f64().max(0.001);
    let rate = (progress.events as f64 / seconds) as u64;
    let mut message = format!("{} accesses, {rate}/s, {} lost", progress.events, progress.lost);
    match options.duration {
        Some(total) => {
            let left = total.saturating_sub(progress.elapsed).as_secs();
            message = format!("{left} s left, {message}");
            bar.set_position(u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX));
        }
        None => bar.tick(),
    }
    bar.set_message(message);
}

fn print_summary(args: &Args, summary: &Summary, ui: &Ui) -> anyhow::Result<()> {
    let report = report_of(args, summary);
    if ui.json {
        let mut out = ui.out();
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
        return Ok(());
    }
    let mut text = table(&figures(&report.totals)).trim_end().to_owned();
    for operation in report.operations.iter().filter(|o| o.accesses > 0) {
        let count = human(operation.accesses as f64, Unit::Count);
        let bytes = human(operation.bytes as f64, Unit::Bytes);
        text += &format!("\n{:>5}: {count} accesses, {bytes}", operation.op);
    }
    text += &format!("\nwhat missed the page cache: {}", report.misses);
    if let Some(budget) = &report.budget {
        text += &format!("\n{}", budget_line(budget));
    }
    for load in &report.loads {
        text += &format!("\n{}", load_line(load));
    }
    if output::is_stdout(&args.output) {
        // The trace is on standard output.
        text.lines().for_each(|line| ui.note(line));
    } else {
        writeln!(ui.out(), "{text}")?;
    }
    Ok(())
}

/// What the recording cost and left out, in a line.
fn budget_line(budget: &RecordBudget) -> String {
    let share = |share: f64| format!("{:.2} %", share * 100.0);
    let (used, limit) = (share(budget.used_share), share(budget.limit_share));
    let places = match budget.places_share {
        places if places < 1.0 => {
            format!(", misses and direct I/O in {:.0} % of the places", places * 100.0)
        }
        _ => String::new(),
    };
    let sampled = match budget.watched_share {
        watched if watched < 1.0 => {
            format!(", requests watched {:.0} % of the time", watched * 100.0)
        }
        _ => String::new(),
    };
    // What the kernel does for every page of the machine that is read ahead or faulted cannot be paused.
    let verdict = if budget.used_share > budget.limit_share {
        format!("{used}, more than {limit}, as much is read ahead or faulted on this machine")
    } else {
        format!("{used} of at most {limit}")
    };
    format!("processor time: {verdict}{sampled}{places}")
}

/// What a disk answered, in a line.
fn load_line(load: &RecordLoad) -> String {
    let side = |count: u64, bytes: u64, seconds: f64, what: &str| {
        let (count, bytes) = (human(count as f64, Unit::Count), human(bytes as f64, Unit::Bytes));
        format!("{count} {what} of {bytes} in {:.3} ms each", seconds * 1e3)
    };
    let reads = side(load.reads, load.read_bytes, load.read_seconds, "reads");
    let writes = side(load.writes, load.written_bytes, load.write_seconds, "writes");
    format!("{}: {reads}, {:.1} in flight; {writes}", load.disk, load.read_in_flight)
}

fn report_of(args: &Args, summary: &Summary) -> RecordReport {
    let meta = &summary.meta;
    let totals = RecordTotals {
        seconds: meta.duration_ns as f64 / 1e9,
        accesses: summary.events(),
        rows: summary.rows,
        files: summary.files,
        read_bytes: summary.bytes(Op::Read),
        written_bytes: summary.bytes(Op::Write),
        faulted_bytes: summary.bytes(Op::Fault),
        missed_bytes: summary.bytes(Op::Miss),
        lost: meta.lost,
        dropped: meta.dropped,
        unplaced: meta.unplaced,
        coarsened: meta.coarsened,
        unseen_compat: meta.unseen_compat,
        unseen_splices: meta.unseen_splices,
        unseen_uring: meta.unseen_uring,
        files_without_path: meta.files_without_path,
        files_not_looked_up: meta.files_not_looked_up,
        loads_lost: meta.loads_lost,
        trace_bytes: summary.trace_bytes,
    };
    let operation = |t: &OpTotal| RecordOperation {
        op: t.op.name().to_owned(),
        accesses: t.events,
        bytes: t.bytes,
    };
    RecordReport {
        schema_version: schema::DOCUMENT,
        command: "record".to_owned(),
        trace: args.output.to_string_lossy().into_owned(),
        level: meta.level.name().to_owned(),
        misses: if meta.has_misses() { "recorded" } else { "not recorded" }.to_owned(),
        totals,
        operations: summary.totals.iter().map(operation).collect(),
        unseen_sources: meta.unseen_sources.clone(),
        loads: meta.loads.iter().map(RecordLoad::of).collect(),
        budget: meta.overhead.map(|overhead| budget_of(meta, overhead)),
    }
}

fn budget_of(meta: &Meta, overhead: Overhead) -> RecordBudget {
    let watched = |s: Sampling| s.watched_ns as f64 / meta.duration_ns.max(1) as f64;
    RecordBudget {
        limit_share: overhead.limit_ppm as f64 / 1e6,
        used_share: overhead.used_ppm as f64 / 1e6,
        watched_share: meta.sampling.map_or(1.0, watched).min(1.0),
        places_share: meta.sampling.map_or(1.0, |s| f64::from(s.places_ppm) / 1e6),
    }
}

/// The line that reports that recording has begun.
fn watching(args: &Args) -> String {
    let paths = paths(args);
    match args.duration {
        Some(d) => format!("watching {paths} for {}", humantime::format_duration(d)),
        None => format!("watching {paths}; Ctrl-C ends it"),
    }
}

/// The paths, as words of a command line.
fn paths(args: &Args) -> String {
    let paths: Vec<_> = args.paths.iter().map(|p| shell_word(p)).collect();
    paths.join(" ")
}

fn suggest(args: &Args, summary: &Summary, ui: &Ui) {
    if summary.events() == 0 {
        ui.note("Nothing was seen: is anything at work below this path, and do the filters fit?");
        return;
    }
    if output::is_stdout(&args.output) {
        return;
    }
    let (output, paths) = (shell_word(&args.output), paths(args));
    ui.note(format!("Next: fragmend plan -t {output} -o plan.json {paths}"));
}
