//! From a trace file to a plan: time and peak memory. For 10 million accesses without misses, in the worst case of random
//! ones (every request distinct), in many files and in one; and for 100 million on the pages of a database, with what
//! missed the page cache beside what was asked for.
//!
//! `cargo bench -p fragmend-plan --bench analysis`. Exits with 1 beyond [`STEPS`] or [`PEAK_MIB`].
//!
//! The limit of time is a ratio: how many steps of a reference loop ([`Reference`]) the same processor
//! would have done for each access, measured before and after the analysis. Both are processor time, of
//! all threads. So a slow or a busy machine does not miss it.

use fragmend_layout::{
    CostModel, DeviceKind, DeviceLimits, DeviceProfile, Extent, ExtentKind, FileId, FsKind, Layout,
};
use fragmend_plan::readahead::Window;
use fragmend_plan::{Device, Settings, Survey, SurveyedFile};
use fragmend_trace::{Event, Existing, Filter, Level, Meta, Op, TraceWriter, read};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What is traced.
struct Case {
    name: &'static str,
    files: u64,
    events: u64,
    /// Reads of a few database pages each, of which a fourth are misses.
    pages: bool,
}

const MILLION: u64 = 1_000_000;
const CASES: [Case; 3] = [
    Case { name: "random, 200 files", files: 200, events: 10 * MILLION, pages: false },
    Case { name: "random, one file", files: 1, events: 10 * MILLION, pages: false },
    Case { name: "pages and misses, 20 files", files: 20, events: 100 * MILLION, pages: true },
];
/// Of a database.
const PAGE: u64 = 16 << 10;
const DEVICE: u64 = 0x800;
/// All files together, in fragments of 32 KiB.
const TOTAL_BYTES: u64 = 16 << 30;
const EXTENT: u64 = 32 << 10;
/// Most steps of the reference loop that an access may take.
const STEPS: f64 = 12.0;
/// Most memory that the analysis may use.
const PEAK_MIB: f64 = 1000.0;

/// Processor time of this process so far, in nanoseconds.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// A random walk through a table that no cache holds: each look-up needs the one before.
struct Reference {
    next: Vec<u32>,
    at: u32,
}

impl Reference {
    const ENTRIES: u32 = 1 << 24;
    const STEPS: u32 = 1_000_000;

    fn new() -> Self {
        // A full-period linear congruential generator visits each entry once.
        let next = |n: u32| n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % Self::ENTRIES;
        Self { next: (0..Self::ENTRIES).map(next).collect(), at: 0 }
    }

