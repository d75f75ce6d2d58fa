//! Malicious traces: each is read by a process of its own with 512 MiB of address space, and is
//! refused with one line or read; it never ends the process.
//!
//! A forged trace without the attack is read first, so that a refusal is due to the attack.

#[path = "support/forged.rs"]
mod forged;

use forged::{Forged, Forgery, data, dictionary, run, text, varint, with_footer};
use fragmend_layout::FileId;
use fragmend_trace::file::schema::column;
use fragmend_trace::{Event, Existing, Filter, Level, Meta, Op, TraceWriter, read};
use parquet::basic::{Compression, Encoding};
use std::path::Path;
use std::process::Command;

/// Limits of address space and time; all of these need far less time.
const MOST_BYTES: &str = "--as=536870912";
const SECONDS: &str = "60";
const TRACE: &str = "FRAGMEND_TEST_TRACE";

/// Runs in the child: reads the given trace and prints the result.
#[test]
fn in_a_child() {
    let Some(trace) = std::env::var_os(TRACE) else { return };
    match read(Path::new(&trace), &Filter::default()) {
        Ok(trace) => {
            let accesses: usize = trace.files.iter().map(|f| f.accesses.len()).sum();
            println!("\nREAD {} {accesses} {}", trace.files.len(), trace.skipped);
        }
        Err(e) => println!("\nREFUSED {e}"),
    }
}

/// The result of reading the trace; `None` if that ends the reader.
fn outcome(trace: &Path) -> Option<String> {
    let output = Command::new("timeout")
        .args(["-s", "KILL", SECONDS, "prlimit", MOST_BYTES])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_child", "--nocapture"])
        .env(TRACE, trace)
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter(|l| l.starts_with("READ ") || l.starts_with("REFUSED "));
    lines.next().map(str::to_owned)
}

fn outcome_of(bytes: &[u8]) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.parquet");
    std::fs::write(&trace, bytes).unwrap();
    outcome(&trace)
}

fn refused(name: &str, bytes: &[u8], says: &str) {
    let outcome = outcome_of(bytes);
    let refused = outcome.as_ref().is_some_and(|o| o.starts_with("REFUSED") && o.contains(says));
    assert!(refused, "{name}: {outcome:?} of {} bytes, not {says:?}", bytes.len());
}

#[test]
fn what_is_forged_well_is_read() {
    let read = outcome_of(&Forgery::new(1000).make());
    assert_eq!(read.as_deref(), Some("READ 1 1000 0"));
    let mut three = Forgery::new(50_000);
    three.groups = 3;
    assert_eq!(outcome_of(&three.make()).as_deref(), Some("READ 1 150000 0"));
}

#[test]
fn pages_that_say_too_much_are_refused() {
    let forge = |rows, index, pages: Vec<Forged>| {
        let mut forgery = Forgery::new(rows);
        forgery.columns.insert(index, pages);
        forgery
    };
    let many = forge(1000, column::OP, vec![dictionary(text(b"read"), 40_000_000), run(0, 1000)]);
    refused("a dictionary of 40 million values", &many.make(), "more values than there are rows");

    let Forged(page, _) = data(vec![0; 100], 1000, Encoding::PLAIN);
    let mut long = forge(1000, column::OFFSET, vec![Forged(page, i32::MAX as usize)]);
    long.compression = Compression::SNAPPY;
    refused("a page of 2 GiB", &long.make(), "longer than it can be");

    let lengths = [vec![128, 1, 4], varint(1 << 40), vec![0; 64]].concat();
    let page = data(lengths, 1000, Encoding::DELTA_LENGTH_BYTE_ARRAY);
    let delta = forge(1000, column::OP, vec![page]);
    refused("2^40 lengths", &delta.make(), "an encoding that traces do not have");

    let deltas = [vec![128, 1, 4], varint(1000), vec![0; 64]].concat();
    let page = data(deltas, 1000, Encoding::DELTA_BINARY_PACKED);
    let inodes = forge(1000, column::INODE, vec![page]);
    refused("a thousand files of nothing", &inodes.make(), "encoding");

    let path = [dictionary(text(&vec![b'a'; 16 << 20]), 1), run(column::PATH, 1000)];
    refused("a path of 16 MiB", &forge(1000, column::PATH, path.into()).make(), "a path longer");
}

#[test]
fn more_rows_than_bytes_are_refused() {
    refused("a row group of 2^31 rows", &Forgery::new(i32::MAX.into()).make(), "of more rows");
    let mut groups = Forgery::new(262_144);
    groups.groups = 2000;
    refused("2,000 row groups of the same pages", &groups.make(), "more row groups than");

    // Each row is of another file, and all have the longest path.
    let mut files = Forgery::new(262_144);
    let inodes = (0..262_144u64).flat_map(u64::to_le_bytes).collect();
    files.columns.insert(column::INODE, vec![data(inodes, 262_144, Encoding::PLAIN)]);
    let path = text(&vec![b'a'; 16_000]);
    let paths = vec![dictionary(path, 1), run(column::PATH, 262_144)];
    files.columns.insert(column::PATH, paths);
    refused("262,144 paths of 16,000 bytes", &files.make(), "more memory than");
}

