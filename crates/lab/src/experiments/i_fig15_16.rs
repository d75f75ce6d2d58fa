//! InDeF, figures 15 and 16: 4 GB are moved while a file server runs beside, by the drive and by the host block by block: how long that lasts,
//! what it costs the file server, and what memory of the host it needs.
//!
//! What is moved are the files of a file server that has run before, so that none of them is deleted meanwhile: there are two sets of half
//! of the paper's files. There is one part in [`PARTS`] of them, and [`AMOUNTS`] of the 4 GB are moved, for the rate.

use super::indef::{planned, read};
use super::indef_loads::{Aged, Macro, SERVER};
use crate::bed::carry_out;
use crate::experiment::{Experiment, Results};
use crate::loads::beside::Beside;
use crate::loads::filebench::Personality;
use crate::loads::schedule::Programs;
use crate::loads::watched::Watched;
use crate::loads::{Scale, read_whole};
use crate::plot::Plot;
use crate::row::{Band, Row, change};
use fragmend_apply::Summary;
use fragmend_layout::SkipReason;
use fragmend_plan::{Plan, Policy, Settings};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::monitor::Monitor;
use fragmend_simfs::segments::Primitive;
use std::rc::Rc;

pub static EXPERIMENT: Experiment = Experiment {
    name: "I-fig15-16",
    source: "InDeF, figures 15 and 16",
    about: "moving beside a running file server, by the drive and by the host, and the host's memory",
    is_long: true,
    run,
};

/// See the head.
const PARTS: u32 = 3;
const AMOUNTS: [u64; 2] = [128 << 20, 2 << 20];
/// Half of the files.
const HALF: Personality = Personality { files: SERVER.personality.files / 2, ..SERVER.personality };
const BESIDE: &str = "beside";
/// For how long the file server runs before it is measured, and is measured alone.
const WARM_NS: u64 = 1_000_000_000;
const ALONE_NS: u64 = 3_000_000_000;
/// Of the paper: seconds of InDeF and of the conventional defragmenter, the change of the file server's bandwidth by each, and the memory.
const SECONDS: [f64; 2] = [81.0, 3599.0];
const CHANGES: [f64; 2] = [-23.0, -20.0];
const MEMORY_MB: f64 = 52.0;
const NAMES: [&str; 2] = ["InDeF", "conventional"];
/// Why the host is slower beside the file server.
const BUFFER: &str = "each block that the host reads waits behind the programs of what the drive's buffer has accepted; the paper states \
    none: with 1 MiB instead of 16 it is 1.3 %, by 40 and 0.51 MB/s, against the paper's 53 and 1.2; the file server loses 41 and 12 % then";
/// How often the files are read for the memory of the monitor.
const GREPS: usize = 4;

/// What moving did.
struct Moved {
    bytes: u64,
    ns: u64,
    /// MB/s of the file server alone and meanwhile.
    alone: f64,
    meanwhile: f64,
    /// Bytes of the page cache, when it had ended.
    cached_bytes: u64,
}

fn run(seed: u64) -> Results {
    let ways = [(Policy::Iodp, Primitive::InDevice), (Policy::WholeFile, Primitive::BlockByBlock)];
    let moved = std::array::from_fn(|n| moved_beside(ways[n], AMOUNTS[n], seed));
    let moved: [Moved; 2] = moved;
    let [indef, conventional] = moved.each_ref().map(|one| one.ns as f64 / one.bytes as f64);
    let ratio = |indef: f64, conventional: f64| indef / conventional * 100.0;
    let what = "elapsed, InDeF of conventional";
    let (paper, ours) = (ratio(SECONDS[0], SECONDS[1]), ratio(indef, conventional));
    let mut rows = vec![Row::new(what, "%", paper, ours, Band::Percent(30.0)).because(BUFFER)];
    for ((one, name), paper) in moved.iter().zip(NAMES).zip(CHANGES) {
        let what = format!("{name}: bandwidth of the file server");
        let ours = change(one.alone, one.meanwhile);
        rows.push(Row::new(what, "%", paper, ours, Band::Points(10.0)).because(BUFFER));
        let rate = one.bytes as f64 / one.ns as f64 * 1e3;
        rows.push(Row::ours(format!("{name}: rate of moving"), "MB/s", rate));
        let cached = one.cached_bytes as f64 / one.bytes as f64;
        rows.push(Row::ours(format!("{name}: page cache, of what was moved"), "", cached));
    }
    rows.push(Row::ours("file server alone", "MB/s", moved[0].alone));
    let lines = memory(&mut rows, seed);
    let bars = |of: fn(&Moved) -> f64| moved.iter().map(of).collect();
    let plots = vec![
        Plot::Bars {
            name: "I-fig15".into(),
            title: "A file server while data is moved".into(),
            axis: "MB/s".into(),
            series: NAMES.map(str::to_owned).into(),
            groups: vec![
                ("alone".into(), bars(|one| one.alone)),
                ("meanwhile".into(), bars(|one| one.meanwhile)),
            ],
        },
        Plot::Lines {
            name: "I-fig16".into(),
            title: "Memory of a monitor, and of a tracer that keeps everything".into(),
            axes: ["greps".into(), "MB".into()],
            logarithmic: false,
            lines,
        },
    ];
    Results { rows, plots }
}

