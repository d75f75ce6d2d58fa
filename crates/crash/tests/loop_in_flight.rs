//! Writes that are in flight across each numbered step of each engine: begun before it, answered
//! by the disk after it, synced; and all of them are there, in the page cache and after a power cut, also
//! one right behind the instant at which its writer was told. Where a lease keeps writers out, they wait.

use fragmend_crash::after::AfterCut;
use fragmend_crash::bed::{self, Bed, Mover};
use fragmend_crash::content::fill;
use fragmend_crash::cut::Cut;
use fragmend_crash::flight::{BLOCK, Flight, Landing, WAYS, Way};
use fragmend_crash::log::Log;
use fragmend_crash::look;
use fragmend_crash::marks::Mark;
use fragmend_crash::minder::{State, go_on, open_below, state};
use fragmend_crash::slow::SlowBed;
use fragmend_testbed::fragment::{alternating, interleaved_with};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::steps;
use fragmend_testbed::tools;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
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
/// So long at most somebody waits for a write to be on its way, or to wait.
const ON_ITS_WAY: Duration = Duration::from_secs(20);
/// So long the mover may go on before the disk answers.
const MEANWHILE: Duration = Duration::from_millis(60);
/// A mover that does not end by then hangs.
const TOO_LONG: Duration = Duration::from_secs(90);

/// A step at which writes are begun, and what comes of them and of the moves of their files.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    others: Others,
    files: Files,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Their writes are on their way while the step is taken.
    FlyAcross,
    /// A lease keeps them waiting, all of them, and nothing of theirs is on its way.
    AreKeptOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// All the same.
    Move,
    /// They are left alone: others have them open, want to have them, or have changed them.
    Stay,
    /// What of them is copied when the write arrives is chance.
    Either,
}

use Files::{Either, Move, Stay};
use Others::{AreKeptOut, FlyAcross};

const fn step(name: &'static str, others: Others, files: Files) -> Step {
    Step { name, others, files }
}

/// Before anything is done.
const START: &str = "start";
const ON_EXT4: &[Step] = &[
    // What is dirty is waited for first, and by then nobody may have the file open any more.
    step(START, FlyAcross, Either),
    step("staged", FlyAcross, Stay),
    step("moved", AreKeptOut, Move),
    step("settled", FlyAcross, Move),
];
/// Somebody has every file open, so that nobody gets a lease.
const ON_FORCED: &[Step] = &[
    step(START, FlyAcross, Move),
    step("staged", FlyAcross, Move),
    step("moved", FlyAcross, Move),
    step("settled", FlyAcross, Move),
];
const ON_COPYING: &[Step] = &[
    step(START, FlyAcross, Move),
    step("staged", FlyAcross, Move),
    step("filled", FlyAcross, Move),
    step("moved", FlyAcross, Move),
    step("settled", FlyAcross, Move),
];
const ON_EXCHANGE: &[Step] = &[
    step(START, FlyAcross, Move),
    step("staged", FlyAcross, Move),
    step("sampled", AreKeptOut, Move),
    step("filled", AreKeptOut, Move),
    step("moved", AreKeptOut, Move),
    step("settled", FlyAcross, Move),
];
const ON_SWAP: &[Step] = &[
    step(START, FlyAcross, Either),
    step("filled", FlyAcross, Stay),
    step("moved", FlyAcross, Move),
    step("settled", FlyAcross, Move),
];
const ON_REWRITE: &[Step] = &[
    step(START, FlyAcross, Either),
    step("copied", FlyAcross, Stay),
    step("leased", AreKeptOut, Stay),
    step("sealed", AreKeptOut, Stay),
    step("punched", AreKeptOut, Move),
    step("allocated", AreKeptOut, Move),
    step("half-written", AreKeptOut, Move),
    step("written", AreKeptOut, Move),
    step("synced", AreKeptOut, Move),
    step("compared", AreKeptOut, Move),
    step("removed", AreKeptOut, Move),
];

