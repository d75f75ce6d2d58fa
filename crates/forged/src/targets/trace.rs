//! A trace file: an accepted trace contains nothing that the format does not allow, and is the same
//! after it was written again.

use crate::bytes::with_file;
use fragmend_trace::{
    Event, Existing, Filter, Meta, Order, SCHEMA_VERSION, Trace, TraceWriter, is_trace, read,
    read_meta,
};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use tempfile::TempDir;

/// A trace file.
pub fn run(input: &[u8]) -> bool {
    thread_local! {
        // One thread: those of a pool would only add waiting.
        static HERE: rayon::ThreadPool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .use_current_thread()
            .build()
            .expect("a pool of this thread");
    }
    HERE.with(|here| here.install(|| check(input)))
}

fn check(input: &[u8]) -> bool {
    with_file(input, |file| {
        let trace = match read(file.path(), &Filter::default()) {
            Ok(trace) => trace,
            Err(e) => {
                assert!(!e.to_string().contains('\n'), "{e}");
                return false;
            }
        };
        assert!(is_trace(file.path()), "read, but not recognised");
        assert_eq!(read_meta(file.path()).expect("it was read"), trace.meta);
        sensible(&trace);
        ordered(file.path(), &trace);
        // For some inputs only, because it is slow.
        if crc32c::crc32c(input).is_multiple_of(16) {
            same_again(&trace);
        }
        true
    })
}

fn sensible(trace: &Trace) {
    let mut seen = HashSet::new();
    for file in &trace.files {
        assert!(seen.insert(file.file), "listed twice");
        assert!(!file.accesses.is_empty(), "nothing was seen of it");
        for access in &file.accesses {
            let end = access.offset.checked_add(access.length.into());
            assert!(end.is_some_and(|end| end <= i64::MAX as u64), "{access:?} has no end");
        }
    }
}

/// What is counted is the same however much of the order is kept.
fn ordered(path: &Path, trace: &Trace) {
    let count = |trace: &Trace| {
        let all = trace.files.iter().flat_map(|file| &file.accesses);
        all.map(|access| u64::from(access.count)).sum::<u64>()
    };
    for up_to in [3, 1000] {
        let order = Some(Order { up_to, cold: false });
        let filter = Filter { fold_if_misses: true, order, ..Filter::default() };
        let kept = read(path, &filter).expect("it was read");
        assert_eq!((kept.files.len(), count(&kept)), (trace.files.len(), count(trace)));
        for file in &kept.files {
            let ranks = if kept.ordered { file.accesses.len() } else { 0 };
            assert_eq!(file.ranks.len(), ranks, "of each, or none where the order was not kept");
        }
    }
    for fold_if_misses in [false, true] {
        let filter = Filter { fold_if_misses, turns: true, ..Filter::default() };
        // Times are read for this alone, so they may be what is damaged.
        let Ok(kept) = read(path, &filter) else { continue };
        assert_eq!(count(&kept), count(trace));
        for file in &kept.files {
            assert!([0, file.accesses.len()].contains(&file.recorded.len()), "of each or of none");
        }
    }
}

fn same_again(trace: &Trace) {
    thread_local! {
        static PLACE: TempDir = tempfile::tempdir().expect("a directory");
    }
    let path = PLACE.with(|dir| dir.path().join("trace"));
    let paths: HashMap<_, _> = trace.files.iter().map(|f| (f.file, f.path.clone())).collect();
    let find_path = Box::new(move |file| paths.get(&file).cloned().flatten());
    let mut writer = TraceWriter::create(&path, Existing::Replace, find_path).expect("a writer");
    for file in &trace.files {
        let event = |a: &fragmend_trace::Access| Event {
            time_ns: 0,
            file: file.file,
            offset: a.offset,
            length: a.length,
            bytes: u64::from(a.length),
            count: a.count,
            pid: 0,
            thread: a.thread,
            uid: 0,
            comm: [0; 16],
            op: a.op,
            direct: a.direct,
            windowed: a.windowed,
        };
        let events: Vec<Event> = file.accesses.iter().map(event).collect();
        writer.append(&events).expect("room for a few rows");
    }
    let meta = Meta { schema_version: SCHEMA_VERSION, ..trace.meta.clone() };
    writer.finish(&meta).expect("room for a few rows");
    let again = read(&path, &Filter::default()).expect("what was written is read");
    assert_eq!(again.files.len(), trace.files.len());
    for (again, file) in again.files.iter().zip(&trace.files) {
        assert_eq!((again.file, &again.path), (file.file, &file.path));
        assert_eq!(again.accesses, file.accesses);
    }
}
