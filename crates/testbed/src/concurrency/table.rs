//! The loads' latencies as a table: the same operations without and beside the mover.

use super::mover::Range;
use crate::bench::markdown;
use crate::reader::Waits;
use std::collections::BTreeMap;
use std::time::Duration;

/// The figures of a load in one phase.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// The latency of each operation.
    pub waits: Waits,
    /// Bytes read and compared.
    pub compared: u64,
}

/// What the mover did to a load's files.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// Ranges that have moved.
    pub moved: u64,
    /// The longest time for which one step locked a file, from the receipts.
    pub longest_step: Duration,
    /// How many ranges were planned and left alone, by the reason in their receipts.
    pub left_alone: BTreeMap<String, u64>,
}

impl Moves {
    /// Adds one receipt.
    pub fn receive(&mut self, range: Range) {
        self.longest_step = self.longest_step.max(range.longest_step);
        if range.moved {
            self.moved += 1;
        } else {
            *self.left_alone.entry(range.reason).or_default() += 1;
        }
    }

    /// Ranges left alone, for any reason.
    pub fn left_alone(&self) -> u64 {
        self.left_alone.values().sum()
    }

    fn add(&mut self, other: &Self) {
        self.moved += other.moved;
        self.longest_step = self.longest_step.max(other.longest_step);
        for (reason, ranges) in &other.left_alone {
            *self.left_alone.entry(reason.clone()).or_default() += ranges;
        }
    }
}

/// All loads of one kind on one file system.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which kind.
    pub kind: &'static str,
    /// Without the mover, and beside it.
    sides: [Side; 2],
    /// What the mover did to their files.
    pub moves: Moves,
}

impl Row {
    /// The heads of the columns; the first two hold text.
    pub const COLUMNS: [&str; 12] = [
        "engine",
        "load",
        "operations alone",
        "p99.9 ms",
        "longest ms",
        "operations beside",
        "p99.9 ms",
        "longest ms",
        "longest step ms",
        "ranges moved",
        "left alone",
        "MiB compared",
    ];

    /// The row of one load.
    pub fn new(kind: &'static str, sides: [Side; 2], moves: Moves) -> Self {
        Self { kind, sides, moves }
    }

    /// Adds another load of the kind.
    pub fn add(&mut self, other: &Self) {
        for (side, more) in self.sides.iter_mut().zip(&other.sides) {
            side.waits.add(&more.waits);
            side.compared += more.compared;
        }
        self.moves.add(&other.moves);
    }

    /// Its cells, for this engine.
    pub fn cells(&self, engine: &str) -> Vec<String> {
        let [alone, beside] = self.sides.each_ref().map(|side| {
            let waits = &side.waits;
            [waits.requests().to_string(), ms(waits.quantile(0.999)), ms(waits.quantile(1.0))]
        });
        let words = [engine.to_owned(), self.kind.to_owned()];
        let Moves { moved, longest_step, .. } = &self.moves;
        let left_alone = self.moves.left_alone().to_string();
        let compared = markdown::mib(self.sides[1].compared);
        let moves = [ms(*longest_step), moved.to_string(), left_alone, compared];
        words.into_iter().chain(alone).chain(beside).chain(moves).collect()
    }
}

/// The table of these cells.
pub fn table(cells: Vec<Vec<String>>) -> String {
    markdown::table(&Row::COLUMNS, 2, cells)
}

/// The table of one engine, and why ranges were left alone.
pub fn told(engine: &str, rows: &[Row]) -> String {
    let mut text = table(rows.iter().map(|row| row.cells(engine)).collect());
    for Row { kind, moves, .. } in rows.iter().filter(|row| row.moves.left_alone() > 0) {
        text += &format!("\nleft alone, {kind}: {:?}", moves.left_alone);
    }
    text
}

fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}
