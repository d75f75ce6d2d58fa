//! One recording: a fresh file system, fragmented files, the load and `fragmend apply` beside each
//! other, and everything that reached the disk meanwhile.

use crate::bed::{self, Bed, Mover};
use crate::careless;
use crate::disk::Disk;
use crate::files::{self, FileOf, MENDED, Role};
use crate::log::{Entry, Log};
use crate::marks::Mark;
use crate::mounted::Mounted;
use crate::serve::{Served, lock};
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Files that nobody writes.
const STILL_FILES: u32 = 12;
/// Bytes of each file.
const FILE_BYTES: u64 = 1 << 20;
/// So many bytes are moved a second, so that moves go on for a few seconds.
const RATE: &str = "5M";
/// Bytes of a planned range.
const RANGE: u64 = 128 << 10;
/// How long the load runs where nothing is moved.
const ALONE: Duration = Duration::from_secs(3);

/// What a recording was, kept beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Name of the row.
    pub bed: String,
    /// Of the load.
    pub seed: u64,
    /// All files, but for those that come and go.
    pub files: Vec<FileOf>,
    /// First entry of the log while files were moved, and the one behind the last.
    pub moving: (usize, usize),
    /// What was moved meanwhile.
    pub moves: Moves,
}

/// What the receipts come to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Moves {
    /// Ranges that were moved.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Ranges at which the kernel or the tool failed.
    pub failed: u64,
}

/// A recording that can be cut.
pub struct Recording {
    /// What it was.
    pub run: Run,
    /// Its row.
    pub bed: &'static Bed,
    /// Where it lies.
    pub dir: PathBuf,
    /// What reached the disk.
    pub log: Arc<Log>,
}

impl Recording {
    /// Opens one that was kept.
    ///
    /// # Errors
    /// When it is none.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let run: Run = serde_json::from_reader(File::open(dir.join("run.json"))?)?;
        let bed = bed::named(&run.bed).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("no row is named {}", run.bed))
        })?;
        Ok(Self { run, bed, dir: dir.to_owned(), log: Arc::new(Log::open(&dir.join("log"))?) })
    }

    /// The image as recording found it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn base(&self) -> io::Result<File> {
        File::open(self.dir.join("base.img"))
    }

    /// Writes and zeroings, and flushes among the entries.
    pub fn operations(&self) -> (usize, usize) {
        let marks = |e: &&Entry| matches!(e, Entry::Mark { .. });
        let flushes = self.log.entries().iter().filter(|e| **e == Entry::Flush).count();
        (self.log.entries().len() - self.log.entries().iter().filter(marks).count(), flushes)
    }
}

/// Makes a recording in `dir`, an empty directory. `soak` is the program whose `load` is the load.
///
/// # Panics
/// When anything but the files' content goes wrong.
pub fn record(bed: &'static Bed, seed: u64, dir: &Path, soak: &Path) -> Recording {
    let inside = |name: &str| dir.join(name);
    for name in ["served", "mnt"] {
        fs::create_dir(inside(name)).expect("a directory");
    }
    let disk = Disk::create(&inside("base.img"), bed.bytes).expect("an image");
    let served = Served::start(disk, &inside("served")).expect("a disk through FUSE");
    let device = LoopDevice::attach(served.path());
    assert_volatile(&device);
    bed.file_system.make(Path::new(device.node()), &[]);
    let root = inside("mnt");
    let mounted = Mounted::new(bed.file_system, &device, &root, "").expect("it can be mounted");
    let mut files = files::make(&root, STILL_FILES, FILE_BYTES);
    files::leave_free(&root, bed.free);
    fs::write(inside("files.json"), serde_json::to_vec(&files).expect("JSON")).expect("a file");
    rustix::fs::syncfs(File::open(&root).expect("the root")).expect("syncfs");
    let fragmend = matches!(bed.mover, Mover::Fragmend(_));
    let plan = fragmend.then(|| plan(&root.join(MENDED), &inside("plan.json")));
    served.store().record(&inside("log")).expect("a log");

    let mut load = Command::new(soak);
    load.arg("load").arg(&root).arg(inside("files.json")).arg(seed.to_string());
    let mut load = Running::start(load.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let marks = load.child().stdout.take().expect("its output");
    let shared = served.shared();
    let marks = std::thread::spawn(move || {
        for line in BufReader::new(marks).lines() {
            lock(&shared).mark(&line.expect("the load's output")).expect("the log");
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    let from = served.store().position();
    let moves = match (bed.mover, &plan) {
        (Mover::Fragmend(options), Some(plan)) => apply(plan, options, &served.shared()),
        (Mover::Careless, _) => careless::rewrite(&root, &files),
        _ => {
            std::thread::sleep(ALONE);
            Moves::default()
        }
    };
    let to = served.store().position();
    std::thread::sleep(Duration::from_millis(200));
    drop(load.child().stdin.take());
    load.wait().expect(&[0]);
    marks.join().expect("the marks were noted");
    for file in files.iter_mut().filter(|f| f.role == Role::Still) {
        file.pieces_after = files::pieces(&root.join(MENDED).join(&file.name));
    }
    mounted.unmount(&device);
    device.detach();
    drop(served);
    let name = bed.name.to_owned();
    let run = Run { bed: name, seed, files, moving: (from, to), moves };
    fs::write(inside("run.json"), serde_json::to_vec(&run).expect("JSON")).expect("a file");
    Recording::open(dir).expect("the recording just made")
}

/// Without a volatile cache there are no flushes, and nothing would be proven.
fn assert_volatile(device: &LoopDevice) {
    let name = Path::new(device.node()).file_name().unwrap_or_default();
    let path = Path::new("/sys/block").join(name).join("queue/write_cache");
    let cache = fs::read_to_string(path).expect("the kind of cache");
    assert_eq!(cache.trim(), "write back");
}

/// Plans to mend every fragmented file, in short ranges: where a range moves as a whole, a file is
/// half moved only between two of them.
fn plan(dir: &Path, plan: &Path) -> PathBuf {
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(plan).arg(dir);
    finish(&mut command).expect(&[0, 2]);
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

/// Applies a plan; each receipt becomes a mark.
fn apply(plan: &Path, options: &[&str], disk: &Arc<Mutex<Disk>>) -> Moves {
    let mut command = Command::new(tools::fragmend());
    command.arg("apply").arg(plan).args(["--json", "--rate", RATE]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let receipts = running.child().stdout.take().expect("its output");
    let mut kept = File::create(plan.with_file_name("receipts.jsonl")).expect("a file");
    let mut moves = Moves::default();
    for line in BufReader::new(receipts).lines() {
        let line = line.expect("its output");
        writeln!(kept, "{line}").expect("room for receipts");
        let event: Value = serde_json::from_str(&line).expect("its JSON");
        if event["event"] != "range" {
            continue;
        }
        if event["outcome"] == "moved" {
            let bytes = event["moved_bytes"].as_u64().unwrap_or(0);
            (moves.ranges, moves.bytes) = (moves.ranges + 1, moves.bytes + bytes);
            let mark = serde_json::to_string(&Mark::Moved { bytes }).expect("JSON");
            lock(disk).mark(&mark).expect("the log");
        }
        moves.failed += u64::from(event["reason"] == "failed");
    }
    // That a range cannot be moved is counted, and no matter of lost bytes.
    running.wait().expect(&[0, 2, 4, 6]);
    moves
}
