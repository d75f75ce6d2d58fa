//! Buffered reads: a sequential reader gets windows that grow, whatever the length of its calls, and the next window is in flight
//! while it uses the last one.

use crate::support::drives;
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use std::path::Path;

const BYTES: u64 = 4 << 20;

/// A contiguous file of 4 MiB of which nothing is cached.
fn file() -> (Machine, InPlace, FileId) {
    let machine = drives::large();
    file_with(&machine, &Options::of(&machine))
}

fn file_with(machine: &Machine, options: &Options) -> (Machine, InPlace, FileId) {
    let fs = InPlace::format(machine, options).expect("it is made");
    let file = fs.create(Path::new("/file")).expect("a new file");
    fs.write(file, ByteRange { start: 0, end: BYTES }, Access::Buffered).expect("space");
    fs.sync().expect("it is durable");
    fs.drop_caches();
    machine.wait_until_idle();
    (machine.clone(), fs, file)
}

/// Blocks that have been read off the drive after each call of so many bytes.
fn read_by(bytes: u64, until: u64) -> Vec<u64> {
    let (machine, fs, file) = file();
    let before = machine.counters().host_read;
    let calls = ByteRange { start: 0, end: until }.steps(bytes);
    calls
        .map(|call| {
            fs.read(file, call, Access::Buffered).expect("it is read");
            machine.counters().host_read - before
        })
        .collect()
}

#[test]
fn windows_of_a_sequential_reader_grow_to_the_hosts_readahead() {
    let read = read_by(4096, 1 << 20);
    // Each window in blocks of 4 KiB: 4, 8, 16 and then 32, which are 128 KiB, begun when the reader meets the last one.
    let mut windows = vec![read[0]];
    windows.extend(read.windows(2).map(|two| two[1] - two[0]).filter(|blocks| *blocks > 0));
    assert_eq!(windows[..6], [4, 8, 16, 32, 32, 32], "{windows:?}");
    assert!(windows[6..].iter().all(|blocks| *blocks == 32), "{windows:?}");
}

#[test]
fn short_calls_are_nearly_as_fast_as_long_ones() {
    let time = |bytes| {
        let (machine, fs, file) = file();
        let began = machine.now_ns();
        for call in (ByteRange { start: 0, end: BYTES }).steps(bytes) {
            fs.read(file, call, Access::Buffered).expect("it is read");
        }
        machine.now_ns() - began
    };
    let (short, long) = (time(4096), time(128 << 10));
    assert!(short < long * 3 / 2, "{short} ns by 4 KiB, {long} ns by 128 KiB");
}

#[test]
fn the_next_window_is_in_flight_while_the_program_computes() {
    let waited = |use_page_ns| {
        let (machine, fs, file) = file();
        machine.set_use_page_ns(use_page_ns);
        let (before, _) = machine.spent();
        for call in (ByteRange { start: 0, end: BYTES }).steps(32 << 10) {
            fs.read(file, call, Access::Buffered).expect("it is read");
        }
        machine.spent().0.waiting - before.waiting
    };
    let (busy, idle) = (waited(100_000), waited(0));
    assert!(busy < idle / 4, "{busy} ns are waited beside work, {idle} ns without");
}

#[test]
fn what_was_written_or_read_is_not_read_again_until_it_is_dropped() {
    let (machine, fs, file) = file();
    let all = ByteRange { start: 0, end: BYTES };
    let reads = |range| {
        let before = machine.counters().host_read;
        fs.read(file, range, Access::Buffered).expect("it is read");
        machine.counters().host_read - before
    };
    fs.write(file, ByteRange { start: 0, end: 1 << 20 }, Access::Buffered).expect("space");
    assert_eq!(reads(all), (BYTES - (1 << 20)) / 4096);
    assert_eq!(reads(all), 0);
    fs.sync().expect("it is durable");
    fs.drop_caches();
    assert_eq!(reads(all), BYTES / 4096);
    assert_eq!(reads(ByteRange { start: BYTES, end: 2 * BYTES }), 0, "behind its end");
}

#[test]
fn what_was_evicted_is_read_again() {
    let machine = drives::large();
    let mut options = Options::of(&machine);
    options.settings.cache_blocks = 256;
    let (machine, fs, file) = file_with(&machine, &options);
    for _ in 0..2 {
        let before = machine.counters().host_read;
        for call in (ByteRange { start: 0, end: BYTES }).steps(64 << 10) {
            fs.read(file, call, Access::Buffered).expect("it is read");
        }
        // Some of what was read ahead is evicted before the reader comes to it.
        let (read, all) = (machine.counters().host_read - before, BYTES / 4096);
        assert!((all..=all + all / 10).contains(&read), "{read} blocks of {all}");
    }
}
