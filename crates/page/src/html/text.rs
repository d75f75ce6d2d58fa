//! Names and figures as text that is safe to show. Names are isolated (`bdi`), so that no direction of writing in one
//! reorders what is beside it, and characters that would control it are visible as escapes.

use super::table::{Cell, Table};
use fragmend_layout::{PathText, printable};
use fragmend_report::{Unit, figures, human};
use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Serialize;

/// A text of a document.
pub fn shown(text: &str) -> String {
    printable(text).to_string()
}

/// A text in which no line ends between a number and its unit, or within a number.
pub fn together(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let after_digit = out.ends_with(|c: char| c.is_ascii_digit());
        let before_unit = |next: &char| next.is_ascii_digit() || "%KMGTPBmus".contains(*next);
        out.push(if c == ' ' && after_digit && rest.peek().is_some_and(before_unit) {
            '\u{a0}'
        } else {
            c
        });
    }
    out
}

/// A path.
pub fn path(path: &PathText) -> Markup {
    html! { bdi.path { (path.printable()) } }
}

/// The name of a figure in words.
pub fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Bytes with their unit.
pub fn bytes(n: u64) -> String {
    human(n as f64, Unit::Bytes)
}

/// Seconds with their unit.
pub fn seconds(s: f64) -> String {
    human(s, Unit::Seconds)
}

/// A count.
pub fn count(n: u64) -> String {
    human(n as f64, Unit::Count)
}

/// All figures of a structure as a table, with what they mean, below a heading that opens it.
pub fn figures_table<T: JsonSchema + Serialize>(caption: &str, source: &T) -> Markup {
    let mut table = Table::new(caption);
    table.column("figure", "").number("value", "").column("meaning", "");
    for f in figures(source) {
        table.row([
            Cell::text(words(&f.name)),
            Cell::number(f.value, human(f.value, f.unit)),
            Cell::text(f.help),
        ]);
    }
    html! { details { summary { (caption) ": all figures" } (table.draw()) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_with_their_units() {
        let text = "9.0 MiB in 2 119 fragments, 342.7 ms of 1 s (59.0 %) in 43 ranges";
        let shown = together(text);
        assert_eq!(
            shown.replace('\u{a0}', "_"),
            "9.0_MiB in 2_119 fragments, 342.7_ms of 1_s (59.0_%) in 43 ranges"
        );
    }
}
