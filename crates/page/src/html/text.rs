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
