//! Measures how long a reader and two writers of files wait while the files are moved, and how long the mover
//! needs to end after Ctrl-C: on an idle machine, with the page cache dropped once a second, with a memory
//! cgroup of 40 MiB, on a disk of 400 reads a second, and under all of these conditions. Prints a table, and
//! what is out of bounds.
//!
//! The disk is served by this process, which therefore stays outside the cgroup; the mover, the
//! reader and the writers are children in it.

mod cgroup;
mod others;

use cgroup::{Cgroup, inside};
use clap::{Parser, Subcommand};
use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_sys::cache;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, F2FS, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP,
};
use fragmend_testbed::fragment::{alternating, compressible, interleaved};
use fragmend_testbed::guest::{self, Guest};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools;
use others::{Other, load};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Measures how long others wait beside `fragmend apply`, on every engine
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    load: Option<Load>,
    /// Only these engines
    #[arg(value_parser = engine)]
    engines: Vec<String>,
}

#[derive(Subcommand)]
enum Load {
    /// Reads blocks at random, until its input ends, and prints the longest wait
    #[command(hide = true)]
    Read { file: PathBuf, pause_ms: u64 },
    /// Overwrites blocks at random with the same content, and prints the longest wait
    #[command(hide = true)]
    Write { file: PathBuf, pause_ms: u64 },
    /// The same, and syncs each
    #[command(hide = true)]
    Sync { file: PathBuf, pause_ms: u64 },
}

fn engine(name: &str) -> Result<String, String> {
    let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("one of: {}", names.join("; ")))
}

/// The other programs' verbs; each has a file of the same name.
const OTHERS: [&str; 3] = ["read", "write", "sync"];

/// A way to move data.
struct Engine {
    name: &'static str,
    file_system: &'static FileSystem,
    /// Options of `apply`.
    options: &'static [&'static str],
    /// The primitive that must have moved some of the data.
    by: &'static str,
    /// Whether the other programs open their files only now and then, because an open file is not moved.
    seldom: bool,
}

impl Engine {
    const fn new(name: &'static str, file_system: &'static FileSystem) -> Self {
        Self { name, file_system, options: &[], by: file_system.moved_by[0], seldom: false }
    }

    const fn seldom(self) -> Self {
        Self { seldom: true, ..self }
    }

    /// Whether it is measured in a guest, because the host's kernel may lack the file system.
    fn is_in_guest(&self) -> bool {
        self.file_system.name == F2FS.name
    }
}

static ENGINES: [Engine; 10] = [
    Engine::new("ext4", &EXT4),
    Engine::new("ext4, 1 KiB", &EXT4_1K),
    Engine::new("XFS", &XFS),
    Engine::new("XFS, exchange", &XFS_EXCHANGE).seldom(),
    // Files that are always open are shared instead, and the receipts name the fallback.
    Engine { by: "FIDEDUPERANGE", ..Engine::new("XFS, exchange, files open", &XFS_EXCHANGE) },
    Engine::new("XFS, swap", &XFS_RMAP).seldom(),
    Engine::new("Btrfs", &BTRFS),
    Engine { by: "BTRFS_IOC_DEFRAG_RANGE", ..Engine::new("Btrfs, zstd", &BTRFS_ZSTD) },
    Engine::new("F2FS", &F2FS).seldom(),
    Engine {
        options: &["--engine", "rewrite"],
        by: "rewrite",
        ..Engine::new("rewrite, ext4", &EXT4).seldom()
    },
];

#[derive(Clone, Copy)]
struct Conditions {
    name: &'static str,
    drops: bool,
    memory: bool,
    slow: bool,
}

static CONDITIONS: [Conditions; 5] = [
    Conditions { name: "idle", drops: false, memory: false, slow: false },
    Conditions { name: "dropped caches", drops: true, memory: false, slow: false },
    Conditions { name: "40 MiB", drops: false, memory: true, slow: false },
    Conditions { name: "400 reads/s", drops: false, memory: false, slow: true },
    Conditions { name: "all of that", drops: true, memory: true, slow: true },
];

