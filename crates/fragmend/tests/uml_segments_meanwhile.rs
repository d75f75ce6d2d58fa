//! The policy `segments` on a real F2FS, in a guest, while others do to the files whatever they like, and with plans that were changed by
//! hand: no byte of any file changes but by its owner, and nothing outside is touched.

use fragmend_testbed::fragment::{content, holds};
use fragmend_testbed::guest::test::f2fs;
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running, finish, run, try_run};
use fragmend_testbed::random::Random;
use fragmend_testbed::tools::{extents, sha256};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

guest_tests! {
    uml_files_that_change_while_segments_are_cleaned_lose_nothing => meanwhile(&f2fs());
    uml_a_plan_that_was_forged_moves_nothing_else => forged(&f2fs());
    uml_nothing_moves_into_holes_of_a_file_system_that_is_filled_meanwhile => filled(&f2fs());
}

const SEED: u64 = 0x5E63_F0E5;
/// Blocks of each file.
const BLOCKS: u64 = 512;
const BLOCK: u64 = 4096;
/// Blocks of a file whose move lasts for some seconds.
const LARGE: u64 = 4096;
const NAMES: [&str; 12] = [
    "stays",
    "shrinks",
    "goes",
    "renamed",
    "linked",
    "swapped",
    "pinned",
    "immutable",
    "appended",
    "punched",
    "compressed",
    "mapped",
];

