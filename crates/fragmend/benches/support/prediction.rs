//! Predicted beside counted time saved: loads on fragmented files of a drive that `fragmend lab serve` serves, recorded,
//! planned, mended and run again, with the drive's virtual time as the measure.
//!
//! The drive is filled and probed while it is new. Then all of its file system is allocated, and what is freed again are
//! holes of 4 to 32 KiB: files that are written there are in some hundred fragments each, and the space to mend them is
//! freed last. Where a plan moves nothing, the whole file is mended all the same (`--policy whole-file`), so that what is
//! predicted of what is left alone is counted as well.

use fragmend_crash::mount::Mount;
use fragmend_testbed::aging;
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::random::{Random, Zipf};
use fragmend_testbed::replay::{Aligned, Mode, open};
use fragmend_testbed::scratch;
use fragmend_testbed::served::ServedDrive;
use fragmend_testbed::tools::WATCHING;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const KIB: u64 = 1024;
/// Bytes of each file, and files of each load. Each begins somewhere else in a flash page when it is written, and again when
/// it is mended; what that changes by up to 12 % is a matter of luck with one file.
const FILE_BYTES: u64 = 8 << 20;
const FILES: u64 = 8;
/// All that a load reads.
const BYTES: u64 = FILES * FILE_BYTES;

/// A load: its name, and what it does with the files of a directory.
pub struct Load {
    pub name: &'static str,
    run: fn(&Path),
}

/// The files of a directory, opened; reads are at places in all of them, one behind the other.
struct Files(Vec<File>);

impl Files {
    fn open(dir: &Path, mode: Mode) -> Self {
        Self((0..FILES).map(|n| open(&dir.join(n.to_string()), mode).expect("a file")).collect())
    }

    fn read(&self, bytes: &mut [u8], at: u64) {
        let file = &self.0[(at / FILE_BYTES) as usize];
        file.read_exact_at(bytes, at % FILE_BYTES).expect("data");
    }
}

/// The ten loads: direct and buffered, one read at a time to 32, sequential, stride, zipfian, SQLite, random sizes. Where threads
/// read, they have so many reads each that what is saved exceeds by how much one of them ends later than the others.
pub const LOADS: [Load; 10] = [
    Load { name: "random 128 KiB, direct", run: |path| random(path, 128 * KIB, 400, 1) },
    Load { name: "random 32 KiB, direct, depth 4", run: |path| random(path, 32 * KIB, 1600, 4) },
    Load { name: "random 64 KiB, direct, depth 8", run: |path| random(path, 64 * KIB, 1600, 8) },
    Load {
        name: "random 128 KiB, direct, depth 32",
        run: |path| random(path, 128 * KIB, 1920, 32),
    },
    Load { name: "stride 384 KiB, direct", run: stride },
    Load { name: "random sizes, direct", run: sizes },
    Load { name: "sequential, buffered", run: sequential },
    Load { name: "random 16 KiB, buffered", run: buffered },
    Load { name: "zipfian 16 KiB, direct, depth 4", run: zipfian },
    Load { name: SQLITE, run: queries },
];

const SQLITE: &str = "SQLite, range queries";

/// Reads so many slots of the files past the page cache, that many at a time; `slot` draws.
fn direct(
    path: &Path,
    bytes: u64,
    reads: u64,
    depth: u64,
    slot: impl Fn(&mut Random) -> u64 + Sync,
) {
    std::thread::scope(|scope| {
        for thread in 0..depth {
            let slot = &slot;
            scope.spawn(move || {
                let files = Files::open(path, Mode::Direct);
                let (mut random, mut buffer) =
                    (Random::new(700 + thread), Aligned::new(bytes as usize));
                for _ in 0..reads / depth {
                    let at = slot(&mut random) * bytes;
                    files.read(buffer.bytes(), at);
                }
            });
        }
    });
}

fn random(path: &Path, bytes: u64, reads: u64, depth: u64) {
    direct(path, bytes, reads, depth, |random| random.below(BYTES / bytes));
}

fn zipfian(path: &Path) {
    let slots = BYTES / (16 * KIB);
    let mut order: Vec<u64> = (0..slots).collect();
    Random::new(9).shuffle(&mut order);
    let zipf = Zipf::new(order.len(), Zipf::YCSB);
    direct(path, 16 * KIB, 1800, 4, |random| order[zipf.draw(random)]);
}

fn stride(path: &Path) {
    let (files, mut buffer) = (Files::open(path, Mode::Direct), Aligned::new(128 << 10));
    for read in 0..170 {
        let slot = read * 3 % (BYTES / (128 * KIB));
        files.read(buffer.bytes(), slot * 128 * KIB);
    }
}

fn sizes(path: &Path) {
    let (files, mut buffer) = (Files::open(path, Mode::Direct), Aligned::new(512 << 10));
    let mut random = Random::new(3);
    for _ in 0..400 {
        let bytes = [4, 16, 64, 128, 512][random.below(5) as usize] * KIB;
        let at =
            random.below(FILES) * FILE_BYTES + random.below((FILE_BYTES - bytes) / 4096) * 4096;
        files.read(&mut buffer.bytes()[..bytes as usize], at);
    }
}

