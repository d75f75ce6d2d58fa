//! Experiments and their results.

use crate::plot::Plot;
use crate::row::Row;
use fragmend_layout::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An experiment of a paper.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Which figure or table of which paper it repeats.
    pub source: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Whether it needs tens of seconds of a processor: `fragmend lab run short` leaves it out, and so does CI.
    pub is_long: bool,
    /// Runs it; the results follow from the seed alone.
    pub run: fn(seed: u64) -> Results,
}

/// What an experiment measured.
#[derive(Clone, Debug)]
pub struct Results {
    /// Its figures.
    pub rows: Vec<Row>,
    /// Its pictures.
    pub plots: Vec<Plot>,
}

/// The results of an experiment or a load, as they are printed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Which figure or table of which paper it repeats.
    pub source: String,
    /// The seed of every random number.
    pub seed: u64,
    /// Its figures.
    pub rows: Vec<Row>,
}

impl Experiment {
    /// Runs the experiment; returns its report and its pictures.
    pub fn report(&self, seed: u64) -> (Report, Vec<Plot>) {
        // A drive of many gigabytes is made, or copied, for each of hundreds of measurements.
        fragmend_sys::memory::keep_freed();
        let Results { rows, plots } = (self.run)(seed);
        (Report::new(self.name, self.source, seed, rows), plots)
    }
}

impl Report {
    /// A report of these figures.
    pub fn new(
        experiment: impl Into<String>,
        source: impl Into<String>,
        seed: u64,
        rows: Vec<Row>,
    ) -> Self {
        let (experiment, source) = (experiment.into(), source.into());
        Self { schema_version: schema::DOCUMENT, experiment, source, seed, rows }
    }

    /// Whether every figure is in its band.
    pub fn within(&self) -> bool {
        self.rows.iter().all(|row| row.within)
    }
}
