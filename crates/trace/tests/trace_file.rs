//! The trace file: it is read back as it was written, in order, and any other file is one clear
//! error.

use fragmend_layout::FileId;
use fragmend_trace::{
    Access, Event, Existing, Filter, Level, Meta, Op, Order, Trace, TraceError, TraceWriter,
    each_event, read, read_meta,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FILES: u64 = 7;
/// More than two row groups.
const EVENTS: u64 = 600_000;

fn event(i: u64) -> Event {
    Event {
        time_ns: i * 1000,
        file: file(i % FILES),
        offset: (5 << 32) + i * 4096,
        length: 4096,
        bytes: 4096 * (1 + i % 3),
        count: 1 + (i % 3) as u32,
        pid: u32::MAX - 1,
        thread: (i % 5) as u32,
        uid: u32::MAX,
        comm: *b"reader\xff\0\0\0\0\0\0\0\0\0",
        op: Op::ALL[(i % 4) as usize],
        direct: i.is_multiple_of(2),
        windowed: i.is_multiple_of(11),
    }
}

fn file(n: u64) -> FileId {
    FileId { device: 0x700 + (n & 1), inode: u64::MAX - n, generation: u32::MAX - n as u32 }
}

fn path_of(file: FileId) -> Option<PathBuf> {
    let odd = Path::new("/srv").join(OsStr::from_bytes(b"na\xffme\\x41\n"));
    (file.inode != u64::MAX - 3).then(|| odd.join(file.inode.to_string()))
}

fn write(target: &Path, events: impl Iterator<Item = Event>) -> Meta {
    let mut writer =
        TraceWriter::create(target, Existing::ReplaceTrace, Box::new(path_of)).unwrap();
    let mut batch = Vec::new();
    for event in events {
        batch.push(event);
        if batch.len() == 1000 {
            writer.append(&batch).unwrap();
            batch.clear();
        }
    }
    writer.append(&batch).unwrap();
    let mut meta = Meta::new(Level::Syscall, 1_700_000_000_000_000_000);
    meta.lost = 3;
    meta.duration_ns = 17;
    writer.finish(&meta).unwrap();
    meta
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn what_goes_in_comes_out_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    let meta = write(&target, (0..EVENTS).map(event));
    let trace = read(&target, &Filter::default()).unwrap();
    assert_eq!(Meta { data: None, ..trace.meta }, meta);
    assert_eq!(trace.files.len() as u64, FILES);
    for (n, found) in (0..).zip(&trace.files) {
        assert_eq!(found.file, file(n), "in order of first appearance");
        assert_eq!(found.path, path_of(file(n)));
        let expected: Vec<Access> = (0..EVENTS)
            .filter(|i| i % FILES == n)
            .map(event)
            .map(|e| Access {
                offset: e.offset,
                length: e.length,
                count: e.count,
                thread: e.thread,
                op: e.op,
                direct: e.direct,
                windowed: e.windowed,
            })
            .collect();
        assert!(found.accesses == expected, "file {n} differs");
    }
    assert_eq!(entries(dir.path()), 1, "no temporary file stays behind");
}

#[test]
fn a_filter_keeps_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..1000).map(event));
    let filter =
        Filter { devices: vec![0x701], ops: vec![Op::Read, Op::Fault], ..Filter::default() };
    let trace = read(&target, &filter).unwrap();
    let kept = |i: &u64| i % FILES % 2 == 1 && i.is_multiple_of(2);
    let expected = (0..1000).filter(kept).count();
    assert_eq!(trace.files.iter().map(|f| f.accesses.len()).sum::<usize>(), expected);
    assert!(trace.files.iter().all(|f| f.file.device == 0x701));
}

#[test]
fn an_empty_recording_is_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    let meta = write(&target, std::iter::empty());
    assert_eq!(Meta { data: None, ..read_meta(&target).unwrap() }, meta);
    assert!(read(&target, &Filter::default()).unwrap().files.is_empty());
}

#[test]
fn an_unfinished_trace_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    let mut writer =
        TraceWriter::create(&target, Existing::ReplaceTrace, Box::new(path_of)).unwrap();
    writer.append(&[event(1)]).unwrap();
    drop(writer);
    assert_eq!(entries(dir.path()), 0);
}