const SIZE: u64 = 6 << 20;
/// File size where whole files are swapped, the most that moves at once: see `crates/engines/src/swap.rs`.
const SWAPPED: u64 = 3 << 20;
/// File size on the slow disk with dropped caches, for engines that move a range at once or not at
/// all: as much as stays cached from one drop to the next.
const HELD: u64 = 256 << 10;
const DISK: u64 = 320 << 20;
const MEMORY: u64 = 40 << 20;
const READS_A_SECOND: u32 = 400;
const BLOCK: usize = 4096;
const ALONE: Duration = Duration::from_secs(4);
/// How long the mover runs before Ctrl-C.
const BESIDE: Duration = Duration::from_secs(12);

/// Limit of a wait beyond the longest without the mover, in seconds.
const LONGER: f64 = 0.25;
/// Limit of a step on an idle machine, in seconds.
const STEP: f64 = 0.1;
/// Limit of the time from Ctrl-C to the end, in seconds.
const CTRL_C: f64 = 1.0;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.load {
        Some(Load::Read { file, pause_ms }) => return load(file, *pause_ms, false, false),
        Some(Load::Write { file, pause_ms }) => return load(file, *pause_ms, true, false),
        Some(Load::Sync { file, pause_ms }) => return load(file, *pause_ms, true, true),
        None => {}
    }
    if let Err(why) = tools::require(&["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]) {
        eprintln!("waits: {why}");
        return ExitCode::FAILURE;
    }
    let (mut rows, mut beyond) = (Vec::new(), Vec::new());
    for engine in &ENGINES {
        if !cli.engines.is_empty() && !cli.engines.iter().any(|wanted| wanted == engine.name) {
            continue;
        }
        let (of_engine, what) = if engine.is_in_guest() && !guest::inside() {
            in_guest(engine.name)
        } else {
            on(engine)
        };
        rows.extend(of_engine);
        beyond.extend(what);
    }
    if guest::inside() {
        println!("{}", serde_json::to_string(&(rows, beyond)).expect("text"));
        return ExitCode::SUCCESS;
    }
    println!("| {} |\n|{}", HEADS.join(" | "), "---|".repeat(HEADS.len()));
    rows.iter().for_each(|row| println!("| {} |", row.join(" | ")));
    beyond.iter().for_each(|what| println!("out of bounds: {what}"));
    if beyond.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The rows of an engine, and what exceeds its limit.
type Measured = (Vec<Vec<String>>, Vec<String>);

/// Measures an engine here.
fn on(engine: &Engine) -> Measured {
    let (mut rows, mut beyond) = (Vec::new(), Vec::new());
    for conditions in CONDITIONS {
        let waited = measure(engine, conditions);
        let row = waited.row(engine.name, conditions);
        eprintln!("{}", row.join(" | "));
        rows.push(row);
        let what = waited.beyond(engine, conditions);
        beyond.extend(
            what.iter().map(|what| format!("{}, {}: {what}", engine.name, conditions.name)),
        );
    }
    (rows, beyond)
}

/// Runs this program in a guest, to measure an engine there.
fn in_guest(engine: &str) -> Measured {
    let mut this = Command::new(std::env::current_exe().expect("this program"));
    this.arg(engine).env("FRAGMEND", tools::fragmend());
    let run = Guest::new().time_limit(Duration::from_secs(600)).run(&this);
    let printed = run.unwrap_or_else(|lost| panic!("{lost}")).expect(&[0]);
    let (rows, beyond): Measured =
        serde_json::from_str(printed.trim()).expect("the rows that the guest printed");
    rows.iter().for_each(|row| eprintln!("{}", row.join(" | ")));
    (rows, beyond)
}

const HEADS: [&str; 13] = [
    "engine",
    "conditions",
    "reader alone, ms",
    "beside",
    "writer alone, ms",
    "beside",
    "syncing writer alone, ms",
    "beside",
    "longest step, ms",
    "Ctrl-C, ms",
    "moved, KiB",
    "ranges in part or left",
    "by",
];

/// The results of one engine under one set of conditions; times in seconds.
struct Waited {
    /// The longest wait of each, without the mover and beside it.
    alone: [f64; OTHERS.len()],
    beside: [f64; OTHERS.len()],
    step: f64,
    ctrl_c: Option<f64>,
    moved_bytes: u64,
    left: String,
    by: String,
}

impl Waited {
    fn row(&self, name: &str, conditions: Conditions) -> Vec<String> {
        let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
        let mut row = vec![name.to_owned(), conditions.name.to_owned()];
        let pairs = self.alone.iter().zip(&self.beside);
        row.extend(pairs.flat_map(|(alone, beside)| [ms(*alone), ms(*beside)]));
        row.push(ms(self.step));
        row.push(self.ctrl_c.map_or("-".into(), ms));
        row.push((self.moved_bytes >> 10).to_string());
        row.extend([self.left.clone(), self.by.clone()]);
        row
    }

    /// What exceeds its limit.
    fn beyond(&self, engine: &Engine, conditions: Conditions) -> Vec<String> {
        let longer = (OTHERS.iter().zip(self.alone).zip(self.beside))
            .filter(|((_, alone), beside)| beside - alone > LONGER)
            .map(|((verb, alone), beside)| {
                format!("{verb} waited {:.0} ms longer than alone", (beside - alone) * 1e3)
            });
        let mut beyond: Vec<String> = longer.collect();
        if self.moved_bytes == 0 {
            beyond.push("nothing was moved, so no program can have waited".to_owned());
        } else if !self.by.contains(engine.by) {
            beyond.push(format!("moved by {}, and not by {}", self.by, engine.by));
        }
        let idle = !conditions.drops && !conditions.memory && !conditions.slow;
        if idle && self.step > STEP {
            beyond.push(format!("a step took {:.0} ms", self.step * 1e3));
        }
        if let Some(took) = self.ctrl_c.filter(|took| *took > CTRL_C) {
            beyond.push(format!("Ctrl-C took {:.0} ms", took * 1e3));
        }
        beyond
    }
}

/// The size of the three files, in bytes; those of compressed Btrfs have larger extents.
fn size(file_system: &FileSystem, at_once: bool, conditions: Conditions) -> u64 {
    match file_system.name {
        _ if at_once && conditions.drops && conditions.slow => HELD,
        name if name == BTRFS_ZSTD.name => 4 * SIZE,
        name if name == XFS_RMAP.name => SWAPPED,
        _ => SIZE,
    }
}

/// The pause between two requests of the other programs: a file that is opened while the mover inspects it
/// gets no lease, and inspecting lasts as long as reading it.
fn pause_ms(seldom: bool, conditions: Conditions) -> u64 {
    match (seldom, conditions.slow) {
        (false, _) => 1,
        (true, false) => 250,
        (true, true) => 2500,
    }
}

/// Makes the files on the disk and plans to move them; returns the plan.
fn prepare(slow: &SlowMount, file_system: &FileSystem, files: &[PathBuf], size: u64) -> PathBuf {
    for file in files {
        if file_system.name == BTRFS_ZSTD.name {
            alternating(file, size, 32 << 10, compressible).expect("a file");
        } else {
            interleaved(file, size, &[BLOCK as u64], true).expect("a file");
        }
    }
    slow.sync();
    let plan = slow.scratch().join("plan.json");
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan).args(files);
    finish(&mut command).expect(&[0, 2]);
    plan
}

