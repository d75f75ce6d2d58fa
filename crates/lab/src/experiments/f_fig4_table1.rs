//! FragPicker, figure 4 and table 1: reads of a file from its start to its end with calls of 128 KiB, by the
//! size of its fragments, which are 1 MiB apart, and by the distance of fragments of 4 KiB; correlation and
//! slope by the paper's equations 1 and 2, of the throughput over the lowest.

use crate::experiment::{Experiment, Results};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::presets;
use crate::raw;
use crate::row::{Band, Row};
use crate::setup::{DriveKind, Setup};
use fragmend_flash::device::Device;
use fragmend_flash::host::Host;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig4-table1",
    source: "FragPicker, figure 4 and table 1",
    about: "what the size of fragments and the distance between them matter to four drives",
    is_long: false,
    run,
};

/// The correlation coefficient (CC) and the normalized slope (NLRS) by KiB.
#[derive(Clone, Copy)]
struct Fit {
    cc: f64,
    slope: f64,
}

/// A row of table 1.
struct Drive {
    preset: &'static str,
    /// By fragment size, up to 128 KiB and from there on, and by distance.
    paper: [Fit; 3],
}

const fn fit(cc: f64, slope: f64) -> Fit {
    Fit { cc, slope }
}

const DRIVES: [Drive; 5] = [
    Drive {
        preset: "hdd",
        paper: [fit(0.9898939, 0.1027717), fit(0.9219008, 0.0204404), fit(-0.5333534, -0.0345131)],
    },
    Drive {
        preset: "microsd",
        paper: [fit(0.8889961, 0.0380474), fit(0.7488593, 0.0001394), fit(0.2562098, 0.0000272)],
    },
    Drive {
        preset: "sata-850pro",
        paper: [fit(0.8437115, 0.0027932), fit(0.7475056, 0.0000129), fit(0.3109179, 0.0000581)],
    },
    Drive {
        preset: "optane",
        paper: [fit(0.8883913, 0.0096721), fit(0.4166667, 0.0000022), fit(-0.1539585, -0.0000091)],
    },
    // The card again, behind a reader that it may have had.
    Drive {
        preset: "microsd-usb2",
        paper: [fit(0.8889961, 0.0380474), fit(0.7488593, 0.0001394), fit(0.2562098, 0.0000272)],
    },
];

/// Drives whose files have a constant that was chosen by their slope up to 128 KiB.
const FITTED: [&str; 2] = ["optane", "microsd-usb2"];

/// Units of 4 KiB of the file, whose size the paper does not state, and of a call.
const FILE: u32 = 4096;
const CALL: u32 = 32;
const SIZES_KIB: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// How many of those are up to 128 KiB, the size of a call.
const UP_TO_CALL: usize = 6;
const DISTANCE_KIB: u32 = 1024;
/// The slope collapses if it is this many times less beyond 128 KiB than before.
const COLLAPSE: f64 = 100.0;
/// The paper's "irrelevant": a slope of less than a tenth of the throughput over 1 MiB.
const NO_SLOPE: f64 = 0.0001;

