//! Pictures of a comparison: gain against programmed bytes, with the front, for each load, drive and file system.

use super::image::Kind;
use super::report::{Comparison, Table};
use crate::plot::Plot;

/// One picture for each load, drive and file system.
pub fn of(comparison: &Comparison) -> Vec<Plot> {
    let each = |table| Table::kinds(table).into_iter().map(move |kind| on(table, kind));
    comparison.tables.iter().flat_map(each).filter(|plot| plot.is_of_something()).collect()
}

fn on(table: &Table, kind: Kind) -> Plot {
    let place = |gain: f64, bytes: i64| (bytes as f64 / f64::from(1 << 20), gain);
    let rows: Vec<_> = table.measured_on(kind).collect();
    let point = |one: &super::report::Measured| place(one.gain_percent, one.programmed_bytes);
    let points = rows.iter().map(|(row, one)| (row.remedy.clone(), point(one))).collect();
    let mut front: Vec<(f64, f64)> =
        rows.iter().filter(|(_, one)| one.on_front).map(|(_, one)| point(one)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (load, drive, kind) = (&table.load, &table.drive, kind.name());
    Plot::Points {
        name: format!("compare-{load}-{drive}-{kind}"),
        title: format!("{load} on {drive}, {kind}: gain of reads, and the front"),
        axes: ["MiB programmed".into(), "%".into()],
        points,
        front,
    }
}
