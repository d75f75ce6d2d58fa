//! The policy `segments` on a real F2FS, from the command line, in a guest whose kernel has it: files that were written beside each
//! other become contiguous, and segments free.

mod support;

use fragmend_testbed::fragment::{content, holds};
use fragmend_testbed::guest::test::f2fs;
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, finish};
use fragmend_testbed::tools::extents;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

guest_tests! {
    uml_segments_become_free_and_files_contiguous => segments_become_free(&f2fs());
    uml_what_cannot_be_cleaned_is_refused_or_left_alone => refusals(&f2fs());
}

/// Blocks of each file, as many as in the paper's table 1.
const BLOCKS: u64 = 2560;
const BLOCK: u64 = 4096;
/// Files that are written beside each other; every second one is deleted then.
const FILES: usize = 4;
/// Every so many blocks, one is overwritten.
const OVERWRITTEN: usize = 8;

fn fragmend(args: &[&str]) -> Finished {
    finish(Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn write(file: &File, block: u64, version: u64) {
    let mut bytes = [0; BLOCK as usize];
    content(block * BLOCK + version, &mut bytes);
    file.write_all_at(&bytes, block * BLOCK).unwrap();
    fragmend_sys::cache::write_and_wait(file, block * BLOCK..(block + 1) * BLOCK).unwrap();
}

/// Whether a file holds what [`aged`] has put there.
fn is_whole(path: &Path) -> bool {
    let filled = |start: u64, buffer: &mut [u8]| {
        for (n, block) in buffer.chunks_mut(BLOCK as usize).enumerate() {
            let number = start / BLOCK + n as u64;
            let again = number.is_multiple_of(OVERWRITTEN as u64);
            content(number * BLOCK + u64::from(again) * BLOCK * BLOCKS, block);
        }
    };
    holds(path, BLOCKS * BLOCK, filled).unwrap()
}

/// An aged file system, made as in section 4 of the paper: synchronous writers side by side, some of whose files are deleted; and
/// some blocks are overwritten. Returns the files that are left.
fn aged(image: &Image) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..FILES).map(|n| image.path().join(format!("file-{n}"))).collect();
    let files: Vec<File> = paths.iter().map(|path| File::create_new(path).unwrap()).collect();
    for block in 0..BLOCKS {
        files.iter().for_each(|file| write(file, block, 0));
    }
    let kept = || (0..FILES).step_by(2);
    for block in (0..BLOCKS).step_by(OVERWRITTEN) {
        kept().for_each(|n| write(&files[n], block, BLOCK * BLOCKS));
    }
    drop(files);
    (1..FILES).step_by(2).for_each(|n| fs::remove_file(&paths[n]).unwrap());
    // Behind them, the logs go on: a segment with an open one is no victim.
    let last = image.path().join("last");
    fs::write(&last, vec![7; 4 << 20]).unwrap();
    image.sync();
    let kept: Vec<PathBuf> = kept().map(|n| paths[n].clone()).collect();
    for path in &kept {
        assert!(is_whole(path) && extents(path) >= BLOCKS * 9 / 10, "{} fragments", extents(path));
    }
    kept
}