fn measure(engine: &Engine, conditions: Conditions) -> Waited {
    let Engine { file_system, options, seldom, .. } = *engine;
    let slow = SlowMount::new(file_system, DISK, "");
    let files = OTHERS.map(|file| slow.root().join(file));
    let size = size(file_system, seldom || file_system.name == BTRFS.name, conditions);
    let plan = prepare(&slow, file_system, &files, size);
    let cgroup = conditions.memory.then(|| Cgroup::new(MEMORY));
    let cgroup = cgroup.as_ref();
    if conditions.slow {
        slow.gate().pace(Kind::Read, Some(READS_A_SECOND));
    }
    for file in &files {
        drop_pages(&File::open(file).expect("a file"));
    }
    let pause_ms = pause_ms(seldom, conditions);
    let others = || [0, 1, 2].map(|n| Other::start(OTHERS[n], &files[n], pause_ms, cgroup));
    let over = AtomicBool::new(false);
    let mover = std::sync::Mutex::new(None::<u32>);
    std::thread::scope(|scope| {
        if conditions.drops {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_secs(1));
                    let mover = *mover.lock().expect("no panic");
                    drop_all(&files, mover);
                }
            });
        }
        let alone = others();
        std::thread::sleep(ALONE);
        let alone = alone.map(Other::stop);

        let beside = others();
        let receipts = slow.scratch().join("receipts");
        let mut command = inside(cgroup, &tools::fragmend());
        command.args(["apply", "--json"]).args(options).arg(&plan);
        command.stdin(Stdio::null()).stdout(File::create(&receipts).expect("a file"));
        let mut running = Running::start(command.stderr(Stdio::inherit()));
        *mover.lock().expect("no panic") = Some(running.id());
        let ctrl_c = interrupt_after(BESIDE, &mut running);
        *mover.lock().expect("no panic") = None;
        let beside = beside.map(Other::stop);
        over.store(true, Ordering::Relaxed);
        running.wait().expect(&[0, 2, 16, 18]);
        let summary = summary(&receipts);
        let by = summary["moved_by_primitive"].as_object().expect("names");
        let by: Vec<String> = by
            .iter()
            .map(|(name, n)| format!("{name} {}", n.as_u64().unwrap_or(0) >> 10))
            .collect();
        let (left, skipped) = (&summary["ranges_left"], &summary["skipped_by_reason"]);
        Waited {
            alone,
            beside,
            step: summary["longest_step_seconds"].as_f64().expect("a time"),
            ctrl_c: ctrl_c.map(|time| time.as_secs_f64()),
            moved_bytes: summary["moved_bytes"].as_u64().expect("a number"),
            left: format!("{left}, {skipped}"),
            by: by.join(", "),
        }
    })
}

