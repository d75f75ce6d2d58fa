//! APSys'16, figure 2: sequential reads of a file of 50 MB by the size of its fragments. Two programs write their
//! files in turns, each write durable before the next, as IOzone's synchronous writers do on a log-structured file
//! system; then one of them is read through the page cache with calls of 128 KiB.

use crate::experiment::{Experiment, Results};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::{DriveKind, Setup};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive as Flash, Timing};
use fragmend_flash::host::{Host, HostPath};

pub static EXPERIMENT: Experiment = Experiment {
    name: "L-fig2",
    source: "APSys'16, figure 2",
    about: "sequential reads by the size of fragments, on an SD card and an SSD",
    is_long: false,
    run,
};

struct Drive {
    preset: &'static str,
    /// How many times faster fragments of 1 MiB are read than those of 4 KiB.
    paper: f64,
    because: &'static str,
}

const DRIVES: [Drive; 2] = [
    Drive {
        preset: "sd-kingston",
        paper: 7.5,
        because: "the paper names no model and no throughput; the card here is assumed (sd-kingston.toml)",
    },
    Drive {
        preset: "ssd-intel-530",
        paper: 1.41,
        because: "by its data sheet the drive reads 540 MB/s in order and 41,000 times 4 KiB a second, which alone are \
                  3.2 times apart, and less on a slower link; the paper does not name its drive, its link or its throughput",
    },
];

/// The payload of a SATA link of 3 Gb/s, which carries ten bits for a byte.
const SLOWER_LINK: u64 = 300_000_000;

/// Units of 4 KiB of the file and of the smallest and the largest fragment.
const FILE: u32 = 12_800;
const FRAGMENTS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

fn run(_seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for Drive { preset, paper, because } in DRIVES {
        let setup = presets::named(preset).expect("a preset");
        let measured = by_fragment(&setup);
        let (small, large) = (measured[0], measured[FRAGMENTS.len() - 1]);
        let name = format!("{preset}: fragments of 1 MiB, of those of 4 KiB");
        rows.push(
            Row::new(name, "times", paper, large / small, Band::Percent(20.0)).because(because),
        );
        rows.push(Row::ours(format!("{preset}: fragments of 4 KiB"), "MB/s", small));
        rows.push(Row::ours(format!("{preset}: fragments of 1 MiB"), "MB/s", large));
        if let DriveKind::Flash(drive) = setup.drive.clone() {
            let timing = Timing { link_bytes_per_second: SLOWER_LINK, ..drive.timing.clone() };
            let drive = DriveKind::Flash(Flash { timing, ..drive });
            let [small, .., large] = by_fragment(&Setup { drive, ..setup });
            let name =
                format!("{preset} on a link of 300 MB/s: fragments of 1 MiB, of those of 4 KiB");
            rows.push(Row::ours(name, "times", large / small));
        }
        let points = FRAGMENTS.iter().zip(measured);
        let points = points.map(|(fragment, mbs)| (f64::from(*fragment * 4), mbs)).collect();
        lines.push((preset.to_owned(), points));
    }
    let plot = Plot::Lines {
        name: "L-fig2".into(),
        title: "Sequential reads by the size of fragments".into(),
        axes: ["KiB".into(), "MB/s".into()],
        logarithmic: true,
        lines,
    };
    Results { rows, plots: vec![plot] }
}

/// MB/s of reading files in fragments of each size.
fn by_fragment(setup: &Setup) -> [f64; FRAGMENTS.len()] {
    let (mut drive, mut space) = (setup.device(), Allocator::from(0));
    FRAGMENTS.map(|fragment| mbs(&setup.host, &mut *drive, &mut space, fragment))
}

/// MB/s of reading a file that is written to the drive in fragments of so many units.
fn mbs(path: &HostPath, drive: &mut dyn Device, space: &mut Allocator, fragment: u32) -> f64 {
    let start = drive.idle_at();
    let mut host = Host::new(path, drive, start);
    let (mut file, mut other) = (FileOnDrive::default(), FileOnDrive::default());
    while file.units() < FILE {
        for writer in [&mut file, &mut other] {
            writer.append(&mut host, space, fragment).expect("room");
            host.flush().expect("a flush");
        }
    }
    let start = host.wait_until_idle();
    host.read_buffered(&file.within(0, FILE)).expect("a read");
    f64::from(FILE) * 4096.0 / (host.now - start) as f64 * 1e3
}
