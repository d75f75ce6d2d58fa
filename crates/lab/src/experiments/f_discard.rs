//! FragPicker, section 5.2.2: what it costs to discard the file of figure 9 once it is deleted, as it was written and
//! after FragPicker has moved ranges of it. One command discards blocks that follow each other on the device.
//!
//! The time of a unit is derived from the second figure (sata-850pro.toml), which the first one follows from.

use super::f_fig8_9::synthetic::{Calls, FILE, On, Synthetic};
use crate::bed;
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use fragmend_plan::Policy;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-discard",
    source: "FragPicker, section 5.2.2",
    about: "what it costs to discard a deleted file, before and after FragPicker",
    is_long: false,
    run,
};

const PRESET: &str = "sata-850pro";
/// Seconds for each GB, before and after.
const PAPER: [f64; 2] = [16.6, 8.485];

fn run(_seed: u64) -> Results {
    let setup = presets::named(PRESET).expect("a preset");
    let written = || Synthetic::written(&setup, On::Ext4, FILE);
    let (before, commands) = written().discard();
    let file = written();
    file.defragment(&bed::policy(Policy::Fragpicker), Calls::ALL[0]);
    let (after, fewer) = file.discard();
    let because = format!(
        "a command costs {:.0} us here, as one that reads does besides the flash; the paper's first figure needs {:.0}",
        (before - after) / (commands - fewer) * 1e6,
        (PAPER[0] - PAPER[1]) / (commands - fewer) * 1e6
    );
    let row = |what: &str, unit: &str, paper: f64, ours: f64| {
        Row::new(format!("{PRESET}: {what}"), unit, paper, ours, Band::Percent(15.0))
            .because(because.clone())
    };
    let rows = vec![
        row("as it was written", "s/GB", PAPER[0], before),
        row("after fragpicker", "s/GB", PAPER[1], after).fitted(),
        row("after, of before", "%", PAPER[1] / PAPER[0] * 100.0, after / before * 100.0),
        Row::ours(format!("{PRESET}: commands, as it was written"), "1/GB", commands),
        Row::ours(format!("{PRESET}: commands, after fragpicker"), "1/GB", fewer),
    ];
    let plot = Plot::Bars {
        name: "F-discard".into(),
        title: "Discarding a deleted file".into(),
        axis: "s/GB".into(),
        series: vec!["paper".into(), "ours".into()],
        groups: vec![
            ("as it was written".into(), vec![PAPER[0], before]),
            ("after fragpicker".into(), vec![PAPER[1], after]),
        ],
    };
    Results { rows, plots: vec![plot] }
}
