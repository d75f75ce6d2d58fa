//! Tables with a caption, whose columns the script sorts by; a table of many rows has a field that filters them.

use fragmend_report::Column;
use maud::{Markup, html};

/// A table with more rows has a filter.
const FEW: usize = 8;

/// A table that is being filled.
pub struct Table {
    caption: String,
    columns: Vec<Head>,
    rows: Vec<Vec<Cell>>,
}

struct Head {
    title: String,
    help: String,
    is_number: bool,
}

/// A cell: what is shown, and the number by which it is sorted, if it has one.
pub struct Cell {
    shown: Markup,
    value: Option<f64>,
}

impl Cell {
    /// Text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self { shown: html! { (text.as_ref()) }, value: None }
    }

    /// Text or a picture that was marked up.
    pub fn markup(shown: Markup) -> Self {
        Self { shown, value: None }
    }

    /// A number as it is shown.
    pub fn number(value: f64, shown: impl AsRef<str>) -> Self {
        Self { shown: html! { (shown.as_ref()) }, value: Some(value) }
    }

    /// A number that is not known.
    pub fn unknown() -> Self {
        Self { shown: html! { span.unknown { "not known" } }, value: None }
    }
}

impl Table {
    /// An empty table.
    pub fn new(caption: &str) -> Self {
        Self { caption: caption.to_owned(), columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds a column of text, with what it means.
    pub fn column(&mut self, title: &str, help: &str) -> &mut Self {
        self.head(title, help, false)
    }

    /// Adds a column of numbers, with what they mean.
    pub fn number(&mut self, title: &str, help: &str) -> &mut Self {
        self.head(title, help, true)
    }

    /// Adds a column for each figure.
    pub fn figures(&mut self, columns: &[Column]) -> &mut Self {
        for column in columns {
            self.number(&column.name.replace('_', " "), &column.help);
        }
        self
    }

    fn head(&mut self, title: &str, help: &str, is_number: bool) -> &mut Self {
        self.columns.push(Head { title: title.to_owned(), help: help.to_owned(), is_number });
        self
    }

    /// Adds a row, as long as there are columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Marks it up. A table that does not fit scrolls by itself, also by keys.
    pub fn draw(&self) -> Markup {
        let helped: Vec<&Head> = self.columns.iter().filter(|head| !head.help.is_empty()).collect();
        html! {
            @if self.rows.len() > FEW {
                p.controls {
                    label { "Filter: " input.filter type="search" autocomplete="off"; }
                    " " output.filtered { }
                }
            }
            div.scrolls tabindex="0" role="region" aria-label=(self.caption) {
                table {
                    caption { (self.caption) }
                    thead { tr {
                        @for head in &self.columns {
                            th scope="col" .number[head.is_number] {
                                button type="button" { (head.title) }
                            }
                        }
                    } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (cell, head) in row.iter().zip(&self.columns) {
                                    td .number[head.is_number] data-value=[cell.value] { (cell.shown) }
                                }
                            }
                        }
                    }
                }
            }
            @if !helped.is_empty() {
                details {
                    summary { "What the columns mean" }
                    dl.help {
                        @for head in helped { dt { (head.title) } dd { (head.help) } }
                    }
                }
            }
        }
    }
}
