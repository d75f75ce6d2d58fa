//! The worst files: their figures, and their extents to scale.

use super::table::{Cell, Table};
use super::text::{count, path, shown};
use crate::report::PageReport;
use crate::worst::{FilePart, WorstFigures, WorstFile};
use fragmend_report::{Column, columns, human};
use maud::{Markup, html};
use serde_json::Value;

/// Size of the drawing of a file, in units of its own.
const WIDTH: f64 = 300.0;
/// Where extents end, and where the mark of what is to be moved does.
const HEIGHT: (f64, f64) = (11.0, 16.0);

/// The files; nothing if there is none.
pub fn section(report: &PageReport) -> Option<Markup> {
    if report.files.is_empty() {
        return None;
    }
    let by_plan = report.files.iter().any(|file| file.figures.seconds_saved.is_some());
    let order = if by_plan {
        "By the time that mending them saves in each replay, as the plan predicts. Files that no plan lists follow, by the requests that reading them from begin to end would save."
    } else {
        "By the requests that reading them from begin to end would save. Whether anybody reads them, a scan cannot say."
    };
    let columns = columns::<WorstFigures>();
    let known: Vec<Column> = columns
        .into_iter()
        .filter(|column| report.files.iter().any(|file| value(file, column).is_some()))
        .collect();
    let has_parts = report.files.iter().any(|file| !file.parts.is_empty());
    let mut table = Table::new(order);
    table.column("file", "");
    if has_parts {
        table.column("extents, to scale", "Each block is an extent, in the order of the file, and neighbours differ in shade; low blocks are several extents each. A bar below marks what is to be moved.");
    }
    table.figures(&known);
    for file in &report.files {
        let mut row = vec![Cell::markup(named(file))];
        row.extend(has_parts.then(|| Cell::markup(drawn(&file.parts))));
        row.extend(known.iter().map(|column| match value(file, column) {
            Some(value) => Cell::number(value, human(value, column.unit)),
            None => Cell::unknown(),
        }));
        table.row(row);
    }
    let more = report.files_in_all.saturating_sub(report.files.len() as u64);
    Some(html! {
        (table.draw())
        @if has_parts { (key()) }
        @if more > 0 { p { "And " (count(more)) " more files, which cost less." } }
    })
}

/// What the drawings of extents mean.
fn key() -> Markup {
    let swatch = |class: &str, words: &str| {
        html! {
            li {
                svg viewBox="0 0 28 12" aria-hidden="true" { path class=(class) d="M0 0H28V12H0z" {} }
                " " (words)
            }
        }
    };
    html! {
        ul.key {
            (swatch("even", "an extent"))
            (swatch("odd", "the next one"))
            (swatch("several", "several, too short to be drawn"))
            (swatch("to-move", "below: to be moved, or moved"))
        }
    }
}

/// The path of a file, and what it is to its program.
fn named(file: &WorstFile) -> Markup {
    html! {
        (path(&file.path))
        @if let Some(known) = &file.known { div.known { bdi { (shown(&known.to_string())) } } }
    }
}

fn value(file: &WorstFile, column: &Column) -> Option<f64> {
    let figures = serde_json::to_value(file.figures).ok()?;
    figures.get(&column.name).and_then(Value::as_f64)
}

/// The extents of a file.
fn drawn(parts: &[FilePart]) -> Markup {
    if parts.is_empty() {
        return html! { span.unknown { "not in the inputs" } };
    }
    let block = |part: &FilePart, top: f64, bottom: f64| {
        let (from, to) = (part.from * WIDTH, part.to * WIDTH);
        format!("M{from:.1} {top}H{to:.1}V{bottom}H{from:.1}z")
    };
    let (mut shades, mut several, mut marked) =
        ([String::new(), String::new()], String::new(), String::new());
    for (number, part) in parts.iter().enumerate() {
        if part.extents > 1 {
            several.push_str(&block(part, HEIGHT.0 / 2.0, HEIGHT.0));
        } else {
            shades[number % 2].push_str(&block(part, 0.0, HEIGHT.0));
        }
        if part.to_move {
            marked.push_str(&block(part, HEIGHT.0 + 1.0, HEIGHT.1));
        }
    }
    let extents: u64 = parts.iter().map(|part| part.extents).fold(0, u64::saturating_add);
    let label =
        format!("{} extents, drawn in {} blocks", count(extents), count(parts.len() as u64));
    html! {
        svg.extents viewBox=(format!("0 0 {WIDTH} {}", HEIGHT.1)) preserveAspectRatio="none" role="img" aria-label=(label) {
            path.even d=(shades[0]) {}
            path.odd d=(shades[1]) {}
            path.several d=(several) {}
            path.to-move d=(marked) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_known::Known;
    use fragmend_layout::PathText;

    #[test]
    fn what_a_file_is_comes_below_its_name_and_marks_up_nothing() {
        let known =
            Known { program: "SQLite".into(), what: "<b>log\u{1b}\u{202e}".into(), advice: None };
        let file = WorstFile {
            path: PathText { path: "/srv/a".into(), path_bytes: None },
            known: Some(known),
            figures: WorstFigures::default(),
            parts: Vec::new(),
        };
        let markup = named(&file).into_string();
        let expected = r#"<div class="known"><bdi>SQLite: &lt;b&gt;log\x1b\u{202e}</bdi></div>"#;
        assert!(markup.contains("/srv/a") && markup.ends_with(expected), "{markup}");
    }
}
