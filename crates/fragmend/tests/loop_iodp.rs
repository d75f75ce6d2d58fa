//! The policy `iodp` (InDeF) from the command line, for reads that were recorded on a mounted file system: what is moved,
//! what is left out, and what is said of dies that nobody knows.

use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, finish};
use fragmend_testbed::replay::{self, Mode, REQUEST_BYTES};
use fragmend_testbed::tools::{Recording, extents};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: u64 = 2 << 20;
/// The reads of a file, each of which is a range of its own.
const RANGES: u64 = SIZE / REQUEST_BYTES;
/// Of these the default, 30 per cent, leaves out the nearest number: of sixteen, 4.8.
const TRUNCATED: u64 = 5;

fn fragmend(args: &[&str]) -> Finished {
    finish(Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a test's own path")
}

/// Three files that were read, and one that was not.
struct Recorded {
    image: Image,
    /// In about 32 fragments a read, read five times; the same, read once; in 4 to 20 fragments a read, read once.
    read: [PathBuf; 3],
    unread: PathBuf,
    trace: PathBuf,
}

impl Recorded {
    fn new() -> Self {
        let image = Image::ext4(256 << 20);
        let made = |name: &str, extent: u64, fragments: RangeInclusive<u64>| {
            let path = image.path().join(name);
            interleaved(&path, SIZE, &[extent], true).unwrap();
            // The allocator puts some of them together.
            let each = extents(&path) / RANGES;
            assert!(fragments.contains(&each), "{name}: {each} a read");
            path
        };
        let read = [
            made("often", 4096, 29..=32),
            made("once", 4096, 29..=32),
            made("large", 8192, 4..=20),
        ];
        let unread = made("unread", 4096, 29..=32);
        image.sync();
        let trace = image.scratch().join("trace.parquet");
        let recording = Recording::start(&trace, &[image.path()]);
        for (path, times) in read.iter().zip([5, 1, 1]) {
            for _ in 0..times {
                replay::replay(path, &replay::sequential(SIZE), Mode::Direct).unwrap();
            }
        }
        recording.finish();
        Self { image, read, unread, trace }
    }

    fn plan(&self, more: &[&str]) -> Finished {
        let args = ["plan", "--policy", "iodp", "-t", text(&self.trace), text(self.image.path())];
        fragmend(&[&args, more].concat())
    }

    fn planned(&self, more: &[&str]) -> Value {
        let told = self.plan(&[&["--json"], more].concat()).expect(&[0]);
        serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {told}"))
    }
}

/// The bytes that a document of `plan` moves of each file, by its name.
fn bytes_of(plan: &Path) -> Vec<(String, u64)> {
    let plan: Value = serde_json::from_slice(&std::fs::read(plan).unwrap()).unwrap();
    let files = plan["files"].as_array().unwrap().iter().map(|file| {
        let path = Path::new(file["path"].as_str().unwrap()).to_owned();
        let ranges = file["ranges"].as_array().unwrap().iter();
        let bytes = ranges.map(|range| range["length"].as_u64().unwrap()).sum();
        (text(Path::new(path.file_name().unwrap())).to_owned(), bytes)
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

#[test]
fn loop_what_is_fragmented_and_read_often_is_moved_first() {
    let recorded = Recorded::new();
    let plan = recorded.image.scratch().join("plan.json");
    let all = |ranges: u64, names: &[&str]| -> Vec<(String, u64)> {
        names.iter().map(|name| ((*name).to_owned(), ranges * REQUEST_BYTES)).collect()
    };
    let left = RANGES - TRUNCATED;
    let summary = recorded.planned(&["-o", text(&plan)]);
    let priorities = json!({"ranges": 3 * RANGES, "truncated": 3 * TRUNCATED, "with_dopf": 0});
    assert_eq!(summary["priorities"], priorities, "{summary}");
    // The same share of each file, whatever the others are worth.
    assert_eq!(bytes_of(&plan), all(left, &["large", "often", "once"]));
    // A loop device does not say what its dies hold, and that is said instead of a degree of 0.
    let said = recorded.plan(&[]).expect(&[0]);
    let line = format!(
        "priorities: {} accessed ranges, by logical fragmentation alone, as it is not known which dies hold what (DoPF); {} of the lowest are left out",
        3 * RANGES,
        3 * TRUNCATED
    );
    assert!(said.contains(&line), "{said}");

    // 32 fragments five times, before 32 once and fewer once.
    let (half, budget) = (RANGES / 2, (RANGES / 2 * REQUEST_BYTES).to_string());
    let short = recorded.planned(&["--truncate", "50", "--budget", &budget, "-o", text(&plan)]);
    assert_eq!(bytes_of(&plan), all(half, &["often"]));
    assert_eq!(short["over_budget_bytes"], 2 * half * REQUEST_BYTES, "{short}");
    // Then those that are read as often as others and are in more fragments.
    let budget = (2 * half * REQUEST_BYTES).to_string();
    recorded.planned(&["--truncate", "50", "--budget", &budget, "-o", text(&plan)]);
    assert_eq!(bytes_of(&plan), all(half, &["often", "once"]));
    let none = recorded.planned(&["--truncate", "100"]);
    assert_eq!((&none["bytes_to_move"], &none["ranges"]), (&0.into(), &0.into()), "{none}");

    let [often, once, large] = &recorded.read;
    let counted = || [often, once, large, &recorded.unread].map(|path| extents(path));
    let before = counted();
    fragmend(&["apply", "--rate", "max", text(&plan)]).expect(&[0]);
    let after = counted();
    // Each of these ranges was in about 32 fragments, and is in one.
    for moved in [0, 1] {
        assert!(after[moved] <= before[moved] - half * 31 + 2 * half, "{before:?}, {after:?}");
    }
    assert_eq!(before[2..], after[2..]);
    for path in [often, once, large, &recorded.unread] {
        assert!(is_intact(path, SIZE).unwrap(), "{}", path.display());
    }
    recorded.image.fsck();
}

/// One line that says what is wrong, with the exit code of a wrong command line, before anything is read or recorded.
#[test]
fn loop_what_iodp_cannot_use_is_refused() {
    let image = Image::ext4(64 << 20);
    let (root, missing) = (text(image.path()), image.scratch().join("missing"));
    let refused = |args: &[&str], why: &str| {
        let ended = fragmend(args);
        assert_eq!(ended.status.code(), Some(8), "{args:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{args:?}: {ended:?}");
        let first = ended.stderr.lines().next().unwrap_or_default();
        assert!(first.contains(why), "{args:?}: {}", ended.stderr);
    };
    let trace = ["-t", text(&missing), root];
    for policy in ["gain", "fragpicker", "bypass", "whole-file", "segments"] {
        let options = ["--policy", policy, "--truncate", "30"];
        let why = "--truncate is for --policy iodp alone";
        refused(&[&["plan"][..], &options, &trace].concat(), why);
        refused(&[&["auto", "--dry-run", "--duration", "1s"][..], &options, &[root]].concat(), why);
    }
    for percent in ["-1", "100.1", "nan", "inf", "30%", ""] {
        let truncate = format!("--truncate={percent}");
        let args = [&["plan", "--policy", "iodp", &truncate][..], &trace].concat();
        refused(&args, "per cent from 0 to 100");
    }
    refused(&["plan", "--policy", "iodp", root], "give a trace with -t");
}
