//! APSys'16, table 1: the fragments of a file after cleaning, with the blocks of a victim copied in their original order and sorted by
//! inode. Eight threads write files in records of 4 KiB, each durable before the next; every second file is deleted, and all segments
//! are cleaned.
//!
//! By the baselines, the files have 2,560 and 25,600 blocks: 10 MiB on the cards and 100 MiB on the SSD. So the baselines only confirm these
//! lengths. The number of fragments does not depend on how fast a drive is, so that one card stands for both.

use super::lfs::Files;
use crate::experiment::{Experiment, Results};
use crate::loads::writers::Written;
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_simfs::segments::{Cleaning, CopyOrder};

pub static EXPERIMENT: Experiment = Experiment {
    name: "L-table1",
    source: "APSys'16, table 1",
    about: "fragments of a file after cleaning, in the original order and sorted by inode",
    is_long: true,
    run,
};

/// A drive, and the fragments of the file as it was written, and after each cleaning.
struct Drive {
    name: &'static str,
    preset: &'static str,
    file_kib: u64,
    paper: [f64; 3],
}

const DRIVES: [Drive; 3] = [
    Drive {
        name: "SD card 1",
        preset: "sd-kingston",
        file_kib: 10 << 10,
        paper: [2560.0, 2549.0, 39.0],
    },
    Drive {
        name: "SD card 2",
        preset: "sd-kingston",
        file_kib: 10 << 10,
        paper: [2560.0, 2556.0, 41.0],
    },
    Drive {
        name: "SSD",
        preset: "ssd-intel-530",
        file_kib: 100 << 10,
        paper: [25_598.0, 25_260.0, 411.0],
    },
];

fn run(_seed: u64) -> Results {
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for Drive { name, preset, file_kib, paper } in DRIVES {
        let existing = cleaned(preset, file_kib, CopyOrder::Original);
        let sorted = cleaned(preset, file_kib, CopyOrder::Inode);
        assert_eq!(existing.baseline, sorted.baseline, "the order is used by the cleaner alone");
        let ours = [existing.baseline, existing.fragments, sorted.fragments];
        for ((what, paper), ours) in WHAT.iter().zip(paper).zip(ours) {
            let name = format!("{name}: {what}");
            let row = Row::new(name, "fragments", paper, ours as f64, Band::Percent(20.0));
            rows.push(if *what == BASELINE { row.fitted() } else { row });
        }
        let (victims, name) = (sorted.victims as f64, name.to_owned());
        rows.push(Row::ours(format!("{name}: victims"), "segments", victims));
        groups.push((name, ours[1..].iter().map(|ours| *ours as f64).collect()));
    }
    let plot = Plot::Bars {
        name: "L-table1".into(),
        title: "Fragments of a file after cleaning".into(),
        axis: "fragments".into(),
        series: WHAT[1..].iter().map(|what| (*what).to_owned()).collect(),
        groups,
    };
    Results { rows, plots: vec![plot] }
}

/// By which the lengths of files were chosen.
const BASELINE: &str = "as it was written";
const WHAT: [&str; 3] = [BASELINE, "existing cleaning", "sorted by inode"];

/// The fragments of a file before and after cleaning, and how many victims there were.
struct Cleaned {
    baseline: u64,
    fragments: u64,
    victims: u64,
}

fn cleaned(preset: &str, file_kib: u64, order: CopyOrder) -> Cleaned {
    let files = interleaved(preset, file_kib, order);
    let baseline = files.fragments(1);
    let victims = files.clean(u64::MAX);
    Cleaned { baseline, fragments: files.fragments(1), victims }
}

/// The files that eight threads wrote, before they are cleaned; four of them are deleted.
pub(super) fn interleaved(preset: &str, file_kib: u64, order: CopyOrder) -> Files {
    let file = Written { file_kib, record_kib: 4 };
    Files::written(preset, &[file; 4], &[file; 4], Cleaning { order, ..Cleaning::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fragments that are left are one for each victim, whatever the length of the files.
    #[test]
    fn the_figure_does_not_depend_on_the_scale() {
        for file_kib in [2 << 10, 4 << 10] {
            let blocks = file_kib / 4;
            let existing = cleaned("sd-kingston", file_kib, CopyOrder::Original);
            assert_eq!((existing.baseline, existing.fragments), (blocks, blocks));
            let sorted = cleaned("sd-kingston", file_kib, CopyOrder::Inode);
            assert_eq!(sorted.baseline, blocks);
            let victims = blocks * 8 / 512;
            assert!(sorted.fragments.abs_diff(victims) <= 1, "{} of {victims}", sorted.fragments);
        }
    }
}
