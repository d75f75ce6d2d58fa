//! The first four bars, those of the artefact's `hypothetical_*` scripts: a file of 8 MiB, 256 times {append
//! or overwrite 32 KiB, flush; write 224 KiB (worst case) or 1 to 32 times 32 KiB of a dummy file}, then read
//! with `O_DIRECT` calls of 1 MiB.

use super::PLACEMENTS;
use crate::file::{Allocator, FileOnDrive};
use crate::random::Random;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::command::Hint;
use fragmend_flash::drive::Placement;
use fragmend_flash::host::Host;
use fragmend_flash::ssd::Ssd;
use rayon::prelude::*;

const FRAGMENT: u32 = 8;
const FRAGMENTS: u32 = 256;
const CALL: u32 = 256;

#[derive(Clone, Copy)]
struct Bar {
    name: &'static str,
    overwrites: bool,
    random: bool,
    /// Per cent of the ideal, without and with hints.
    paper: [f64; 2],
    /// MiB/s of the artefact, without and with hints.
    artefact: [f64; 2],
}

const BARS: [Bar; 4] = [
    Bar {
        name: "append worst",
        overwrites: false,
        random: false,
        paper: [19.0, 96.5],
        artefact: [397.3, 2126.5],
    },
    Bar {
        name: "append random",
        overwrites: false,
        random: true,
        paper: [59.4, 94.2],
        artefact: [1470.0, 2063.6],
    },
    Bar {
        name: "overwrite worst",
        overwrites: true,
        random: false,
        paper: [18.2, 97.7],
        artefact: [398.8, 2057.9],
    },
    Bar {
        name: "overwrite random",
        overwrites: true,
        random: true,
        paper: [62.0, 98.4],
        artefact: [1487.3, 2069.3],
    },
];
/// MiB/s of the artefact for a file that was written in one go.
const CONTIGUOUS: f64 = 2174.5;
/// Runs over which random cases are averaged.
const ROUNDS: u64 = 10;

/// Why two percentages cannot be the paper's.
const CONTRADICTION: &str = "the paper's percentage and its artefact's throughputs disagree: of \
    2174.5 MiB/s in one go, 1470.0 and 1487.3 are 67.6 and 68.4 per cent";

/// Why random appends with hints cost less here.
const SHARED_CHANNEL: &str = "that a die's pages take 30 or 42 us to sense, now in no order, hides \
    behind the channel that the die shares; the artefact loses five per cent by it, its throughput is \
    within four per cent of ours";

/// The rows, and the bars by placement.
pub fn bars(setup: &Setup, seed: u64) -> (Vec<Row>, Vec<(String, Vec<f64>)>) {
    let ideal = contiguous(setup);
    let throughput = |name: &str, paper: f64, ours: f64| {
        Row::new(format!("{name}: throughput"), "MiB/s", paper, ours, Band::Percent(4.0))
    };
    let mut rows = vec![throughput("contiguous", CONTIGUOUS, ideal)];
    let mut groups = Vec::new();
    let of_bar = |bar: &Bar| PLACEMENTS.map(|(placement, _)| mean(setup, placement, *bar, seed));
    let measured: Vec<[f64; 3]> = BARS.par_iter().map(of_bar).collect();
    for (bar, measured) in BARS.iter().zip(measured) {
        let mut heights = Vec::new();
        for (which, ours) in measured.into_iter().enumerate() {
            let with = PLACEMENTS[which].1;
            let percent = ours / ideal * 100.0;
            heights.push(percent);
            let (name, of_ideal) = (format!("{}, {with}", bar.name), Band::Points(4.0));
            let what = format!("{name}: of ideal");
            match bar.paper.get(which) {
                Some(paper) => {
                    let row = Row::new(what, "%", *paper, percent, of_ideal);
                    rows.push(row.because(if which == 0 { CONTRADICTION } else { SHARED_CHANNEL }));
                    rows.push(throughput(&name, bar.artefact[which], ours));
                }
                None => rows.push(Row::ours(what, "%", percent)),
            }
        }
        groups.push((bar.name.to_owned(), heights));
    }
    (rows, groups)
}

/// MiB/s; of random cases the mean of [`ROUNDS`] runs.
fn mean(setup: &Setup, placement: Placement, bar: Bar, seed: u64) -> f64 {
    let rounds = if bar.random { ROUNDS } else { 1 };
    let one = |round| measured(setup, placement, bar, &mut numbers(seed, bar, round));
    (0..rounds).map(one).sum::<f64>() / rounds as f64
}

fn numbers(seed: u64, bar: Bar, round: u64) -> Random {
    Random::new(seed.wrapping_add(round), bar.name)
}

fn contiguous(setup: &Setup) -> f64 {
    let mut ssd = setup.ssd();
    let mut host = Host::new(&setup.host, &mut ssd, 0);
    let mut file = FileOnDrive::default();
    file.push(Allocator::from(0).take(FRAGMENT * FRAGMENTS));
    host.write(&file.within(0, file.units()), Hint::None).expect("room");
    read(&mut host, &file)
}

fn measured(setup: &Setup, placement: Placement, bar: Bar, random: &mut Random) -> f64 {
    let mut drive = setup.flash().clone();
    drive.firmware.placement = placement;
    let mut ssd = Ssd::new(&drive).expect("a parsed drive");
    let mut host = Host::new(&setup.host, &mut ssd, 0);
    let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
    if bar.overwrites {
        file.push(space.take(FRAGMENT * FRAGMENTS));
        host.write(&file.within(0, file.units()), Hint::None).expect("room");
    }
    for n in 0..FRAGMENTS {
        if bar.overwrites {
            host.write(&file.within(n * FRAGMENT, FRAGMENT), Hint::Overwrite).expect("room");
        } else {
            file.append(&mut host, &mut space, FRAGMENT).expect("room");
        }
        host.flush().expect("a flush");
        let dummy = if bar.random { random.within(1, 32) } else { 7 };
        host.write(&[space.take(dummy * FRAGMENT)], Hint::None).expect("room");
    }
    read(&mut host, &file)
}

/// MiB/s of a read of the file once the drive is idle.
fn read(host: &mut Host<Ssd>, file: &FileOnDrive) -> f64 {
    let start = host.wait_until_idle();
    file.read(host, CALL).expect("a read");
    let bytes = f64::from(file.units()) * 4096.0;
    bytes / (1 << 20) as f64 / ((host.now - start) as f64 / 1e9)
}
