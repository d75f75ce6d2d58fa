//! How fast a trace is read and grouped by file: 10 million events, two hundred files.
//!
//! `cargo bench -p fragmend-trace --bench reading`

use fragmend_layout::FileId;
use fragmend_trace::{Event, Existing, Filter, Level, Meta, Op, TraceWriter, read};
use std::time::Instant;

const EVENTS: u64 = 10_000_000;

fn event(i: u64, random: u64) -> Event {
    Event {
        time_ns: i * 5000,
        file: FileId { device: 0x800, inode: 12 + random % 200, generation: 7 },
        offset: (random >> 20) % (1 << 22) * 4096,
        length: 4096 << (random % 4),
        count: 1,
        pid: 1000,
        thread: 1000 + (random % 8) as u32,
        uid: 0,
        comm: *b"postgres\0\0\0\0\0\0\0\0",
        op: if random.is_multiple_of(5) { Op::Write } else { Op::Read },
        direct: false,
        windowed: false,
    }
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("trace.parquet");
    let find = |file: FileId| Some(format!("/var/lib/postgresql/base/16384/{}", file.inode).into());
    let start = Instant::now();
    let mut writer = TraceWriter::create(&path, Existing::Replace, Box::new(find)).expect("create");
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut batch = Vec::new();
    for i in 0..EVENTS {
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
    let bytes = writer.finish(&Meta::new(Level::Syscall, 0)).expect("finish");
    let written = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let trace = read(&path, &Filter::default()).expect("read");
    let seconds = start.elapsed().as_secs_f64();
    let accesses: usize = trace.files.iter().map(|f| f.accesses.len()).sum();
    assert_eq!(accesses as u64, EVENTS);
    println!("| step | events | seconds | events/s | note |");
    println!("|---|---|---|---|---|");
    let rate = |s: f64| EVENTS as f64 / s;
    println!("| write | {EVENTS} | {written:.2} | {:.0} | {bytes} bytes |", rate(written));
    let peak = peak_kib() / 1024;
    println!(
        "| read and group | {EVENTS} | {seconds:.2} | {:.0} | peak {peak} MiB |",
        rate(seconds)
    );
}

/// Peak resident memory of this process, writing included.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
