//! Free space as file systems report it: whatever the kernel answers, runs are in order and disjoint, and what is counted is what
//! they are. The first byte of an input says which kernel interface answers.

use crate::kernel::answering;
use fragmend_layout::{FsKind, SpaceKind};
use fragmend_scan::FileSystem;
use fragmend_scan::space::space;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The device number that records of the corpus have.
const DEVICE: u64 = 0x700;

/// The owners of blocks (ext4, XFS), or the trees of a Btrfs.
pub fn space_of(input: &[u8]) -> bool {
    thread_local! {
        // Any directory that is a mount point; nothing is to be written back there.
        static ANY: FileSystem = {
            let proc = File::open("/proc").expect("/proc");
            let dev = proc.metadata().expect("/proc").dev();
            let mut any = FileSystem::of(&proc, dev).expect("/proc");
            (any.dev, any.block_bytes) = (DEVICE, 4096);
            any
        };
    }
    let Some((kind, input)) = input.split_first() else { return false };
    let mut fs = ANY.with(FileSystem::clone);
    fs.kind = if kind & 1 == 0 { FsKind::Xfs } else { FsKind::Btrfs };
    let (found, _) = answering(input, || space(&fs, usize::MAX));
    let (fewer, _) = answering(input, || space(&fs, 1));
    let Ok(found) = found else { return false };
    let fewer = fewer.expect("what was known before");
    assert!(found.has_runs() && fewer.has_runs() == (found.runs <= 1));
    assert_eq!((&fewer.free, fewer.runs), (&found.free, found.runs));
    assert_eq!(found.space.free(), found.free);
    let mut metadata = 0;
    let mut before = None;
    for run in &found.space.runs {
        assert!(!run.range.is_empty() && run.range.end <= found.space.bytes, "{run:?}");
        if let Some((kind, end)) = before.replace((run.kind, run.range.end)) {
            assert!(end < run.range.start || end == run.range.start && kind != run.kind, "{run:?}");
        }
        metadata += if run.kind == SpaceKind::Metadata { run.range.len() } else { 0 };
    }
    assert_eq!(metadata, found.metadata_bytes);
    true
}