/// Waits until a program ends, and sends it Ctrl-C after `time`; returns the time from then to its end.
fn interrupt_after(time: Duration, running: &mut Running) -> Option<Duration> {
    let (started, mut stopped) = (Instant::now(), None);
    while running.child().try_wait().expect("a child").is_none() {
        if stopped.is_none() && started.elapsed() > time {
            running.signal(Signal::INT);
            stopped = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    stopped.map(|at| at.elapsed())
}

/// The summary at the end of a file of receipts.
fn summary(receipts: &Path) -> Value {
    let text = fs::read_to_string(receipts).expect("its output");
    let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.next_back().filter(|event| event["event"] == "summary").expect("a summary")
}

/// Drops all pages of the files and of what the mover has open beside them.
fn drop_all(files: &[PathBuf], mover: Option<u32>) {
    let device = files[0].metadata().map(|m| m.dev()).unwrap_or_default();
    let open = |path: &Path| {
        let there = fs::metadata(path).ok().filter(|m| m.is_file() && m.dev() == device);
        there.and_then(|_| File::open(path).ok())
    };
    for file in files.iter().filter_map(|file| open(file)) {
        drop_pages(&file);
    }
    let Some(pid) = mover else { return };
    for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        if let Some(file) = open(&fd.path()) {
            drop_pages(&file);
        }
    }
}

fn drop_pages(file: &File) {
    let size = file.metadata().map_or(0, |m| m.len()).next_multiple_of(BLOCK as u64);
    let _ = cache::start_writeback(file, 0..size);
    let _ = cache::drop_clean(file, 0..size);
}