/// Within the limits for its length, but more memory than this process may have.
#[test]
fn what_takes_more_than_there_is_is_refused() {
    const LONG: usize = 38 << 20;
    for (groups, one_file) in [(60, true), (90, true), (6, false)] {
        let mut long = Forgery::new(262_144);
        long.columns.insert(column::TIME, vec![data(vec![0; LONG], 262_144, Encoding::PLAIN)]);
        if !one_file {
            let inodes = (0..262_144u64).flat_map(u64::to_le_bytes).collect();
            long.columns.insert(column::INODE, vec![data(inodes, 262_144, Encoding::PLAIN)]);
        }
        long.groups = groups;
        refused(&format!("{groups} row groups in 38 MiB"), &long.make(), "than there is");
    }
}

#[test]
fn footers_that_lie_are_refused() {
    // A schema of groups in groups: 1: i32 version, 2: list of structures {4: "a", 5: 1 child}.
    let deep = 100_000;
    let one = [0x48, 1, b'a', 0x15, 2, 0];
    let schema = [vec![0x15, 2, 0x19, 0xfc], varint(deep), one.repeat(deep as usize), vec![0]];
    refused("100,000 nested columns", &with_footer(b"PAR1", &schema.concat()), "columns");
    let list = [&[0x15, 2, 0x19, 0xfc][..], &varint(i32::MAX as u64), &[0; 64]].concat();
    refused("a list of 2^31", &with_footer(b"PAR1", &list), "footer does not decode");
    refused("structures in structures", &with_footer(b"PAR1", &[0x1c; 1 << 20]), "footer");
    let whole = Forgery::new(1000).make();
    for length in [8, 100, whole.len() / 2, whole.len() - 1] {
        refused("cut short", &whole[..length], "damaged or cut short");
    }
    let mut longer = whole.clone();
    let tail = longer.len() - 8;
    longer[tail..tail + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    refused("a footer of 4 GiB", &longer, "longer than the file");
}

fn event(i: u64) -> Event {
    Event {
        time_ns: i * 1000,
        file: FileId { device: 1, inode: 1 + i % 3, generation: 0 },
        offset: 4096,
        length: 4096,
        bytes: 4096,
        count: 1,
        pid: 1,
        thread: 1,
        uid: 0,
        comm: [0; 16],
        op: Op::Read,
        direct: false,
        windowed: false,
    }
}

fn write(trace: &Path, events: &[Event]) {
    let path_of = |file: FileId| Some(format!("/srv/{}", file.inode).into());
    let mut writer = TraceWriter::create(trace, Existing::Replace, Box::new(path_of)).unwrap();
    writer.append(events).unwrap();
    writer.finish(&Meta::new(Level::Syscall, 0)).unwrap();
}

/// A bad row spoils no other. Recorders before format 2 wrote such rows.
#[test]
fn rows_that_cannot_be_true_are_skipped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.parquet");
    let mut events: Vec<_> = (0..1000).map(event).collect();
    events[10].offset = -4096i64 as u64;
    events[20].offset = i64::MAX as u64 - 4095;
    events[30].offset = u64::MAX;
    events[40].length = 0;
    events[50].count = 0;
    events[60].offset = i64::MAX as u64 - 4096; // the last that can be
    write(&trace, &events);
    let read = read(&trace, &Filter::default()).unwrap();
    let accesses: usize = read.files.iter().map(|f| f.accesses.len()).sum();
    assert_eq!((accesses, read.skipped), (995, 5));

    let mut unknown = Forgery::new(1000);
    unknown.columns.insert(column::OP, vec![dictionary(text(b"teleport"), 1), run(0, 1000)]);
    assert_eq!(outcome_of(&unknown.make()).as_deref(), Some("READ 0 0 1000"));
}

/// The other side of the limits: the most compressible input of the writer must be readable.
#[test]
fn the_most_regular_recording_is_within_all_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.parquet");
    let events: Vec<_> = (0..270_000).map(event).collect();
    write(&trace, &events);
    assert_eq!(outcome(&trace).as_deref(), Some("READ 3 270000 0"));
    // Files that were seen once each, known by number only.
    let once = |i| Event { file: FileId { device: 1, inode: i, generation: 0 }, ..event(i) };
    write(&trace, &(0..60_000).map(once).collect::<Vec<_>>());
    assert_eq!(outcome(&trace).as_deref(), Some("READ 60000 60000 0"));
}