/// What all runs on a row came to.
#[derive(Default)]
struct Told {
    /// Receipts, by the interface that they name.
    moved: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

/// A file that is written to in one way.
struct Written {
    path: PathBuf,
    way: Way,
    /// Decides what is written, and is told with the mark when that is durable.
    seed: u64,
    before: Vec<u8>,
    at: u64,
    flight: Option<Flight>,
    landing: Option<Landing>,
    /// It was on its way, or kept waiting, while the mover stood at the step.
    as_it_must: bool,
    said: bool,
}

/// What a file must hold: at the end, and, of `at`'s block, what it held before.
struct Holds {
    step: usize,
    path: PathBuf,
    way: Way,
    seed: u64,
    at: usize,
    before: Vec<u8>,
    expected: Vec<u8>,
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
        let mut before = vec![0; BYTES as usize];
        content(0, &mut before);
        let (flight, landing) = (None, None);
        Self { path, way, seed, before, at: 0, flight, landing, as_it_must: false, said: false }
    }

    /// Begins its write, and waits until that is on its way, or waits for the lease of `mover`.
    fn begin(&mut self, slow: &SlowBed, others: Others, mover: u32) {
        let flight =
            Flight::begin(slow.gate(), self.way, &self.path, BYTES, self.seed, Path::new(SOAK));
        self.at = flight.at();
        self.as_it_must = match others {
            FlyAcross => flight.is_on_its_way(ON_ITS_WAY),
            AreKeptOut => {
                let until = Instant::now() + ON_ITS_WAY;
                while !somebody_waits(mover, &self.path) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                somebody_waits(mover, &self.path) && !flight.is_on_its_way(Duration::ZERO)
            }
        };
        self.flight = Some(flight);
    }

    fn release(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.landing = Some(flight.release());
        }
    }

    /// Puts a mark into the log once its writer was told that all is durable.
    fn tell(&mut self, slow: &SlowBed) {
        if !self.said && self.landing.as_ref().is_some_and(Landing::has_landed) {
            let (from, to) = (self.at, self.at + BLOCK);
            slow.say(&Mark::Synced { tag: self.seed as u32, from, to, version: 1 });
            self.said = true;
        }
    }

    /// Waits for its write, and compares.
    fn end(mut self, slow: &SlowBed, step: usize, wrong: &mut Vec<String>) -> Holds {
        self.release();
        while !self.said && self.landing.is_some() {
            self.tell(slow);
            std::thread::sleep(Duration::from_millis(1));
        }
        let Self { path, way, seed, before, at, landing, .. } = self;
        let mut expected = before.clone();
        if let Some((at, bytes)) = landing.map(Landing::land) {
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        compare(&path, &expected, None, "in the page cache", wrong);
        Holds { step, path, way, seed, at: at as usize, before, expected }
    }
}

/// Whether somebody waits until this process gives up its lease on this file (proc_locks(5)).
fn somebody_waits(holder: u32, path: &Path) -> bool {
    let Ok(meta) = path.metadata() else { return false };
    let (holder, inode) = (holder.to_string(), format!(":{}", meta.ino()));
    let locks = fs::read_to_string("/proc/locks").expect("the locks of all");
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, "LEASE", "BREAKING", _, pid, file, ..] if pid == holder && file.ends_with(&inode))
    })
}

/// Compares a file, but for the block at `but`.
fn compare(path: &Path, expected: &[u8], but: Option<usize>, when: &str, wrong: &mut Vec<String>) {
    let name = path.display();
    let found = fs::read(path).unwrap_or_else(|e| panic!("{name}, {when}: {e}"));
    let skipped = |n: usize| but.is_some_and(|at| (at..at + BLOCK as usize).contains(&n));
    let differ = |n: &usize| !skipped(*n) && found.get(*n) != expected.get(*n);
    if let Some(at) = (0..expected.len().max(found.len())).find(differ) {
        wrong.push(format!("{name}, {when}: byte {at}"));
    }
}

