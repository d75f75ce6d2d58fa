//! janusd, figure 7: the throughput of reading a file by its degrees of logical and of physical fragmentation.
//! The degree of physical fragmentation is one less the share of the channels that work at a time (section 3.1),
//! so that at 0.25 and 0.5 the file is on three quarters and on half of them.
//!
//! How large the file of this figure is, and how it is read, is not in the text. It is judged as one of 512 KB, which is the only file that
//! section 3.2 says it reads (for figure 8), read with one direct call. Through the page cache with the kernel's readahead of 128 KiB it
//! would be four requests where it is whole and eight in eight fragments, which cannot cost three quarters of the throughput, whatever
//! a request costs. (This was decided when the result through the page cache was known, and that of a longer readahead.) What is judged
//! thus has rows of its own otherwise: through the page cache, shorter files, a deeper queue. Eight pages of 8 KB are in section 3.3,
//! where they are the example of a probability and not a file that is read.

use super::janusd_file::{DEGREES, FILE, Read, read};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_simfs::file_system::Access;

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

/// Reads with each of [`DEGREES`].
type Reads = [Read; 4];

fn run(_seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for preset in ["simmmc", "simufs"] {
        let setup = presets::named(preset).expect("a preset");
        let measured = PHYSICAL.map(|quarters| {
            DEGREES.map(|degree| on_quarters(&setup, Access::Direct, FILE, degree, quarters))
        });
        rows.extend(rows_of(preset, &measured));
        for kib in SHORTER {
            rows.extend(otherwise(
                &format!("{preset}, {kib} KiB"),
                &setup,
                Access::Direct,
                kib / 4,
            ));
        }
        let mut queued = setup.clone();
        queued.host.queue_depth = 32;
        rows.extend(otherwise(&format!("{preset}, 32 in flight"), &queued, Access::Direct, FILE));
        let cached = format!("{preset}, through the page cache");
        rows.extend(otherwise(&cached, &setup, Access::Buffered, FILE));
        for (quarters, reads) in PHYSICAL.iter().zip(&measured) {
            let name = format!("{preset}, DoF^P {}", f64::from(*quarters) / 4.0);
            let points =
                DEGREES.iter().zip(reads).map(|(degree, read)| (f64::from(*degree), mbs(read)));
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

fn rows_of(preset: &str, measured: &[Reads; 4]) -> Vec<Row> {
    let [even, quarter, half, _] = measured;
    let (clean, split) = (&even[0], &even[3]);
    let most = even.iter().zip(quarter).map(|(even, quarter)| change(even, quarter));
    let most = most.fold(f64::INFINITY, f64::min);
    let constant = "half of the channels need twice the time for the cells and the channels, and the latency of a \
                    request is the same; the paper has less than half of the throughput, which leaves no time \
                    that does not depend on the channels";
    let name = |what: &str| format!("{preset}: {what}");
    vec![
        Row::ours(name("clean"), "MB/s", mbs(clean)),
        Row::new(name("DoF^L 8"), "%", PAPER[0], change(clean, split), Band::Points(5.0)),
        Row::new(name("DoF^P 0.25, worst over DoF^L"), "%", PAPER[1], most, Band::AtLeast),
        Row::new(
            name("DoF^P 0.5: of clean"),
            "%",
            PAPER[2],
            share(clean, &half[0]),
            Band::Points(5.0),
        )
        .because(constant),
    ]
}

/// The same where something is otherwise.
fn otherwise(name: &str, setup: &Setup, access: Access, units: u32) -> [Row; 3] {
    let of = |degree, quarters| on_quarters(setup, access, units, degree, quarters);
    let (clean, split) = (of(1, 0), of(8, 0));
    let further = split.requests as f64 / clean.requests as f64;
    [
        Row::ours(format!("{name}: DoF^L 8"), "%", change(&clean, &split)),
        Row::ours(format!("{name}: DoF^L 8, requests"), "times", further),
        Row::ours(format!("{name}: DoF^P 0.5: of clean"), "%", share(&clean, &of(1, 2))),
    ]
}

/// A read of the file in so many fragments, with so many quarters of the channels left out.
fn on_quarters(setup: &Setup, access: Access, units: u32, fragments: u32, quarters: u32) -> Read {
    let channels = setup.flash().geometry.channels;
    read(setup, access, units, fragments, channels - channels * quarters / 4)
}

/// The throughput of a read, of that of another one of the same bytes, in per cent.
fn share(of: &Read, read: &Read) -> f64 {
    of.spent.total() as f64 * 100.0 / read.spent.total() as f64
}

/// The change of throughput where a read is that one instead of `of`, in per cent.
fn change(of: &Read, read: &Read) -> f64 {
    share(of, read) - 100.0
}

fn mbs(read: &Read) -> f64 {
    f64::from(FILE) * 4096.0 / read.spent.total() as f64 * 1e3
}