fn fragmend(args: &[&str]) -> Finished {
    finish(Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn block(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    content(number * BLOCK, &mut bytes);
    bytes
}

/// Whether the first blocks of a file are as they were written.
fn is_whole(path: &Path, blocks: u64) -> bool {
    holds(path, blocks * BLOCK, content).unwrap()
}

/// Files that were written side by side with others that are gone.
fn aged(image: &Image) -> PathBuf {
    let root = image.path().join("files");
    fs::create_dir(&root).unwrap();
    let open = |name: String| File::create_new(root.join(name)).unwrap();
    let files: Vec<File> = NAMES.iter().map(|name| open((*name).into())).collect();
    let others: Vec<File> = (0..NAMES.len()).map(|n| open(format!("other-{n}"))).collect();
    for number in 0..BLOCKS {
        let bytes = block(number);
        for file in files.iter().chain(&others) {
            file.write_all_at(&bytes, number * BLOCK).unwrap();
            let range = number * BLOCK..(number + 1) * BLOCK;
            fragmend_sys::cache::write_and_wait(file, range).unwrap();
        }
    }
    (0..NAMES.len()).for_each(|n| fs::remove_file(root.join(format!("other-{n}"))).unwrap());
    fs::write(image.path().join("last"), vec![7; 4 << 20]).unwrap();
    image.sync();
    root
}

fn planned(root: &Path, plan: &Path) -> Value {
    let _ = fs::remove_file(plan);
    let args = ["plan", "--json", "--policy", "segments", "-o", text(plan), text(root)];
    serde_json::from_str(&fragmend(&args).expect(&[0])).unwrap()
}

fn meanwhile(image: &Image) {
    let root = aged(image);
    let plan = image.scratch().join("plan.json");
    let shown = planned(&root, &plan);
    assert!(shown["segments"]["blocks_moved"].as_u64().unwrap() > BLOCKS * 10, "{shown}");
    // What a link leads to that takes a file's place.
    let outside = image.path().join("outside");
    fs::copy(root.join("stays"), &outside).unwrap();
    image.sync();
    let (sum, before) = (sha256(&outside), fs::metadata(&outside).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--json", "--rate", "4MiB"]).arg(&plan);
    let apply = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut random = Random::new(SEED);
    let mut pause = || std::thread::sleep(Duration::from_millis(random.below(400)));
    let at = |name: &str| root.join(name);
    let (on, off) = channel::<()>();
    let appender = std::thread::spawn({
        let file = File::options().append(true).open(at("appended")).unwrap();
        move || {
            let mut blocks = 0;
            while off.try_recv() == Err(TryRecvError::Empty) {
                file.write_all_at(&block(BLOCKS + blocks), 0).unwrap();
                file.sync_data().unwrap();
                blocks += 1;
            }
            blocks
        }
    });
    pause();
    File::options().write(true).open(at("shrinks")).unwrap().set_len(100 * BLOCK + 77).unwrap();
    pause();
    fs::remove_file(at("goes")).unwrap();
    fs::rename(at("renamed"), at("renamed-2")).unwrap();
    pause();
    fs::remove_file(at("linked")).unwrap();
    fs::hard_link(at("stays"), at("linked")).unwrap();
    pause();
    fs::remove_file(at("swapped")).unwrap();
    symlink(&outside, at("swapped")).unwrap();
    pause();
    let pinned = try_run("f2fs_io", ["pinfile", "set", text(&at("pinned"))]);
    let immutable = try_run("chattr", ["+i", text(&at("immutable"))]);
    pause();
    run("fallocate", ["-p", "-o", "409600", "-l", "409600", text(&at("punched"))]);
    let mapped = File::options().read(true).write(true).open(at("mapped")).unwrap();
    mapped.write_all_at(&block(3), 3 * BLOCK).unwrap();
    let ended = apply.wait();
    println!("pinned {pinned:?}, immutable {immutable:?}: {ended:?}");
    // A file system is unmounted when nobody has a file of it open.
    drop((on, mapped));
    let appended = appender.join().unwrap();
    let last: Value = serde_json::from_str(ended.expect(&[0, 2]).lines().last().unwrap()).unwrap();
    assert!(last["ranges_moved"].as_u64().unwrap() > 0, "{last}");

    for is_cold in [false, true] {
        if is_cold {
            let _ = try_run("chattr", ["-i", text(&at("immutable"))]);
            image.fsck();
        }
        compare(&root, BLOCKS + appended, is_cold);
        assert!(sha256(&outside) == sum, "cold: {is_cold}");
    }
    let after = fs::metadata(&outside).unwrap();
    assert_eq!(
        (before.mtime_nsec(), before.ctime_nsec()),
        (after.mtime_nsec(), after.ctime_nsec())
    );
}

/// Compares each file with what was written to it, from memory or from the drive.
fn compare(root: &Path, appended: u64, is_cold: bool) {
    let at = |name: &str| root.join(name);
    let whole =
        ["stays", "renamed-2", "linked", "swapped", "pinned", "immutable", "mapped", "compressed"];
    for name in whole {
        assert!(is_whole(&at(name), BLOCKS), "{name}, cold: {is_cold}");
        let size = fs::metadata(at(name)).unwrap().len();
        assert_eq!(size, BLOCKS * BLOCK, "{name}");
    }
    assert!(is_whole(&at("appended"), appended), "appended, cold: {is_cold}");
    let shrunk = fs::read(at("shrinks")).unwrap();
    let mut expected = vec![0; 100 * BLOCK as usize + 77];
    content(0, &mut expected);
    assert!(shrunk == expected, "shrinks, cold: {is_cold}");
    let punched = fs::read(at("punched")).unwrap();
    let mut expected = vec![0; (BLOCKS * BLOCK) as usize];
    content(0, &mut expected);
    expected[409_600..819_200].fill(0);
    assert!(punched == expected, "punched, cold: {is_cold}");
    assert!(!at("goes").exists(), "cold: {is_cold}");
}

/// Plans that somebody has changed: each is refused, or what is not as planned is left alone.
fn forged(image: &Image) {
    let root = aged(image);
    let plan = image.scratch().join("plan.json");
    planned(&root, &plan);
    let made: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    let all: Vec<PathBuf> = NAMES.iter().map(|name| root.join(name)).collect();
    let before: Vec<u64> = all.iter().map(|path| extents(path)).collect();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 12] = [
        ("beyond the end", |file| file["ranges"][0]["length"] = json!(1u64 << 40)),
        ("the end of the address space", |file| {
            file["ranges"][0]["offset"] = json!(!4095u64);
            file["ranges"][0]["length"] = json!(8192);
        }),
        ("a part of a block", |file| file["ranges"][0]["offset"] = json!(512)),
        ("nothing", |file| file["ranges"][0]["length"] = json!(0)),
        ("negative", |file| file["ranges"][0]["offset"] = json!(-4096)),
        ("twice", |file| {
            let first = file["ranges"][0].clone();
            file["ranges"].as_array_mut().unwrap().push(first);
        }),
        ("a larger file, and a range behind its end", |file| {
            file["size"] = json!(1u64 << 30);
            file["ranges"][0]["offset"] = json!(1u64 << 29);
        }),
        ("another generation", |file| file["generation"] = json!(12345)),
        ("another inode", |file| file["inode"] = json!(3)),
        ("the root's inode", |file| file["inode"] = json!(1)),
        ("another device", |file| file["device"] = json!(1)),
        ("a relative path", |file| file["path"] = json!("../../etc/passwd")),
    ];
    let forged = image.scratch().join("forged.json");
    for (what, change) in changes {
        let mut wrong = made.clone();
        wrong["files"].as_array_mut().unwrap().iter_mut().for_each(change);
        fs::write(&forged, serde_json::to_vec(&wrong).unwrap()).unwrap();
        let ended = fragmend(&["apply", "--json", text(&forged)]);
        let code = ended.status.code();
        println!(
            "{what}: {code:?} {} {}",
            ended.stderr.trim(),
            ended.stdout.lines().last().unwrap_or("")
        );
        let now: Vec<u64> = all.iter().map(|path| extents(path)).collect();
        assert!(matches!(code, Some(0 | 2..=16)), "{what}: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{what}: {ended:?}");
        assert_eq!(now, before, "{what}: something has moved");
    }
    all.iter().for_each(|path| assert!(is_whole(path, BLOCKS), "{path:?}"));

    // Identities of files that trade places, under each other's names: each is still moved as itself, or not at all.
    let mut traded = made.clone();
    let files = traded["files"].as_array_mut().unwrap();
    let (first, last) = (files[0]["path"].clone(), files[files.len() - 1]["path"].clone());
    files[0]["path"] = last;
    let end = files.len() - 1;
    files[end]["path"] = first;
    // And a range over all of each.
    for file in files {
        let mut whole = file["ranges"][0].clone();
        whole["offset"] = json!(0);
        whole["length"] = file["size"].clone();
        file["ranges"] = json!([whole]);
    }
    fs::write(&forged, serde_json::to_vec(&traded).unwrap()).unwrap();
    let ended = fragmend(&["apply", "--json", text(&forged)]);
    println!("traded: {ended:?}");
    assert!(matches!(ended.status.code(), Some(0..=16)) && !ended.stderr.contains("panicked"));
    image.fsck();
    all.iter().for_each(|path| assert!(is_whole(path, BLOCKS), "{path:?}"));
}

/// A large file is staged, and before it moves another program takes the free segments.
fn filled(image: &Image) {
    let (large, beside) = (image.path().join("large"), image.path().join("beside"));
    let files = [&large, &beside].map(|path| File::create_new(path).unwrap());
    for number in 0..LARGE {
        let range = number * BLOCK..(number + 1) * BLOCK;
        for file in &files {
            file.write_all_at(&block(number), range.start).unwrap();
            fragmend_sys::cache::write_and_wait(file, range.clone()).unwrap();
        }
    }
    drop(files);
    fs::remove_file(&beside).unwrap();
    fs::write(image.path().join("last"), vec![7; 4 << 20]).unwrap();
    image.sync();
    let plan = image.scratch().join("plan.json");
    let shown = planned(image.path(), &plan);
    assert_eq!(shown["segments"]["blocks_moved"], LARGE, "{shown}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--json", "--rate", "1MiB", "--free-floor", "0"]).arg(&plan);
    let apply = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    std::thread::sleep(Duration::from_secs(1));
    let ballast = File::create_new(image.path().join("ballast")).unwrap();
    let part = vec![9; 1 << 20];
    let full = (0u64..).find_map(|n| ballast.write_all_at(&part, n << 20).err()).unwrap();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    drop(ballast);
    let ended = apply.wait();
    let last: Value = serde_json::from_str(ended.expect(&[2]).lines().last().unwrap()).unwrap();
    println!("{last}");
    assert!(last["moved_bytes"].as_u64().unwrap() < LARGE * BLOCK * 3 / 4, "{last}");
    assert!(last["skipped_by_reason"]["no_space"].as_u64() > Some(0), "{last}");
    assert!(is_whole(&large, LARGE));
    image.fsck();
    assert!(is_whole(&large, LARGE));
}
