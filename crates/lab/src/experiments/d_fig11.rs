//! FAST'24, figure 11: reads of a file of 8 MiB whose 256 fragments are all on one die, because the writes
//! between them filled the stripe, or whose parts were overwritten like that; and the same where the writes
//! in between imitate the paper's placement.

use crate::experiment::{Experiment, Results};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::command::Hint;
use fragmend_flash::host::Host;
use fragmend_flash::ssd::Ssd;

pub static EXPERIMENT: Experiment = Experiment {
    name: "D-fig11",
    source: "FAST'24, figure 11",
    about: "files on one die, by fragmentation and by overwrites, and with the dies in turn",
    is_long: false,
    run,
};

struct Drive {
    preset: &'static str,
    /// The change of throughput, in per cent: fragmented, the same with the dies in turn, overwritten, the
    /// same with the dies kept.
    paper: [f64; 4],
    /// Why our figure may be out of its band.
    because: &'static str,
}

/// The figures of the NVMe drives after overwrites are the text's "a drop to a quarter".
const DRIVES: [Drive; 4] = [
    Drive { preset: "nvme-a", paper: [-79.0, -2.0, -75.0, -1.0], because: "" },
    Drive {
        preset: "nvme-b",
        paper: [-76.0, -2.0, -75.0, -1.0],
        because: "figure 8's time for 4 KiB and the channel of table 2 make 43 us for a stripe unit from its die; \
                  50 would be the paper's figure: a channel of 712 MB/s makes it -74.6 %, with figure 8 as it \
                  is, but eight such are less than the 7 GB/s of the data sheet. Were the time added to each \
                  sensing instead, figure 8's 3,020 MB/s would be 1,780",
    },
    Drive {
        preset: "sata-a",
        paper: [-27.0, -1.2, -27.0, -1.2],
        because: "eight of its stripe units are in a flash page of two planes, which is sensed once; the \
                  paper's loss is 33 us for each, half of what a single one takes (figure 8). With four of \
                  them sensed together both losses are 16 per cent, with two 30; with eight that do not stay \
                  in the register, 44 and 6, where the paper has the same twice",
    },
    Drive { preset: "sata-b", paper: [-16.0, -1.2, -16.0, -1.2], because: "" },
];

/// Units of 4 KiB of the file.
const FILE: u32 = 2048;
const FRAGMENTS: u32 = 256;
const CALL: u32 = 256;

fn run(_seed: u64) -> Results {
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for drive in &DRIVES {
        let setup = presets::named(drive.preset).expect("a preset");
        let clean = appended(&setup, None);
        let change = |ours: f64| (ours / clean - 1.0) * 100.0;
        let shape = setup.ssd().shape().clone();
        let (stripe, stripe_unit) =
            (shape.units_per_stripe_unit * shape.dies, shape.units_per_stripe_unit);
        let found = [
            appended(&setup, Some(stripe - stripe_unit)),
            appended(&setup, Some(stripe)),
            overwritten(&setup, stripe - stripe_unit),
            overwritten(&setup, stripe),
        ]
        .map(change);
        let mut row = |what: &str, paper: f64, ours: f64| {
            let name = format!("{}: {what}", drive.preset);
            let row = Row::new(name, "%", paper, ours, Band::Points(4.0));
            rows.push(row.because(drive.because));
        };
        row("fragmented", drive.paper[0], found[0]);
        row("fragmented, dies in turn", drive.paper[1], found[1]);
        row("overwritten", drive.paper[2], found[2]);
        row("overwritten, dies kept", drive.paper[3], found[3]);
        groups.push((drive.preset.to_owned(), found.map(|change| 100.0 + change).to_vec()));
    }
    let series = ["fragmented", "dies in turn", "overwritten", "dies kept"];
    let plot = Plot::Bars {
        name: "D-fig11".into(),
        title: "Reading a file whose parts are on one die, or on dies in turn".into(),
        axis: "per cent of a file written in one go".into(),
        series: series.map(str::to_owned).to_vec(),
        groups,
    };
    Results { rows, plots: vec![plot] }
}

/// MB/s of reading a file that was appended to with this many units written in between, or that was written
/// in one go.
fn appended(setup: &Setup, between: Option<u32>) -> f64 {
    let mut ssd = setup.ssd();
    let stripe_unit = ssd.shape().units_per_stripe_unit;
    let mut host = Host::new(&setup.host, &mut ssd, 0);
    let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
    if let Some(between) = between {
        for _ in 0..FRAGMENTS.min(FILE / stripe_unit) {
            file.append(&mut host, &mut space, stripe_unit).expect("room");
            host.write(&[space.take(between)], Hint::None).expect("room");
        }
    }
    let rest = FILE - file.units();
    if rest > 0 {
        file.append(&mut host, &mut space, rest).expect("room");
    }
    read(&mut host, &file)
}

/// MB/s of reading a file whose parts were overwritten with this many units written in between.
fn overwritten(setup: &Setup, between: u32) -> f64 {
    let mut ssd = setup.ssd();
    let stripe_unit = ssd.shape().units_per_stripe_unit;
    let mut host = Host::new(&setup.host, &mut ssd, 0);
    let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
    file.push(space.take(FILE));
    host.write(&file.within(0, FILE), Hint::None).expect("room");
    for n in 0..FRAGMENTS.min(FILE / stripe_unit) {
        host.write(&file.within(n * stripe_unit, stripe_unit), Hint::None).expect("room");
        host.write(&[space.take(between)], Hint::None).expect("room");
    }
    read(&mut host, &file)
}

/// MB/s of reading a file by calls of 1 MiB, as the artefact's append_maker and overwrite_maker do,
/// once the drive is idle.
fn read(host: &mut Host<Ssd>, file: &FileOnDrive) -> f64 {
    let start = host.wait_until_idle();
    file.read(host, CALL).expect("a read");
    f64::from(FILE) * 4096.0 / ((host.now - start) as f64 / 1e9) / 1e6
}
