//! InDeF, figure 14: how long moving lasts, and for how long it keeps the chips busy, where the drive copies what InDeF has chosen, and where the
//! host moves each fragmented file whole as F2FS does it, block by block.

use super::indef::{Moved, moved, planned, read};
use super::indef_loads::{MAIL, Macro, SERVER};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row, change};
use fragmend_plan::{Policy, Settings};
use fragmend_simfs::segments::Primitive;

pub static EXPERIMENT: Experiment = Experiment {
    name: "I-fig14",
    source: "InDeF, figure 14",
    about: "how long moving lasts, and how busy the chips are, by the drive and by the host",
    is_long: true,
    run,
};

/// Figures of the paper in per cent: the change of the elapsed time, and for how long the chips are busy, by InDeF and conventionally.
const FIGURES: [(Macro, [f64; 3]); 2] = [(SERVER, [-94.2, 88.7, 8.9]), (MAIL, [-91.6, 92.2, 10.9])];

/// Why moving block by block is faster here.
const GUEST: &str = "this host's costs are FAST'24's, 5.6 us of them to wake up for each block; the paper's is a virtual machine whose costs \
    are not stated: with 90 us more, elapsed is -91 % and -90 %, and the chips are busy for 12 and 9 %";
/// Why chips are idle for longer.
const FILE_BY_FILE: &str = "each file is durable before the next one is moved, so that chips wait for the one that has most of it; the paper \
    commits once. With one commit behind the last file, chips are busy for 88 and 87 % of the time, and nothing else changes by more than \
    1.5 points";

fn run(seed: u64) -> Results {
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for (load, [elapsed, busy, busy_conventional]) in FIGURES {
        let name = load.name;
        let by = |policy, primitive| by(&load, policy, primitive, seed);
        let indef = by(Policy::Iodp, Primitive::InDevice);
        let conventional = by(Policy::WholeFile, Primitive::BlockByBlock);
        let ahead = by(Policy::WholeFile, Primitive::ThroughHost);
        let row = |what: &str, paper, ours| {
            Row::new(format!("{name}: {what}"), "%", paper, ours, Band::Points(5.0))
        };
        let change = change(conventional.ns as f64, indef.ns as f64);
        let what = "elapsed, InDeF against conventional";
        rows.push(row(what, elapsed, change).because(GUEST));
        rows.push(row("chips busy, InDeF", busy, indef.busy_percent).because(FILE_BY_FILE));
        let conventionally = conventional.busy_percent;
        let what = "chips busy, conventional";
        rows.push(row(what, busy_conventional, conventionally).because(GUEST));
        for (what, Moved { bytes, ns, busy_percent }) in
            [("InDeF", indef), ("conventional", conventional), ("the host, reading ahead", ahead)]
        {
            let rate = bytes as f64 / ns as f64 * 1e3;
            rows.push(Row::ours(format!("{name}: {what}, rate"), "MB/s", rate));
            rows.push(Row::ours(format!("{name}: {what}, chips busy"), "%", busy_percent));
        }
        let seconds = |moved: Moved| moved.ns as f64 / 1e9;
        groups.push((name.to_owned(), vec![seconds(indef), seconds(conventional)]));
    }
    let plot = Plot::Bars {
        name: "I-fig14".into(),
        title: "How long moving lasts".into(),
        axis: "s".into(),
        series: vec!["InDeF".into(), "conventional".into()],
        groups,
    };
    Results { rows, plots: vec![plot] }
}

/// What a policy and a primitive do to the files that a load has left.
fn by(load: &Macro, policy: Policy, primitive: Primitive, seed: u64) -> Moved {
    let aged = load.aged(load.parts, seed);
    let seen = read(&aged.fs, &aged.files).seen;
    let truncate_percent = (policy == Policy::Iodp).then_some(load.truncated);
    let settings = Settings { policy, truncate_percent, ..Settings::default() };
    moved(&aged.fs, &planned(&aged.fs, seen, &settings), primitive)
}
