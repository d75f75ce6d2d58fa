//! FAST'24, figure 12: read throughput after fragmenting appends and after overwrites, without and with
//! hints, in per cent of that of files that were written in one go.

mod applications;
mod ext4;
mod fileserver;
mod hypothetical;
mod splits;
pub(crate) mod sqlite;

use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::ssd::Ssd;

pub static EXPERIMENT: Experiment = Experiment {
    name: "D-fig12",
    source: "FAST'24, figure 12",
    about: "reads after fragmenting appends and overwrites, without and with hints",
    is_long: false,
    run,
};

/// The placements that are compared: the paper's two, and ours.
const PLACEMENTS: [(Placement, &str); 3] = [
    (Placement::RoundRobin, "without hints"),
    (Placement::DieAffine, "with hints"),
    (Placement::FileAffine, "file-affine"),
];

/// A new drive with this placement. The file-affine one also keeps the page that it sensed last in a register.
fn drive(flash: &Drive, placement: Placement) -> Ssd {
    let mut drive = flash.clone();
    drive.firmware.placement = placement;
    drive.timing.page_stays = placement == Placement::FileAffine;
    Ssd::new(&drive).expect("a parsed drive")
}

fn run(seed: u64) -> Results {
    let setup = presets::named("nvmevirt-fast24").expect("a preset");
    let (mut rows, mut groups) = hypothetical::bars(&setup, seed);
    let (more_rows, more_groups) = applications::bars(&setup, seed);
    rows.extend(more_rows);
    groups.extend(more_groups);
    rows.extend(splits::rows(&setup, seed));
    let series = ["without hints", "with hints (FAST'24)", "file-affine (ours)"];
    let plot = Plot::Bars {
        name: "D-fig12".into(),
        title: "Read throughput after appends and overwrites".into(),
        axis: "per cent of files written in one go".into(),
        series: series.map(str::to_owned).to_vec(),
        groups,
    };
    Results { rows, plots: vec![plot] }
}
