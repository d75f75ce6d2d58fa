//! The lab's reports as text.

use comfy_table::{Cell, CellAlignment::Right, Table, presets};
use fragmend_lab::catalog::{Catalog, Entry};
use fragmend_lab::experiment::Report;
use fragmend_lab::row::{Band, Row};
use fragmend_layout::printable;
use std::fmt::Write;

/// The experiments, drives, loads and remedies that there are.
pub fn catalog(catalog: &Catalog) -> String {
    let mut text = String::new();
    for (title, entries) in [
        ("Experiments (fragmend lab run NAME)", &catalog.experiments),
        ("Drives (fragmend lab drive NAME)", &catalog.drives),
        ("Loads (fragmend lab compare --load NAME)", &catalog.loads),
        ("Remedies (fragmend lab compare --remedy NAME)", &catalog.remedies),
    ] {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for Entry { name, source, about } in entries {
            table.add_row([name.as_str(), source.as_deref().unwrap_or(""), about]);
        }
        let _ = writeln!(text, "{title}:\n\n{}\n", trimmed(&table));
    }
    text
}

/// The figures of an experiment.
pub fn report(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let right = |text: String| Cell::new(text).set_alignment(Right);
    let papers = report.rows.iter().any(|row| row.paper.is_some());
    let heads: &[&str] = if papers { &["paper", "ours", "deviation", "band"] } else { &["ours"] };
    let heads = heads.iter().map(|head| right((*head).into()));
    table.set_header([Cell::new(""), Cell::new("unit")].into_iter().chain(heads));
    for row in &report.rows {
        let mut cells = vec![shown(&row.name), shown(&row.unit)];
        if papers {
            cells.push(right(row.paper.map_or(String::new(), number)));
        }
        cells.push(right(number(row.ours)));
        if papers {
            cells.extend([right(deviation(row)), right(band(row))]);
            cells.push(Cell::new(remark(row)));
        }
        table.add_row(cells);
    }
    let Report { experiment, source, seed, .. } = report;
    let (experiment, source) = (printable(experiment), printable(source));
    let mut text = format!("{experiment}: {source}, seed {seed}\n\n{}\n", trimmed(&table));
    for row in report.rows.iter().filter(|row| !row.within) {
        let name = printable(&row.name);
        let _ = match &row.reason {
            Some(reason) => writeln!(text, "out of band: {name}: {}", printable(reason)),
            None => writeln!(text, "out of band: {name}"),
        };
    }
    text
}

/// What is remarkable about a figure beside the paper's.
fn remark(row: &Row) -> &'static str {
    match (row.within, row.fitted) {
        (false, _) => "OUT OF BAND",
        (true, true) => "fitted",
        (true, false) => "",
    }
}

/// A name from a user's file, made printable, on one line.
fn shown(name: &str) -> Cell {
    Cell::new(printable(name).to_string())
}

/// How many figures are in their bands, and how many of these only confirm constants that were fitted to them.
pub fn summary<'a>(reports: impl Iterator<Item = &'a Report>) -> String {
    let rows: Vec<&Row> = reports.flat_map(|report| &report.rows).collect();
    let judged = rows.iter().filter(|row| row.band != Band::None).count();
    let within = rows.iter().filter(|row| row.band != Band::None && row.within).count();
    let fitted = rows.iter().filter(|row| row.fitted && row.within).count();
    match (judged, fitted) {
        (0, _) => String::new(),
        (_, 0) => format!("{within} of {judged} figures are in band\n"),
        _ => format!(
            "{within} of {judged} figures are in band; to {fitted} of them constants were fitted\n"
        ),
    }
}

/// A table without the blanks at the ends of its lines.
pub fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A figure, with as many digits as are meaningful.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.001 => format!("{value:.2e}"),
        size if size < 1.0 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

/// How far our figure differs from the paper's, in per cent if the band is.
fn deviation(row: &Row) -> String {
    match (row.paper, row.band) {
        (None, _) | (_, Band::Sign) => String::new(),
        (Some(paper), Band::Percent(_)) if paper != 0.0 => {
            format!("{:+.1} %", (row.ours / paper - 1.0) * 100.0)
        }
        (Some(paper), _) => {
            let by = row.ours - paper;
            let sign = if by < 0.0 { "-" } else { "+" };
            format!("{sign}{}", number(by.abs()))
        }
    }
}

fn band(row: &Row) -> String {
    match row.band {
        Band::Points(points) => format!("+-{points}"),
        Band::Percent(percent) => format!("+-{percent} %"),
        Band::AtLeast => "at least".into(),
        Band::AtMost => "at most".into(),
        Band::Exact => "exact".into(),
        Band::Sign => "sign".into(),
        Band::None => String::new(),
    }
}
