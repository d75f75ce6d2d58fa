//! What was moved, and what that has brought.

use super::chart::{Group, bars};
use super::table::{Cell, Table};
use super::text::{bytes, count, figures_table, path, seconds, shown};
use crate::done::{Counted, Done, name_of};
use crate::report::{MeasurementPart, PageReport};
use fragmend_apply::Receipt;
use fragmend_report::{Unit, human};
use maud::{Markup, html};

/// The runs; nothing if there is none.
pub fn section(report: &PageReport) -> Option<Markup> {
    (!report.runs.is_empty()).then(|| html! { @for run in &report.runs { (one(run)) } })
}

fn one(run: &Done) -> Markup {
    html! {
        h3 { bdi { (run.input) } }
        @match &run.summary {
            None => p.warning { "The end of this run is not in the input: it may have been stopped." },
            Some(summary) => {
                @if summary.interrupted { p.warning { "This run was stopped before its end; what had moved is safe." } }
                @if summary.dry_run { p.warning { "Nothing was moved: it was a dry run." } }
                (figures_table("This run", summary))
            }
        }
        (counts("Ranges by how they ended", "outcome", &run.outcomes))
        (counts("Ranges that moved, by interface", "interface", &run.primitives))
        (counts("Ranges left alone, by reason", "reason", &run.reasons))
        @if !run.worst.is_empty() { (worst(&run.worst)) }
    }
}

fn counts(title: &str, what: &str, counted: &[Counted]) -> Markup {
    let group = |c: &Counted| -> Group { (shown(&c.what), vec![c.ranges as f64, c.bytes as f64]) };
    let groups: Vec<Group> = counted.iter().map(group).collect();
    let series = [("ranges", Unit::Count), ("bytes", Unit::Bytes)];
    bars(title, what, &series, &groups).unwrap_or_default()
}

/// Receipts one by one.
fn worst(receipts: &[Receipt]) -> Markup {
    let mut table = Table::new("Ranges in the most fragments, or held longest");
    table
        .column("file", "")
        .number("from", "First byte of the range.")
        .number("length", "Its length.")
        .column("outcome", "How it ended.")
        .number("before", "Fragments before.")
        .number("after", "Fragments after.")
        .number("longest step", "The longest time that one step locked the file.")
        .column("reason", "Why it was left alone, or what else there is to know.");
    for r in receipts {
        let fragments =
            |n: Option<u64>| n.map_or_else(Cell::unknown, |n| Cell::number(n as f64, count(n)));
        let reason = r.reason.map(|reason| reason.to_string());
        let why = [reason, r.detail.clone(), r.fallback.clone()];
        let why: Vec<String> = why.into_iter().flatten().map(|why| shown(&why)).collect();
        table.row([
            Cell::markup(path(&r.path)),
            Cell::number(r.offset as f64, bytes(r.offset)),
            Cell::number(r.length as f64, bytes(r.length)),
            Cell::text(name_of(&r.outcome)),
            fragments(r.extents_before),
            fragments(r.extents_after),
            Cell::number(r.longest_step_seconds, seconds(r.longest_step_seconds)),
            Cell::text(why.join("; ")),
        ]);
    }
    table.draw()
}

/// Prediction beside measurement; nothing if no input has it.
pub fn measured(report: &PageReport) -> Option<Markup> {
    (!report.measurements.is_empty())
        .then(|| html! { @for part in &report.measurements { (beside(part)) } })
}

fn beside(part: &MeasurementPart) -> Markup {
    let m = &part.measurement;
    let times = [("predicted", m.predicted), ("measured", m.measured)];
    let groups: Vec<Group> = times
        .into_iter()
        .filter_map(|(name, times)| {
            let t = times?;
            Some((name.to_owned(), vec![t.seconds_before, t.seconds_after, t.seconds_saved]))
        })
        .collect();
    let series = [("before", Unit::Seconds), ("after", Unit::Seconds), ("saved", Unit::Seconds)];
    let why = [m.not_measured.as_ref().map(name_of), m.no_verdict.as_ref().map(name_of)];
    html! {
        h3 { bdi { (part.input) } }
        @if let Some(of_predicted) = m.saved_of_predicted {
            p { (human(of_predicted, Unit::Share)) " of what was predicted was measured as saved." }
        }
        @for why in why.iter().flatten() {
            p.warning { "No verdict: " (why) @if !m.detail.is_empty() { " (" (shown(&m.detail)) ")" } "." }
        }
        (bars("Time that the same reads wait for the device", "", &series, &groups).unwrap_or_default())
        (figures_table("This measurement", m))
    }
}
