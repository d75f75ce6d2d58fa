//! `fragmend apply`: move what a plan says, with a receipt for every range.

use super::Sharing;
use crate::exit::{Exit, Usage};
use crate::outlet::Outlet;
use crate::ui::{Ui, heard};
use crate::{interrupt, size};
use fragmend_apply::{Choice, Event, Listener, Options, Outcome, Rate, Summary};
use fragmend_layout::{SkipReason, printable, shell_word};
use fragmend_plan::{PlanFile, PlanSource};
use fragmend_report::{Unit, figures, human, table};
use indicatif::ProgressBar;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of `fragmend apply`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to move
    #[command(flatten)]
    pace: Pace,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// Look and tell, move nothing
    #[arg(long)]
    dry_run: bool,
    /// A plan that `fragmend plan` wrote
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
}

/// The options that decide how data is moved; `auto` has them too.
#[derive(Clone, Debug, clap::Args)]
pub struct Pace {
    /// Bytes per second, for example 20M; `max`; or `auto`, which yields while others read
    #[arg(long, value_name = "RATE", default_value = "auto", value_parser = rate)]
    rate: Rate,
    /// Leave at least so many bytes free [default: a twentieth of the file system]
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    free_floor: Option<u64>,
    /// What moves the data
    #[arg(long, value_enum, default_value_t = EngineArg::Native)]
    engine: EngineArg,
    /// Keep the records of a rewrite in this directory, not at the top of the file system: on ext4,
    /// XFS, Btrfs or F2FS with write barriers, and where others cannot rename them
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Also where a power cut may do harm: nothing orders data before the journal (no journal,
    /// data=writeback), the journal cannot replay the move (long files on XFS without reflink), or
    /// others have the file open for writing (F2FS)
    #[arg(long)]
    force: bool,
}

/// Values of `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineArg {
    /// The file system's own way, safe beside whoever uses the files
    Native,
    /// Copy, punch, allocate, write again: for file systems without a way of their own, and for
    /// files that nobody has open; keeps a durable copy until all is done, from which
    /// `fragmend recover` goes on after a crash. Never on file systems that take snapshots
    /// (Btrfs, bcachefs, nilfs2, ZFS), not even with --force
    Rewrite,
}

impl Pace {
    /// Which engine.
    ///
    /// # Errors
    /// When an option goes with another engine.
    pub fn engine(&self) -> Result<Choice, Usage> {
        match (self.engine, self.journal.clone()) {
            (EngineArg::Rewrite, journal) => Ok(Choice::Rewrite { journal }),
            (EngineArg::Native, None) => Ok(Choice::Native),
            (EngineArg::Native, Some(_)) => {
                Err(Usage("--journal goes with --engine rewrite".into()))
            }
        }
    }

    /// As the migration engine wants it.
    ///
    /// # Errors
    /// As [`Self::engine`].
    pub fn options(&self, sharing: Sharing, dry_run: bool) -> Result<Options, Usage> {
        Ok(Options {
            rate: self.rate,
            engine: self.engine()?,
            free_floor_bytes: self.free_floor,
            force: self.force,
            unshare: sharing.unshare,
            dry_run,
            ..Options::default()
        })
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "auto" => Ok(Rate::Yielding),
        "max" => Ok(Rate::Unlimited),
        number => match size::bytes(number)? {
            0 => Err("nothing moves at rate 0".into()),
            bytes => Ok(Rate::BytesPerSecond(bytes)),
        },
    }
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let options = args.pace.options(args.sharing, args.dry_run)?;
    let plan = PlanFile::open(&args.plan)?;
    let twice = plan.totals().listed_twice;
    if twice > 0 {
        ui.note(format!("{twice} ranges are left out: the plan lists their files twice"));
    }
    let summary = carry_out(&plan, &options, ui)?;
    if summary.interrupted && summary.ranges_left > 0 {
        ui.note(format!("stopped; go on with: fragmend apply {}", shell_word(&args.plan)));
    } else if args.dry_run {
        ui.note("nothing was moved (--dry-run)");
    } else if summary.ranges_moved > 0 {
        ui.note(format!("next: fragmend scan {}", shell_word(&plan.totals().root)));
    }
    Ok(exit_of(&summary))
}