/// A trace names all users' files: only its owner may read it, also while it grows.
#[test]
fn a_trace_is_private_and_has_no_name_until_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    let create =
        || TraceWriter::create(&target, Existing::ReplaceTrace, Box::new(path_of)).unwrap();
    let (first, second) = (create(), create());
    assert_eq!(entries(dir.path()), 0, "what a kill now would leave");
    second.finish(&Meta::new(Level::Syscall, 1)).unwrap();
    first.finish(&Meta::new(Level::Syscall, 2)).unwrap();
    assert_eq!(read_meta(&target).unwrap().started_unix_ns, 2);
    assert_eq!(entries(dir.path()), 1);
    assert_eq!(target.metadata().unwrap().mode() & 0o7777, 0o600);
}

/// Format 1 lacks the column `bytes`; for planning nothing else differs.
#[test]
fn a_trace_of_format_1_is_read() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1.parquet");
    let trace = read(&old, &Filter::default()).unwrap();
    assert_eq!((trace.meta.schema_version, trace.skipped), (1, 0));
    assert!(trace.meta.data.is_some(), "verified");
    let seen: Vec<_> =
        (0..trace.files.len() as u64).map(|n| trace.files[n as usize].file).collect();
    assert_eq!(seen, (0..FILES).map(file).collect::<Vec<_>>());
    let accesses: usize = trace.files.iter().map(|f| f.accesses.len()).sum();
    assert_eq!(accesses, 300);
    assert_eq!(trace.files[0].path, path_of(file(0)));
}

/// Format 2 does not say whether it has misses: its level does.
#[test]
fn a_trace_of_format_2_is_read() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-2.parquet");
    let trace = read(&old, &Filter::default()).unwrap();
    let meta = &trace.meta;
    assert_eq!((meta.schema_version, meta.level, trace.skipped), (2, Level::Miss, 0));
    assert!(meta.data.is_some() && meta.has_misses() && meta.loads.is_empty());
    let seen: Vec<_> = trace.files[0].accesses.iter().map(|a| (a.op, a.direct, a.length)).collect();
    let (miss, direct) = ((Op::Miss, false, 512 << 10), (Op::Read, true, 64 << 10));
    assert_eq!((trace.files.len(), seen), (1, vec![miss, miss, direct, direct]));
}

#[test]
fn only_a_trace_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..10).map(event));
    write(&target, (0..20).map(event));
    let rows: usize =
        read(&target, &Filter::default()).unwrap().files.iter().map(|f| f.accesses.len()).sum();
    assert_eq!(rows, 20);

    let precious = dir.path().join("thesis.txt");
    std::fs::write(&precious, "do not lose this").unwrap();
    let create = |existing| TraceWriter::create(&precious, existing, Box::new(path_of));
    assert!(matches!(
        create(Existing::ReplaceTrace).err(),
        Some(TraceError::WouldOverwrite { .. })
    ));
    assert_eq!(std::fs::read(&precious).unwrap(), b"do not lose this");
    create(Existing::Replace).unwrap().finish(&Meta::new(Level::Miss, 0)).unwrap();
    assert_eq!(read_meta(&precious).unwrap().level, Level::Miss);
}

#[test]
fn foreign_files_are_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    for content in [&b""[..], b"P", b"hello, I am a text file", b"{\"schema_version\": 1}"] {
        std::fs::write(&path, content).unwrap();
        assert!(matches!(read(&path, &Filter::default()), Err(TraceError::NotATrace { .. })));
    }
    assert!(matches!(read(dir.path(), &Filter::default()), Err(TraceError::NotATrace { .. })));
    let absent = dir.path().join("absent");
    assert!(matches!(read(&absent, &Filter::default()), Err(TraceError::Io { .. })));
}

#[test]
fn another_version_is_refused_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    let writer = TraceWriter::create(&target, Existing::Replace, Box::new(path_of)).unwrap();
    let mut meta = Meta::new(Level::Syscall, 0);
    meta.schema_version = 99;
    writer.finish(&meta).unwrap();
    let error = read(&target, &Filter::default()).unwrap_err();
    assert!(matches!(error, TraceError::Version { found: 99, .. }), "{error}");
}

#[test]
fn every_truncation_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..100).map(event));
    let whole = std::fs::read(&target).unwrap();
    let cut = dir.path().join("cut.parquet");
    for length in 0..whole.len() {
        std::fs::write(&cut, &whole[..length]).unwrap();
        assert!(read(&cut, &Filter::default()).is_err(), "{length} of {} bytes", whole.len());
    }
}

/// Where the Parquet footer begins: its length is before the magic at the end.
fn footer_start(trace: &[u8]) -> usize {
    let tail = trace.len() - 8;
    tail - u32::from_le_bytes(trace[tail..tail + 4].try_into().unwrap()) as usize
}

