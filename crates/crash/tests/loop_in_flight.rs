//! Writes that are in flight across each numbered step of each engine: begun before it, answered
//! by the disk after it, synced; and all of them are there, in the page cache and after a power cut.

use fragmend_crash::bed::{self, Bed, Mover};
use fragmend_crash::content::fill;
use fragmend_crash::cut::{Cut, View};
use fragmend_crash::flight::{Flight, Landing, WAYS, Way};
use fragmend_crash::minder::{State, go_on, open_below, state};
use fragmend_crash::mounted::Mounted;
use fragmend_crash::slow::{SlowBed, SlowDisk};
use fragmend_testbed::fragment::{alternating, interleaved_with};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::steps;
use fragmend_testbed::tools;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOAK: &str = env!("CARGO_BIN_EXE_soak");
/// The files lie in a directory of this name.
const DIR: &str = "in-flight";
/// Bytes of a file, and of its pieces.
const BYTES: u64 = 192 << 10;
const PIECE: u64 = 8 << 10;
/// So long at most somebody waits for a write to be on its way; where the file cannot be opened while
/// the mover stands still, that is all the time that it costs.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// So long the mover may go on before the disk answers.
const MEANWHILE: Duration = Duration::from_millis(60);
/// A mover that does not end by then hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Before anything is done.
const START: &str = "start";
const ON_EXT4: &[&str] = &["staged", "moved", "settled"];
const ON_COPYING: &[&str] = &["staged", "filled", "moved", "settled"];
const ON_EXCHANGE: &[&str] = &["sampled", "staged", "filled", "moved", "settled"];
const ON_SWAP: &[&str] = &["filled", "moved", "settled"];
const ON_COMPRESSED: &[&str] = &["moved", "settled"];

/// What all runs on a row came to.
#[derive(Default)]
struct Told {
    /// Writes that were on their way across a step, by the way that they took.
    in_flight: BTreeMap<String, usize>,
    /// Receipts, by the interface that they name.
    moved: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

/// A file that is written to in one way.
struct Written {
    path: PathBuf,
    way: Way,
    seed: u64,
    expected: Vec<u8>,
    flight: Option<Flight>,
    landing: Option<Landing>,
}

impl Written {
    fn make(bed: &Bed, dir: &Path, seed: u64, way: Way) -> Self {
        let path = dir.join(format!("{way:?}"));
        let content = |at: u64, buffer: &mut [u8]| fill(seed as u32, at, 0, buffer);
        // What compresses lies in pieces of its own making.
        if bed.file_system.options.contains("compress") {
            alternating(&path, BYTES, 16 << 10, content).expect("a fragmented file");
        } else {
            interleaved_with(&path, BYTES, &[PIECE], true, content).expect("a fragmented file");
            let beside = dir.with_file_name(format!("beside-{way:?}"));
            fs::rename(path.with_extension("dummy"), beside).expect("it goes out of the way");
        }
        let mut expected = vec![0; BYTES as usize];
        content(0, &mut expected);
        Self { path, way, seed, expected, flight: None, landing: None }
    }

    fn begin(&mut self, slow: &SlowBed, patience: Duration, told: &mut Told) {
        let flight =
            Flight::begin(slow.gate(), self.way, &self.path, BYTES, self.seed, Path::new(SOAK));
        let is_on_its_way = flight.is_on_its_way(patience);
        *told.in_flight.entry(format!("{:?}", self.way)).or_default() += usize::from(is_on_its_way);
        self.flight = Some(flight);
    }

    fn release(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.landing = Some(flight.release());
        }
    }

