//! Writes that are in flight across each numbered step of each engine: begun before it, answered
//! by the disk after it, synced; and all of them are there, in the page cache and after a power cut.

use fragmend_crash::bed::{self, Bed, Mover};
use fragmend_crash::content::fill;
use fragmend_crash::cut::{Cut, View};
use fragmend_crash::flight::{Flight, WAYS};
use fragmend_crash::log::Log;
use fragmend_crash::minder::{State, go_on, state};
use fragmend_crash::mounted::Mounted;
use fragmend_crash::slow::{SlowBed, SlowDisk};
use fragmend_testbed::fragment::{alternating, interleaved_with};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a file, and of its pieces.
const BYTES: u64 = 320 << 10;
const PIECE: u64 = 8 << 10;
/// So long at most somebody waits for all writes to be on their way; where they cannot be opened
/// while the mover stands still, that is all the time that it costs.
const ON_THEIR_WAY: Duration = Duration::from_millis(700);
/// So long the mover may go on before the disk answers.
const MEANWHILE: Duration = Duration::from_millis(80);
/// A mover that does not end by then hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Before anything is done.
const START: &str = "start";
const ON_EXT4: &[&str] = &[START, "staged", "moved", "settled"];
const ON_COPYING: &[&str] = &[START, "staged", "filled", "moved", "settled"];
const ON_EXCHANGE: &[&str] = &[START, "sampled", "staged", "filled", "moved", "settled"];
const ON_SWAP: &[&str] = &[START, "filled", "moved", "settled"];
const ON_COMPRESSED: &[&str] = &[START, "moved", "settled"];
const ON_REWRITE: &[&str] = &[
    START,
    "copied",
    "sealed",
    "leased",
    "punched",
    "allocated",
    "half-written",
    "written",
    "synced",
    "compared",
    "removed",
];

