//! `fragmend apply` as the mover, and the totals of its receipts.
//!
//! Its receipts come through a pipe that holds one, so the mover is never far ahead of the reader: while
//! receipt n is processed, n + 1 is in the pipe, the mover blocks on writing n + 2, and n + 3 has moved only
//! if it is in one group with n + 2. So cuts of half-moved files do not depend on timing: at two receipts of
//! each file that no program writes, everything is synced before the next receipt is read. From there until
//! the mover is released, the file is durably half at its old place and half at its new one, and its donor is
//! open; see [`crate::choose_cuts`].

use crate::files::{MENDED, Role, TestFile};
use crate::interrupt::{PartlyMoved, begin, interrupt};
use crate::later_use::{LaterUse, LaterUseCounts};
use crate::marks::{Mark, Marks};
use crate::mount::freeze;
use crate::scenario::Scenario;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Bytes moved a second, so that moving lasts a few seconds.
const RATE: &str = "3M";
/// Bytes of a planned range.
const RANGE: u64 = 64 << 10;
/// A file's move is held up after these of its receipts: a file of the run has eight ranges.
const HELD_AFTER: [usize; 2] = [2, 4];
/// Where the scenario freezes, the file system is frozen after this many receipts.
const FROZEN_AFTER: u64 = 16;
/// How long a move is held up, so that others write meanwhile.
const HELD: Duration = Duration::from_millis(20);
/// Receipts by which the mover may be ahead of the reader: at [`RATE`] a group has two ranges.
pub const AHEAD: usize = 3;

/// Totals of the receipts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Moves {
    /// Ranges that were moved.
    pub ranges: u64,
    /// Those of them that were contiguous before.
    #[serde(default)]
    pub anew: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Receipts of ranges at which the kernel or the tool failed.
    pub failed: Vec<String>,
    /// Bytes moved, by kernel interface, as in the summary.
    pub by: BTreeMap<String, u64>,
    /// Receipts that name an interface which the scenario does not expect, or a fallback without
    /// an accepted reason: see [`Scenario::allows_primitives`].
    #[serde(alias = "otherwise")]
    pub unexpected: Vec<String>,
    /// Ranges that were moved by a fallback interface.
    pub by_fallback: u64,
    /// Ranges left alone, by reason.
    pub left: BTreeMap<String, u64>,
    /// What others did to files that had moved.
    #[serde(alias = "lived")]
    pub later_use: LaterUseCounts,
}

impl Moves {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.ranges += other.ranges;
        self.anew += other.anew;
        self.bytes += other.bytes;
        self.failed.extend_from_slice(&other.failed);
        self.unexpected.extend_from_slice(&other.unexpected);
        self.by_fallback += other.by_fallback;
        self.later_use.add(&other.later_use);
        for (to, from) in [(&mut self.by, &other.by), (&mut self.left, &other.left)] {
            from.iter().for_each(|(name, n)| *to.entry(name.clone()).or_default() += n);
        }
    }
}

/// Plans by a policy what to move of the files below `root`, in short ranges: where a range moves as a whole, a file is
/// half moved only between two of them.
///
/// # Panics
/// When there is no plan.
pub fn plan(root: &Path, policy: &str, plan: &Path) -> PathBuf {
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", policy, "-o"]).arg(plan);
    finish(command.arg(root.join(MENDED))).expect(&[0, 2]);
    let mut made: Value = serde_json::from_slice(&fs::read(plan).expect("a plan")).expect("JSON");
    for file in made["files"].as_array_mut().expect("its files") {
        let ranges = file["ranges"].as_array().expect("its ranges").iter().flat_map(split);
        file["ranges"] = ranges.collect();
    }
    fs::write(plan, made.to_string()).expect("a plan");
    plan.to_owned()
}

/// Splits a plan's range into ranges of [`RANGE`] bytes.
fn split(range: &Value) -> Vec<Value> {
    let number = |name: &str| range[name].as_u64().expect("a number");
    let (from, to) = (number("offset"), number("offset") + number("length"));
    let part = |at: u64| {
        let mut part = range.clone();
        part["offset"] = at.into();
        part["length"] = RANGE.min(to - at).into();
        part
    };
    (from..to).step_by(RANGE as usize).map(part).collect()
}

/// A plan for one untouched file of an earlier plan, whose ranges that are contiguous now are written anew, as if a probe had
/// found them slow; `None` where there is none. Of a compressed file nothing is.
///
/// # Panics
/// When the plan cannot be read.
pub fn plan_anew(root: &Path, files: &[TestFile], plan: &Path) -> Option<PathBuf> {
    let mut made: Value = serde_json::from_slice(&fs::read(plan).expect("a plan")).expect("JSON");
    let untouched = |file: &&TestFile| file.role == Role::Untouched && !file.tag.is_multiple_of(2);
    let file = files.iter().rfind(untouched)?;
    let open = File::open(root.join(MENDED).join(&file.name)).expect("a file of the run");
    let layout = fragmend_scan::layout_of(&open).expect("its layout");
    let entries = made["files"].as_array_mut().expect("its files");
    entries.retain(|entry| entry["path"].as_str().is_some_and(|path| path.ends_with(&file.name)));
    for range in entries.iter_mut().flat_map(|entry| entry["ranges"].as_array_mut()).flatten() {
        let at = range["offset"].as_u64().expect("a number");
        let of = layout.extents().iter().find(|e| e.range().start <= at && at < e.range().end);
        range["slow_at"] = of.map(|e| e.physical + (at - e.logical)).into();
    }
    let path = plan.with_file_name("anew.json");
    fs::write(&path, made.to_string()).expect("a plan");
    Some(path)
}

