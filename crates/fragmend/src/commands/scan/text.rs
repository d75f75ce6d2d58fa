//! The page of text that `fragmend scan` prints: worst files, totals, distributions, a verdict.

use super::programs::Programs;
use super::{Kept, scan_totals};
use fragmend_layout::{Log2Histogram, printable_path};
use fragmend_report::scan::NEGLIGIBLE;
use fragmend_report::{Unit, figures, human, table};
use fragmend_scan::{FileMeasures, Totals, Tree};
use std::io::{self, Write};

/// Writes the page.
pub(super) fn write(
    out: &mut impl Write,
    tree: &Tree,
    totals: &Totals,
    found: &mut Kept,
    programs: &mut Programs,
) -> io::Result<()> {
    found.settle();
    if !found.worst.is_empty() {
        writeln!(out, "Worst files, by the requests that a sequential read could save:\n")?;
        writeln!(out, "{}\n", worst_table(tree, &found.worst))?;
        programs.write(out, tree, &found.worst)?;
    }
    writeln!(out, "All files:\n")?;
    writeln!(out, "{}", table(&figures(&scan_totals(totals))))?;
    for (reason, count) in &totals.skipped {
        writeln!(out, "   skipped: {count}, {reason}")?;
    }
    if totals.fragmented_files > 0 {
        write_histogram(out, "Fragments by length", &totals.frag_sizes)?;
        write_histogram(out, "Fragments by distance from the one before", &totals.frag_distances)?;
    }
    writeln!(out, "\n{}", verdict(totals))
}

fn worst_table(tree: &Tree, worst: &[FileMeasures]) -> comfy_table::Table {
    use comfy_table::{Cell, CellAlignment::Right, Table, presets};
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let heads = ["size", "extents", "fewest", "DoF", "frag size", "distance", "reads now", "best"];
    let right = |text: String| Cell::new(text).set_alignment(Right);
    table.set_header(heads.map(|h| right(h.into())).into_iter().chain([Cell::new("file")]));
    for file in worst {
        let m = &file.measures;
        let row = [
            human(file.bytes as f64, Unit::Bytes),
            human(m.extents as f64, Unit::Count),
            human(m.ideal_extents as f64, Unit::Count),
            human(m.dof(), Unit::Ratio),
            human(m.median_frag_size as f64, Unit::Bytes),
            human(m.median_frag_distance as f64, Unit::Bytes),
            human(m.requests_now as f64, Unit::Count),
            human(m.requests_best as f64, Unit::Count),
        ];
        let path = printable_path(&tree.path(&file.entry)).to_string();
        table.add_row(row.map(right).into_iter().chain([Cell::new(path)]));
    }
    table
}

fn write_histogram(out: &mut impl Write, title: &str, histogram: &Log2Histogram) -> io::Result<()> {
    const WIDTH: u64 = 40;
    writeln!(out, "\n{title}:\n")?;
    let most = histogram.steps().map(|(_, count)| count).max().unwrap_or(1);
    for (from, count) in histogram.steps() {
        let bar = "#".repeat((count * WIDTH).div_ceil(most) as usize);
        let (from, count) = (human(from as f64, Unit::Bytes), human(count as f64, Unit::Count));
        writeln!(out, "{from:>12}+  {bar:<40}  {count}")?;
    }
    Ok(())
}

/// Requests that mending everything would save, and their share of all.
pub(super) fn saved(totals: &Totals) -> (u64, f64) {
    let m = &totals.measures;
    let saved = m.requests_now.saturating_sub(m.requests_best);
    (saved, saved as f64 / m.requests_now.max(1) as f64)
}

fn verdict(totals: &Totals) -> String {
    let (requests, share) = saved(totals);
    let amount = human(requests as f64, Unit::Count);
    let whole = human(totals.measures.requests_now as f64, Unit::Count);
    let per_cent = human(share, Unit::Share);
    match (totals.fragmented_files, requests) {
        _ if totals.files == 0 && totals.skipped.is_empty() => "There are no files.".into(),
        _ if totals.files == 0 => "No file could be measured.".into(),
        (0, _) => "Nothing is fragmented.".into(),
        (_, 0) => "Fragmentation costs nothing here: no sequential read would take fewer \
                   requests."
            .into(),
        _ if share < NEGLIGIBLE => format!(
            "Fragmentation hardly matters here: mending every file would save {amount} of {whole} \
             requests ({per_cent}) of reading them all once."
        ),
        _ => format!(
            "Mending every file would save {amount} of {whole} requests ({per_cent}) of reading \
             them all once, sequentially."
        ),
    }
}
