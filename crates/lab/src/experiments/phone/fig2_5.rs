//! janusd, figures 2 to 5: how many files of a phone are fragmented; how soon they are again after a full defragmentation; how much slower
//! the apps' files are read then; and how much a defragmentation copies every three days or every week. What the load assumes and no source
//! states is also assumed otherwise, and the whole is measured at another scale.

use super::{Bed, Kind, PARTS, WEEK, mean};
use crate::experiment::{Experiment, Results};
use crate::loads::mobile::Habits;
use crate::plot::Plot;
use crate::row::{Band, Row};
use fragmend_simfs::mounted::Primitive;
use rayon::prelude::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-fig2-5",
    source: "janusd, figures 2 to 5",
    about: "files of a phone that are fragmented, how soon they are again, and what defragmentation copies",
    is_long: true,
    run,
};

/// Utilizations of the figures, in per cent.
const FULL: [u64; 2] = [70, 90];
/// Figure 3(b): the mean degree of an app's files a week after a full defragmentation.
const RECURRED: [f64; 2] = [1.86, 3.04];
/// Figure 4(b): by how much its launch is longer then.
const LONGER: [f64; 2] = [1.6, 2.0];
/// Figure 5: GB copied after three days, and each week at 90 %.
const THREE_DAYS_GB: [f64; 2] = [1.8, 5.76];
const WEEKLY_GB: f64 = 9.53;

/// Reasons, as far as they are known.
const HISTORY: &str = "what the paper's phones have written is not stated, and the figure depends on it, as the rows with other numbers of \
                       databases show";
const LAUNCH: &str = "what a launch reads here has hardly more requests a week later (rows below), so that it can hardly last longer, \
                      whatever a request costs: with 1.2 ms more for each it does not (the rows of simMMC). It reads packages, which updates write \
                      in long extents, and one database; what the paper's launches read is not stated";
const VOLUME: &str = "the load here writes some 3.6 GB a week (2.8 of packages, and photos, caches and databases), and only that can be \
                      fragmented anew. What the paper's apps and updates write is not stated; it copies 42 % of all data each week";

/// What was measured at a utilization.
struct Measured {
    fragmented_percent: f64,
    /// By days since a full defragmentation, from 0 to 7.
    degrees: Vec<f64>,
    /// Time and requests of launches for what they read, a week later, of those before.
    longer: f64,
    more: f64,
    three_days_gb: f64,
    weekly_gb: f64,
}

fn run(seed: u64) -> Results {
    let measured: Vec<Measured> =
        FULL.par_iter().map(|full| measure(&phone(*full), seed)).collect();
    let mut rows = Vec::new();
    for (n, (full, at)) in FULL.iter().zip(&measured).enumerate() {
        let name = |what: &str| format!("{full} % full: {what}");
        // The 14 to 33 % of the paper's phones are the ends of a range.
        let near = at.fragmented_percent.clamp(14.0, 33.0);
        rows.push(
            Row::new(
                name("fragmented files"),
                "%",
                near,
                at.fragmented_percent,
                Band::Percent(30.0),
            )
            .because(HISTORY),
        );
        rows.push(Row::ours(name("DoF^L of an app, defragmented"), "", at.degrees[0]));
        let after = at.degrees[WEEK as usize];
        let row = Row::new(
            name("DoF^L of an app a week later"),
            "",
            RECURRED[n],
            after,
            Band::Percent(30.0),
        );
        rows.push(row.because(HISTORY));
        let row =
            Row::new(name("a launch lasts longer"), "x", LONGER[n], at.longer, Band::Percent(30.0));
        rows.push(row.because(LAUNCH));
        rows.push(Row::ours(name("requests of a launch a week later"), "x", at.more));
        rows.push(
            Row::new(
                name("copied after three days"),
                "GB",
                THREE_DAYS_GB[n],
                at.three_days_gb,
                Band::Percent(30.0),
            )
            .because(VOLUME),
        );
    }
    let weekly = measured[1].weekly_gb;
    rows.push(
        Row::new("90 % full: copied each week", "GB", WEEKLY_GB, weekly, Band::Percent(30.0))
            .because(VOLUME),
    );
    rows.push(
        Row::new(
            "90 % full: further erases of a block a month",
            "",
            1.5,
            weekly * 4.0 / 25.0,
            Band::Percent(30.0),
        )
        .because(VOLUME),
    );
    rows.extend(otherwise(seed));
    let line = |(full, at): (&u64, &Measured)| {
        let points = at.degrees.iter().enumerate().map(|(day, dof)| (day as f64, *dof));
        (format!("{full} % full"), points.collect())
    };
    let plot = Plot::Lines {
        name: "J-fig3".into(),
        title: "DoF^L of an app's files after a full defragmentation".into(),
        axes: ["days".into(), "DoF^L".into()],
        logarithmic: false,
        lines: FULL.iter().zip(&measured).map(line).collect(),
    };
    Results { rows, plots: vec![plot] }
}

