//! A trace that the reader itself writes, where the kernel has no BPF to record with: the guest's.
//! It holds what a recording of the same requests would.

use crate::replay::{Mode, Request};
use fragmend_layout::FileId;
use fragmend_sys::inode;
use fragmend_trace::{Event, Existing, Level, Meta, Op, TraceWriter};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes the trace of these reads, file after file.
///
/// # Panics
/// When a file is not there, or the trace cannot be written.
pub fn note(trace: &Path, reads: &[(PathBuf, Vec<Request>)], mode: Mode) {
    let ids: Vec<FileId> = reads.iter().map(|(path, _)| identity(path)).collect();
    let paths: Vec<(FileId, PathBuf)> =
        ids.iter().zip(reads).map(|(id, (path, _))| (*id, path.clone())).collect();
    let find = move |id| paths.iter().find(|(known, _)| *known == id).map(|(_, path)| path.clone());
    let mut writer = TraceWriter::create(trace, Existing::ReplaceTrace, Box::new(find))
        .expect("a trace can be written");
    let mut time_ns = 0;
    for (file, (_, requests)) in ids.iter().zip(reads) {
        let events: Vec<Event> = requests
            .iter()
            .map(|request| {
                time_ns += 1000;
                Event {
                    time_ns,
                    file: *file,
                    offset: request.offset,
                    length: request.len as u32,
                    bytes: request.len,
                    count: 1,
                    pid: 1,
                    thread: 1,
                    uid: 0,
                    comm: *b"reader\0\0\0\0\0\0\0\0\0\0",
                    op: Op::Read,
                    direct: mode == Mode::Direct,
                    windowed: false,
                }
            })
            .collect();
        writer.append(&events).expect("room for the trace");
    }
    writer.finish(&Meta::new(Level::Syscall, 0)).expect("room for the trace");
}

fn identity(path: &Path) -> FileId {
    let file = File::open(path).expect("a file of the load");
    let meta = file.metadata().expect("its metadata");
    let generation = inode::generation(&file).expect("its generation");
    FileId { device: meta.dev(), inode: meta.ino(), generation }
}