    /// Waits for its write, and compares; gives what it must hold.
    fn end(mut self, told: &mut Told) -> (PathBuf, Vec<u8>) {
        self.release();
        if let Some((at, bytes)) = self.landing.map(Landing::land) {
            self.expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        compare(&self.path, &self.expected, "in the page cache", &mut told.wrong);
        (self.path, self.expected)
    }
}

fn compare(path: &Path, expected: &[u8], when: &str, wrong: &mut Vec<String>) {
    let name = path.display();
    let found = fs::read(path).unwrap_or_else(|e| panic!("{name}, {when}: {e}"));
    let differ = |n: &usize| found.get(*n) != expected.get(*n);
    if let Some(at) = (0..expected.len().max(found.len())).find(differ) {
        wrong.push(format!("{name}, {when}: byte {at}"));
    }
}

/// Files that are moved with a write in flight to each from one step on; gives what they must hold.
fn across(
    bed: &Bed,
    slow: &SlowBed,
    step: &str,
    n: u64,
    told: &mut Told,
) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = slow.root().join(step).join(DIR);
    fs::create_dir_all(&dir).expect("a directory");
    let mut files = WAYS.map(|way| Written::make(bed, &dir, n * 8 + way as u64 + 1, way));
    slow.sync();
    let plan = slow.scratch().join("plan.json");
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan).arg(&dir);
    finish(&mut command).expect(&[0, 2]);

    let Mover::Fragmend(options) = bed.mover else { panic!("nobody moves files on {}", bed.name) };
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(&plan).arg("--json").args(options);
    command.env("FRAGMEND_STOP_AT", format!("{step}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if step == START {
        // Nobody is at work yet who could keep them out.
        files.iter_mut().for_each(|file| file.begin(slow, TOO_LONG, told));
    }
    let mover = Running::start(&mut command);
    let id = mover.id();
    // What it says must not fill a pipe.
    let ending = std::thread::spawn(move || mover.wait().expect(&[0, 2, 4, 6]));
    let (started, mut release_at) = (Instant::now(), Instant::now() + MEANWHILE);
    let mut reached = step == START;
    while !ending.is_finished() {
        if state(id) == State::Stopped {
            reached = true;
            let in_hand = open_below(id, DIR);
            let file = files.iter_mut().find(|file| in_hand.as_ref() == Some(&file.path));
            if let Some(file) = file.filter(|f| f.flight.is_none() && f.landing.is_none()) {
                file.begin(slow, ON_ITS_WAY, told);
                release_at = Instant::now() + MEANWHILE;
            }
            go_on(id);
        }
        // The mover may wait for what is in flight, and those who write for the mover.
        if Instant::now() > release_at {
            if let Some(file) = files.iter_mut().find(|file| file.flight.is_some()) {
                file.release();
            }
            release_at = Instant::now() + MEANWHILE;
        }
        assert!(started.elapsed() < TOO_LONG, "{}: the mover hangs at {step}", bed.name);
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = ending.join().expect("the mover's end");
    assert!(reached, "{}: never at {step}: {said}", bed.name);
    for line in said.lines() {
        let event: Value = serde_json::from_str(line).expect("its JSON");
        if event["event"] == "range" && event["primitive"].is_string() {
            let by = event["primitive"].as_str().expect("a name");
            assert!(bed.may_be_by(by, event["fallback"].as_str(), false), "{}: {line}", bed.name);
            *told.moved.entry(by.to_owned()).or_default() += 1;
        }
    }
    files.map(|file| file.end(told)).into()
}

/// What cuts leave of the files once all is synced, behind so many entries of the log.
fn cut(
    bed: &Bed,
    slow: &SlowBed,
    end: usize,
    files: &[(PathBuf, Vec<u8>)],
    wrong: &mut Vec<String>,
) {
    let (base, log) = slow.recorded().expect("a recording");
    for seed in [1, 2] {
        let dir = tempfile::tempdir().expect("a directory");
        let (served, mnt) = (dir.path().join("served"), dir.path().join("mnt"));
        fs::create_dir(&served).and_then(|()| fs::create_dir(&mnt)).expect("directories");
        let base = base.try_clone().expect("the image");
        let mut view = View::new(base, Arc::clone(&log), bed.atom).expect("a view");
        view.set(Cut { position: end, seed, honest: true }).expect("the log fits the disk");
        let disk = SlowDisk::start(view, &served).expect("a disk through FUSE");
        let mounted = Mounted::new(bed.file_system, disk.node(), &mnt, "").expect("a mount");
        if bed.recovers() {
            finish(Command::new(tools::fragmend()).arg("recover").arg(&mnt)).expect(&[0]);
        }
        for (path, expected) in files {
            let inside = path.strip_prefix(slow.root()).expect("a file of the disk");
            compare(&mnt.join(inside), expected, "after a power cut", wrong);
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
    for (step, n) in [START].iter().chain(steps).zip(0..) {
        files.extend(across(bed, &slow, step, n, &mut told));
    }
    let (_, log) = slow.recorded().expect("a recording");
    // Btrfs would take a copy of itself for the same file system.
    slow.unmount();
    cut(bed, &slow, log.entries().len(), &files, &mut told.wrong);
    let Told { in_flight, moved, wrong } = told;
    println!("{name}: {} steps, in flight {in_flight:?}, moved by {moved:?}", steps.len());
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    // At the start nobody is kept out; later, who has a lease keeps others out.
    let flown = |way: &Way| in_flight.get(&format!("{way:?}")).copied().unwrap_or(0);
    assert!(WAYS.iter().all(|way| flown(way) >= 1), "{name}: too little was in flight");
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
    loop_in_flight_on_xfs_exchange => "xfs-exchange", ON_EXCHANGE;
    loop_in_flight_on_xfs_rmap => "xfs-rmap", ON_SWAP;
    loop_in_flight_on_btrfs => "btrfs", ON_COPYING;
    loop_in_flight_on_btrfs_zstd => "btrfs-zstd", ON_COMPRESSED;
    loop_in_flight_on_rewrite => "rewrite-ext4", &steps::OF_REWRITE;
}
