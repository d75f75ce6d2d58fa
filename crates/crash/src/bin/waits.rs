//! Measures how long a reader and two writers of files wait while the files are moved, and how long
//! Ctrl-C takes: on an idle machine, with the page cache dropped once a second, with a memory cgroup
//! of 40 MiB, on a disk of 400 reads a second, and with all of that. Prints a table, and what is
//! out of bounds.
//!
//! The disk is served by this process, which therefore stays outside the cgroup; the mover, the
//! reader and the writers are children in it.

use clap::{Parser, Subcommand};
use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_sys::cache;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP,
};
use fragmend_testbed::fragment::{alternating, compressible, content, interleaved};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::random::Random;
use fragmend_testbed::tools;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
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
    /// Writes blocks at random, with what they hold, and prints the longest wait
    #[command(hide = true)]
    Write { file: PathBuf, pause_ms: u64 },
    /// The same, and syncs each
    #[command(hide = true)]
    Sync { file: PathBuf, pause_ms: u64 },
}

fn engine(name: &str) -> Result<String, String> {
    let names: Vec<&str> = ENGINES.iter().map(|(name, ..)| *name).collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("one of: {}", names.join("; ")))
}

/// The other programs' verbs; each has a file of the same name.
const OTHERS: [&str; 3] = ["read", "write", "sync"];

