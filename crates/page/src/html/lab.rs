//! Results of the lab: each figure beside the paper's.

use super::table::{Cell, Table};
use super::text::shown;
use crate::report::PageReport;
use fragmend_lab::experiment::Report;
use fragmend_lab::row::{Band, Row};
use maud::{Markup, html};

/// The results; nothing if there are none.
pub fn section(report: &PageReport) -> Option<Markup> {
    (!report.lab.is_empty()).then(|| html! { @for one in &report.lab { (experiment(one)) } })
}

fn experiment(report: &Report) -> Markup {
    let mut table = Table::new("Figures of the paper, and ours");
    table
        .column("figure", "")
        .column("unit", "")
        .number("paper", "The paper's figure; empty where it has none.")
        .number("ours", "As the lab has found it.")
        .column("band", "How far they may differ.")
        .column("within", "Whether they differ no further.")
        .column("reason", "Why they differ further, as far as that is known; or that a constant was chosen by this figure.");
    for row in &report.rows {
        let paper =
            row.paper.map_or_else(|| Cell::text(""), |paper| Cell::number(paper, number(paper)));
        table.row([
            Cell::text(shown(&row.name)),
            Cell::text(shown(&row.unit)),
            paper,
            Cell::number(row.ours, number(row.ours)),
            Cell::text(band(row)),
            Cell::markup(within(row)),
            Cell::text(reason(row)),
        ]);
    }
    html! {
        h3 { bdi { (shown(&report.experiment)) } }
        p { (shown(&report.source)) ", seed " (report.seed) }
        (table.draw())
    }
}

/// A figure with some four digits.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn band(row: &Row) -> String {
    match row.band {
        Band::Points(points) => format!("{} points", number(points)),
        Band::Percent(percent) => format!("{} %", number(percent)),
        Band::AtLeast => "at least the paper's".into(),
        Band::AtMost => "at most the paper's".into(),
        Band::Exact => "the same".into(),
        Band::Sign => "the same sign".into(),
        Band::None => String::new(),
    }
}

fn within(row: &Row) -> Markup {
    match (row.paper, row.within) {
        (None, _) => html! {},
        (_, true) => html! { span.yes { "yes" } },
        (_, false) => html! { span.no { "no" } },
    }
}

fn reason(row: &Row) -> String {
    let fitted = row.fitted.then(|| "fitted".to_owned());
    let parts = [fitted, row.reason.as_deref().map(shown)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
