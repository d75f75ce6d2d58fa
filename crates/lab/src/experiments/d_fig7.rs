//! FAST'24, figure 7: the time to read 8 MiB of a drive in parts of 32 KiB to 8 MiB, one after the other and
//! 32 at a time. As in the artefact's interface_NVMe.sh and interface_SATA.sh the parts are chosen at random,
//! from 1 GiB that was written in order; a part that is larger than a request is read with several, in
//! parallel. The paper has one slope for both NVMe drives and one for both SATA drives, so we fit one line to
//! the points of both.

use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::random::Random;
use crate::raw;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::command::Units;
use fragmend_flash::device::Device;
use fragmend_flash::host::Host;
use fragmend_flash::ssd::Ssd;

pub static EXPERIMENT: Experiment = Experiment {
    name: "D-fig7",
    source: "FAST'24, figure 7",
    about: "what one more request costs, alone and among others",
    is_long: false,
    run,
};

/// Interfaces, their drives, and microseconds of one more request at depth 1.
const DRIVES: [(&str, [&str; 2], f64); 2] =
    [("NVMe", ["nvme-a", "nvme-b"], 85.0), ("SATA", ["sata-a", "sata-b"], 136.0)];
/// Units of 4 KiB that are read, and of the area that they are chosen from.
const ALL: u32 = 2048;
const AREA: u32 = (1 << 30) / 4096;
const DEPTH: usize = 32;
/// "Within a few milliseconds", in ms.
const FEW: f64 = 3.0;

fn run(seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (interface, drives, paper) in DRIVES {
        let (mut both, mut details) = (Vec::new(), Vec::new());
        for name in drives {
            let setup = presets::named(name).expect("a preset");
            let written = raw::preconditioned(&setup, AREA);
            let counts = || (0..=8).map(|n| 1_u32 << n);
            let places = |count| places(seed, count);
            let alone: Vec<(f64, f64)> = counts()
                .map(|count| (f64::from(count), one_by_one(&setup, &written, &places(count))))
                .collect();
            let among: Vec<(f64, f64)> = counts()
                .map(|count| (f64::from(count), side_by_side(&setup, &written, &places(count))))
                .collect();
            let what = format!("{name}: one more request at depth 1");
            details.push(Row::ours(what, "us", slope(&alone) * 1000.0));
            let spread = among.iter().map(|(_, ms)| *ms).fold(0.0, f64::max)
                - among.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
            let what = format!("{name}: from the fewest to the most requests at depth {DEPTH}");
            details.push(Row::new(what, "ms", FEW, spread, Band::AtMost));
            both.extend(alone.iter().copied());
            for (depth, points) in [(1, alone), (DEPTH, among)] {
                lines.push((format!("{name}, depth {depth}"), points));
            }
        }
        let what = format!("{interface}: one more request at depth 1");
        let row = Row::new(what, "us", paper, slope(&both) * 1000.0, Band::Percent(10.0));
        // What is left of it beside the flash is the firmware's time in the drives' files.
        rows.push(row.fitted());
        rows.extend(details);
    }
    let plot = Plot::Lines {
        name: "D-fig7".into(),
        title: "Reading 8 MiB in ever smaller units".into(),
        axes: ["requests".into(), "ms".into()],
        logarithmic: true,
        lines,
    };
    Results { rows, plots: vec![plot] }
}

/// `count` random parts of the area, of [`ALL`] units together.
fn places(seed: u64, count: u32) -> Vec<Units> {
    let (unit, mut random) = (ALL / count, Random::new(seed, "interface"));
    (0..count).map(|_| Units::new(random.below(AREA / unit) * unit, unit)).collect()
}

/// Milliseconds of reads of one part after the other.
fn one_by_one(setup: &Setup, ssd: &Ssd, places: &[Units]) -> f64 {
    let mut ssd = ssd.clone();
    let start = ssd.idle_at();
    let mut host = Host::new(&setup.host, &mut ssd, start);
    for units in places {
        host.read(&[*units]).expect("a read");
    }
    (host.now - start) as f64 / 1e6
}

/// Milliseconds of reads of many parts at a time.
fn side_by_side(setup: &Setup, ssd: &Ssd, places: &[Units]) -> f64 {
    let request = setup.host.request_bytes / 4096;
    let parts = places.iter().flat_map(|units| {
        let starts = (units.start..units.end()).step_by(request as usize);
        starts.map(|at| Units::new(at, request.min(units.end() - at)))
    });
    raw::read(ssd.clone(), parts, DEPTH, setup.host.request_ns) as f64 / 1e6
}

/// The slope of the least-squares line through points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mean_x, mean_y) = (
        points.iter().map(|(x, _)| x).sum::<f64>() / n,
        points.iter().map(|(_, y)| y).sum::<f64>() / n,
    );
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    above / below
}
