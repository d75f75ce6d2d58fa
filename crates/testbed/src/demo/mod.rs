//! What fragmentation costs depends on the device, step by step: the same SQLite database grows in the same way on two
//! drives of the lab, a memory card and an NVMe drive. fragmend probes both, records the same queries, and plans: on the
//! card it mends a part of the file, on the NVMe drive it says why that would not pay, and writes nothing.
//!
//! The times are measured, in the virtual time of the drives (`fragmend lab serve` in accounting mode): what their models
//! need for the requests that this kernel sends them. So they are the same on any machine, busy or not.
//!
//! | module | its job |
//! |---|---|
//! | [`drive`] | one drive, from serving to the end |
//! | [`verdict`] | the figures side by side, and whether the demo shows what it claims |

pub mod drive;
pub mod verdict;

use crate::cleanup::{self, Undo};
use crate::scratch;
use crate::tools;
use drive::Drive;
use std::path::Path;
use std::time::Instant;
use verdict::{Asked, OnDrive, Outcome, Verdict, ms};

/// The drive where it pays, and the one where it does not.
const DRIVES: [&str; 2] = ["microsd", "nvme-b"];

/// Runs it, prints a line for each step, and returns the results. What fragmend has written of each drive is kept in `keep`,
/// if that is given: `microsd-plan.json` and so on, and a scan from before anything is moved.
///
/// # Panics
/// When a tool fails; everything is cleaned up in that case, too.
pub fn run(keep: Option<&Path>) -> Verdict {
    let start = Instant::now();
    let step = |line: &str| println!("[{:>4.1} s] {line}", start.elapsed().as_secs_f64());
    let dir = scratch::directory("demo");
    let _ticket = cleanup::register(Undo::Tree(dir.path().to_owned()));
    let (card, _) = on_drive(DRIVES[0], (dir.path(), keep), false, &step);
    let (nvme, all) = on_drive(DRIVES[1], (dir.path(), keep), true, &step);
    drop(dir);
    step("cleaned up");
    Verdict { card, nvme, all_the_same: all.expect("it was moved") }
}

/// The whole path on one drive. With `and_all`, all of the database is moved in the end, and the queries are asked again.
fn on_drive(
    name: &'static str,
    (scratch, keep): (&Path, Option<&Path>),
    and_all: bool,
    step: &dyn Fn(&str),
) -> (OnDrive, Option<(Asked, Outcome)>) {
    step(&format!("fragmend lab serve {name}: a simulated drive as a block device, with an ext4"));
    let mut drive = Drive::serve(name, scratch, keep);
    step("  a cache fills it and throws entries out; a SQLite database grows in the holes");
    let database = drive.grow();
    let file = database.path().to_owned();
    drive.scan();
    let hash = tools::sha256(&file);
    let queries = drive.queries(&database);
    let before = drive.ask(&database, &queries);
    step(&format!(
        "  {} MiB in {} extents; {} queries from a cold cache wait {} ms for the drive (virtual time)",
        database.bytes() >> 20,
        before.extents,
        queries.count(),
        ms(before.ns)
    ));
    let probed = drive.probe();
    step(&format!(
        "  fragmend probe: what reads cost, {} of them, by the drive's own clock",
        probed["read_requests"]
    ));
    step("  fragmend record, plan, apply: the same queries, watched");
    let (planned, outcome) = drive.mend(&database, &queries, before.requests);
    step(&format!("    {}", planned.verdict));
    let after = drive.ask(&database, &queries);
    step(&format!(
        "  {} ranges moved, {:.1} MiB written; the same queries wait {} ms ({:.1} ms predicted)",
        outcome.ranges_moved,
        outcome.written_bytes as f64 / f64::from(1 << 20),
        ms(after.ns),
        planned.seconds[1] * 1e3
    ));
    let sha256 = [hash, tools::sha256(&file)];
    let integrity = database.integrity();
    step(&format!(
        "  integrity_check: {integrity}; sha256 {}; answers {}",
        if sha256[0] == sha256[1] { "unchanged" } else { "CHANGED" },
        if before.answers == after.answers { "the same" } else { "DIFFERENT" },
    ));
    drive.keep_no_more();
    let all = and_all.then(|| {
        step("  a test of that: all of the file is moved nevertheless");
        let outcome = drive.move_all(&database);
        (drive.ask(&database, &queries), outcome)
    });
    drive.end();
    let on = OnDrive { drive: name, before, after, planned, outcome, sha256, integrity };
    (on, all)
}