/// Figures of a part of the partition, and where something is assumed otherwise there.
fn otherwise(seed: u64) -> Vec<Row> {
    let kind = Kind { parts: PARTS, ..phone(FULL[1]) };
    let habits = |change: fn(&mut Habits)| {
        let mut habits = kind.habits;
        change(&mut habits);
        Kind { habits, ..kind }
    };
    let all = [
        ("a third, 4 databases an app", habits(|habits| habits.databases = 4)),
        ("a third, 16 databases an app", habits(|habits| habits.databases = 16)),
        (
            "a third, a tenth of the transactions in the background",
            habits(|habits| habits.synced /= 10),
        ),
        ("a third", kind),
        ("a third, simMMC", Kind { preset: "simmmc", ..kind }),
    ];
    let measured: Vec<Measured> = all.par_iter().map(|(_, kind)| measure(kind, seed)).collect();
    let rows = all.iter().zip(&measured).flat_map(|((what, _), at)| {
        let name = |figure: &str| format!("90 % full, {what}: {figure}");
        [
            Row::ours(name("fragmented files"), "%", at.fragmented_percent),
            Row::ours(name("DoF^L of an app a week later"), "", at.degrees[WEEK as usize]),
            Row::ours(name("a launch lasts longer"), "x", at.longer),
            Row::ours(name("requests of a launch a week later"), "x", at.more),
            Row::ours(name("copied each week"), "GB", at.weekly_gb),
        ]
    });
    rows.collect()
}

/// The whole partition.
fn phone(full: u64) -> Kind {
    Kind { parts: 1, ..Kind::new("emmc-5.0", full, Primitive::Copy) }
}

/// Nanoseconds of all launches for each byte that they read, and requests for each block.
fn launches(bed: &mut Bed) -> (f64, f64) {
    let idle = bed.machine().counters();
    let ns = bed.launch_ns_per_byte();
    let read = bed.machine().counters().since(&idle);
    (ns, read.commands as f64 / read.host_read as f64)
}

fn measure(kind: &Kind, seed: u64) -> Measured {
    let mut bed = kind.aged(seed);
    let fragmented_percent = bed.fragmentation("").percent();
    bed.defragment();
    let before = launches(&mut bed);
    let mut degrees = vec![mean(&bed.degrees())];
    for _ in 0..WEEK {
        bed.live(1);
        degrees.push(mean(&bed.degrees()));
    }
    let after = launches(&mut bed);
    let (longer, more) = (after.0 / before.0, after.1 / before.1);
    let weekly_gb = bed.whole_gb(bed.defragment().written_bytes);
    bed.live(3);
    let three_days_gb = bed.whole_gb(bed.defragment().written_bytes);
    Measured { fragmented_percent, degrees, longer, more, three_days_gb, weekly_gb }
}