/// Applies a plan with progress, events and a closing table.
///
/// # Errors
/// Before anything was touched: a file system that cannot be mended. Or: our output cannot be written.
pub fn carry_out(plan: &dyn PlanSource, options: &Options, ui: &Ui) -> anyhow::Result<Summary> {
    let stop = interrupt::install()?;
    let bar = ui.progress(
        Some(plan.totals().bytes),
        "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left, {msg}",
    );
    let mut teller = Teller { out: Outlet::output(), bar, ui, stop, broken: None };
    let summary = fragmend_apply::apply(plan, options, stop, &mut teller);
    teller.bar.finish_and_clear();
    let mut summary = summary?;
    if summary.skipped_by_reason.contains_key(&SkipReason::NeedsRecovery) {
        ui.warn("a range could not be written back; its bytes are safe: run fragmend recover");
    }
    let unwritten = teller.out.unwritten();
    if unwritten > 0 {
        summary.interrupted = true;
        ui.warn(format!("nobody reads the output: its last {unwritten} lines were not written"));
    }
    // Who reads no further is told by the exit code.
    heard(teller.broken.map_or(Ok(()), Err))?;
    Ok(summary)
}

/// Tells events as they come, to somebody who may read slowly, or not at all.
struct Teller<'a> {
    out: Outlet,
    bar: ProgressBar,
    ui: &'a Ui,
    stop: &'static AtomicBool,
    broken: Option<anyhow::Error>,
}

impl Listener for &mut Teller<'_> {
    fn tell(&mut self, event: Event) {
        if let Event::Range(receipt) = &event {
            self.bar.inc(receipt.length);
            if receipt.outcome == Outcome::Moved {
                self.bar.set_message(receipt.path.printable());
            }
        }
        if let Event::Summary(_) = &event {
            // The table has the line to itself.
            self.bar.finish_and_clear();
        }
        if self.broken.is_some() {
            return;
        }
        let mut text = self.ui.safe(Vec::new());
        match write(&event, self.ui.json, &mut text) {
            Ok(()) => self.out.put(&text.into_inner()),
            Err(e) => self.end(e),
        }
    }

    fn catch_up(&mut self, within: Option<Duration>) -> bool {
        if self.broken.is_some() {
            return true;
        }
        self.out.flush(within, self.stop).unwrap_or_else(|e| {
            self.end(e.into());
            true
        })
    }
}

impl Teller<'_> {
    /// Nobody listens any more: ends at the next safe point.
    fn end(&mut self, why: anyhow::Error) {
        self.broken = Some(why);
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn write(event: &Event, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{}", serde_json::to_string(event)?)?;
    } else if let Event::Summary(summary) = event {
        writeln!(out, "{}", table(&figures(summary)))?;
        for s in summary.skipped.iter().take(20) {
            let detail = match s.detail.is_empty() {
                true => String::new(),
                false => format!(" ({})", printable(&s.detail)),
            };
            let bytes = human(s.bytes as f64, Unit::Bytes);
            let (path, ranges) = (s.path.printable(), s.ranges);
            writeln!(out, "left alone: {path}: {ranges} ranges, {bytes}: {}{detail}", s.reason)?;
        }
        if summary.skipped.len() > 20 {
            writeln!(out, "left alone: {} ranges in all, see --json", summary.ranges_skipped)?;
        }
    }
    Ok(())
}

/// The exit code that a summary deserves.
pub fn exit_of(summary: &Summary) -> Exit {
    Exit::FAILED.when(summary.failed())
        | Exit::IMPROVABLE.when(summary.improvable() || summary.dry_run && summary.ranges_left > 0)
        | Exit::INCOMPLETE.when(summary.interrupted)
}
