//! janusd, figure 7: the throughput of reading a file by its degrees of logical and of physical fragmentation.
//! The degree of physical fragmentation is one less the share of the channels that work at a time (section 3.1),
//! so that at 0.25 and 0.5 the file is on three quarters and on half of them.
//!
//! The text does not say how large the file of this figure is. It is judged as one of 512 KB, which is the only file that section 3.2 says
//! it reads (for figure 8). Eight pages of 8 KB are in section 3.3, where they are the example of a probability and not a file that
//! is read; shorter files have rows of their own, because the shorter it is, the more a further request costs.

use super::janusd_file::{DEGREES, FILE, read};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::Setup;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-fig7",
    source: "janusd, figure 7",
    about: "reads of a file by its degrees of logical and of physical fragmentation",
    is_long: false,
    run,
};

/// The change of throughput at a logical degree of 8, in per cent, of the same at a physical degree of 0.25 at most,
/// and the throughput at a physical degree of 0.5, in per cent of that of the clean file.
const PAPER: [f64; 3] = [-75.0, -20.0, 48.0];
/// Physical degrees, in quarters.
const PHYSICAL: [u32; 4] = [0, 1, 2, 3];

/// Other sizes of the file, in KiB.
const SHORTER: [u32; 3] = [64, 128, 256];

fn run(_seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for preset in ["simmmc", "simufs"] {
        let setup = presets::named(preset).expect("a preset");
        let measured =
            PHYSICAL.map(|quarters| DEGREES.map(|degree| ns(&setup, FILE, degree, quarters)));
        rows.extend(rows_of(preset, &measured));
        for kib in SHORTER {
            let of = |degree, quarters| ns(&setup, kib / 4, degree, quarters);
            let name = |what: &str| format!("{preset}, {kib} KiB: {what}");
            let (clean, halved) = (of(1, 0), of(1, 2));
            rows.push(Row::ours(name("DoF^L 8"), "%", change(clean, of(8, 0))));
            rows.push(Row::ours(name("DoF^P 0.5: of clean"), "%", clean / halved * 100.0));
        }
        for (quarters, times) in PHYSICAL.iter().zip(&measured) {
            let name = format!("{preset}, DoF^P {}", f64::from(*quarters) / 4.0);
            let points =
                DEGREES.iter().zip(times).map(|(degree, ns)| (f64::from(*degree), mbs(*ns)));
            lines.push((name, points.collect()));
        }
    }
    let plot = Plot::Lines {
        name: "J-fig7".into(),
        title: "Reading 512 KB by logical and physical fragmentation".into(),
        axes: ["DoF^L".into(), "MB/s".into()],
        logarithmic: true,
        lines,
    };
    Results { rows, plots: vec![plot] }
}

fn rows_of(preset: &str, measured: &[[f64; 4]; 4]) -> Vec<Row> {
    let [even, quarter, half, _] = measured;
    let (clean, split) = (even[0], even[3]);
    let further = f64::from(DEGREES[3] - 1);
    // What each further request would have to cost.
    let needed_us = clean * (100.0 / (100.0 + PAPER[0]) - 1.0) / further / 1e3;
    let raised = format!(
        "a further request costs {:.0} us here, by data sheets of such devices; the paper's change \
         needs {needed_us:.0}, if its file has 512 KB: it raised the latency from host to drive on \
         purpose, and does not state by how much",
        (split - clean) / further / 1e3
    );
    let most = even.iter().zip(quarter).map(|(even, quarter)| change(*even, *quarter));
    let linear = "channels are what limits these drives, so a file has about the share of the \
                  throughput of which it has the channels, and some of the time is the host's; the \
                  paper's falls by less at 0.25, and by more at 0.5";
    let name = |what: &str| format!("{preset}: {what}");
    vec![
        Row::ours(name("clean"), "MB/s", mbs(clean)),
        Row::new(name("DoF^L 8"), "%", PAPER[0], change(clean, split), Band::Points(5.0))
            .because(raised),
        Row::new(
            name("DoF^P 0.25, worst over DoF^L"),
            "%",
            PAPER[1],
            most.fold(f64::INFINITY, f64::min),
            Band::Points(5.0),
        )
        .because(linear),
        Row::new(
            name("DoF^P 0.5: of clean"),
            "%",
            PAPER[2],
            clean / half[0] * 100.0,
            Band::Points(5.0),
        )
        .because(linear),
    ]
}

/// Nanoseconds of a read of the file in so many fragments, with so many quarters of the channels left out.
fn ns(setup: &Setup, units: u32, fragments: u32, quarters: u32) -> f64 {
    let channels = setup.flash().geometry.channels;
    read(setup, units, fragments, channels - channels * quarters / 4).total() as f64
}

/// The change of throughput, in per cent, where a read lasts `ns` instead of `of`.
fn change(of: f64, ns: f64) -> f64 {
    (of / ns - 1.0) * 100.0
}

fn mbs(ns: f64) -> f64 {
    f64::from(FILE) * 4096.0 / ns * 1e3
}