/// Says what a mover ended with, having gone on from every stop.
fn to_its_end(mover: Running) -> String {
    let started = Instant::now();
    loop {
        match state(mover.id()) {
            State::Ended => return mover.wait().expect(&[0, 2, 4, 6]),
            State::Stopped => go_on(mover.id()),
            State::Running => {
                assert!(started.elapsed() < TOO_LONG, "the mover hangs");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// What a run came to.
#[derive(Default)]
struct Told {
    /// Writes that were on their way across the step.
    in_flight: usize,
    moved: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

/// One file, moved with writes in flight from one step on; gives what it must hold.
fn across(bed: &Bed, slow: &SlowBed, step: &str, n: u64, told: &mut Told) -> (PathBuf, Vec<u8>) {
    let path = slow.root().join(format!("{n:02}-{step}"));
    let content = |at: u64, buffer: &mut [u8]| fill(n as u32, at, 0, buffer);
    // What compresses lies in pieces of its own making.
    match bed.file_system.options.contains("compress") {
        true => alternating(&path, BYTES, 16 << 10, content).expect("a fragmented file"),
        false => {
            interleaved_with(&path, BYTES, &[PIECE], true, content).expect("a fragmented file");
        }
    }
    let mut expected = vec![0; BYTES as usize];
    fill(n as u32, 0, 0, &mut expected);
    slow.sync();
    let plan = slow.scratch().join("plan.json");
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan).arg(&path);
    finish(&mut command).expect(&[0, 2]);

    let Mover::Fragmend(options) = bed.mover else { panic!("nobody moves files on {}", bed.name) };
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(&plan).arg("--json").args(options);
    command.env("FRAGMEND_STOP_AT", format!("{step}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = || Flight::begin(slow.gate(), &path, BYTES, n + 1);
    let mut flight = (step == START).then(begin);
    if let Some(flight) = &flight {
        told.in_flight += flight.on_their_way(ON_THEIR_WAY * 4);
    }
    let mover = Running::start(&mut command);
    let started = Instant::now();
    // To the step, if it comes to that.
    while flight.is_none() {
        match state(mover.id()) {
            State::Ended => break,
            State::Stopped => {
                let begun = begin();
                told.in_flight += begun.on_their_way(ON_THEIR_WAY);
                flight = Some(begun);
                go_on(mover.id());
            }
            State::Running => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(started.elapsed() < TOO_LONG, "{step} is not reached");
    }
    let reached = flight.is_some();
    let until = Instant::now() + MEANWHILE;
    while Instant::now() < until && state(mover.id()) != State::Ended {
        std::thread::sleep(Duration::from_millis(1));
        go_on(mover.id());
    }
    // The mover may be waiting for what is in flight, and those who write for the mover.
    let ending = std::thread::spawn(move || to_its_end(mover));
    for (at, bytes) in flight.into_iter().flat_map(Flight::land) {
        expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    let said = ending.join().expect("the mover's end");
    assert!(reached, "{}: never at {step}: {said}", bed.name);
    for line in said.lines() {
        let event: Value = serde_json::from_str(line).expect("its JSON");
        if event["event"] == "range" && event["primitive"].is_string() {
            let by = event["primitive"].as_str().expect("a name");
            assert!(bed.may_be_by(by, event["fallback"].as_str()), "{}: {line}", bed.name);
            *told.moved.entry(by.to_owned()).or_default() += 1;
        }
    }
    compare(step, &path, &expected, "in the page cache", &mut told.wrong);
    (path, expected)
}

fn compare(step: &str, path: &Path, expected: &[u8], when: &str, wrong: &mut Vec<String>) {
    let found = fs::read(path).unwrap_or_else(|e| panic!("{step}, {when}: {e}"));
    let differ = |n: &usize| found.get(*n) != expected.get(*n);
    if let Some(at) = (0..expected.len().max(found.len())).find(differ) {
        let way = at as u64 / (BYTES / WAYS.len() as u64);
        wrong.push(format!("{step}, {when}: byte {at} (about {:?})", WAYS.get(way as usize)));
    }
}

/// What a cut leaves of the files once all is synced.
fn cut(bed: &Bed, slow: &SlowBed, files: &[(PathBuf, Vec<u8>)], wrong: &mut Vec<String>) {
    let (base, log) = slow.recorded().expect("a recording");
    let end = log.entries().len();
    for seed in [1, 2] {
        let dir = tempfile::tempdir().expect("a directory");
        let (served, mnt) = (dir.path().join("served"), dir.path().join("mnt"));
        fs::create_dir(&served).and_then(|()| fs::create_dir(&mnt)).expect("directories");
        let base: File = base.try_clone().expect("the image");
        let mut view = View::new(base, Arc::<Log>::clone(&log), bed.atom).expect("a view");
        view.set(Cut { position: end, seed, honest: true }).expect("the log fits the disk");
        let disk = SlowDisk::start(view, &served).expect("a disk through FUSE");
        let mounted = Mounted::new(bed.file_system, disk.node(), &mnt, "").expect("a mount");
        if bed.recovers() {
            finish(Command::new(tools::fragmend()).arg("recover").arg(&mnt)).expect(&[0]);
        }
        for (path, expected) in files {
            let name = path.file_name().expect("a name");
            let step = name.to_string_lossy().into_owned();
            compare(&step, &mnt.join(name), expected, "after a power cut", wrong);
        }
        mounted.unmount();
        bed.check(disk.node(), None).unwrap_or_else(|why| panic!("{}: {why}", bed.name));
    }
}

fn on(name: &str, steps: &[&str]) {
    let bed = bed::named(name).expect("a row");
    let mut slow = SlowBed::new(bed.file_system, bed.bytes, "");
    slow.record();
    let (mut told, mut files) = (Told::default(), Vec::new());
    for (step, n) in steps.iter().zip(0..) {
        files.push(across(bed, &slow, step, n, &mut told));
    }
    // Btrfs takes a copy for the same file system.
    let log_is_whole = File::open(slow.root()).and_then(|root| Ok(rustix::fs::syncfs(root)?));
    log_is_whole.expect("syncfs");
    slow.unmount();
    cut(bed, &slow, &files, &mut told.wrong);
    let Told { in_flight, moved, wrong } = told;
    println!(
        "{name}: {in_flight} writes in flight across {} steps, moved by {moved:?}",
        steps.len()
    );
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    // All ways at the start, and where nobody is kept out everywhere.
    assert!(in_flight >= WAYS.len() - 1, "{name}: only {in_flight} writes were in flight");
    assert!(!moved.is_empty(), "{name}: nothing has moved");
}

/// One test for each engine: its row, and its steps.
macro_rules! engines {
    ($($test:ident => $row:literal, $steps:expr;)*) => {
        $(#[test] fn $test() { on($row, $steps) })*
    };
}

engines! {
    loop_in_flight_on_ext4 => "ext4", ON_EXT4;
    loop_in_flight_on_xfs => "xfs", ON_COPYING;
    loop_in_flight_on_xfs_exchange =>
        "xfs-exchange", if bed::XFS_EXCHANGES { ON_EXCHANGE } else { ON_COPYING };
    loop_in_flight_on_xfs_rmap => "xfs-rmap", ON_SWAP;
    loop_in_flight_on_btrfs => "btrfs", ON_COPYING;
    loop_in_flight_on_btrfs_zstd => "btrfs-zstd", ON_COMPRESSED;
    loop_in_flight_on_rewrite => "rewrite-ext4", ON_REWRITE;
}
