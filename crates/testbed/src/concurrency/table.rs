//! What everybody saw, as a table: the same operations without and beside the mover.

use crate::bench::markdown;
use crate::reader::Waits;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many ranges were left alone, by the reason in their receipts.
pub type Reasons = BTreeMap<String, u64>;

/// What a load saw in one phase.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// How long each operation took.
    pub waits: Waits,
    /// Bytes read and compared.
    pub compared: u64,
}

/// All loads of one kind on one file system.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which kind.
    pub kind: &'static str,
    /// Without the mover, and beside it.
    sides: [Side; 2],
    /// Ranges of its files that were moved, as they lie in fewer pieces now.
    pub moved: u64,
    /// Ranges that were planned, and left alone.
    pub left_alone: Reasons,
}

impl Row {
    /// The heads of the columns; the first two hold text.
    pub const COLUMNS: [&str; 11] = [
        "engine",
        "load",
        "operations alone",
        "p99.9 ms",
        "longest ms",
        "operations beside",
        "p99.9 ms",
        "longest ms",
        "ranges moved",
        "left alone",
        "MiB compared",
    ];

    /// Of one load.
    pub fn new(kind: &'static str, sides: [Side; 2], moved: u64, left_alone: Reasons) -> Self {
        Self { kind, sides, moved, left_alone }
    }

    /// Adds another load of the kind.
    pub fn add(&mut self, other: &Self) {
        for (side, more) in self.sides.iter_mut().zip(&other.sides) {
            side.waits.add(&more.waits);
            side.compared += more.compared;
        }
        self.moved += other.moved;
        for (reason, ranges) in &other.left_alone {
            *self.left_alone.entry(reason.clone()).or_default() += ranges;
        }
    }

    /// Its cells, on this engine.
    pub fn cells(&self, engine: &str) -> Vec<String> {
        let [alone, beside] = self.sides.each_ref().map(|side| {
            let waits = &side.waits;
            [waits.requests().to_string(), ms(waits.quantile(0.999)), ms(waits.quantile(1.0))]
        });
        let words = [engine.to_owned(), self.kind.to_owned()];
        let compared = markdown::mib(self.sides[1].compared);
        let counts =
            [self.moved.to_string(), self.left_alone.values().sum::<u64>().to_string(), compared];
        words.into_iter().chain(alone).chain(beside).chain(counts).collect()
    }
}

/// The table of these cells.
pub fn table(cells: Vec<Vec<String>>) -> String {
    markdown::table(&Row::COLUMNS, 2, cells)
}

/// The table of one engine, and why ranges were left alone.
pub fn told(engine: &str, rows: &[Row]) -> String {
    let mut text = table(rows.iter().map(|row| row.cells(engine)).collect());
    for Row { kind, left_alone, .. } in rows.iter().filter(|row| !row.left_alone.is_empty()) {
        text += &format!("\nleft alone, {kind}: {left_alone:?}");
    }
    text
}

fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}
