//! Tables in Markdown, aligned so that they read well in a terminal too.

use comfy_table::{CellAlignment, Table, presets};

/// A table of these columns; the first `left` of them hold text, the others numbers.
pub fn table(columns: &[&str], left: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(columns);
    table.add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        if i >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// `part` as a share of `whole`, in per cent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", ratio(part, whole) * 100.0) }
}

/// `part / whole`; infinite when there is nothing to compare with.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::INFINITY } else { part as f64 / whole as f64 }
}

/// Bytes in MiB with one digit.
pub fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
