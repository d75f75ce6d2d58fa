//! janusd, figure 8: where the time of reading a file of 512 KB goes, by layer, as its degree of logical
//! fragmentation grows. The paper measured smartphones with eMMC and UFS, not its emulated drives, and its text has no
//! figures: the block layer, the driver and the drive need more time, the file system and the page cache hardly do.
//!
//! A bio and a request are the block layer's, a completion and a wake-up the driver's, a look-up of an extent the
//! file system's, pages and the system call the page cache's. That the page cache's time does not grow is how the host is modelled, where a
//! page costs the same in any extent: so that is not judged.

use super::janusd_file::{DEGREES, FILE, read};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use fragmend_flash::host::TimeSpent;
use fragmend_simfs::file_system::Access;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-fig8",
    source: "janusd, figure 8",
    about: "the time of a read by layer, as logical fragmentation grows",
    is_long: false,
    run,
};

/// Why the drive may not take longer.
const QUEUED: &str = "with a queue the drive works on the next requests while the host makes and completes others, \
    and larger parts of the file arrive before they are waited for";

/// The name of a layer, and its time.
type Layer = (&'static str, fn(&TimeSpent) -> u64);
const LAYERS: [Layer; 5] = [
    ("file system", |spent| spent.file_system),
    ("page cache", |spent| spent.system_call + spent.pages),
    ("block layer", |spent| spent.bio + spent.request),
    ("driver", |spent| spent.completion + spent.wake),
    ("drive", |spent| spent.waiting),
];

fn run(_seed: u64) -> Results {
    let (mut rows, mut plots) = (Vec::new(), Vec::new());
    for preset in ["emmc-5.0", "ufs-2.0"] {
        let setup = presets::named(preset).expect("a preset");
        let channels = setup.flash().geometry.channels;
        let spent =
            DEGREES.map(|degree| read(&setup, Access::Buffered, FILE, degree, channels).spent);
        // The growth of each layer, in microseconds.
        let growth =
            LAYERS.map(|(_, layer)| (layer(&spent[3]) as f64 - layer(&spent[0]) as f64) / 1e3);
        let [files, cache, block, driver, drive] = growth;
        let name = |what: &str| format!("{preset}: {what}");
        rows.push(Row::new(
            name("growth of block layer and driver, of that of file system and page cache"),
            "times",
            1.0,
            (block + driver) / (files + cache),
            Band::AtLeast,
        ));
        let waits = Row::new(name("growth of the drive"), "us", 0.0, drive, Band::AtLeast);
        rows.push(waits.because(QUEUED));
        for ((layer, _), us) in LAYERS.iter().zip(growth) {
            rows.push(Row::ours(name(&format!("{layer}, DoF^L 1 to 8")), "us", us));
        }
        let bars = |spent: &TimeSpent| {
            LAYERS.iter().map(|(_, layer)| layer(spent) as f64 / 1e3).collect::<Vec<_>>()
        };
        plots.push(Plot::Bars {
            name: format!("J-fig8-{preset}"),
            title: format!("Where the time goes, reading 512 KB of {preset}"),
            axis: "us".into(),
            series: LAYERS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            groups: DEGREES
                .iter()
                .zip(&spent)
                .map(|(degree, spent)| (format!("DoF^L {degree}"), bars(spent)))
                .collect(),
        });
    }
    Results { rows, plots }
}