/// The files that are moved, and the plan for them.
fn still(policy: Policy, amount: u64, seed: u64) -> (Aged, Plan) {
    let aged = Macro { personality: HALF, ..SERVER }.aged(PARTS, seed);
    let seen = read(&aged.fs, &aged.files).seen;
    let truncate_percent = (policy == Policy::Iodp).then_some(SERVER.truncated);
    let budget_bytes = Some(amount);
    let settings = Settings { policy, truncate_percent, budget_bytes, ..Settings::default() };
    let plan = planned(&aged.fs, seen, &settings);
    (aged, plan)
}

fn moved_beside((policy, primitive): (Policy, Primitive), amount: u64, seed: u64) -> Moved {
    let (Aged { fs, .. }, plan) = still(policy, amount, seed);
    let (machine, scale) = (fs.machine(), Scale::one_in(PARTS.into()));
    let mut programs = Programs::default();
    HALF.start(&fs, &mut programs, BESIDE, scale, seed).expect("space for the files");
    let mut run_for = |ns: u64| {
        let (before, until) = (programs.tally(), programs.tally().ended_ns + ns);
        programs.run_until(&fs, until).expect("space for the load");
        programs.tally().since(&before).bytes_per_second() / 1e6
    };
    run_for(WARM_NS);
    let alone = run_for(ALONE_NS);
    let before = programs.tally();
    machine.wait_until(before.ended_ns);
    fs.set_primitive(primitive).expect("a drive with zones");
    fs.drop_caches();
    let copied = fs.counts().blocks_copied;
    let (began, files) = (machine.now_ns(), Rc::new(fs.clone()) as Rc<dyn FileSystem>);
    let beside = Beside::start(files, programs);
    let summary = carry_out(&plan, machine, || Box::new(fs.clone()));
    all_is_moved(&summary, fs.counts().blocks_copied - copied);
    let bytes = summary.moved_bytes;
    let meanwhile = beside.tally().expect("space for the load").since(&before);
    Moved {
        bytes,
        ns: machine.now_ns() - began,
        alone,
        meanwhile: meanwhile.bytes_per_second() / 1e6,
        cached_bytes: fs.cached_bytes(),
    }
}

/// Of what was planned nothing is left, but what the cleaner has made contiguous meanwhile: blocks of a file between which those of
/// others have moved away are copied one behind the other.
fn all_is_moved(summary: &Summary, cleaned: u64) {
    let contiguous = summary.skipped_by_reason.get(&SkipReason::AlreadyContiguous);
    let by_cleaner = contiguous.copied().unwrap_or_default();
    assert_eq!((summary.ranges_left, summary.ranges_skipped), (0, by_cleaner), "{summary:?}");
    assert!(by_cleaner == 0 || cleaned > 0, "who did? {summary:?}");
}

/// Bytes of the monitor, and of a tracer that keeps each read of a program, after each of several greps of the paper's number of files.
fn memory(rows: &mut Vec<Row>, seed: u64) -> Vec<(String, Vec<(f64, f64)>)> {
    let (aged, _) = still(Policy::Iodp, AMOUNTS[0], seed);
    let files: Rc<dyn FileSystem> = Rc::new(aged.fs.clone());
    let watched = Watched::new(&files);
    let whole = |bytes: usize| bytes as f64 * f64::from(PARTS) * 2.0 / 1e6;
    let (mut monitor, mut tracer, mut kept) = (Vec::new(), Vec::new(), 0);
    aged.fs.set_monitor(Some(Monitor::new(64 << 20)));
    for n in 1..=GREPS {
        for file in &aged.files {
            read_whole(&watched, *file, super::indef::CALL, Access::Direct).expect("a grep");
        }
        kept += watched.take().iter().map(|file| size_of_val(&file.accesses[..])).sum::<usize>();
        let seen = aged.fs.set_monitor(None).expect("the monitor");
        monitor.push((n as f64, whole(seen.bytes())));
        tracer.push((n as f64, whole(kept)));
        aged.fs.set_monitor(Some(seen));
    }
    for (name, points) in [("monitor", &monitor), ("tracer that keeps everything", &tracer)] {
        let [(_, first), .., (_, last)] = points[..] else { continue };
        if name == "monitor" {
            let what = format!("{name}: memory");
            rows.push(Row::new(what, "MB", MEMORY_MB, last, Band::AtMost));
        }
        let what = format!("{name}: memory after {GREPS} greps, against one");
        rows.push(Row::ours(what, "%", change(first, last)));
    }
    vec![("monitor".into(), monitor), ("tracer".into(), tracer)]
}
