//! A file that is closed: what was reserved for it to grow is free again, unless data that is dirty is still to be placed there. The loads of
//! the power cuts close files, too (`cuts/load.rs`): a reservation is in memory alone, and closing writes nothing.

use crate::support::drives;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use std::path::Path;

/// So much of the first 128 KiB of a file that it is large, and is to grow.
const BYTES: u64 = 100 << 10;

fn grown(machine: &Machine) -> (InPlace, FileId) {
    let fs = InPlace::format(machine, &Options::of(machine)).expect("it is made");
    let file = fs.create(Path::new("/file")).expect("a new file");
    fs.write(file, ByteRange::at(0, BYTES), Access::Buffered).expect("space");
    fs.sync().expect("it is durable");
    (fs, file)
}

/// Whether the block behind the file is free and not held.
fn is_free_behind(fs: &InPlace, file: FileId) -> bool {
    let layout = fs.layout(file, Path::new("")).expect("its layout");
    let last = layout.extents().last().expect("an extent");
    let behind = ((last.physical + last.length) / fs.block_bytes()) as u32;
    fs.free_runs().iter().any(|run| run.start <= behind && behind < run.end())
}

#[test]
fn what_was_reserved_is_free_once_the_file_is_closed() {
    let machine = drives::large();
    let (fs, file) = grown(&machine);
    assert!(!is_free_behind(&fs, file));
    let free = fs.free_bytes();
    fs.close(file).expect("it is there");
    assert!(is_free_behind(&fs, file));
    assert_eq!(fs.free_bytes(), free, "what is reserved counts as free");
    assert_eq!(fs.check(), Ok(()));
    let runs = fs.free_runs();
    drop(fs);
    let mounted = InPlace::mount(&machine, &Options::of(&machine)).expect("it is mounted");
    assert_eq!(mounted.free_runs(), runs, "the drive knew of no reservation");
}

#[test]
fn what_is_dirty_keeps_its_place() {
    let machine = drives::large();
    let (fs, file) = grown(&machine);
    fs.write(file, ByteRange::at(BYTES, 8 << 10), Access::Buffered).expect("space");
    fs.close(file).expect("it is there");
    assert!(!is_free_behind(&fs, file));
    fs.sync_file(file).expect("it is durable");
    let layout = fs.layout(file, Path::new("")).expect("its layout");
    assert_eq!(layout.extents().len(), 1, "{layout:?}");
    fs.close(file).expect("it is there");
    assert!(is_free_behind(&fs, file));
    fs.remove(Path::new("/file")).expect("it is there");
    assert!(fs.close(file).is_err(), "a file that is gone");
}
