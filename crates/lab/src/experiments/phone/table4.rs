//! janusd, table 4: what six months of each defragmenter write. Nothing here depends on the drive's speed.

use super::life::{Lived, Remedy, live};
use crate::experiment::{Experiment, Results};
use crate::row::{Band, Row};
use Remedy::{Copies, Janusd};
use rayon::prelude::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-table4",
    source: "janusd, table 4",
    about: "six months of a phone: what defragmenters write",
    is_long: true,
    run,
};

/// What `e4defrag` copies in all, in GB, by the weeks between its runs.
const COPIED: [(u32, f64); 3] = [(1, 156.0), (2, 182.0), (4, 217.0)];
/// What janusdL writes in compactions of its log, and janusdP of files, in GB.
const COMPACTED_GB: f64 = 0.219;
const SPREAD_GB: f64 = 0.364;

const COPIES: &str = "in a week only what is written in it can be fragmented anew: 0.7 of all packages, photos, and databases. The paper's \
                      updates are not stated; its 217 GB in seven runs are 31 GB each, more than the 25 GB of the partition, \
                      so that its tool must have copied files more than once";

fn run(seed: u64) -> Results {
    let remedies = [Copies(1), Copies(2), Copies(4), Janusd];
    let lived: Vec<Lived> =
        remedies.par_iter().map(|remedy| live(&remedy.on("simmmc"), *remedy, seed)).collect();
    let janusd = &lived[3];
    let mut rows = Vec::new();
    for ((weeks, paper), lived) in COPIED.iter().zip(&lived) {
        let name = format!("{}: copied", Copies(*weeks).name());
        let row = Row::new(name, "GB", *paper, lived.written_gb(), Band::Percent(30.0));
        rows.push(row.because(COPIES));
    }
    rows.push(Row::ours("janusdL: remapped", "GB", janusd.moved_gb));
    rows.push(Row::ours("janusdL: log", "GB", janusd.log_gb));
    rows.push(Row::new(
        "janusdL: compactions",
        "GB",
        COMPACTED_GB,
        janusd.compacted_gb,
        Band::AtMost,
    ));
    rows.push(Row::new("janusdP: copied", "GB", SPREAD_GB, janusd.spread_gb, Band::AtMost));
    let share = janusd.written_gb() * 100.0 / lived[0].written_gb();
    rows.push(Row::new("janusd: written, of e4defrag_1w", "%", 1.0, share, Band::AtMost));
    Results { rows, plots: Vec::new() }
}
