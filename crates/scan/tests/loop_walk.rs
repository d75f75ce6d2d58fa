//! The walk itself: what counts as a file, what counts twice, and file systems whose directories do
//! not contain the files' own inode numbers.

mod common;

use common::{layouts, walk};
use fragmend_layout::SkipReason;
use fragmend_scan::{Source, WalkOptions, files, measure};
use fragmend_testbed::image::{Image, run};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[test]
fn loop_only_files_count_and_links_are_not_followed() {
    let (image, outside) = (Image::ext4(128 << 20), Image::ext4(128 << 20));
    fs::write(outside.path().join("outside"), "x").unwrap();
    let at = |name: &str| image.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/file"), "x").unwrap();
    std::os::unix::fs::symlink(outside.path(), at("to-outside")).unwrap();
    std::os::unix::fs::symlink(at("dir"), at("to-dir")).unwrap();
    std::os::unix::fs::symlink("..", at("dir/up")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("broken")).unwrap();
    run("mkfifo", [at("pipe")]);
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    run("mknod", [at("device").as_os_str(), "c".as_ref(), "1".as_ref(), "3".as_ref()]);

    let tree = walk(&[image.path()]);
    let paths: Vec<PathBuf> = tree.entries().iter().map(|e| tree.path(e)).collect();
    assert_eq!(paths, [at("dir/file")]);
    assert!(tree.skips().is_empty(), "{:?}", tree.skips());
    // A link that is given is followed, to a directory as to a file.
    assert_eq!(walk(&[&at("to-dir")]).entries().len(), 1);
    std::os::unix::fs::symlink("dir/file", at("to-file")).unwrap();
    let tree = walk(&[&at("to-file")]);
    assert_eq!(tree.path(&tree.entries()[0]), at("dir/file").canonicalize().unwrap());
}

#[test]
fn loop_of_several_names_the_first_is_kept() {
    let image = Image::ext4(128 << 20);
    let at = |name: &str| image.path().join(name);
    fs::write(at("middle"), "x").unwrap();
    ["last", "a", "zz"].iter().for_each(|n| fs::hard_link(at("middle"), at(n)).unwrap());
    let tree = walk(&[image.path()]);
    assert_eq!(tree.path(&tree.entries()[0]), at("a"));
    assert_eq!((tree.entries().len(), tree.further_names()), (1, 3));
}

/// Whatever order the directories were read in.
#[test]
fn loop_of_names_in_several_directories_the_first_ones_is_kept() {
    let image = Image::ext4(128 << 20);
    let at = |name: &str| image.path().join(name);
    let dirs = ["b/x", "a/y/z", "a/y", "a0", "c"];
    dirs.iter().for_each(|dir| fs::create_dir_all(at(dir)).unwrap());
    fs::write(at("c/first"), "x").unwrap();
    let names = ["b/x/0", "a/y/z/0", "a/y/9", "a/y/8", "a0/0"];
    for round in 0..names.len() {
        names[round..].iter().for_each(|name| fs::hard_link(at("c/first"), at(name)).unwrap());
        for _ in 0..8 {
            let tree = walk(&[image.path()]);
            let first = ["a/y/8", "a/y/8", "a/y/8", "a/y/8", "a0/0"][round];
            assert_eq!(tree.path(&tree.entries()[0]), at(first));
            assert_eq!(tree.further_names(), (names.len() - round) as u64);
        }
        names[round..].iter().for_each(|name| fs::remove_file(at(name)).unwrap());
    }
}

/// What two given paths have in common is found twice, and counted once.
#[test]
fn loop_paths_that_overlap_are_walked_each() {
    let image = Image::ext4(128 << 20);
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    let tree = walk(&[image.path(), &dir]);
    assert_eq!((tree.entries().len(), tree.further_names(), tree.skips().len()), (1, 1, 0));
}