fn sequential(path: &Path) {
    let (files, mut buffer) = (Files::open(path, Mode::Buffered), vec![0; 128 << 10]);
    (0..BYTES).step_by(128 << 10).for_each(|at| files.read(&mut buffer, at));
}

fn buffered(path: &Path) {
    let files = Files::open(path, Mode::Buffered);
    for file in &files.0 {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random).expect("advice");
    }
    let (mut random, mut buffer) = (Random::new(5), vec![0; 16 << 10]);
    for _ in 0..1200 {
        files.read(&mut buffer, random.below(BYTES / (16 * KIB)) * 16 * KIB);
    }
}

/// Rows of the database.
const ROWS: u64 = 52_000;

/// The bytes of a database whose rows have 200 to 1800 bytes.
fn database(scratch: &Path) -> Vec<u8> {
    let path = scratch.join("rows.db");
    let sql = format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);
         INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         SELECT randomblob(200 + i * 7919 % 1600) FROM n;"
    );
    finish(Command::new("sqlite3").args(["-batch", "-bail"]).arg(&path).arg(sql)).expect(&[0]);
    let bytes = fs::read(&path).expect("the database");
    fs::remove_file(path).expect("it is removed");
    bytes
}

/// Sums over 31 rows at random places. With a cache of 16 pages, SQLite requests nearly every page from the kernel.
fn queries(path: &Path) {
    let mut random = Random::new(4);
    let mut sql = String::from("PRAGMA cache_size = 16;");
    for _ in 0..240 {
        let first = random.below(ROWS - 40);
        sql += &format!(
            "SELECT sum(length(hex(v))) FROM t WHERE id BETWEEN {first} AND {};",
            first + 30
        );
    }
    let path = path.join("0");
    finish(Command::new("sqlite3").args(["-batch", "-readonly"]).arg(path).arg(sql)).expect(&[0]);
}

/// Predicted and counted, in seconds, for what was mended.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub predicted: f64,
    pub counted: f64,
}

/// What a load came to.
#[derive(Debug)]
pub struct Outcome {
    pub before: Time,
    pub after: Time,
    pub moved_bytes: u64,
    /// Why nothing is worth moving.
    pub why: Option<String>,
    pub requests_before: u64,
}

impl Outcome {
    pub fn saved(&self) -> Time {
        Time {
            predicted: self.before.predicted - self.after.predicted,
            counted: self.before.counted - self.after.counted,
        }
    }

    /// By how much the predicted time saved is more than the counted, as a share of it.
    pub fn error(&self) -> f64 {
        let Time { predicted, counted } = self.saved();
        predicted / counted - 1.0
    }

    /// The share of the time by which the two runs differ.
    pub fn difference(&self) -> f64 {
        1.0 - self.after.counted / self.before.counted
    }
}

/// A served drive with a fragmented file for each load.
pub struct Bed {
    drive: ServedDrive,
    mount: Option<Mount>,
    dir: TempDir,
    scratch: TempDir,
}

impl Bed {
    /// Fills and probes a drive, and fragments files on it.
    pub fn new(name: &str, loads: &[&Load]) -> Self {
        let drive = ServedDrive::start(&[name, "--size", "4G"]);
        let (dir, scratch) = (scratch::directory("prediction"), scratch::directory("prediction"));
        drive.control("fill").expect("a command");
        // Beside other programs a probe's bursts would be waited for four times as long.
        drive.control("settle 500").expect("a command");
        EXT4.make(&drive.node(), &["-E", "nodiscard", "-m", "0"]);
        let bed = Self { drive, mount: None, dir, scratch };
        let probe = ["probe", "--no-intervals", "--pace", "max", "--seconds", "10m", "--json"];
        let profile = bed.json(bed.fragmend(&probe).arg(bed.drive.node()), &[0]);
        assert_eq!(profile["clock"], "served", "{profile}");
        let mount =
            Mount::new(&EXT4, &bed.drive.node(), bed.dir.path(), "").expect("a file system");
        let bed = Self { mount: Some(mount), ..bed };
        bed.fragment(loads);
        bed
    }

    fn fragmend(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(args).env("FRAGMEND_PROFILES", self.scratch.path().join("profiles"));
        command
    }