fn free_segments(image: &Image) -> u64 {
    let path = Path::new("/sys/fs/f2fs").join(image.block_device().name()).join("free_segments");
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

fn segments_become_free(image: &Image) {
    let files = aged(image);
    let before: u64 = files.iter().map(|path| extents(path)).sum();
    let plan = image.scratch().join("plan.json");
    let args = ["plan", "--json", "--policy", "segments", "-o", text(&plan), text(image.path())];
    let planned: Value = serde_json::from_str(&fragmend(&args).expect(&[0])).unwrap();
    let of = |name: &str| planned["segments"][name].as_i64().unwrap_or_else(|| panic!("{planned}"));
    println!("{}", planned["segments"]);
    // The last segment that was written may have an open log.
    assert!(of("fragments_before") >= before as i64 * 9 / 10, "{before}: {planned}");
    assert!(of("fragments_after") * 20 <= of("fragments_before"), "{planned}");
    assert!(of("blocks_moved") <= of("blocks_held"), "{planned}");
    assert_eq!(of("blocks_moved") * BLOCK as i64, planned["bytes_to_move"].as_i64().unwrap());
    assert!(of("segments_gained") >= 5, "{planned}");
    // Linux 6.1 shows no ages, and the plan says so.
    assert!(planned["segments"]["no_age"].as_str().unwrap().contains("6.15"), "{planned}");
    let shown = fragmend(&["plan", "--policy", "segments", text(image.path())]).expect(&[0]);
    assert!(shown.contains("segments: ") && shown.contains("age is not known"), "{shown}");

    // The ranges are in the order of inodes, and of the files.
    let made: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    let inodes: Vec<u64> =
        made["files"].as_array().unwrap().iter().map(|f| f["inode"].as_u64().unwrap()).collect();
    assert!(inodes.is_sorted() && inodes.len() == files.len(), "{inodes:?}");

    let free = free_segments(image);
    let events = fragmend(&["apply", "--json", text(&plan)]).expect(&[0, 2]);
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    println!("{last}");
    let number = |name: &str| last[name].as_u64().unwrap_or_else(|| panic!("{last}"));
    let after: u64 = files.iter().map(|path| extents(path)).sum();
    let gained = free_segments(image) as i64 - free as i64;
    println!("{before} fragments, then {after}; {gained} segments gained");
    assert_eq!(number("moved_bytes"), of("blocks_moved") as u64 * BLOCK, "{last}");
    assert!(number("extents_after") * 20 <= number("extents_before"), "{last}");
    assert!(after * 20 <= before, "{before} fragments, then {after}");
    let told =
        |name: &str| last["free_segments"][name].as_i64().unwrap_or_else(|| panic!("{last}"));
    assert_eq!((told("before"), told("after")), (free as i64, free as i64 + gained), "{last}");
    // What moves begins a segment, and node blocks are written besides.
    assert!(gained >= of("segments_gained") - 4, "{gained}: {planned}");
    image.fsck();
    files.iter().for_each(|path| assert!(is_whole(path), "{path:?}"));

    // Once more there is nothing to do.
    let planned: Value = serde_json::from_str(&fragmend(&args).expect(&[0])).unwrap();
    println!("{}", planned["segments"]);
    assert!(planned["segments"]["blocks_moved"].as_u64().unwrap() < BLOCKS / 10, "{planned}");
}

fn refusals(image: &Image) {
    let refused = |args: &[&str]| {
        let finished = fragmend(args);
        let lines: Vec<&str> = finished.stderr.lines().collect();
        assert_eq!((finished.status.code(), lines.len()), (Some(8), 1), "{finished:?}");
        lines[0].to_owned()
    };
    // The guest's root is the host's, through hostfs.
    let line = refused(&["plan", "--policy", "segments", text(image.scratch())]);
    assert!(line.contains("no segments to clean") && line.contains("F2FS"), "{line}");
    let line =
        refused(&["plan", "--policy", "segments", text(image.path()), text(image.scratch())]);
    assert!(line.contains("no segments to clean"), "{line}");
    let line = refused(&["plan", "--policy", "segments"]);
    assert!(line.contains("paths"), "{line}");
    let line = refused(&["plan", "--policy", "segments", "--slow", "x", text(image.path())]);
    assert!(line.contains("neither a trace nor slow ranges"), "{line}");
    let line = refused(&["auto", "--yes", "--policy", "segments", text(image.path())]);
    assert!(line.contains("fragmend plan"), "{line}");

    // Another user cannot read the device.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([env!("CARGO_BIN_EXE_fragmend"), "plan", "--policy", "segments"]);
    for above in image.path().ancestors().take(4) {
        let _ = fs::set_permissions(above, fs::Permissions::from_mode(0o755));
    }
    let finished = finish(command.arg(image.path()));
    assert_eq!(finished.status.code(), Some(4), "{finished:?}");
    assert!(finished.stderr.contains("its segments are not known"), "{finished:?}");

    // An empty file system has nothing to clean.
    let args = ["plan", "--json", "--policy", "segments", text(image.path())];
    let planned: Value = serde_json::from_str(&fragmend(&args).expect(&[0])).unwrap();
    assert_eq!(planned["segments"]["segments_cleaned"], 0, "{planned}");
}
