//! `fragmend apply` as the mover, and what its receipts come to.
//!
//! Its receipts come through a pipe that holds one, so it is never far ahead of who reads them:
//! while receipt n is in hand, n + 1 lies in the pipe, with n + 2 the tool waits, and n + 3 has
//! moved only where it is in one group with n + 2. That makes it certain, and no matter of speed,
//! that cuts meet files half moved: at two receipts of each file that nobody writes, everything is
//! synced before the next one is taken. From there until the mover is released the file lies half
//! at its old place and half at its new one, durably, and its donor is open; see [`crate::choose`].

use crate::bed::Bed;
use crate::files::{FileOf, MENDED, Role};
use crate::life::{Life, Lived};
use crate::marks::{Mark, Marks};
use crate::minder::{Begun, begin, mind};
use crate::mounted::freeze;
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

/// So many bytes are moved a second, so that moves go on for a few seconds.
const RATE: &str = "3M";
/// Bytes of a planned range.
const RANGE: u64 = 64 << 10;
/// A file is held up after so many of its receipts: a file of the run has eight ranges.
const HELD_AFTER: [usize; 2] = [2, 4];
/// The file system is frozen after so many receipts, where it is.
const FROZEN_AFTER: u64 = 16;
/// How long, so that others write meanwhile.
const HELD: Duration = Duration::from_millis(20);
/// As far as the tool may be ahead of the receipt in hand: at [`RATE`] a group is of two ranges.
pub const AHEAD: usize = 3;

/// What the receipts come to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Moves {
    /// Ranges that were moved.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Ranges at which the kernel or the tool failed: which, and why.
    pub failed: Vec<String>,
    /// The bytes by the interface that moved them, as the summary has it.
    pub by: BTreeMap<String, u64>,
    /// Receipts of something moved that name another interface than the one that the row expects,
    /// or one that stands in for it without a good reason: see [`Bed::may_be_by`].
    pub otherwise: Vec<String>,
    /// Ranges that another interface moved than the one that the file system has for it.
    pub by_fallback: u64,
    /// Why ranges were left alone, and how many.
    pub left: BTreeMap<String, u64>,
    /// What others did to files that had moved.
    pub lived: Lived,
}

impl Moves {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.ranges += other.ranges;
        self.bytes += other.bytes;
        self.failed.extend_from_slice(&other.failed);
        self.otherwise.extend_from_slice(&other.otherwise);
        self.by_fallback += other.by_fallback;
        self.lived.add(&other.lived);
        for (to, from) in [(&mut self.by, &other.by), (&mut self.left, &other.left)] {
            from.iter().for_each(|(name, n)| *to.entry(name.clone()).or_default() += n);
        }
    }
}

/// Plans to mend every fragmented file below `root`, in short ranges: where a range moves as a
/// whole, a file is half moved only between two of them.
///
/// # Panics
/// When there is no plan.
pub fn plan(root: &Path, plan: &Path) -> PathBuf {
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(plan);
    finish(command.arg(root.join(MENDED))).expect(&[0, 2]);
    let mut made: Value = serde_json::from_slice(&fs::read(plan).expect("a plan")).expect("JSON");
    for file in made["files"].as_array_mut().expect("its files") {
        let ranges = file["ranges"].as_array().expect("its ranges").iter().flat_map(shorter);
        file["ranges"] = ranges.collect();
    }
    fs::write(plan, made.to_string()).expect("a plan");
    plan.to_owned()
}

/// The range of a plan in parts of [`RANGE`].
fn shorter(range: &Value) -> Vec<Value> {
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

/// What a plan is applied to, and how.
pub struct Applying<'a> {
    /// The row.
    pub bed: &'static Bed,
    /// Where it is mounted.
    pub root: &'a Path,
    /// The files of the run.
    pub files: &'a [FileOf],
    /// Where it is said what has moved.
    pub marks: &'a Marks,
    /// Decides when the mover is stopped.
    pub seed: u64,
}

/// Applies a plan; each receipt of something moved becomes a mark. Where the row `freezes`, the
/// journal is emptied at some of them.
///
/// # Panics
/// When the tool ends in a way that it should not.
pub fn apply(plan: &Path, options: &[&str], on: &Applying, mut life: Life) -> Moves {
    let Applying { bed, files, seed, .. } = *on;
    let (receipts, to) = pipe_with(PipeFlags::DIRECT | PipeFlags::CLOEXEC).expect("a pipe");
    fcntl_setpipe_size(&to, 4096).expect("a pipe that holds one write");
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(plan).args(["--json", "--rate", RATE]).args(options);
    command.stdin(Stdio::null()).stdout(to).stderr(Stdio::piped());
    // Builds with debug assertions stop here, as often as they come by: see the minder.
    command.env("FRAGMEND_STOP_AT", "moved=stop");
    let running = Running::start(&mut command);
    drop(command);
    let (begun, mover) = (Begun::default(), running.id());
    let mut moves = std::thread::scope(|scope| {
        let minder = scope.spawn(|| {
            mind(mover, bed, files, &begun, &mut life, seed);
            life.lived
        });
        let mut moves = receive(File::from(receipts), plan, on, &begun);
        moves.lived = minder.join().expect("who minds the mover");
        moves
    });
    // That a range cannot be moved is counted, and no matter of lost bytes.
    running.wait().expect(&[0, 2, 4, 6]);
    moves.otherwise.truncate(MOST_KEPT);
    moves
}

/// So many receipts that should not be are kept.
const MOST_KEPT: usize = 20;

/// Takes the receipts, one at a time.
fn receive(receipts: File, plan: &Path, on: &Applying, begun: &Begun) -> Moves {
    let Applying { bed, root, files, marks, .. } = *on;
    let mut kept = File::create(plan.with_file_name("receipts.jsonl")).expect("a file");
    let mut moves = Moves::default();
    let mut moved = vec![0; files.len()];
    for line in BufReader::new(receipts).lines() {
        let line = line.expect("its output");
        writeln!(kept, "{line}").expect("room for receipts");
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
        let is_of = |file: &FileOf| event["path"].as_str().is_some_and(|p| p.ends_with(&file.name));
        let still = files.iter().any(|file| is_of(file) && file.role == Role::Still);
        if by.is_some_and(|by| !bed.may_be_by(by, event["fallback"].as_str(), still)) {
            moves.otherwise.push(line.clone());
        }
        if event["outcome"] != "moved" {
            continue;
        }
        let of = files.iter().position(is_of).expect("a file of the run");
        let FileOf { tag, role, .. } = files[of];
        let bytes = event["moved_bytes"].as_u64().unwrap_or(0);
        (moves.ranges, moves.bytes) = (moves.ranges + 1, moves.bytes + bytes);
        marks.say(&Mark::Moved { tag, bytes }).expect("the log");
        moved[of] += 1;
        begin(begun, Some(tag));
        if bed.freezes && moves.ranges % FROZEN_AFTER == 0 {
            freeze(root);
        }
        if role == Role::Still && HELD_AFTER.contains(&moved[of]) {
            rustix::fs::syncfs(File::open(root).expect("the root")).expect("syncfs");
            marks.say(&Mark::Halfway { tag }).expect("the log");
            std::thread::sleep(HELD);
            marks.say(&Mark::Released { tag }).expect("the log");
        }
    }
    moves
}