#[test]
fn a_flip_anywhere_in_the_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..300).map(event));
    let whole = std::fs::read(&target).unwrap();
    let data = footer_start(&whole);
    assert_eq!(read_meta(&target).unwrap().data.unwrap().bytes, data as u64);
    let bad = dir.path().join("bad.parquet");
    for at in 0..data {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&bad, &bytes).unwrap();
        match read(&bad, &Filter::default()) {
            Err(TraceError::Corrupt { .. }) => {}
            // The first four bytes are Parquet's magic.
            Err(TraceError::NotATrace { .. }) if at < 4 => {}
            other => panic!("byte {at} of {data}: {other:?}"),
        }
    }
}

/// A trace long enough for its checksum to be computed in several blocks, by several threads.
#[test]
fn a_flip_in_a_long_trace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..EVENTS).map(event));
    let mut bytes = std::fs::read(&target).unwrap();
    let data = footer_start(&bytes);
    assert!(data > 2 << 20, "{data} bytes");
    for at in [4, (1 << 20) - 1, 1 << 20, data / 2, data - 1] {
        bytes[at] ^= 1;
        std::fs::write(&target, &bytes).unwrap();
        let error = read(&target, &Filter::default()).unwrap_err();
        assert!(error.to_string().contains("checksum"), "byte {at}: {error}");
        bytes[at] ^= 1;
    }
    std::fs::write(&target, &bytes).unwrap();
    read(&target, &Filter::default()).unwrap();
}

#[test]
fn a_trace_from_before_the_checksum_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..300).map(event));
    let mut bytes = std::fs::read(&target).unwrap();
    let key = b"\"data\":{";
    let at = bytes.windows(key.len()).rposition(|w| w == key).unwrap();
    bytes[at..at + key.len()].copy_from_slice(b"\"none\":{"); // a key that readers do not know
    std::fs::write(&target, &bytes).unwrap();
    let trace = read(&target, &Filter::default()).unwrap();
    assert_eq!(trace.meta.data, None);
    assert_eq!(trace.files.iter().map(|f| f.accesses.len()).sum::<usize>(), 300);
}

/// Whatever bytes are flipped, footer included, reading ends with a trace or an error: no panic,
/// no abort. If any of them is in the data and the footer is intact, it is an error.
#[test]
fn flipped_bytes_never_crash_the_reader() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..300).map(event));
    let whole = std::fs::read(&target).unwrap();
    let data = footer_start(&whole);
    let bad = dir.path().join("bad.parquet");
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut in_data, mut in_footer) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random() % 4 {
            let at = (random() % bytes.len() as u64) as usize;
            bytes[at] ^= (random() as u8).max(1);
        }
        std::fs::write(&bad, &bytes).unwrap();
        let footer_whole = bytes[data..] == whole[data..];
        in_data += usize::from(footer_whole);
        match read(&bad, &Filter::default()) {
            Ok(_) => assert!(!footer_whole || bytes == whole, "a flip in the data went unnoticed"),
            Err(e) => {
                in_footer += usize::from(!footer_whole);
                assert!(!e.to_string().contains('\n'), "{e}");
            }
        }
    }
    assert!(in_data > 300, "only {in_data} of 3000 files had an undamaged footer");
    assert!(in_footer > 1000, "only {in_footer} files with a damaged footer were noticed");
}

/// What is counted is the same however many row groups there are; only order and threads are gone.
#[test]
fn equal_accesses_are_counted_once_where_misses_were_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("trace.parquet");
    // Each access comes some thirty times, in several row groups.
    let again = |i: u64| Event { thread: (i % 5) as u32, ..event(i % 20_000) };
    let write_at = |level: Level| {
        let mut writer =
            TraceWriter::create(&target, Existing::ReplaceTrace, Box::new(path_of)).unwrap();
        let events: Vec<Event> = (0..EVENTS).map(again).collect();
        writer.append(&events).unwrap();
        writer.finish(&Meta::new(level, 0)).unwrap();
    };
    let folded = Filter { fold_if_misses: true, ..Filter::default() };
    type Counts = BTreeMap<(u64, u32, u8, bool, bool), u64>;
    type Counted = (FileId, Option<PathBuf>, Counts, usize);
    let counted = |filter: &Filter| -> Vec<Counted> {
        let trace = read(&target, filter).unwrap();
        let counts = |accesses: &[Access]| {
            let mut counts = Counts::new();
            for a in accesses {
                let key = (a.offset, a.length, a.op as u8, a.direct, a.windowed);
                *counts.entry(key).or_default() += u64::from(a.count);
            }
            counts
        };
        let of = |f: fragmend_trace::FileAccesses| {
            (f.file, f.path, counts(&f.accesses), f.accesses.len())
        };
        trace.files.into_iter().map(of).collect()
    };
    write_at(Level::Both);
    let (whole, part) = (counted(&Filter::default()), counted(&folded));
    assert_eq!(whole.len(), FILES as usize);
    for (whole, part) in whole.iter().zip(&part) {
        assert_eq!((&whole.0, &whole.1, &whole.2), (&part.0, &part.1, &part.2));
        assert_eq!(part.3, part.2.len(), "each once");
        assert!(whole.3 > 20 * part.3);
    }
    // Without misses their order is needed.
    write_at(Level::Syscall);
    assert_eq!(counted(&folded), counted(&Filter::default()));
}

