//! Writes that are in flight across each numbered step of each engine: issued before it, completed
//! by the disk after it, and synced. All of them must be there, in the page cache and after a power
//! cut, also one right after a writer's sync returned. Where a lease keeps writers out, they wait.

use fragmend_crash::after::AfterCut;
use fragmend_crash::content::fill;
use fragmend_crash::cut::Cut;
use fragmend_crash::in_flight::{AnsweredWrite, BLOCK, InFlightWrite, WRITE_METHODS, WriteMethod};
use fragmend_crash::inspect;
use fragmend_crash::interrupt::{State, go_on, open_below, state};
use fragmend_crash::log::Log;
use fragmend_crash::marks::Mark;
use fragmend_crash::scenario::{self, Mover, Scenario};
use fragmend_crash::slow::SlowMount;
use fragmend_testbed::fragment::{alternating, interleaved_with};
use fragmend_testbed::process::{Running, a_program_waits, finish};
use fragmend_testbed::steps;
use fragmend_testbed::tools;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOAK: &str = env!("CARGO_BIN_EXE_soak");
/// The directory of the files.
const DIR: &str = "in-flight";
/// Bytes of a file, and of its extents.
const BYTES: u64 = 192 << 10;
const EXTENT: u64 = 8 << 10;
/// A write that is then neither in flight nor waiting for a lease counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the mover goes on before the disk completes the next write.
const MEANWHILE: Duration = Duration::from_millis(60);
/// A mover that runs longer counts as hung.
const TOO_LONG: Duration = Duration::from_secs(90);

/// A step at which writes are issued, and what must become of them and of the moves of their files.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    others: Others,
    files: Files,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Their writes are in flight while the step is carried out.
    InFlight,
    /// A lease keeps all of them waiting, and none of their writes is in flight.
    KeptOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// They move.
    Move,
    /// They are left alone: others have them open, wait for them, or have changed them.
    Stay,
    /// Either may happen: how much is copied when the write arrives depends on timing.
    Either,
}

use Files::{Either, Move, Stay};
use Others::{InFlight, KeptOut};

const fn step(name: &'static str, others: Others, files: Files) -> Step {
    Step { name, others, files }
}

/// Before the first step.
const START: &str = "start";
const ON_EXT4: &[Step] = &[
    // The mover waits for dirty pages first; by then the file may be closed again.
    step(START, InFlight, Either),
    step("staged", InFlight, Stay),
    step("moved", KeptOut, Move),
    step("settled", InFlight, Move),
];
/// Every file is open in another program, so that no lease is granted.
const ON_FORCED: &[Step] = &[
    step(START, InFlight, Move),
    step("staged", InFlight, Move),
    step("moved", InFlight, Move),
    step("settled", InFlight, Move),
];
const ON_COPYING: &[Step] = &[
    step(START, InFlight, Move),
    step("staged", InFlight, Move),
    step("filled", InFlight, Move),
    step("moved", InFlight, Move),
    step("settled", InFlight, Move),
];
const ON_EXCHANGE: &[Step] = &[
    step(START, InFlight, Move),
    step("staged", InFlight, Move),
    step("sampled", KeptOut, Move),
    step("filled", KeptOut, Move),
    step("moved", KeptOut, Move),
    step("settled", InFlight, Move),
];
const ON_SWAP: &[Step] = &[
    step(START, InFlight, Either),
    step("filled", InFlight, Stay),
    step("moved", InFlight, Move),
    step("settled", InFlight, Move),
];
const ON_REWRITE: &[Step] = &[
    step(START, InFlight, Either),
    step("copied", InFlight, Stay),
    step("leased", KeptOut, Stay),
    step("sealed", KeptOut, Stay),
    step("punched", KeptOut, Move),
    step("allocated", KeptOut, Move),
    step("half-written", KeptOut, Move),
    step("written", KeptOut, Move),
    step("synced", KeptOut, Move),
    step("compared", KeptOut, Move),
    step("removed", KeptOut, Move),
];