    fn json(&self, command: &mut Command, codes: &[i32]) -> Value {
        let text = finish(command).expect(codes);
        // `apply` prints an event per line, its summary last.
        let last = || text.trim_end().lines().last().unwrap_or_default();
        let whole = serde_json::from_str(&text).or_else(|_| serde_json::from_str(last()));
        whole.unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// What is buffered by the drive is programmed.
    fn settle(&self) {
        let all = File::open(self.dir.path()).expect("the mount");
        rustix::fs::syncfs(all).expect("it is synced");
        self.drive.rest(Duration::from_secs(3));
    }

    /// Writes a file for each load into holes, and frees space to mend them afterwards.
    fn fragment(&self, loads: &[&Load]) {
        let path = |name: &str| self.dir.path().join(name);
        // Holes for all of them and some journal, in twice as much that is allocated.
        let holes = loads.len() as u64 * (BYTES + (4 << 20)) + (40 << 20);
        let punched = File::create(path("punched")).expect("a file");
        fallocate(&punched, FallocateFlags::empty(), 0, 2 * holes + (32 << 20)).expect("space");
        let rest = aging::fill_up(&path("rest"));
        let (mut random, mut at, mut freed) = (Random::new(1), 0, 0);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        while freed < holes {
            let bytes = [4, 8, 16, 32][random.below(4) as usize] * KIB;
            fallocate(&punched, hole, at, bytes).expect("a hole");
            freed += bytes;
            at += bytes + [4, 16][random.below(2) as usize] * KIB;
        }
        self.settle();
        // What ext4 keeps for itself cannot be allocated before, and would be the place of the first file.
        fs::write(path("first"), vec![1; 24 << 20]).expect("space");
        self.settle();
        for load in loads {
            fs::create_dir(self.path(load)).expect("a directory");
            if load.name == SQLITE {
                fs::write(self.path(load).join("0"), database(self.scratch.path()))
                    .expect("a file");
                self.settle();
                continue;
            }
            let mut random = Random::new(2);
            for n in 0..FILES {
                let mut bytes = vec![0; FILE_BYTES as usize];
                bytes
                    .chunks_exact_mut(8)
                    .for_each(|w| w.copy_from_slice(&random.bits().to_le_bytes()));
                fs::write(self.path(load).join(n.to_string()), bytes).expect("a file in holes");
                self.settle();
            }
        }
        drop((punched, rest));
        for name in ["punched", "rest", "first"] {
            fs::remove_file(path(name)).expect("it is removed");
        }
        self.settle();
    }

    fn path(&self, load: &Load) -> PathBuf {
        self.dir.path().join(load.name.replace([' ', ','], "-"))
    }

    fn files(&self, load: &Load) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(load)).expect("the directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// The seconds of virtual time for which a load lasts, from a cold cache.
    fn counted(&self, load: &Load) -> f64 {
        let path = self.path(load);
        self.settle();
        for path in self.files(load) {
            let file = File::open(path).expect("the file");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
        }
        let before = self.drive.clock();
        (load.run)(&path);
        (self.drive.clock() - before) as f64 / 1e9
    }

    /// Records a load, plans, mends, and runs it again.
    pub fn run(&self, load: &Load) -> Outcome {
        let (trace, plan) = (self.scratch.path().join("trace"), self.scratch.path().join("plan"));
        let _ = fs::remove_file(&trace);
        let mut record = self.fragmend(&["record", "--overhead", "100", "-o"]);
        record.arg(&trace).arg(self.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let record = Running::start(&mut record).wait_until_it_says(WATCHING);
        let before = self.counted(load);
        record.signal(Signal::INT);
        record.wait().expect(&[0]);
        let mut planning = self.fragmend(&["plan", "--measure", "--json", "-t"]);
        planning.arg(&trace).arg("-o").arg(&plan).arg(self.dir.path());
        let planned = self.json(&mut planning, &[0, 2]);
        let summary = planned.get("summary").unwrap_or(&planned);
        assert_eq!(
            (&summary["cost_source"], &summary["basis"]),
            (&"probed".into(), &"misses-recorded".into()),
            "{summary}"
        );
        let number = |field: &str| summary[field].as_u64().expect("a number");
        let seconds = |plan: &Value, field: &str| plan[field].as_f64().expect("seconds");
        let extents = || {
            self.files(load).iter().map(|path| fragmend_testbed::tools::extents(path)).sum::<u64>()
        };
        let fragments = extents();
        let mut carried_out = summary.clone();
        if number("bytes_to_move") == 0 {
            let mut whole =
                self.fragmend(&["plan", "--measure", "--policy", "whole-file", "--json", "-t"]);
            whole.arg(&trace).arg("-o").arg(&plan).arg(self.dir.path());
            let planned = self.json(&mut whole, &[0, 2]);
            carried_out = planned.get("summary").unwrap_or(&planned).clone();
        }
        let applied = self.json(self.fragmend(&["apply", "--json"]).arg(&plan), &[0]);
        assert!(applied["ranges_moved"].as_u64() > Some(0), "{applied}");
        let left = extents();
        // Of what a plan leaves alone, all that was read is mended.
        assert!(number("bytes_to_move") > 0 || left < fragments, "{left} of {fragments} left");
        let after = self.counted(load);
        Outcome {
            before: Time { predicted: seconds(&carried_out, "seconds_before"), counted: before },
            after: Time { predicted: seconds(&carried_out, "seconds_after"), counted: after },
            moved_bytes: number("bytes_to_move"),
            why: summary["why"].as_str().map(str::to_owned),
            requests_before: number("requests_before"),
        }
    }

    /// Ends it tidily.
    pub fn quit(mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount();
        }
        self.drive.quit();
    }
}
