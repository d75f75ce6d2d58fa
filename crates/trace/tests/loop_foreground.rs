//! What requests of other programs meet: they are counted once, and none of this process. The kernel does not show the
//! end of one that interrupts the same program on a busy machine, so some may be missing.

mod support;

use fragmend_sys::disks;
use fragmend_testbed::replay::{Aligned, Mode, open};
use fragmend_trace::foreground::Foreground;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use support::image_with_file;

const BYTES: usize = 64 << 20;

/// Another program that reads or writes so many blocks of 4 KiB, one after the other and past the page cache, of a file
/// that it has open before.
fn others(direction: &str, file: &std::path::Path, blocks: u32) -> Child {
    let mut dd = Command::new("dd");
    let file = file.display();
    match direction {
        "read" => dd.args([&format!("if={file}"), "of=/dev/null", "iflag=direct"]),
        _ => dd.args(["if=/dev/zero", &format!("of={file}"), "oflag=direct", "conv=notrunc"]),
    };
    dd.args(["bs=4k", &format!("count={blocks}")]).stderr(Stdio::null()).spawn().unwrap()
}

/// Direct reads of 64 KiB by this process until told to end; returns how many.
fn own_reads(file: &std::path::Path, goes_on: impl Fn(u64) -> bool) -> u64 {
    let (file, mut buffer) = (open(file, Mode::Direct).unwrap(), Aligned::new(64 << 10));
    let mut done = 0;
    while goes_on(done) {
        file.read_exact_at(buffer.bytes(), (done * (64 << 10)) % BYTES as u64).unwrap();
        done += 1;
    }
    done
}

#[test]
fn loop_requests_of_others_are_counted_and_those_of_this_process_are_not() {
    let image = image_with_file(BYTES);
    let file = image.path().join("f");
    // The map of the file's extents is cached, so that nothing else is read.
    others("read", &file, 1).wait().unwrap();
    let disks = disks::under(image.path(), image.path().metadata().unwrap().dev()).unwrap();
    let [disk] = &disks[..] else { panic!("{disks:?}") };
    let foreground = Foreground::start(&disks).unwrap();
    let counted = || {
        let (alone, beside) = foreground.met(disk).unwrap();
        (alone.count(), beside.count())
    };
    assert_eq!(counted(), (0, 0));
    assert_eq!(own_reads(&file, |done| done < 500), 500);
    assert_eq!(counted(), (0, 0), "our own");
    let nearly = |all: u64, counted: u64| (all - all / 20..=all).contains(&counted);
    assert!(others("read", &file, 300).wait().unwrap().success());
    let (read, none) = counted();
    assert!(nearly(300, read) && none == 0, "{read} and {none}");
    assert!(others("write", &file, 200).wait().unwrap().success());
    let (before, none) = counted();
    assert!(nearly(200, before - read) && none == 0, "{before} and {none}");
    let (alone, _) = foreground.met(disk).unwrap();
    let median = alone.quantile(0.5);
    assert!((1_000..1_000_000_000).contains(&median), "{median} ns");

    // Both at once: some of theirs meet ours, and none is counted twice.
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ours = scope.spawn(|| own_reads(&file, |_| !ends.load(Ordering::Relaxed)));
        assert!(others("read", &file, 4000).wait().unwrap().success());
        ends.store(true, Ordering::Relaxed);
        assert!(ours.join().unwrap() > 0);
    });
    let (alone, beside) = counted();
    assert!(nearly(4000, alone + beside - before), "{alone} and {beside}");
    assert!(beside > 1000, "{beside} of 4000 beside a steady reader");
    // And afterwards none of ours counts as in flight.
    assert!(others("read", &file, 300).wait().unwrap().success());
    let (after, stays) = counted();
    assert!(nearly(300, after - alone) && stays <= beside + 1, "{after} and {stays}");
}

/// What threads of the kernel write back may be for this process.
#[test]
fn loop_writeback_is_nobodys_wait() {
    let image = image_with_file(BYTES);
    let disks = disks::under(image.path(), image.path().metadata().unwrap().dev()).unwrap();
    let foreground = Foreground::start(&disks).unwrap();
    let before = image.counters();
    let file = std::fs::File::options().write(true).open(image.path().join("f")).unwrap();
    // No two of them in one request.
    (0..1000).for_each(|n| file.write_all_at(&[9; 4096], n * 8192).unwrap());
    assert!(Command::new("sync").arg("-f").arg(image.path()).status().unwrap().success());
    let written = (image.counters() - before).writes;
    let (alone, beside) = foreground.met(&disks[0]).unwrap();
    assert!(written >= 1000, "{written} requests");
    assert!(alone.count() + beside.count() < 50, "{alone:?}");
}

#[test]
fn loop_another_disk_is_another_matter() {
    let (here, there) = (image_with_file(1 << 20), image_with_file(1 << 20));
    let disks_of = |image: &fragmend_testbed::image::Image| {
        disks::under(image.path(), image.path().metadata().unwrap().dev()).unwrap()
    };
    let foreground = Foreground::start(&disks_of(&here)).unwrap();
    assert!(others("read", &there.path().join("f"), 100).wait().unwrap().success());
    let (alone, beside) = foreground.met(&disks_of(&here)[0]).unwrap();
    assert_eq!((alone.count(), beside.count()), (0, 0));
    let why = foreground.met(&disks_of(&there)[0]).unwrap_err().to_string();
    assert!(why.contains("is not measured"), "{why}");
}