/// Totals of all runs of a scenario.
#[derive(Default)]
struct Totals {
    /// Receipts, by kernel interface.
    moved: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

/// A file that is written to by one method.
struct Written {
    path: PathBuf,
    method: WriteMethod,
    /// Decides what is written; the tag of the mark once that is durable.
    seed: u64,
    before: Vec<u8>,
    at: u64,
    write: Option<InFlightWrite>,
    answered: Option<AnsweredWrite>,
    /// Its write was in flight, or kept waiting, as it must be, while the mover was at the step.
    as_expected: bool,
    marked: bool,
}

/// What a file must hold: at the end (`expected`), and before the write to the block at `at`.
struct Expected {
    step: usize,
    path: PathBuf,
    method: WriteMethod,
    seed: u64,
    at: usize,
    before: Vec<u8>,
    expected: Vec<u8>,
}

impl Written {
    fn make(scenario: &Scenario, dir: &Path, seed: u64, method: WriteMethod) -> Self {
        let path = dir.join(format!("{method:?}"));
        let content = |at: u64, buffer: &mut [u8]| fill(seed as u32, at, 0, buffer);
        // Compressed files are made of extents of their own.
        if scenario.file_system.options.contains("compress") {
            alternating(&path, BYTES, 16 << 10, content).expect("a fragmented file");
        } else {
            interleaved_with(&path, BYTES, &[EXTENT], true, content).expect("a fragmented file");
            let beside = dir.with_file_name(format!("beside-{method:?}"));
            fs::rename(path.with_extension("dummy"), beside).expect("its neighbour out of the way");
        }
        let mut before = vec![0; BYTES as usize];
        content(0, &mut before);
        let (write, answered) = (None, None);
        Self {
            path,
            method,
            seed,
            before,
            at: 0,
            write,
            answered,
            as_expected: false,
            marked: false,
        }
    }

    /// Issues its write, and waits until that is in flight, or waits for the lease of `mover`.
    fn begin(&mut self, slow: &SlowMount, others: Others, mover: u32) {
        let write = InFlightWrite::begin(
            slow.gate(),
            self.method,
            &self.path,
            BYTES,
            self.seed,
            Path::new(SOAK),
        );
        self.at = write.at();
        self.as_expected = match others {
            InFlight => write.is_in_flight(PATIENCE),
            KeptOut => {
                let until = Instant::now() + PATIENCE;
                while !a_program_waits(mover, &self.path) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                a_program_waits(mover, &self.path) && !write.is_in_flight(Duration::ZERO)
            }
        };
        self.write = Some(write);
    }

    fn release(&mut self) {
        if let Some(write) = self.write.take() {
            self.answered = Some(write.release());
        }
    }

    /// Adds a mark to the log once its writer's sync has returned.
    fn mark(&mut self, slow: &SlowMount) {
        if !self.marked && self.answered.as_ref().is_some_and(AnsweredWrite::is_durable) {
            let (from, to) = (self.at, self.at + BLOCK);
            slow.mark(&Mark::Synced { tag: self.seed as u32, from, to, version: 1 });
            self.marked = true;
        }
    }