fn run(_seed: u64) -> Results {
    let (mut rows, mut by_size, mut by_distance) = (Vec::new(), Vec::new(), Vec::new());
    let mut slopes: Vec<f64> = Vec::new();
    for Drive { preset, paper } in DRIVES {
        let setup = presets::named(preset).expect("a preset");
        let sizes = SIZES_KIB.map(|kib| (f64::from(kib), throughput(&setup, kib, DISTANCE_KIB)));
        let distances = SIZES_KIB.map(|kib| (f64::from(kib), throughput(&setup, 4, kib)));
        let [sizes, distances] = [sizes, distances].map(normalized);
        let before = fit_line(&sizes[..UP_TO_CALL]);
        let after = fit_line(&sizes[UP_TO_CALL - 1..]);
        let distance = fit_line(&distances);
        let row = |what: &str, unit: &str, paper: f64, ours: f64, band| {
            Row::new(format!("{preset}: {what}"), unit, paper, ours, band)
        };
        let cc = |what: &str, paper: Fit, ours: Fit| {
            row(&format!("{what}, CC"), "", paper.cc, ours.cc, Band::Sign)
        };
        let slope = |what: &str, paper: Fit, ours: Fit, band| {
            row(&format!("{what}, NLRS"), "1/KiB", paper.slope, ours.slope, band)
        };
        let (small, large) = ("fragment size to 128 KiB", "fragment size from 128 KiB");
        let up_to_call = slope(small, paper[0], before, Band::Sign);
        let is_fitted = FITTED.contains(&preset);
        rows.extend([
            cc(small, paper[0], before),
            if is_fitted { up_to_call.fitted() } else { up_to_call },
            cc(large, paper[1], after),
            slope(large, paper[1], after, Band::Sign),
        ]);
        let collapse = before.slope / after.slope;
        let is_disk = preset == "hdd";
        let band = if is_disk { Band::AtMost } else { Band::AtLeast };
        rows.push(row("NLRS to 128 KiB, of that from there", "times", COLLAPSE, collapse, band));
        let correlation = cc("distance", paper[2], distance);
        if is_disk {
            rows.extend([correlation, slope("distance", paper[2], distance, Band::Sign)]);
        } else {
            let [here, there] = [distance, paper[2]].map(|fit| fit.slope * 1024.0 * 100.0);
            let because = format!(
                "a distance of 1 MiB changes the throughput by {here:+.1} % of the lowest here, and by {there:+.1} % in the paper, \
                 which calls it irrelevant"
            );
            rows.push(slope("distance", paper[2], distance, Band::Points(NO_SLOPE)));
            rows.push(correlation.because(because));
        }
        slopes.push(before.slope);
        by_size.push((preset.to_owned(), sizes.to_vec()));
        by_distance.push((preset.to_owned(), distances.to_vec()));
    }
    let order = [("hdd", "microsd", 0, 1), ("microsd", "optane", 1, 3)];
    for (more, less, a, b) in order.into_iter().chain([("optane", "sata-850pro", 3, 2)]) {
        let name = format!("NLRS to 128 KiB: {more}, of {less}");
        rows.push(Row::new(name, "times", 1.0, slopes[a] / slopes[b], Band::AtLeast));
    }
    let plot = |name: &str, below: &str, lines| Plot::Lines {
        name: name.into(),
        title: "Reading a file from its start to its end".into(),
        axes: [below.into(), "throughput over the lowest".into()],
        logarithmic: true,
        lines,
    };
    let plots = vec![
        plot("F-fig4-size", "fragment size, KiB", by_size),
        plot("F-fig4-distance", "distance of fragments, KiB", by_distance),
    ];
    Results { rows, plots }
}

/// Units per nanosecond of reading a file of fragments of this size, with this distance from the end of one
/// to the start of the next.
fn throughput(setup: &Setup, fragment_kib: u32, distance_kib: u32) -> f64 {
    let (fragment, distance) = (fragment_kib / 4, distance_kib / 4);
    let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
    while file.units() < FILE {
        file.push(space.take(fragment));
        space.take(distance);
    }
    let all = space.take(0).start;
    // Only a flash drive must be written before it is read.
    let mut device: Box<dyn Device> = match &setup.drive {
        DriveKind::Flash(_) => Box::new(raw::preconditioned(setup, all)),
        DriveKind::Zoned { .. } | DriveKind::InPlace(_) => setup.device(),
    };
    let start = device.idle_at();
    let elapsed = read(setup, &mut *device, &file, start);
    f64::from(FILE) / elapsed as f64
}

/// Nanoseconds of a read of the file that begins at `start`.
fn read(setup: &Setup, drive: &mut dyn Device, file: &FileOnDrive, start: u64) -> u64 {
    let mut host = Host::new(&setup.host, drive, start);
    file.read(&mut host, CALL).expect("a read");
    host.now - start
}

/// The throughputs over the lowest of them.
fn normalized(points: [(f64, f64); 9]) -> [(f64, f64); 9] {
    let lowest = points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    points.map(|(x, y)| (x, y / lowest))
}

/// The correlation and the slope by equations 1 and 2.
fn fit_line(points: &[(f64, f64)]) -> Fit {
    let mean =
        |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / points.len() as f64;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |term: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| term(x - mean_x, y - mean_y)).sum()
    };
    let (both, xs, ys) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    Fit { cc: both / (xs * ys).sqrt(), slope: both / xs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_1_and_2() {
        let line = fit_line(&[(4.0, 1.0), (8.0, 3.0), (16.0, 7.0)]);
        assert!((line.cc - 1.0).abs() < 1e-9 && (line.slope - 0.5).abs() < 1e-9);
        let down = fit_line(&[(4.0, 3.0), (8.0, 2.5), (16.0, 1.5)]);
        assert!((down.cc + 1.0).abs() < 1e-9 && (down.slope + 0.125).abs() < 1e-9);
    }
}