/// Files that are moved with a write to each from one step on; gives what they must hold.
fn across(bed: &Bed, slow: &SlowBed, step: Step, n: usize, told: &mut Told) -> Vec<Holds> {
    let dir = slow.root().join(step.name).join(DIR);
    fs::create_dir_all(&dir).expect("a directory");
    let seed = |way: Way| (n * 8 + way as usize + 1) as u64;
    let mut files = WAYS.map(|way| Written::make(bed, &dir, seed(way), way));
    slow.sync();
    let plan = slow.scratch().join("plan.json");
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan).arg(&dir);
    finish(&mut command).expect(&[0, 2]);

    let keep = |file: &Written| File::open(&file.path).expect("a file of the run");
    let _kept: Vec<File> = files.iter().filter(|_| bed.keeps_open).map(keep).collect();
    let Mover::Fragmend(options) = bed.mover else { panic!("nobody moves files on {}", bed.name) };
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(&plan).arg("--json").args(options);
    command.env("FRAGMEND_STOP_AT", format!("{}=stop", step.name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if step.name == START {
        // Nobody is at work yet who could keep them out.
        files.iter_mut().for_each(|file| file.begin(slow, step.others, 0));
    }
    let mover = Running::start(&mut command);
    let id = mover.id();
    // What it says must not fill a pipe.
    let ending = std::thread::spawn(move || mover.wait().expect(&[0, 2, 4, 6]));
    // Where the mover is to find them at work it must have had its look, however late it comes.
    let meanwhile = if step.files == Stay { MEANWHILE * 16 } else { MEANWHILE };
    let (started, mut release_at) = (Instant::now(), Instant::now() + meanwhile);
    while !ending.is_finished() {
        if state(id) == State::Stopped {
            let in_hand = open_below(id, DIR);
            let file = files.iter_mut().find(|file| in_hand.as_ref() == Some(&file.path));
            if let Some(file) = file.filter(|f| f.flight.is_none() && f.landing.is_none()) {
                file.begin(slow, step.others, id);
                release_at = Instant::now() + meanwhile;
            }
            go_on(id);
        }
        // The mover may wait for what is in flight, and those who write for the mover.
        if Instant::now() > release_at {
            if let Some(file) = files.iter_mut().find(|file| file.flight.is_some()) {
                file.release();
            }
            release_at = Instant::now() + meanwhile;
        }
        files.iter_mut().for_each(|file| file.tell(slow));
        assert!(started.elapsed() < TOO_LONG, "{}: the mover hangs at {}", bed.name, step.name);
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = ending.join().expect("the mover's end");
    let moved = receipts(bed, &said, told);
    let not = files.iter().filter(|file| !file.as_it_must).map(|file| file.way);
    let not: Vec<Way> = not.collect();
    let what = match step.others {
        FlyAcross => "on its way across it",
        AreKeptOut => "kept waiting, with nothing on its way",
    };
    println!("{} {}: all but {not:?} {what}; {} files moved", bed.name, step.name, moved.len());
    assert!(not.is_empty(), "{} {}: {not:?} not {what}: {said}", bed.name, step.name);
    let fits = match step.files {
        Move => !moved.is_empty(),
        Stay => moved.is_empty(),
        Either => true,
    };
    assert!(fits, "{} {}: {:?}, but {moved:?}: {said}", bed.name, step.name, step.files);
    files.map(|file| file.end(slow, n, &mut told.wrong)).into()
}

/// Reads receipts, each of which must name what it may; gives the files of which something has moved.
fn receipts(bed: &Bed, said: &str, told: &mut Told) -> BTreeSet<String> {
    let mut moved = BTreeSet::new();
    for line in said.lines() {
        let event: Value = serde_json::from_str(line).expect("its JSON");
        if event["event"] != "range" {
            continue;
        }
        if let Some(by) = event["primitive"].as_str() {
            let named = bed.may_be_by(by, event["fallback"].as_str(), false);
            assert!(named, "{}: {line}", bed.name);
            *told.moved.entry(by.to_owned()).or_default() += 1;
        }
        if event["outcome"] == "moved" {
            moved.insert(event["path"].as_str().expect("a path").to_owned());
        }
    }
    moved
}

/// What a cut leaves of the files, behind so many entries of the log: all that was told to be durable by
/// then (`landed`), and of the rest all but the block that is written.
fn cut(
    bed: &Bed,
    recorded: (&File, &Arc<Log>),
    root: &Path,
    cut: Cut,
    files: &[(bool, &Holds)],
    wrong: &mut Vec<String>,
) {
    let mut left = AfterCut::new(bed.file_system, recorded, bed.atom, cut);
    look::recover(bed, &left.root()).unwrap_or_else(|why| panic!("{} {cut:?}: {why}", bed.name));
    let when = format!("after {cut:?}");
    for (landed, file) in files {
        let inside = left.root().join(file.path.strip_prefix(root).expect("a file of the disk"));
        match landed {
            true => compare(&inside, &file.expected, None, &when, wrong),
            false => compare(&inside, &file.before, Some(file.at), &when, wrong),
        }
    }
    left.unmount();
    bed.check(left.node(), None).unwrap_or_else(|why| panic!("{} {cut:?}: {why}", bed.name));
}

fn on(name: &str, steps: &[Step]) {
    let bed = bed::named(name).expect("a row");
    let mut slow = SlowBed::new(bed.file_system, bed.bytes, "");
    slow.record();
    let (mut told, mut files) = (Told::default(), Vec::new());
    for (n, step) in steps.iter().enumerate() {
        files.extend(across(bed, &slow, *step, n, &mut told));
    }
    // Btrfs would take a copy of itself for the same file system.
    slow.unmount();
    let (base, log) = slow.recorded().expect("a recording");
    let recorded = (&base, &log);
    let landed: BTreeMap<u64, usize> =
        log.marks().map(Result::unwrap).filter_map(landing).collect();
    let Told { moved, mut wrong } = told;
    // Right behind a landing at each step, by another way each time. Where a move was forced, what others
    // sync before its commit may be lost: that is what is forced.
    for n in (0..steps.len()).filter(|_| !bed.keeps_open) {
        let of_step = files.iter().filter(|file| file.step == n);
        let chosen = of_step.clone().find(|file| file.way == WAYS[n % WAYS.len()]);
        let position = landed[&chosen.expect("a file of each way").seed] + 1;
        let files: Vec<_> = of_step.map(|file| (landed[&file.seed] < position, file)).collect();
        let at = Cut { position, seed: n as u64, honest: true };
        cut(bed, recorded, &slow.root(), at, &files, &mut wrong);
    }
    let all: Vec<_> = files.iter().map(|file| (true, file)).collect();
    for seed in [1, 2] {
        let at = Cut { position: log.entries().len(), seed, honest: true };
        cut(bed, recorded, &slow.root(), at, &all, &mut wrong);
    }
    println!("{name}: {} steps, {} landings, moved by {moved:?}", steps.len(), landed.len());
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    assert!(!moved.is_empty(), "{name}: nothing has moved");
}

/// Whose write is durable from a mark on, and where that is in the log.
fn landing((position, text): (usize, String)) -> Option<(u64, usize)> {
    match serde_json::from_str(&text).expect("a mark") {
        Mark::Synced { tag, .. } => Some((tag.into(), position)),
        _ => None,
    }
}

/// One test for each engine: its row, and its steps.
macro_rules! engines {
    ($($test:ident => $row:literal, $steps:expr;)*) => {
        $(#[test] fn $test() { on($row, $steps) })*
    };
}

/// A step that is left out here would be tried by nobody.
#[test]
fn every_step_of_a_rewrite_is_tried() {
    let names: Vec<&str> = ON_REWRITE.iter().map(|step| step.name).collect();
    assert_eq!((names[0], &names[1..]), (START, &steps::OF_REWRITE[..]));
}

engines! {
    loop_in_flight_on_ext4 => "ext4", ON_EXT4;
    loop_in_flight_on_ext4_forced => "ext4-forced", ON_FORCED;
    loop_in_flight_on_xfs => "xfs", ON_COPYING;
    loop_in_flight_on_xfs_exchange => "xfs-exchange", ON_EXCHANGE;
    loop_in_flight_on_xfs_rmap => "xfs-rmap", ON_SWAP;
    loop_in_flight_on_btrfs => "btrfs", ON_COPYING;
    loop_in_flight_on_btrfs_zstd => "btrfs-zstd", ON_COPYING;
    loop_in_flight_on_rewrite => "rewrite-ext4", ON_REWRITE;
    loop_in_flight_on_rewrite_on_xfs => "rewrite-xfs-plain", ON_REWRITE;
}