/// An overlay of two ext4: inode numbers in its directories may collide, so they cannot tell
/// hard links.
#[test]
fn loop_an_overlay_is_scanned_through_fiemap() {
    let (lower, upper) = (Image::ext4(128 << 20), Image::ext4(128 << 20));
    for (image, name) in [(&lower, "low"), (&upper, "up/high")] {
        ["up", "work"].iter().for_each(|d| fs::create_dir(image.path().join(d)).unwrap());
        fs::write(image.path().join(name), vec![1; 50_000]).unwrap();
    }
    fs::hard_link(upper.path().join("up/high"), upper.path().join("up/high-too")).unwrap();
    let point = lower.scratch().join("merged");
    fs::create_dir(&point).unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.path().display(),
        upper.path().join("up").display(),
        upper.path().join("work").display()
    );
    let mount = ["-t", "overlay", "overlay", "-o", &options].map(OsStr::new);
    run("mount", mount.into_iter().chain([point.as_os_str()]));
    // One of its files is covered by a mount of another, as in containers.
    fs::write(point.join("covered"), "x").unwrap();
    let cover = upper.path().join("cover");
    fs::write(&cover, "y").unwrap();
    run("mount", [OsStr::new("--bind"), cover.as_os_str(), point.join("covered").as_os_str()]);
    let tree = walk(&[&point]);
    let totals = measure(&tree, Source::Auto, |_| Ok(()));
    run("umount", [point.join("covered")]);
    run("umount", [&point]);
    let totals = totals.unwrap();
    assert_eq!(totals.files, 2, "{totals:?}");
    assert_eq!(totals.skipped, [(SkipReason::OtherFileSystem.into(), 1)].into());
    assert_eq!((totals.bytes, totals.further_names), (100_000, 1));
}

#[test]
fn loop_a_directory_that_vanishes_is_counted() {
    let image = Image::ext4(128 << 20);
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    fs::write(image.path().join("stays"), "x").unwrap();
    let tree = walk(&[image.path()]);
    fs::remove_dir_all(&dir).unwrap();
    let found = layouts(&tree, Source::Fiemap);
    assert_eq!(found[&dir.join("file")], Err(SkipReason::Vanished.into()));
    assert!(found[&image.path().join("stays")].is_ok());
}

/// A directory is removed when it was read, and another one gets its inode number before that is read.
#[test]
fn loop_a_directory_with_a_reused_inode_number_is_walked() {
    const FIRST: u64 = 7;
    let image = Image::ext4(128 << 20);
    let first = image.path().join("first");
    fs::create_dir(&first).unwrap();
    (0..FIRST).for_each(|n| fs::write(first.join(n.to_string()), "x").unwrap());
    let mut below = image.path().to_owned();
    for _ in 0..30 {
        below.push("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("file"), "x").unwrap();
    }
    let (new, inode) = (below.join("new"), fs::metadata(&first).unwrap().ino());
    let reuse = || {
        fs::remove_dir_all(&first).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        // The walk may still have it open.
        while fs::create_dir(&new).is_ok() && fs::metadata(&new).unwrap().ino() != inode {
            assert!(Instant::now() < until, "the inode number is not used again");
            fs::remove_dir(&new).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::write(new.join("found"), "x").unwrap();
    };
    let (was_read, reused) = (AtomicBool::new(false), Mutex::new(false));
    // Called before the directory below is listed any further: the walk waits at the next one's.
    let found = |files: u64| {
        was_read.fetch_or(files == FIRST, Relaxed);
        let mut reused = reused.lock().unwrap();
        if files == 1 && was_read.load(Relaxed) && !std::mem::replace(&mut *reused, true) {
            reuse();
        }
    };
    let tree = files(&[image.path().to_owned()], &WalkOptions::default(), &found).unwrap();
    assert!(*reused.lock().unwrap(), "nothing was tried");
    assert!(tree.skips().is_empty(), "{:?}", tree.skips());
    let found = tree.entries().iter().filter(|entry| tree.path(entry) == new.join("found"));
    assert_eq!(found.count(), 1);
}

#[test]
fn nothing_given_finds_nothing() {
    let tree = files(&[], &WalkOptions::default(), &|_| {}).unwrap();
    assert_eq!((tree.entries().len(), tree.failed().len()), (0, 0));
}

/// One directory with more names than a batch of the walk has.
#[test]
fn loop_a_directory_of_fifty_thousand_files() {
    let image = Image::ext4_with(512 << 20, &["-N", "60000"], "");
    let long = "n".repeat(60);
    for i in 0..50_000 {
        fs::File::create(image.path().join(format!("{long}{i}"))).unwrap();
    }
    let tree = walk(&[image.path()]);
    assert_eq!(tree.entries().len(), 50_000);
    let totals = measure(&tree, Source::Bulk, |_| Ok(())).unwrap();
    assert_eq!((totals.files, totals.bytes, totals.measures.extents), (50_000, 0, 0));
}
