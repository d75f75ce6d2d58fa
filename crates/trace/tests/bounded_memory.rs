//! The memory of a recorder does not grow with the names and files that it sees. This test is alone
//! in its process, because it measures the process.

use fragmend_layout::FileId;
use fragmend_testbed::usage::Process;
use fragmend_trace::{Event, Existing, Level, Meta, Op, TraceWriter};
use std::path::PathBuf;

const EVENTS: u64 = 1_500_000;
const BATCH: u64 = 10_000;
const MOST_MIB: u64 = 400;

/// Each with a name and a file of its own.
fn event(i: u64) -> Event {
    let mut comm = [b'x'; 16];
    comm[..8].copy_from_slice(&i.to_ne_bytes());
    comm[15] = 0;
    Event {
        time_ns: i,
        file: FileId { device: 1, inode: i, generation: 0 },
        offset: 0,
        length: 1,
        bytes: 1,
        count: 1,
        pid: 1,
        thread: 1,
        uid: 1,
        comm,
        op: Op::Read,
        direct: false,
        windowed: false,
    }
}

/// Long names, and none for every other file.
fn path_of(file: FileId) -> Option<PathBuf> {
    let name = format!("/{:0250}", file.inode);
    file.inode.is_multiple_of(2).then(|| PathBuf::from(name.repeat(4)))
}

#[test]
fn memory_does_not_grow_with_names_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    let mut writer = TraceWriter::create(&target, Existing::Replace, Box::new(path_of)).unwrap();
    for start in (0..EVENTS).step_by(BATCH as usize) {
        let batch: Vec<_> = (start..start + BATCH).map(event).collect();
        writer.append(&batch).unwrap();
    }
    assert_eq!(writer.counts().files, EVENTS);
    assert!(writer.counts().without_path >= EVENTS / 2);
    writer.finish(&Meta::new(Level::Syscall, 0)).unwrap();
    let peak = Process::This.peak_bytes().unwrap() >> 20;
    assert!(peak < MOST_MIB, "{peak} MiB");
}
