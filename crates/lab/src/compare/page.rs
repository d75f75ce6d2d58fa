//! A comparison as a page (Markdown): its tables, and what to choose when.

use super::remedies::Remedy;
use super::report::{Comparison, Measured, Row, Table};
use std::fmt::Write;

/// What the columns are.
const HEAD: &str = "\
# Remedies, side by side

Each row is one remedy on its own copy of one aged image, moved by the production planner and mover in virtual time
(`fragmend lab compare`, `crates/lab/src/compare`). Rows are compared with those on the same simulated file system.

- *before*, *after*: throughput of the load's reads with cold caches, in MB/s; *gain*: by how much it is higher.
- *moved*: MiB of files that it moved. *host*, *programmed*: MiB that the host wrote and that the flash programmed for it, metadata and the drive's own logs
  included. Of a placement, which moves nothing: how much more than without it in all of the ageing.
- *elapsed*: virtual seconds until it was durable, on an otherwise idle machine; a placement lasts none. *slow-down*: how much less the load gets done
  beside it, as long as it lasts; of a placement, in a second. `-`: too short to tell.
- *erases*: of a block, on average. *cuts*: power cuts at every command of a load that moves files so, on a small drive, and how many
  of them lost something durable.
- `gain` is planned with what `fragmend probe` finds of the files that were read: ranges that are slower than their fragments explain, because they were
  overwritten or written between other data (docs/planning.md). As the reads that are recorded, this is seen before, and not in *elapsed*.
- *front*: no other remedy on this file system gains as much for as few programmed bytes; otherwise, which does. What is just as good as
  nothing is not on it.
";

/// Units of the columns' heads.
pub const COLUMNS: [&str; 13] = [
    "remedy",
    "on",
    "before",
    "after",
    "gain %",
    "moved MiB",
    "host MiB",
    "programmed MiB",
    "elapsed s",
    "slow-down %",
    "erases",
    "cuts: lost",
    "front",
];

/// The cells of a row, one for each of [`COLUMNS`].
pub fn cells(row: &Row, one: &Measured) -> [String; 13] {
    let mib = |bytes: i64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let dash = || "-".to_owned();
    let cuts = one.power_cuts.map(|cuts| format!("{}: {}", cuts.cuts, cuts.lost));
    [
        row.remedy.clone(),
        row.file_system.map_or("", |kind| kind.name()).to_owned(),
        format!("{:.1}", one.read_before),
        format!("{:.1}", one.read_after),
        format!("{:+.1}", one.gain_percent),
        mib(one.moved_bytes as i64),
        mib(one.host_written_bytes),
        mib(one.programmed_bytes),
        if one.seconds > 0.0 { format!("{:.3}", one.seconds) } else { dash() },
        one.slowdown_percent.map_or_else(dash, |percent| format!("{percent:.1}")),
        one.erases_per_block.map_or_else(dash, |erases| format!("{erases:.3}")),
        cuts.unwrap_or_else(dash),
        one.beaten.as_ref().map_or("front".to_owned(), |beaten| beaten.by.clone()),
    ]
}

/// The page of a comparison.
pub fn page(comparison: &Comparison) -> String {
    let mut text = head(comparison.seed, comparison.scale);
    comparison.tables.iter().for_each(|table| section(&mut text, table));
    text
}

/// What is above the tables of a page.
pub fn head(seed: u64, scale: u64) -> String {
    let mut text = HEAD.to_owned();
    let _ = writeln!(text, "\nSeed {seed}, scale 1/{scale}.\n");
    let _ = writeln!(text, "| remedy | from | what it does |\n|---|---|---|");
    for remedy in Remedy::ALL {
        let (name, source, about) = (remedy.name(), remedy.source(), remedy.about());
        let _ = writeln!(text, "| `{name}` | {source} | {about} |");
    }
    text
}

fn section(text: &mut String, table: &Table) {
    let Table { load, about, drive, drive_bytes, rows, advice } = table;
    let mib = drive_bytes >> 20;
    let _ = writeln!(text, "\n## {load} on {drive}\n\n{about}; a drive of {mib} MiB.\n");
    for line in advice {
        let _ = writeln!(text, "- {line}");
    }
    let _ = writeln!(text, "\n| {} |", COLUMNS.join(" | "));
    let _ = writeln!(text, "|---|---|{}---|", "---:|".repeat(COLUMNS.len() - 3));
    for row in rows {
        if let Some(measured) = &row.measured {
            let _ = writeln!(text, "| {} |", cells(row, measured).join(" | "));
        }
    }
    let mut left_out = rows.iter().filter(|row| row.measured.is_none()).peekable();
    if left_out.peek().is_some() {
        let _ = writeln!(text);
    }
    for row in left_out {
        let why = row.not_applicable.as_deref().unwrap_or_default();
        let on = row.file_system.map_or(String::new(), |kind| format!(" on {}", kind.name()));
        let _ = writeln!(text, "- `{}`{on} does not apply: {why}.", row.remedy);
    }
}