    /// Waits for its write, and compares.
    fn end(mut self, slow: &SlowMount, step: usize, wrong: &mut Vec<String>) -> Expected {
        self.release();
        while !self.marked && self.answered.is_some() {
            self.mark(slow);
            std::thread::sleep(Duration::from_millis(1));
        }
        let Self { path, method, seed, before, at, answered, .. } = self;
        let mut expected = before.clone();
        if let Some((at, bytes)) = answered.map(AnsweredWrite::wait_until_durable) {
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        compare(&path, &expected, None, "in the page cache", wrong);
        Expected { step, path, method, seed, at: at as usize, before, expected }
    }
}

/// Compares a file, except for the block at `except`.
fn compare(
    path: &Path,
    expected: &[u8],
    except: Option<usize>,
    when: &str,
    wrong: &mut Vec<String>,
) {
    let name = path.display();
    let found = fs::read(path).unwrap_or_else(|e| panic!("{name}, {when}: {e}"));
    let skipped = |n: usize| except.is_some_and(|at| (at..at + BLOCK as usize).contains(&n));
    let differ = |n: &usize| !skipped(*n) && found.get(*n) != expected.get(*n);
    if let Some(at) = (0..expected.len().max(found.len())).find(differ) {
        wrong.push(format!("{name}, {when}: byte {at}"));
    }
}

/// Moves files, with a write to each that is issued at one step; returns what they must hold.
fn across(
    scenario: &Scenario,
    slow: &SlowMount,
    step: Step,
    n: usize,
    totals: &mut Totals,
) -> Vec<Expected> {
    let dir = slow.root().join(step.name).join(DIR);
    fs::create_dir_all(&dir).expect("a directory");
    let seed = |method: WriteMethod| (n * 8 + method as usize + 1) as u64;
    let mut files = WRITE_METHODS.map(|method| Written::make(scenario, &dir, seed(method), method));
    slow.sync();
    let mut command = mover(scenario, slow, &dir, step);
    let keep = |file: &Written| File::open(&file.path).expect("a file of the run");
    let _kept: Vec<File> = files.iter().filter(|_| scenario.keeps_open).map(keep).collect();
    if step.name == START {
        // The mover does not run yet, so no lease keeps them out.
        files.iter_mut().for_each(|file| file.begin(slow, step.others, 0));
    }
    let mover = Running::start(&mut command);
    let id = mover.id();
    // Its output is read meanwhile: on a full pipe it would block.
    let ending = std::thread::spawn(move || mover.wait().expect(&[0, 2, 4, 6]));
    // Where the mover must detect the writes, they stay in flight until it has checked the file.
    let meanwhile = if step.files == Stay { MEANWHILE * 16 } else { MEANWHILE };
    let (started, mut release_at) = (Instant::now(), Instant::now() + meanwhile);
    while !ending.is_finished() {
        if state(id) == State::Stopped {
            let file_in_progress = open_below(id, DIR);
            let file = files.iter_mut().find(|file| file_in_progress.as_ref() == Some(&file.path));
            if let Some(file) = file.filter(|f| f.write.is_none() && f.answered.is_none()) {
                file.begin(slow, step.others, id);
                release_at = Instant::now() + meanwhile;
            }
            go_on(id);
        }
        // The mover may wait for writes in flight, and the writers for the mover.
        if Instant::now() > release_at {
            if let Some(file) = files.iter_mut().find(|file| file.write.is_some()) {
                file.release();
            }
            release_at = Instant::now() + meanwhile;
        }
        files.iter_mut().for_each(|file| file.mark(slow));
        assert!(
            started.elapsed() < TOO_LONG,
            "{}: the mover hangs at {}",
            scenario.name,
            step.name
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = ending.join().expect("the mover's end");
    judge(scenario, step, &files, &said, totals);
    files.map(|file| file.end(slow, n, &mut totals.wrong)).into()
}

/// Plans to move the files of a directory; returns the command that moves them, and stops at `step`.
fn mover(scenario: &Scenario, slow: &SlowMount, dir: &Path, step: Step) -> Command {
    let plan = slow.scratch().join("plan.json");
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan).arg(dir);
    finish(&mut command).expect(&[0, 2]);

    let Mover::Fragmend(options) = scenario.mover else {
        panic!("no mover for the files on {}", scenario.name)
    };
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(&plan).arg("--json").args(options);
    command.env("FRAGMEND_STOP_AT", format!("{}=stop", step.name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What must have become of the writes at a step, and of the moves of their files.
fn judge(scenario: &Scenario, step: Step, files: &[Written], said: &str, totals: &mut Totals) {
    let moved = receipts(scenario, said, totals);
    let not = files.iter().filter(|file| !file.as_expected).map(|file| file.method);
    let not: Vec<WriteMethod> = not.collect();
    let what = match step.others {
        InFlight => "on its method across it",
        KeptOut => "kept waiting, with nothing on its method",
    };
    println!(
        "{} {}: all but {not:?} {what}; {} files moved",
        scenario.name,
        step.name,
        moved.len()
    );
    assert!(not.is_empty(), "{} {}: {not:?} not {what}: {said}", scenario.name, step.name);
    let fits = match step.files {
        Move => !moved.is_empty(),
        Stay => moved.is_empty(),
        Either => true,
    };
    assert!(fits, "{} {}: {:?}, but {moved:?}: {said}", scenario.name, step.name, step.files);
}

/// Reads receipts, each of which must name an expected interface; returns the paths of files of
/// which some range has moved.
fn receipts(scenario: &Scenario, said: &str, totals: &mut Totals) -> BTreeSet<String> {
    let mut moved = BTreeSet::new();
    for line in said.lines() {
        let event: Value = serde_json::from_str(line).expect("its JSON");
        if event["event"] != "range" {
            continue;
        }
        if let Some(by) = event["primitive"].as_str() {
            let named = scenario.allows_primitives(by, event["fallback"].as_str(), false);
            assert!(named, "{}: {line}", scenario.name);
            *totals.moved.entry(by.to_owned()).or_default() += 1;
        }
        if event["outcome"] == "moved" {
            moved.insert(event["path"].as_str().expect("a path").to_owned());
        }
    }
    moved
}

/// Compares the files after a cut: those whose sync had returned (`durable`) completely, the others
/// except for the block that is written.
fn cut(
    scenario: &Scenario,
    recorded: (&File, &Arc<Log>),
    root: &Path,
    cut: Cut,
    files: &[(bool, &Expected)],
    wrong: &mut Vec<String>,
) {
    let mut left = AfterCut::new(scenario.file_system, recorded, scenario.atom, cut);
    inspect::recover(scenario, &left.root())
        .unwrap_or_else(|why| panic!("{} {cut:?}: {why}", scenario.name));
    let when = format!("after {cut:?}");
    for (durable, file) in files {
        let inside = left.root().join(file.path.strip_prefix(root).expect("a file of the disk"));
        if *durable {
            compare(&inside, &file.expected, None, &when, wrong);
        } else {
            compare(&inside, &file.before, Some(file.at), &when, wrong);
        }
    }
    left.unmount();
    scenario
        .check(left.node(), None)
        .unwrap_or_else(|why| panic!("{} {cut:?}: {why}", scenario.name));
}

fn on(name: &str, steps: &[Step]) {
    let scenario = scenario::named(name).expect("a row");
    let mut slow = SlowMount::new(scenario.file_system, scenario.bytes, "");
    slow.record();
    let (mut totals, mut files) = (Totals::default(), Vec::new());
    for (n, step) in steps.iter().enumerate() {
        files.extend(across(scenario, &slow, *step, n, &mut totals));
    }
    // Btrfs cannot be mounted beside its own copy.
    slow.unmount();
    let (base, log) = slow.recorded().expect("a recording");
    let recorded = (&base, &log);
    let synced: BTreeMap<u64, usize> =
        log.marks().map(Result::unwrap).filter_map(landing).collect();
    let Totals { moved, mut wrong } = totals;
    // A cut right after one sync at each step, by another method each time. Where a move was
    // forced, what others sync before its commit may be lost: `--force` accepts that.
    for n in (0..steps.len()).filter(|_| !scenario.keeps_open) {
        let of_step = files.iter().filter(|file| file.step == n);
        let chosen =
            of_step.clone().find(|file| file.method == WRITE_METHODS[n % WRITE_METHODS.len()]);
        let position = synced[&chosen.expect("a file of each method").seed] + 1;
        let files: Vec<_> = of_step.map(|file| (synced[&file.seed] < position, file)).collect();
        let at = Cut { position, seed: n as u64, honest: true };
        cut(scenario, recorded, &slow.root(), at, &files, &mut wrong);
    }
    let all: Vec<_> = files.iter().map(|file| (true, file)).collect();
    for seed in [1, 2] {
        let at = Cut { position: log.entries().len(), seed, honest: true };
        cut(scenario, recorded, &slow.root(), at, &all, &mut wrong);
    }
    println!("{name}: {} steps, {} landings, moved by {moved:?}", steps.len(), synced.len());
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    assert!(!moved.is_empty(), "{name}: nothing has moved");
}

/// The seed of the write that a mark reports as durable, and the mark's position in the log.
fn landing((position, text): (usize, String)) -> Option<(u64, usize)> {
    match serde_json::from_str(&text).expect("a mark") {
        Mark::Synced { tag, .. } => Some((tag.into(), position)),
        _ => None,
    }
}

/// One test for each engine: its scenario, and its steps.
macro_rules! engines {
    ($($test:ident => $row:literal, $steps:expr;)*) => {
        $(#[test] fn $test() { on($row, $steps) })*
    };
}

/// A step that is missing here would not be tested.
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
