//! APSys'16, figure 7: sequential reads of the eight files of table 2, which are written at the same time, after a limited number of
//! cleanings whose victims are chosen by cost and benefit, and by the degree of fragmentation. Blocks are sorted by inode in both.
//!
//! The paper creates dump files and deletes them, and states neither their sizes nor the number of cleanings. Here each file has a dump
//! file of the same size and record beside it, so that half of each segment is invalid whatever it holds, and a quarter of the victims
//! that there are is cleaned; other shares are in the picture. Files 5 and 6 gain where files 1 to 4 and 8 have ended, and after file 7's
//! own segments: not yet after an eighth of the victims.
//!
//! How many candidates "several" are is not stated either, and the figure depends on it, as on the number of cleanings. Here they are as many
//! as F2FS's search for a victim looks at. With the eight of the planner's policy `segments` the two policies clean the same segments but
//! for seven at most, so that nothing is gained: a row says so.

use super::lfs::Files;
use crate::experiment::{Experiment, Results};
use crate::loads::writers::TABLE_2;
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_simfs::segments::{Cleaning, CopyOrder, Victims};

pub static EXPERIMENT: Experiment = Experiment {
    name: "L-fig7-table2",
    source: "APSys'16, figure 7 and table 2",
    about: "sequential reads after few cleanings, with victims chosen by their fragmentation or not",
    is_long: true,
    run,
};

const PRESET: &str = "sd-kingston";
/// By how much file 5 is read faster.
const PAPER: f64 = 1.4;
/// The files that are.
const FASTER: [usize; 3] = [5, 6, 7];
/// `DEF_MAX_VICTIM_SEARCH` (fs/f2fs/gc.h).
const AWARE: Victims = Victims::FragmentationAware { candidates: 4096 };
const FEW: Victims = Victims::FragmentationAware { candidates: 8 };
/// Shares of all victims that are cleaned, in eighths, and the one of the rows.
const EIGHTHS: [u64; 4] = [1, 2, 4, 8];
const ROWS: usize = 1;
/// Bytes of a call of the reader, as in figure 2.
const CALL: u64 = 128 << 10;

fn run(_seed: u64) -> Results {
    let all = written(AWARE).clean(u64::MAX);
    let measured = EIGHTHS.map(|eighths| gains(AWARE, all * eighths / 8));
    let few = gains(FEW, all * EIGHTHS[ROWS] / 8);
    let mut rows: Vec<Row> =
        (1..=TABLE_2.len()).map(|file| row(file, measured[ROWS][file - 1])).collect();
    rows.push(Row::ours("file 5: with eight candidates", "times", few[4]));
    rows.push(Row::ours("segments that can be cleaned", "segments", all as f64));
    let lines = (0..TABLE_2.len()).map(|n| {
        let points = EIGHTHS.iter().zip(&measured);
        let points = points.map(|(eighths, gains)| (*eighths as f64 * 12.5, gains[n]));
        (format!("file {}", n + 1), points.collect())
    });
    let plot = Plot::Lines {
        name: "L-fig7".into(),
        title: "Reads with fragmentation-aware victims, of cost-benefit".into(),
        axes: ["% of the victims cleaned".into(), "times".into()],
        logarithmic: false,
        lines: lines.collect(),
    };
    Results { rows, plots: vec![plot] }
}

fn row(file: usize, gain: f64) -> Row {
    let name = format!("file {file}: fragmentation-aware, of cost-benefit");
    match file {
        5 => Row::new(name, "times", PAPER, gain, Band::Percent(20.0)),
        _ if FASTER.contains(&file) => Row::new(name, "times", 1.0, gain, Band::AtLeast),
        _ => Row::ours(name, "times", gain),
    }
}

/// How many times faster each file is read after so many cleanings with this policy than after those by cost and benefit.
fn gains(policy: Victims, cleanings: u64) -> [f64; 8] {
    let [ours, benefit] = [policy, Victims::CostBenefit].map(|policy| read(policy, cleanings));
    std::array::from_fn(|n| ours[n] / benefit[n])
}

fn written(policy: Victims) -> Files {
    let cleaning = Cleaning { background: policy, order: CopyOrder::Inode, ..Cleaning::default() };
    Files::written(PRESET, &TABLE_2, &TABLE_2, cleaning)
}

/// MB/s of each file after so many cleanings.
fn read(policy: Victims, cleanings: u64) -> [f64; 8] {
    let files = written(policy);
    files.clean(cleanings);
    std::array::from_fn(|n| files.mbs(n + 1, CALL))
}