    /// Nanoseconds of a step, now.
    fn step_ns(&mut self) -> f64 {
        let start = cpu_ns();
        for _ in 0..Self::STEPS {
            self.at = black_box(self.next[self.at as usize]);
        }
        (cpu_ns() - start) / f64::from(Self::STEPS)
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--analyse") {
        return analyse(Path::new(&args.next().expect("a trace")));
    }
    println!("| trace | accesses | seconds | accesses/s | steps an access | peak MiB | ranges |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let (mut failed, mut reference) = (false, Reference::new());
    for case in &CASES {
        let Case { name, events, .. } = *case;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("trace.parquet");
        write(&path, case);
        // In a process of its own, so that the peak is the analysis's.
        let this = std::env::current_exe().expect("this program");
        let before = reference.step_ns();
        let out = Command::new(this).arg("--analyse").arg(&path).output().expect("the analysis");
        let step_ns = (before + reference.step_ns()) / 2.0;
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        eprint!("{name}: {}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8_lossy(&out.stdout);
        let figures: Vec<f64> =
            text.split_whitespace().map(|w| w.parse().expect("a number")).collect();
        let [seconds, busy_ns, peak, ranges] = figures[..] else { panic!("{text}") };
        let (rate, steps) = (events as f64 / seconds, busy_ns / events as f64 / step_ns);
        println!(
            "| {name} | {events} | {seconds:.2} | {rate:.0} | {steps:.2} | {peak:.0} | {ranges} |"
        );
        failed |= steps > STEPS || peak > PEAK_MIB;
    }
    let what = if failed { "NOT reached" } else { "reached" };
    println!("\nat most {STEPS} steps an access and {PEAK_MIB} MiB: {what}");
    std::process::exit(i32::from(failed));
}

fn write(path: &Path, case: &Case) {
    let Case { files, events, pages, .. } = *case;
    let mut writer =
        TraceWriter::create(path, Existing::Replace, Box::new(|_| None)).expect("create");
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let align = if pages { PAGE } else { 4096 };
    let length = |random: u64| if pages { 4 * PAGE as u32 } else { 4096 << (random % 5) };
    let kind = |random: u64| match random % 20 {
        n if pages && n < 5 => (Op::Miss, false),
        _ if pages => (Op::Read, false),
        n if n.is_multiple_of(5) => (Op::Write, random.is_multiple_of(3)),
        _ => (Op::Read, random.is_multiple_of(3)),
    };
    let event = |i: u64, random: u64| Event {
        time_ns: i * 5000,
        file: FileId { device: DEVICE, inode: 12 + random % files, generation: 7 },
        offset: (random >> 20) % (TOTAL_BYTES / files / align) * align,
        length: length(random),
        bytes: length(random).into(),
        count: 1,
        pid: 1000,
        thread: 1000 + (random % 8) as u32,
        uid: 0,
        comm: *b"postgres\0\0\0\0\0\0\0\0",
        op: kind(random).0,
        direct: kind(random).1,
        windowed: false,
    };
    let mut batch = Vec::new();
    for i in 0..events {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        batch.push(event(i, random));
        if batch.len() == 32 * 1024 {
            writer.append(&batch).expect("append");
            batch.clear();
        }
    }
    writer.append(&batch).expect("append");
    let level = if pages { Level::Both } else { Level::Syscall };
    writer.finish(&Meta::new(level, 0)).expect("finish");
}

/// Prints seconds, nanoseconds of processor time, the most MiB used, and ranges planned.
fn analyse(path: &Path) {
    let (start, start_ns) = (Instant::now(), cpu_ns());
    let filter = Filter { fold_if_misses: true, ..Filter::default() };
    let trace = read(path, &filter).expect("read");
    let misses = trace.meta.has_misses();
    let read_seconds = start.elapsed().as_secs_f64();
    let bytes = TOTAL_BYTES / trace.files.len() as u64;
    let files = trace.files.into_iter().map(|f| SurveyedFile {
        path: format!("/srv/{}", f.file.inode).into(),
        has_other_names: false,
        layout: layout(f.file, bytes),
        accesses: f.accesses,
        ranks: f.ranks,
        recorded: f.recorded,
        slow: Vec::new(),
        block_bytes: 4096,
        limits: DeviceLimits {
            largest_extent: 128 << 20,
            readahead: 128 << 10,
            max_request: 1280 << 10,
        },
        window: Window::of(&DeviceProfile::unknown()),
    });
    let device = Device {
        device: DEVICE,
        mount: Path::new("/srv").into(),
        file_system: FsKind::Ext4,
        total_bytes: 1 << 40,
        block_bytes: 4096,
        // On which something is worth moving.
        profile: DeviceProfile {
            cost: CostModel::guessed(DeviceKind::Card),
            ..DeviceProfile::unknown()
        },
    };
    let devices = vec![device];
    let survey = Survey { files: files.collect(), devices, misses, ..Survey::default() };
    let plan = fragmend_plan::make(survey, &Settings::default());
    let (seconds, busy_ns) = (start.elapsed().as_secs_f64(), cpu_ns() - start_ns);
    eprintln!("read {read_seconds:.2} s, plan {:.2} s", seconds - read_seconds);
    let peak = peak_kib() as f64 / 1024.0;
    println!("{seconds} {busy_ns} {peak} {}", plan.summary.ranges);
}

fn layout(file: FileId, bytes: u64) -> Layout {
    let mut layout = Layout::new(file, bytes);
    for i in 0..bytes / EXTENT {
        let physical = (i * 2 + 1) * EXTENT;
        layout.push(Extent {
            logical: i * EXTENT,
            physical,
            length: EXTENT,
            kind: ExtentKind::Data,
        });
    }
    layout
}

/// Peak resident memory of this process.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
