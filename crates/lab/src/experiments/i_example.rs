//! InDeF, equation 1 and figure 9: the degree of physical fragmentation (DoPF) of a request is the variance of how
//! many of its blocks are on each chip; its degree of logical fragmentation (DoLF) is how many fragments it is in.

use crate::experiment::{Experiment, Results};
use crate::file::FileOnDrive;
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_flash::command::Units;
use fragmend_layout::{ParallelUnits, dopf};

pub static EXPERIMENT: Experiment = Experiment {
    name: "I-example",
    source: "InDeF, equation 1 and figure 9",
    about: "the degrees of fragmentation of a request",
    is_long: false,
    run,
};

/// Chips of the evaluation (table I), and blocks of its requests of 256 KiB.
const CHIPS: usize = 16;
const BLOCKS: u64 = 64;
/// A request of eight blocks in six fragments, on four chips; a block is on the chip of its address modulo four, as
/// in figure 8. The figure's text states how many there are, and their DoPF. Each fragment is its first block and its
/// number of blocks.
const FIGURE_9: [(u32, u32); 6] = [(2, 2), (7, 1), (10, 2), (13, 1), (18, 1), (27, 1)];

fn run(_seed: u64) -> Results {
    let mut file = FileOnDrive::default();
    FIGURE_9.into_iter().for_each(|(start, count)| file.push(Units::new(start, count)));
    let request = file.within(0, file.units());
    let chips = ParallelUnits { units: 4, unit_bytes: 4096 };
    let mut on_chips = [0; 4];
    for block in request.iter().flat_map(|extent| extent.each()) {
        on_chips[chips.of(u64::from(block) * 4096) as usize] += 1;
    }
    on_chips.sort_unstable();
    let exact = |what: &str, paper: f64, ours: f64| Row::new(what, "", paper, ours, Band::Exact);
    let rows = vec![
        exact("figure 9: DoLF", 6.0, request.len() as f64),
        exact("figure 9: DoPF", 2.5, dopf(&on_chips)),
        exact("64 blocks on one of 16 chips: DoPF", 240.0, dopf(&on_first(1))),
        exact("64 blocks on all of 16 chips: DoPF", 0.0, dopf(&on_first(CHIPS))),
    ];
    let points = (1..=CHIPS).map(|chips| (chips as f64, dopf(&on_first(chips)))).collect();
    let plot = Plot::Lines {
        name: "I-example".into(),
        title: "DoPF of 64 blocks by the number of chips that they are on".into(),
        axes: ["chips".into(), "DoPF".into()],
        logarithmic: false,
        lines: vec![("64 blocks, 16 chips".into(), points)],
    };
    Results { rows, plots: vec![plot] }
}

/// How many blocks of a request each chip has, if they are spread evenly over the first `chips` of them.
fn on_first(chips: usize) -> [u64; CHIPS] {
    let mut blocks = [0; CHIPS];
    (0..BLOCKS as usize).for_each(|block| blocks[block % chips] += 1);
    blocks
}