static ENGINES: [(&str, &FileSystem, &[&str]); 8] = [
    ("ext4", &EXT4, &[]),
    ("ext4, 1 KiB", &EXT4_1K, &[]),
    ("XFS", &XFS, &[]),
    ("XFS, exchange", &XFS_EXCHANGE, &[]),
    ("XFS, swap", &XFS_RMAP, &[]),
    ("Btrfs", &BTRFS, &[]),
    ("Btrfs, zstd", &BTRFS_ZSTD, &[]),
    ("rewrite, ext4", &EXT4, &["--engine", "rewrite"]),
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
/// File size where whole files are swapped, as much as moves at once: see `crates/engines/src/swap.rs`.
const SWAPPED: u64 = 3 << 20;
/// File size on the slow disk with dropped caches, for engines that move a range at once or not at
/// all: as much as stays cached from one drop to the next.
const HELD: u64 = 256 << 10;
const DISK: u64 = 320 << 20;
const MEMORY: u64 = 40 << 20;
const READS_A_SECOND: u32 = 400;
const BLOCK: usize = 4096;
const ALONE: Duration = Duration::from_secs(4);
/// Then the mover gets Ctrl-C.
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
    for (name, file_system, options) in &ENGINES {
        if !cli.engines.is_empty() && !cli.engines.iter().any(|wanted| wanted == name) {
            continue;
        }
        for conditions in CONDITIONS {
            let waited = measure(file_system, options, conditions);
            let row = waited.row(name, conditions);
            eprintln!("{}", row.join(" | "));
            rows.push(row);
            let what = waited.beyond(conditions);
            beyond.extend(what.iter().map(|what| format!("{name}, {}: {what}", conditions.name)));
        }
    }
    println!("| {} |\n|{}", HEADS.join(" | "), "---|".repeat(HEADS.len()));
    rows.iter().for_each(|row| println!("| {} |", row.join(" | ")));
    beyond.iter().for_each(|what| println!("out of bounds: {what}"));
    if beyond.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    fn beyond(&self, conditions: Conditions) -> Vec<String> {
        let longer = (OTHERS.iter().zip(self.alone).zip(self.beside))
            .filter(|((_, alone), beside)| beside - alone > LONGER)
            .map(|((verb, alone), beside)| {
                format!("{verb} waited {:.0} ms longer than alone", (beside - alone) * 1e3)
            });
        let mut beyond: Vec<String> = longer.collect();
        if self.moved_bytes == 0 {
            beyond.push("nothing was moved, so nobody can have waited".to_owned());
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

/// The pause between two requests of the other programs: a file that is opened while the mover
/// inspects it gets no lease, and inspecting takes as long as reading it.
fn pause_ms(leases: bool, conditions: Conditions) -> u64 {
    match (leases, conditions.slow) {
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

fn measure(file_system: &'static FileSystem, options: &[&str], conditions: Conditions) -> Waited {
    let slow = SlowMount::new(file_system, DISK, "");
    let files = OTHERS.map(|file| slow.root().join(file));
    let leases = file_system.name == XFS_RMAP.name || !options.is_empty();
    let size = size(file_system, leases || file_system.name == BTRFS.name, conditions);
    let plan = prepare(&slow, file_system, &files, size);
    let cgroup = conditions.memory.then(|| Cgroup::new(MEMORY));
    let cgroup = cgroup.as_ref();
    if conditions.slow {
        slow.gate().pace(Kind::Read, Some(READS_A_SECOND));
    }
    for file in &files {
        drop_pages(&File::open(file).expect("a file"));
    }
    let pause_ms = pause_ms(leases, conditions);
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

/// Waits until a program ends. After `time` it gets Ctrl-C: returns how long it took from then on.
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

/// A program, in the cgroup if there is one.
fn inside(cgroup: Option<&Cgroup>, program: &Path) -> Command {
    let Some(cgroup) = cgroup else { return Command::new(program) };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
    command.arg(cgroup.0.join("cgroup.procs")).arg(program);
    command
}

/// A reader, or one of the writers.
struct Other(Running);

impl Other {
    fn start(verb: &str, file: &Path, pause_ms: u64, cgroup: Option<&Cgroup>) -> Self {
        let this = std::env::current_exe().expect("this program");
        let mut command = inside(cgroup, &this);
        command.arg(verb).arg(file).arg(pause_ms.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Self(Running::start(&mut command))
    }

    /// Its longest wait, in seconds.
    fn stop(mut self) -> f64 {
        drop(self.0.child().stdin.take());
        self.0.wait().expect(&[0]).trim().parse().expect("a time")
    }
}

/// Opens the file for each request, because some engines need it closed at one instant.
fn load(path: &Path, pause_ms: u64, writes: bool, syncs: bool) -> ExitCode {
    let over = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            over.store(true, Ordering::Relaxed);
        });
        let mut random = Random::new(1 + u64::from(writes) + u64::from(syncs));
        let blocks = path.metadata().expect("a file").len() / BLOCK as u64;
        let packed = path.metadata().is_ok_and(|m| m.len() > SIZE);
        let (mut buffer, mut longest) = (vec![0; BLOCK], Duration::ZERO);
        while !over.load(Ordering::Relaxed) {
            let at = random.below(blocks) * BLOCK as u64;
            let fill = if packed { compressible } else { content };
            if writes {
                fill(at, &mut buffer);
            }
            let started = Instant::now();
            let file = File::options().read(true).write(writes).open(path).expect("a file");
            // As fio and databases do. Otherwise the reader's own readahead may ask for 512 KiB where
            // the pages before are cached, and wait for one request per fragment of them.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
            if writes {
                file.write_all_at(&buffer, at).expect("a write");
            } else {
                file.read_exact_at(&mut buffer, at).expect("a read");
            }
            if syncs {
                file.sync_data().expect("a sync");
            }
            drop(file);
            longest = longest.max(started.elapsed());
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        longest
    });
    println!("{}", longest.as_secs_f64());
    ExitCode::SUCCESS
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

/// A memory cgroup, of either version; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(bytes: u64) -> Self {
        let name = format!("fragmend-waits-{}", std::process::id());
        let (root, limit) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let dir = Path::new(root).join(name);
        fs::create_dir(&dir).expect("a memory cgroup: run it where one may be made");
        let cgroup = Self(dir);
        fs::write(cgroup.0.join(limit), bytes.to_string()).expect("a limit");
        cgroup
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let patience = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