/// What a plan is applied to.
pub struct Target<'a> {
    /// The scenario.
    pub scenario: &'static Scenario,
    /// The mount point.
    pub root: &'a Path,
    /// The files of the run.
    pub files: &'a [TestFile],
    /// Receives a mark for each receipt.
    pub marks: &'a Marks,
    /// Decides when the mover is stopped.
    pub seed: u64,
    /// Whether moves are held up where a file is half moved.
    pub holds: bool,
}

/// Applies a plan; each receipt of a moved range becomes a mark. Where the scenario `freezes`, the
/// journal is emptied at some of them.
///
/// # Panics
/// When the tool ends with an unexpected exit code.
pub fn apply(plan: &Path, options: &[&str], on: &Target, mut later_use: LaterUse) -> Moves {
    let Target { scenario, files, seed, .. } = *on;
    let (receipts, to) = pipe_with(PipeFlags::DIRECT | PipeFlags::CLOEXEC).expect("a pipe");
    fcntl_setpipe_size(&to, 4096).expect("a pipe that holds one write");
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(plan).args(["--json", "--rate", RATE]).args(options);
    command.stdin(Stdio::null()).stdout(to).stderr(Stdio::piped());
    // A build with debug assertions stops itself after every move: see `crate::interrupt`.
    command.env("FRAGMEND_STOP_AT", "moved=stop");
    // And moves as it does beside others that read, with half of the seeds.
    if seed.is_multiple_of(2) {
        command.env("FRAGMEND_OTHERS_READ", "1");
    }
    let running = Running::start(&mut command);
    drop(command);
    let (partly_moved, mover) = (PartlyMoved::default(), running.id());
    let mut moves = std::thread::scope(|scope| {
        let interrupter = scope.spawn(|| {
            interrupt(mover, scenario, files, &partly_moved, &mut later_use, seed);
            later_use.counts
        });
        let mut moves = receive(File::from(receipts), plan, on, &partly_moved);
        moves.later_use = interrupter.join().expect("the thread that interrupts the mover");
        moves
    });
    // A range that cannot be moved is counted; it is no loss.
    running.wait().expect(&[0, 2, 4, 6]);
    moves.unexpected.truncate(MOST_KEPT);
    moves
}

/// Unexpected receipts that are kept.
const MOST_KEPT: usize = 20;

/// Reads the receipts, one at a time.
fn receive(receipts: File, plan: &Path, on: &Target, partly_moved: &PartlyMoved) -> Moves {
    let Target { scenario, root, files, marks, .. } = *on;
    let kept = plan.with_file_name("receipts.jsonl");
    let mut kept = File::options().create(true).append(true).open(kept).expect("a file");
    let mut moves = Moves::default();
    let mut moved = vec![0; files.len()];
    for line in BufReader::new(receipts).lines() {
        let line = line.expect("its output");
        writeln!(kept, "{line}").expect("space for receipts");
        let event: Value = serde_json::from_str(&line).expect("its JSON");
        if event["event"] == "summary" {
            let by = serde_json::from_value(event["moved_by_primitive"].clone());
            moves.by = by.expect("bytes by interface");
            moves.by_fallback = event["ranges_by_fallback"].as_u64().expect("a number");
        }
        if event["event"] != "range" {
            continue;
        }
        if let Some(reason) = event["reason"].as_str() {
            let detail = event["detail"].as_str().unwrap_or_default();
            *moves.left.entry(format!("{reason}: {detail}")).or_default() += 1;
        }
        let by = event["primitive"].as_str();
        if event["reason"] == "failed" {
            moves.failed.push(line.clone());
        }
        let is_of =
            |file: &TestFile| event["path"].as_str().is_some_and(|p| p.ends_with(&file.name));
        let untouched = files.iter().any(|file| is_of(file) && file.role == Role::Untouched);
        if by.is_some_and(|by| {
            !scenario.allows_primitives(by, event["fallback"].as_str(), untouched)
        }) {
            moves.unexpected.push(line.clone());
        }
        if event["outcome"] != "moved" {
            continue;
        }
        let index = files.iter().position(is_of).expect("a file of the run");
        let TestFile { tag, role, .. } = files[index];
        let bytes = event["moved_bytes"].as_u64().unwrap_or(0);
        (moves.ranges, moves.bytes) = (moves.ranges + 1, moves.bytes + bytes);
        moves.anew += u64::from(event["extents_before"] == 1);
        marks.write(&Mark::Moved { tag, bytes }).expect("the log");
        moved[index] += 1;
        begin(partly_moved, Some(tag));
        if scenario.freezes && moves.ranges % FROZEN_AFTER == 0 {
            freeze(root);
        }
        if on.holds && role == Role::Untouched && HELD_AFTER.contains(&moved[index]) {
            rustix::fs::syncfs(File::open(root).expect("the root")).expect("syncfs");
            marks.write(&Mark::Halfway { tag }).expect("the log");
            std::thread::sleep(HELD);
            marks.write(&Mark::Released { tag }).expect("the log");
        }
    }
    moves
}
