//! FAST'24, figure 3: the time to read a file of 8 MiB by its degree of fragmentation, whose fragments are 8
//! MiB apart, with deep queues and one request at a time. As in the artefact's varyingdof_NVMe.sh, dd reads
//! all of it with one call into a buffer that it has never used.

use crate::experiment::{Experiment, Results};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::{DriveKind, Setup};
use fragmend_flash::command::Hint;
use fragmend_flash::host::Host;

pub static EXPERIMENT: Experiment = Experiment {
    name: "D-fig3",
    source: "FAST'24, figure 3",
    about: "a file of 8 MiB in 1 to 256 fragments, 8 MiB apart",
    is_long: false,
    run,
};

/// A drive of the paper.
struct Drive {
    preset: &'static str,
    /// How many times longer a read lasts than that of a contiguous file, at a DoF of 128 and of 256 and
    /// depth 1023.
    paper: [f64; 2],
    /// Why our figure may be out of its band.
    because: &'static str,
}

/// The drive that may have the dies of a channel in turn.
const WAYS: &str = "nvme-a";
const DRIVES: [Drive; 2] = [
    Drive {
        preset: "nvme-a",
        paper: [2.7, 4.4],
        because: "64 KiB are on two dies of two channels here, which takes half of the time; were they on two \
                  dies of one channel, its transfers would take longer than a die does: a row has that, and \
                  figures 8 and 11 stay as they are by it. Which it is the paper does not state",
    },
    Drive {
        preset: "nvme-b",
        paper: [1.3, 1.9],
        because: "8 MiB are whole stripes of this drive, so its 256 fragments are on one die, as \
                  in figure 11, which has it four times slower for that; 1.9 is between \
                  what one and what two dies give. One stripe unit more for each GiB, written between them \
                  by the drive itself, would make it 2.0; but then 1.6 would stay at DoF 128, and the same \
                  would make nvme-a's 4.4 into 2.5",
    },
];
/// Units of 4 KiB of the file, and from the start of a fragment to the start of the next.
const FILE: u32 = 2048;

fn run(_seed: u64) -> Results {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for Drive { preset: name, paper, because } in DRIVES {
        let setup = presets::named(name).expect("a preset");
        let degrees = || (0..=8).map(|n| 1_u32 << n);
        let at = |depth: u32| -> Vec<(f64, f64)> {
            degrees().map(|degree| (f64::from(degree), elapsed_ms(&setup, degree, depth))).collect()
        };
        let (deep, alone) = (at(1023), at(1));
        let times =
            |points: &[(f64, f64)], degree: u32| points[degree.ilog2() as usize].1 / points[0].1;
        let mut row = |what: &str, paper: f64, ours: f64, band| {
            let name = format!("{name}: {what}");
            rows.push(Row::new(name, "times", paper, ours, band).because(because));
        };
        row("DoF 128, depth 1023", paper[0], times(&deep, 128), Band::Percent(20.0));
        row("DoF 256, depth 1023", paper[1], times(&deep, 256), Band::Percent(20.0));
        row("DoF 8, depth 1023", 1.0, times(&deep, 8), Band::Percent(20.0));
        row("DoF 256, depth 1 over depth 1023", 1.0, alone[8].1 / deep[8].1, Band::AtLeast);
        if name == WAYS {
            rows.push(ways_first(&setup, 128));
        }
        for (depth, points) in [(1023, deep), (1, alone)] {
            lines.push((format!("{name}, depth {depth}"), points));
        }
    }
    let plot = Plot::Lines {
        name: "D-fig3".into(),
        title: "Reading 8 MiB by its degree of fragmentation".into(),
        axes: ["DoF".into(), "ms".into()],
        logarithmic: true,
        lines,
    };
    Results { rows, plots: vec![plot] }
}

/// The same on a drive where the dies of a channel have their turns one after the other.
fn ways_first(setup: &Setup, degree: u32) -> Row {
    let mut setup = setup.clone();
    if let DriveKind::Flash(drive) = &mut setup.drive {
        drive.geometry.ways_first = true;
    }
    let times = elapsed_ms(&setup, degree, 1023) / elapsed_ms(&setup, 1, 1023);
    let name = format!("{WAYS}, the dies of a channel in turn: DoF {degree}, depth 1023");
    Row::ours(name, "times", times)
}

fn elapsed_ms(setup: &Setup, degree: u32, depth: u32) -> f64 {
    let mut path = setup.host.clone();
    path.queue_depth = depth;
    let mut ssd = setup.ssd();
    let mut host = Host::new(&path, &mut ssd, 0);
    let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
    let fragment = FILE / degree;
    for _ in 0..degree {
        file.append(&mut host, &mut space, fragment).expect("room");
        if fragment < FILE {
            host.write(&[space.take(FILE - fragment)], Hint::None).expect("room");
        }
    }
    let start = host.wait_until_idle();
    let mut host = Host::new(&path, host.device, start).with_new_buffer();
    file.read(&mut host, FILE).expect("a read");
    (host.now - start) as f64 / 1e6
}
