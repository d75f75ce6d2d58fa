//! The cost of recording for a reader: of a recording within its budget, and of one of everything; and what was
//! recorded of it.
//!
//! Runs without the recorder and with each kind of recording, interleaved, on one image; the medians. Beside the loss of
//! speed there is that by the reader's own processor time for a read, to which other programs on the machine add less.
//! `cargo bench -p fragmend-trace --bench recording [-- ROUNDS] [ROW...]`, where a row is named by a part of its name.

use fragmend_testbed::image::{Image, run};
use fragmend_testbed::usage::Process;
use fragmend_trace::record::{Options, Summary, record};
use fragmend_trace::{Filter, Op, Sampling, read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECONDS: u64 = 4;

/// The argument with which this program starts itself as a reader.
const READER: &str = "--read-cached";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [READER, file] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        println!("{}", read_cached(Path::new(file)));
        return;
    }
    let rounds = args.iter().find_map(|a| a.parse().ok()).unwrap_or(7);
    let named = |a: &&String| !a.starts_with('-') && a.parse::<usize>().is_err();
    let rows: Vec<&String> = args.iter().filter(named).collect();
    let image = Image::ext4(1 << 30);
    let file = image.path().join("f");
    run("fio", ["--name=fill", "--size=256M", "--rw=write", "--bs=1M", "--minimal", &name(&file)]);
    println!(
        "| reader | alone (IOPS, ns) | within 1 %: slower | more processor time for a read | of the recording | watched | \
         estimated | everything: slower | more processor time | lost |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let bare = || {
        let this = std::env::current_exe().expect("this program");
        let this = this.to_str().expect("a path of UTF-8");
        let out = run(this, [READER.as_ref(), file.as_os_str()]);
        out.trim().parse().expect("a number")
    };
    let row = |what: &str, reader: &dyn Fn() -> f64| {
        if rows.is_empty() || rows.iter().any(|part| what.contains(part.as_str())) {
            row(what, &image, reader, rounds);
        }
    };
    row("page cache, random 4 KiB, a bare loop on each processor", &bare);
    let fio = |args: &'static [&'static str]| {
        let file = file.clone();
        move || reader(&file, args)
    };
    let cached = &["--direct=0", "--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0"];
    row("page cache, random 4 KiB (fio)", &fio(cached));
    let sequential =
        &["--direct=0", "--rw=read", "--bs=128k", "--ioengine=psync", "--invalidate=0"];
    row("page cache, sequential 128 KiB (fio)", &fio(sequential));
    let deep = &["--direct=1", "--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=32"];
    row("O_DIRECT, random 4 KiB, depth 32 (fio)", &fio(deep));
    let direct = &["--direct=1", "--rw=randread", "--bs=4k", "--ioengine=psync"];
    row("O_DIRECT, random 4 KiB, depth 1 (fio)", &fio(direct));
}

/// Reads 4 KiB at random places of a cached file on each processor, as fast as it goes; returns reads a second.
fn read_cached(file: &Path) -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let one = |seed: u64| {
        let file = std::fs::File::open(file).expect("the file");
        let pages = file.metadata().expect("the file").len() / 4096;
        let (mut state, mut buffer, mut count) = (seed, [0; 4096], 0u64);
        while Instant::now() < end {
            for _ in 0..256 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                file.read_exact_at(&mut buffer, (state >> 33) % pages * 4096).expect("a read");
            }
            count += 256;
        }
        count
    };
    let total: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = (1..=processors as u64).map(|n| scope.spawn(move || one(n))).collect();
        all.into_iter().map(|reader| reader.join().expect("no panic")).sum()
    });
    total as f64 / SECONDS as f64
}

fn name(file: &std::path::Path) -> String {
    format!("--filename={}", file.display())
}

/// Reads a second, and the reader's processor time for each in nanoseconds.
#[derive(Clone, Copy)]
struct Speed {
    iops: f64,
    ns: f64,
}