/// Reads of two files from one disk, and of a third one from another; reads that come from the cache lie between.
#[test]
fn what_reaches_the_device_stays_in_its_order_up_to_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("trace.parquet");
    let access = |n: u64, block: u64, op, direct| Event {
        file: FileId { device: 0x700 + n / 2, inode: n, generation: 1 },
        offset: block * 4096,
        length: 4096,
        count: 1,
        windowed: false,
        op,
        direct,
        ..event(0)
    };
    let miss = |n, block| access(n, block, Op::Miss, false);
    let cached = access(1, 9, Op::Read, false);
    let events = [
        miss(0, 5),
        cached,
        miss(0, 1),
        access(2, 7, Op::Read, true),
        miss(0, 5),
        Event { count: 3, ..miss(0, 6) },
        miss(0, 7),
        miss(0, 8),
        cached,
        miss(1, 0),
        miss(0, 9),
    ];
    let write = |meta: &Meta| {
        let mut writer =
            TraceWriter::create(&target, Existing::ReplaceTrace, Box::new(path_of)).unwrap();
        writer.append(&events).unwrap();
        writer.finish(meta).unwrap();
    };
    let whole = Meta::new(Level::Both, 0);
    let kept = |fold_if_misses, up_to, cold| {
        let order = Some(Order { up_to, cold });
        let trace = read(&target, &Filter { fold_if_misses, order, ..Filter::default() }).unwrap();
        let Trace { ordered, files, .. } = trace;
        assert!(files.iter().all(|f| f.ranks.len() == if ordered { f.accesses.len() } else { 0 }));
        let ranks = files[0].ranks.iter().copied().chain(std::iter::repeat(0));
        let misses = files[0].accesses.iter().zip(ranks).filter(|(a, _)| a.op == Op::Miss);
        (ordered, misses.map(|(a, rank)| (a.offset / 4096, rank)).collect::<Vec<_>>())
    };
    // One that stands for others has no rank, and before the last is one of another file; the direct one is on another device.
    let ordered = [(5, 1), (1, 2), (5, 3), (6, 0), (7, 5), (8, 6), (9, 8)];
    write(&whole);
    for fold in [false, true] {
        assert_eq!(kept(fold, 9, false), (true, ordered.to_vec()), "{fold}");
        assert!(!kept(fold, 8, false).0, "{fold}");
    }
    assert_eq!(kept(true, 8, false).1.len(), 6, "the two equal ones are one");
    // For a cold start it is the order of what was asked for.
    let trace = |order| read(&target, &Filter { order, ..Filter::default() }).unwrap();
    let cold = trace(Some(Order { up_to: 9, cold: true }));
    assert!(cold.ordered);
    assert_eq!((&cold.files[0].ranks, &cold.files[1].ranks), (&vec![0; 7], &vec![1, 2, 0]));
    // Not asked for, there is none; and a folded recording has none.
    assert!(!trace(None).ordered && trace(None).files.iter().all(|f| f.ranks.is_empty()));
    write(&Meta { folded: true, ..whole });
    assert!(!kept(false, 9, false).0 && !kept(true, 9, false).0);
}

/// Row by row, with the process: nothing is lost but what no file can have.
#[test]
fn events_come_out_as_they_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet");
    write(&target, (0..EVENTS).map(event));
    let file = std::fs::File::open(&target).unwrap();
    let mut next = 0;
    each_event(&file, &target, &mut |found| {
        assert_eq!(*found, event(next));
        next += 1;
    })
    .unwrap();
    assert_eq!(next, EVENTS);
    // A damaged one is an error, as for any other reader.
    let mut bytes = std::fs::read(&target).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&target, bytes).unwrap();
    let file = std::fs::File::open(&target).unwrap();
    let damaged = each_event(&file, &target, &mut |_| panic!("shown before it was checked"));
    assert!(matches!(damaged, Err(TraceError::Corrupt { .. })), "{damaged:?}");
}
