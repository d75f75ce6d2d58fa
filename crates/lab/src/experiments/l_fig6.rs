//! APSys'16, figure 6: sequential reads of one of table 1's files after cleaning, by the length of calls, through the page cache. The
//! text has the highest gain of each drive. The file on the SSD has 20 MiB here, not table 1's 100, which does not change the gain.

use super::l_table1::interleaved;
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_simfs::segments::CopyOrder;

pub static EXPERIMENT: Experiment = Experiment {
    name: "L-fig6",
    source: "APSys'16, figure 6",
    about: "sequential reads of a file after cleaning, in the original order and sorted by inode",
    is_long: false,
    run,
};

/// A drive, and by how much sorting by inode reads faster at best.
struct Drive {
    name: &'static str,
    preset: &'static str,
    file_kib: u64,
    paper: f64,
    because: &'static str,
}

const DRIVES: [Drive; 3] = [
    Drive {
        name: "SD card 1",
        preset: "sd-kingston",
        file_kib: 10 << 10,
        paper: 6.77,
        because: "the paper names no model and no throughput; the card here is assumed (sd-kingston.toml)",
    },
    Drive {
        name: "SD card 2",
        preset: "sd-kingston",
        file_kib: 10 << 10,
        paper: 4.34,
        because: "there is no drive of the second card: the paper names its maker, and neither its model nor its \
                  throughput; the figure is that of the first one",
    },
    Drive {
        name: "SSD",
        preset: "ssd-intel-530",
        file_kib: 20 << 10,
        paper: 1.27,
        because: "by its data sheet the drive reads 540 MB/s in order and 41,000 times 4 KiB a second, which alone are \
                  3.2 times apart, as in L-fig2; the paper names neither drive nor throughput",
    },
];

/// The lengths of calls, in KiB: 4 KiB to 2 MiB.
const CALLS: [u64; 10] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

fn run(_seed: u64) -> Results {
    let (mut rows, mut plots) = (Vec::new(), Vec::new());
    for Drive { name, preset, file_kib, paper, because } in DRIVES {
        let existing = by_call(preset, file_kib, CopyOrder::Original);
        let sorted = by_call(preset, file_kib, CopyOrder::Inode);
        let gains = existing.iter().zip(&sorted).map(|(existing, sorted)| sorted / existing);
        let gain = gains.fold(0.0, f64::max);
        let what = format!("{name}: sorted by inode, of existing cleaning, at best");
        rows.push(Row::new(what, "times", paper, gain, Band::Percent(20.0)).because(because));
        for (order, mbs) in [("existing cleaning", &existing), ("sorted by inode", &sorted)] {
            let most = mbs.iter().copied().fold(0.0, f64::max);
            rows.push(Row::ours(format!("{name}: {order}, at best"), "MB/s", most));
        }
        let line = |of: &str, mbs: [f64; CALLS.len()]| {
            let points = CALLS.iter().map(|call| *call as f64).zip(mbs).collect();
            (of.to_owned(), points)
        };
        plots.push(Plot::Lines {
            name: format!("L-fig6-{}", plots.len() + 1),
            title: format!("Sequential reads after cleaning, {name}"),
            axes: ["KiB of a call".into(), "MB/s".into()],
            logarithmic: true,
            lines: vec![line("existing cleaning", existing), line("sorted by inode", sorted)],
        });
    }
    Results { rows, plots }
}

/// MB/s of reading a file by the length of calls, after all segments were cleaned in this order.
fn by_call(preset: &str, file_kib: u64, order: CopyOrder) -> [f64; CALLS.len()] {
    let files = interleaved(preset, file_kib, order);
    files.clean(u64::MAX);
    CALLS.map(|kib| files.mbs(1, kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_do_not_depend_on_the_scale() {
        for Drive { preset, file_kib, .. } in DRIVES {
            let gain = |file_kib| {
                let [existing, sorted] = [CopyOrder::Original, CopyOrder::Inode]
                    .map(|order| by_call(preset, file_kib, order));
                existing.iter().zip(&sorted).map(|(old, new)| new / old).fold(0.0, f64::max)
            };
            let (small, large) = (gain(file_kib / 2), gain(file_kib));
            assert!((small / large - 1.0).abs() < 0.02, "{preset}: {small} and {large}");
        }
    }
}
