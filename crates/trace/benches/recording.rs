//! The cost of recording for a reader, and the rate of events that is recorded without loss.
//!
//! Pairs of runs with and without the recorder, interleaved, on one image; the median of each.
//! `cargo bench -p fragmend-trace --bench recording [-- PAIRS]`

use fragmend_testbed::image::{Image, run};
use fragmend_trace::record::{Options, Summary, record};
use std::sync::atomic::{AtomicBool, Ordering};

const SECONDS: u64 = 4;

fn main() {
    let pairs = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(7);
    let image = Image::ext4(1 << 30);
    let file = image.path().join("f");
    run("fio", ["--name=fill", "--size=256M", "--rw=write", "--bs=1M", "--minimal", &name(&file)]);
    println!("| reader | alone (IOPS) | recorded (IOPS) | share lost | events/s | lost |");
    println!("|---|---|---|---|---|---|");
    let direct = ["--direct=1", "--rw=randread", "--bs=4k", "--ioengine=psync", "--numjobs=1"];
    row("O_DIRECT, random 4 KiB, depth 1", &image, &direct, pairs);
    let deep = ["--direct=1", "--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=32"];
    row("O_DIRECT, random 4 KiB, depth 32", &image, &deep, pairs);
    let sequential = ["--direct=0", "--rw=read", "--bs=128k", "--ioengine=psync", "--invalidate=0"];
    row("page cache, sequential 128 KiB", &image, &sequential, pairs);
    let cached = ["--direct=0", "--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0"];
    row("page cache, random 4 KiB", &image, &cached, pairs);
    let paced = [&cached[..], &["--numjobs=2", "--rate_iops=100000"]].concat();
    row("page cache, two at 100,000 a second", &image, &paced, pairs.min(3));
}

fn name(file: &std::path::Path) -> String {
    format!("--filename={}", file.display())
}

fn row(what: &str, image: &Image, args: &[&str], pairs: usize) {
    let file = image.path().join("f");
    let (mut alone, mut recorded, mut lost, mut rate) = (Vec::new(), Vec::new(), 0, Vec::new());
    reader(&file, args);
    for _ in 0..pairs {
        alone.push(reader(&file, args));
        let mut iops = 0.0;
        let summary = recording(image, || iops = reader(&file, args));
        recorded.push(iops);
        lost += summary.meta.lost;
        rate.push(summary.events() as f64 / SECONDS as f64);
    }
    let (a, b) = (median(alone), median(recorded));
    let share = (1.0 - b / a) * 100.0;
    println!("| {what} | {a:.0} | {b:.0} | {share:.1} % | {:.0} | {lost} |", median(rate));
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

fn recording(image: &Image, work: impl FnOnce()) -> Summary {
    let options = Options::new(image.scratch().join("t.parquet"), vec![image.path().to_owned()]);
    let stop = AtomicBool::new(false);
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            record(&options, &stop, &mut |_| {
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