/// Runs a reader, whose process it waits for.
fn timed(reader: &dyn Fn() -> f64) -> Speed {
    let before = children_ns();
    let iops = reader();
    Speed { iops, ns: (children_ns() - before) / (iops * SECONDS as f64) }
}

/// The processor time of all processes that this one has waited for.
fn children_ns() -> f64 {
    Process::This.of_its_children().expect("this process").as_nanos() as f64
}

fn row(what: &str, image: &Image, reader: &dyn Fn() -> f64, rounds: usize) {
    let [mut alone, mut within, mut whole] = [const { Vec::new() }; 3];
    let (mut lost, mut used, mut watched, mut seen) = (0, Vec::new(), Vec::new(), Vec::new());
    reader();
    for _ in 0..rounds {
        alone.push(timed(reader));
        let mut speed = None;
        let summary = recording(image, Some(1.0), || speed = Some(timed(reader)));
        let speed = speed.expect("it has run");
        within.push(speed);
        let meta = &summary.meta;
        lost += meta.lost;
        used.push(meta.overhead.map_or(0.0, |o| o.used_ppm as f64 / 1e4));
        let share = |s: Sampling| s.watched_ns as f64 / meta.duration_ns as f64;
        watched.push(meta.sampling.map_or(1.0, share));
        seen.push(reads_of(image) as f64 / (speed.iops * SECONDS as f64));
        let summary = recording(image, None, || whole.push(timed(reader)));
        lost += summary.meta.lost;
    }
    let iops = |all: &[Speed]| median(all.iter().map(|s| s.iops).collect());
    let ns = |all: &[Speed]| median(all.iter().map(|s| s.ns).collect());
    let slower = |with: &[Speed]| (1.0 - iops(with) / iops(&alone)) * 100.0;
    let more = |with: &[Speed]| (ns(with) / ns(&alone) - 1.0) * 100.0;
    println!(
        "| {what} | {:.0}, {:.0} | {:.1} % | {:.1} % | {:.2} % | {:.0} % | {:.0} % | {:.1} % | {:.1} % | {lost} |",
        iops(&alone),
        ns(&alone),
        slower(&within),
        more(&within),
        median(used),
        median(watched) * 100.0,
        median(seen) * 100.0,
        slower(&whole),
        more(&whole),
    );
}

/// The reads that the last trace stands for.
fn reads_of(image: &Image) -> u64 {
    let trace = read(&image.scratch().join("t.parquet"), &Filter::default()).expect("a trace");
    let reads = trace.files.iter().flat_map(|f| &f.accesses).filter(|a| a.op == Op::Read);
    reads.map(|a| u64::from(a.count)).sum()
}

/// Reads for a while and returns the operations a second of all jobs together.
fn reader(file: &std::path::Path, args: &[&str]) -> f64 {
    const READ_IOPS: usize = 7;
    let (name, runtime) = (name(file), format!("--runtime={SECONDS}"));
    let mut all = vec!["--name=job", "--size=256M", "--time_based", "--minimal", "--norandommap"];
    all.extend(["--group_reporting", "--randrepeat=1", &name, &runtime]);
    all.extend(args);
    let out = run("fio", all);
    let iops = out.split(';').nth(READ_IOPS).and_then(|f| f.parse().ok());
    iops.expect("fio's terse output")
}

fn recording(image: &Image, overhead: Option<f64>, work: impl FnOnce()) -> Summary {
    let mut options =
        Options::new(image.scratch().join("t.parquet"), vec![image.path().to_owned()]);
    options.overhead = overhead;
    let stop = AtomicBool::new(false);
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (options, stop) = (&options, &stop);
        // It owns the sender: where nothing can be recorded, nothing is waited for.
        let recorder = scope.spawn(move || {
            record(options, stop, &mut |_| {
                let _ = begun.send(());
            })
        });
        if begins.recv().is_ok() {
            work();
        }
        stop.store(true, Ordering::Relaxed);
        recorder.join().expect("no panic").expect("a recording")
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
