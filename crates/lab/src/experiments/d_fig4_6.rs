//! FAST'24, figures 4 to 6: a file of 8 MiB on a ramdisk by its degree of fragmentation, read with one call
//! into a buffer that is used for the first time, one request at a time and 128: what the split of requests
//! costs where the drive costs next to nothing, and in which layer.
//!
//! The host's costs are derived from the times at depth 1 of a DoF of 1 and of 256 (ramdisk.toml), so those
//! two figures only confirm the derivation; the others follow from it.

use crate::experiment::{Experiment, Results};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::{DriveKind, Setup};
use fragmend_flash::host::{Host, TimeSpent};

pub static EXPERIMENT: Experiment = Experiment {
    name: "D-fig4-6",
    source: "FAST'24, figures 4 to 6",
    about: "what splitting requests costs the host, and where",
    is_long: false,
    run,
};

/// Units of 4 KiB of the file, and from the start of a fragment to the start of the next.
const FILE: u32 = 2048;
const DEEP: u32 = 128;
/// Milliseconds at depth 1 and a DoF of 256, and how many times those at a DoF of 1 they are.
const SLOWEST: (f64, f64) = (9.7, 1.5);

/// The name of a layer, and its time.
type Layer = (&'static str, fn(&TimeSpent) -> u64);

/// The measured figures of one read.
#[derive(Clone, Copy)]
struct Read {
    degree: u32,
    requests: u64,
    spent: TimeSpent,
}

impl Read {
    fn ms(&self) -> f64 {
        self.spent.total() as f64 / 1e6
    }
}

fn run(_seed: u64) -> Results {
    let setup = presets::named("ramdisk").expect("a preset");
    let at =
        |depth: u32| -> Vec<Read> { (0..=8).map(|n| read(&setup, 1_u32 << n, depth)).collect() };
    let (alone, deep) = (at(1), at(DEEP));
    let (first, last) = (alone[0], alone[8]);
    let fifteen = Band::Percent(15.0);
    let by = SLOWEST.1;
    let mut rows: Vec<Row> = [
        ("DoF 1, depth 1", "ms", SLOWEST.0 / by, first.ms()),
        ("DoF 256, depth 1", "ms", SLOWEST.0, last.ms()),
        ("DoF 256, depth 1: of DoF 1", "times", by, last.ms() / first.ms()),
    ]
    .map(|(what, unit, paper, ours)| Row::new(what, unit, paper, ours, fifteen).fitted())
    .into();
    let mut row = |what: &str, unit: &str, paper: f64, ours: f64, band| {
        rows.push(Row::new(what, unit, paper, ours, band));
    };
    row("DoF 8, depth 1: of DoF 1", "times", 1.0, alone[3].ms() / first.ms(), fifteen);
    let name = format!("DoF 256, depth {DEEP}: of DoF 1");
    row(&name, "times", 1.0, deep[8].ms() / deep[0].ms(), fifteen);

    // Figure 5; the growth of its parts is in the text.
    let growth =
        |layer: fn(&TimeSpent) -> u64| (layer(&last.spent) - layer(&first.spent)) as f64 / 1e3;
    let (iomaps, bios) = (growth(|s| s.file_system), growth(|s| s.bio + s.pages));
    let (requests, of_iomaps) = (growth(|s| s.request), last.spent.file_system);
    let iomap_times = of_iomaps as f64 / first.spent.file_system as f64;
    row("iomaps, DoF 256 of DoF 1", "times", 256.0, iomap_times, Band::Exact);
    row("requests at DoF 256", "requests", 256.0, last.requests as f64, Band::Exact);
    row("growth of bios, of that of iomaps", "times", 1.0, bios / iomaps, Band::AtMost);
    let of_bios = last.spent.pages as f64 / (last.spent.pages + last.spent.bio) as f64;
    row("pages, of the time for bios", "%", 50.0, of_bios * 100.0, Band::AtLeast);

    // Figure 6: the host time that the drive's work hides.
    let (overlapped, work) = (deep[7], busy_ms(&setup));
    let host = overlapped.spent.host() as f64 / 1e6;
    let hidden = 1.0 - (overlapped.ms() - work) / host;
    let name = format!("DoF 128, depth {DEEP}: host time that the drive's hides");
    row(&name, "%", 50.0, hidden * 100.0, Band::AtLeast);
    for (what, us) in [("iomaps", iomaps), ("bios", bios), ("requests", requests)] {
        rows.push(Row::ours(format!("growth of {what} to DoF 256"), "us", us));
    }
    let wakes = growth(|s| s.wake + s.completion);
    rows.push(Row::ours("growth of completions and wake-ups to DoF 256", "us", wakes));
    Results { rows, plots: plots(&alone, &deep) }
}

fn plots(alone: &[Read], deep: &[Read]) -> Vec<Plot> {
    let points = |reads: &[Read]| reads.iter().map(|r| (f64::from(r.degree), r.ms())).collect();
    let elapsed = Plot::Lines {
        name: "D-fig4".into(),
        title: "Reading 8 MiB on a ramdisk by its degree of fragmentation".into(),
        axes: ["DoF".into(), "ms".into()],
        logarithmic: true,
        lines: vec![("depth 1".into(), points(alone)), (format!("depth {DEEP}"), points(deep))],
    };
    let layers: [Layer; 7] = [
        ("iomap", |s| s.file_system),
        ("bio", |s| s.bio),
        ("pages", |s| s.pages),
        ("request", |s| s.request),
        ("completion", |s| s.completion),
        ("wake-ups", |s| s.wake),
        ("drive", |s| s.waiting),
    ];
    let bars =
        |read: &Read| layers.iter().map(|(_, time)| time(&read.spent) as f64 / 1e6).collect();
    let composition = Plot::Bars {
        name: "D-fig5".into(),
        title: "Where the time goes, one request at a time".into(),
        axis: "ms".into(),
        series: layers.iter().map(|(name, _)| (*name).to_owned()).collect(),
        groups: alone.iter().map(|read| (format!("DoF {}", read.degree), bars(read))).collect(),
    };
    vec![elapsed, composition]
}

/// Milliseconds that the drive needs to copy the file.
fn busy_ms(setup: &Setup) -> f64 {
    let DriveKind::InPlace(drive) = &setup.drive else { panic!("a ramdisk is no flash drive") };
    let rate = drive.link_bytes_per_second;
    f64::from(FILE) * 4096.0 / rate as f64 * 1e3
}

fn read(setup: &Setup, degree: u32, depth: u32) -> Read {
    let mut path = setup.host.clone();
    path.queue_depth = depth;
    let mut drive = setup.device();
    let mut host = Host::new(&path, &mut *drive, 0).with_new_buffer();
    let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
    for _ in 0..degree {
        file.push(space.take(FILE / degree));
        space.take(FILE - FILE / degree);
    }
    file.read(&mut host, FILE).expect("a read");
    Read { degree, requests: host.requests, spent: host.spent }
}
