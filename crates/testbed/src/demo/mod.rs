//! The whole pipeline on a database, step by step: it fragments, is recorded, planned for and
//! defragmented, and answers the same queries with fewer requests. Every figure was counted by the
//! kernel on the image's device.
//!
//! | module | its job |
//! |---|---|
//! | [`verdict`] | the figures side by side, and whether the demo shows what it claims |

pub mod verdict;

use crate::database::{Database, Growth, Queries};
use crate::image::Image;
use crate::measure::{Cost, drop_caches, measured};
use crate::tools::{self, Recording, fragmend_event, fragmend_json};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;
use verdict::{State, Verdict};

/// How the demo's database grows: some 130 MB in thousands of extents.
const GROWTH: Growth =
    Growth { commits: 2000, evictions: 12, archive_bytes: 256 << 20, seed: 2021 };

/// Window queries in the load.
const QUERIES: usize = 120;

/// Runs it, prints a line for each step, and returns the results.
///
/// # Panics
/// When a tool fails; everything is cleaned up in that case, too.
pub fn run() -> Verdict {
    let start = Instant::now();
    let step = |line: &str| println!("[{:>4.1} s] {line}", start.elapsed().as_secs_f64());

    step(
        "an ext4 file system in a 1 GiB image on a loop device, readahead 128 KiB as on most disks",
    );
    let image = Image::ext4_with(1 << 30, &["-m", "0", "-N", "98304"], "");
    // A loop device has a window of megabytes. By the queue's setting costs are guessed: those of a disk, where each
    // break is waited for. A guessed flash drive would hide this file's breaks behind its link.
    image.set_readahead(128);
    image.set_queue("rotational", "1");
    step("a cache fills the disk and throws entries out; a SQLite database grows in the holes");
    let database = Database::grow(&image, GROWTH);
    let file = database.path().to_owned();
    let hash = tools::sha256(&file);
    step(&format!(
        "the database has {} MiB in {} extents; sha256 {}...",
        database.bytes() >> 20,
        tools::extents(&file),
        &hash[..16]
    ));

    let queries = database.queries(QUERIES, 7);
    step(&format!("{} queries on a part of one of its two tables, cold cache", queries.count()));
    let (answers, before) = asked(&image, &database, &queries);
    let before = State::new(tools::extents(&file), before);

    step("fragmend record: the same queries, watched");
    let trace = image.scratch().join("trace.parquet");
    let recording = Recording::start(&trace, &[&file]);
    let _ = database.run(&queries);
    recording.finish();

    step("fragmend plan: what is worth moving");
    let plan = image.scratch().join("plan.json");
    let summary = planned(&plan, Some(&trace), "gain", &file);
    let whole = planned(&image.scratch().join("whole.json"), None, "whole-file", &file);
    step(&format!(
        "as on a disk, the plan moves {:.1} MiB in {} ranges (the whole file would be {:.1} MiB) and foresees \
         {} requests instead of {}",
        mib(summary.bytes_to_move),
        summary.ranges,
        mib(whole.bytes_to_move),
        summary.requests_after,
        summary.requests_before,
    ));

    step("fragmend apply: moving it");
    let (done, mending) =
        measured(&image, || fragmend_event([OsStr::new("apply"), plan.as_os_str()], "summary"));
    step(&format!("{} ranges moved, {} left alone", done["ranges_moved"], done["ranges_skipped"]));

    step("the same queries again");
    let (answers_after, after) = asked(&image, &database, &queries);
    let after = State::new(tools::extents(&file), after);

    step("checking the database and the file system");
    let verdict = Verdict {
        before,
        after,
        mending,
        whole_file_bytes: whole.bytes_to_move,
        same_content: tools::sha256(&file) == hash,
        same_answers: answers == answers_after,
        integrity: database.integrity(),
    };
    image.fsck();
    drop(image);
    step("cleaned up");
    verdict
}

/// Runs the queries three times, each with nothing in memory, and returns the cost of the run that lasted the
/// median time, because other programs use the disk, too.
fn asked(image: &Image, database: &Database, queries: &Queries) -> (String, Cost) {
    let mut runs: Vec<(String, Cost)> = (0..3)
        .map(|_| {
            image.remount();
            drop_caches(image.path());
            measured(image, || database.ask(queries))
        })
        .collect();
    runs.sort_by_key(|(_, cost)| cost.elapsed);
    runs.swap_remove(1)
}

/// The totals of a plan.
struct Planned {
    bytes_to_move: u64,
    ranges: u64,
    requests_before: u64,
    requests_after: u64,
}

fn planned(plan: &Path, trace: Option<&Path>, policy: &str, file: &Path) -> Planned {
    let mut args: Vec<&OsStr> = ["plan", "--policy", policy, "-o"].map(OsStr::new).to_vec();
    args.push(plan.as_os_str());
    if let Some(trace) = trace {
        args.extend([OsStr::new("-t"), trace.as_os_str()]);
    }
    args.push(file.as_os_str());
    let document = fragmend_json(args);
    let figure = |name: &str| {
        let found = document[name].as_u64();
        found.unwrap_or_else(|| panic!("fragmend plan printed no {name}: {document}"))
    };
    Planned {
        bytes_to_move: figure("bytes_to_move"),
        ranges: figure("ranges"),
        requests_before: figure("requests_before"),
        requests_after: figure("requests_after"),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
