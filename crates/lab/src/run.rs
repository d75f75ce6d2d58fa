//! Runs experiments, side by side; each follows from its seed alone, so the result is the same as
//! one by one.

use crate::experiment::{Experiment, Report, SCHEMA_VERSION};
use crate::plot::Plot;
use rayon::prelude::*;

/// Runs experiments on all cores; gives what they came to, in the order that was asked for.
pub fn run(experiments: &[&Experiment], seed: u64) -> Vec<(Report, Vec<Plot>)> {
    experiments.par_iter().map(|experiment| run_one(experiment, seed)).collect()
}

/// Runs one.
pub fn run_one(experiment: &Experiment, seed: u64) -> (Report, Vec<Plot>) {
    let found = (experiment.run)(seed);
    let report = Report {
        schema_version: SCHEMA_VERSION,
        experiment: experiment.name.to_owned(),
        source: experiment.source.to_owned(),
        seed,
        rows: found.rows,
    };
    (report, found.plots)
}
