//! A plan that is carried out: progress, events or a closing table, and the exit code.

use crate::exit::Exit;
use crate::interrupt;
use crate::outlet::Outlet;
use crate::ui::{Ui, has_reader};
use fragmend_apply::{Event, Listener, Measurement, Options, Outcome, Summary};
use fragmend_engines::begin::Wanted;
use fragmend_layout::{SkipReason, printable};
use fragmend_pipeline::measure::Moved;
use fragmend_plan::PlanSource;
use fragmend_report::{Unit, figures, human, table};
use indicatif::ProgressBar;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Measures what a run has brought, by its summary and the ranges that it has moved.
pub type Measure<'a> = dyn FnMut(&Summary, &Moved) -> Measurement + 'a;

/// Applies a plan with progress, events and a closing table. With `measure`, the summary is reported once that has
/// measured what the run has brought.
///
/// # Errors
/// Before anything was touched: files cannot be moved on a file system. Later: the output cannot be written.
pub fn carry_out(
    plan: &dyn PlanSource,
    wanted: &Wanted,
    options: &Options,
    measure: Option<&mut Measure>,
    ui: &Ui,
) -> anyhow::Result<Summary> {
    let stop = interrupt::install()?;
    let bar = ui.progress(
        Some(plan.totals().bytes),
        "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left, {msg}",
    );
    let (out, holds_summary) = (Outlet::output(), measure.is_some());
    let moved = holds_summary.then(Moved::default);
    let mut teller = Teller { out, bar, ui, stop, broken: None, holds_summary, moved };
    let summary = fragmend_pipeline::apply(plan, wanted, options, stop, &mut teller);
    teller.bar.finish_and_clear();
    let mut summary = summary?;
    if let Some(measure) = measure {
        let moved = teller.moved.take().unwrap_or_default();
        summary.measurement = Some(measure(&summary, &moved));
        teller.holds_summary = false;
        let mut teller = &mut teller;
        teller.tell(Event::Summary(summary.clone()));
        teller.catch_up(None);
    }
    if summary.skipped_by_reason.contains_key(&SkipReason::NeedsRecovery) {
        ui.warn("a range could not be written back; its bytes are safe: run fragmend recover");
    }
    let unwritten = teller.out.unwritten();
    if unwritten > 0 {
        summary.interrupted = true;
        ui.warn(format!("the output is not read: its last {unwritten} lines were not written"));
    }
    // A closed output is no error: the exit code reports whether the run was interrupted.
    has_reader(teller.broken.map_or(Ok(()), Err))?;
    Ok(summary)
}

/// Writes events as they occur, for a reader that may be slow, or never read.
struct Teller<'a> {
    out: Outlet,
    bar: ProgressBar,
    ui: &'a Ui,
    stop: &'static AtomicBool,
    broken: Option<anyhow::Error>,
    /// The summary is reported later.
    holds_summary: bool,
    /// The ranges that were moved, where that is to be measured.
    moved: Option<Moved>,
}

impl Listener for &mut Teller<'_> {
    fn tell(&mut self, event: Event) {
        if let Event::Range(receipt) = &event {
            self.bar.inc(receipt.length);
            self.moved.iter_mut().for_each(|moved| moved.note(receipt));
            if receipt.outcome == Outcome::Moved {
                self.bar.set_message(receipt.path.printable());
            }
        }
        if let Event::Summary(_) = &event {
            // The bar is removed before the table is written.
            self.bar.finish_and_clear();
            if self.holds_summary {
                return;
            }
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
    /// The output cannot be written any more: ends the run at the next safe point.
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
            let detail = if s.detail.is_empty() {
                String::new()
            } else {
                format!(" ({})", printable(&s.detail))
            };
            let bytes = human(s.bytes as f64, Unit::Bytes);
            let (path, ranges) = (s.path.printable(), s.ranges);
            writeln!(out, "left alone: {path}: {ranges} ranges, {bytes}: {}{detail}", s.reason)?;
        }
        if summary.skipped.len() > 20 {
            writeln!(out, "left alone: {} ranges in all, see --json", summary.ranges_skipped)?;
        }
        if let Some(measurement) = &summary.measurement {
            super::measurement::write(measurement, out)?;
        }
    }
    Ok(())
}

/// The exit code for a summary.
pub fn exit_of(summary: &Summary) -> Exit {
    Exit::FAILED.when(summary.failed())
        | Exit::IMPROVABLE.when(summary.improvable() || summary.dry_run && summary.ranges_left > 0)
        | Exit::INCOMPLETE.when(summary.interrupted)
}
