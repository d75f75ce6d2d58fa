//! `--engine rewrite` loses no byte when it is killed, or the power is cut, at random instants.

mod support;

use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use fragmend_testbed::random::Random;
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::rewrite::{outcomes, recover, rewrite};

const SIZE: u64 = 9 << 20; // two ranges

/// Random instants repeat with this seed; a failure names its round.
const SEED: u64 = 0x00F2_A63E;

/// Recovers, and counts the outcomes.
fn recovered(image: &Image, what: &str, seen: &mut BTreeMap<String, u32>) {
    let (told, code) = recover(&[&image.path()]);
    assert_eq!(code, 0, "seed {SEED:#x}, {what}: {told}");
    let found = outcomes(&told);
    let found = if found.is_empty() { vec!["nothing".to_owned()] } else { found };
    found.into_iter().for_each(|outcome| *seen.entry(outcome).or_default() += 1);
}

fn fresh(image: &Image, round: u32) -> PathBuf {
    for entry in fs::read_dir(image.path()).unwrap() {
        let _ = fs::remove_file(entry.unwrap().path());
    }
    let path = image.path().join(format!("file-{round}"));
    interleaved(&path, SIZE, &[16 << 10], true).unwrap();
    image.sync();
    path
}

/// A look takes a few microseconds; without a pause it would keep a processor from the rewrite.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// Waits until a random instant: of the whole run, or, mostly, of the short time for which there is a
/// record.
fn wait(image: &Image, random: &mut Random) {
    if random.below(4) == 0 {
        return std::thread::sleep(Duration::from_micros(5_000 + random.below(150_000)));
    }
    let is_record = |e: std::io::Result<fs::DirEntry>| {
        e.is_ok_and(|e| e.path().extension().is_some_and(|x| x == "record"))
    };
    let journal = image.path().join(".fragmend-rewrite");
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(500)
        && !fs::read_dir(&journal).is_ok_and(|mut names| names.any(is_record))
    {
        std::thread::sleep(BETWEEN_LOOKS);
    }
    std::thread::sleep(Duration::from_micros(random.below(25_000)));
}

/// Waits until `path` has a hole where it had data, by its number of blocks, which needs no open; or
/// until the process has ended.
fn wait_for_a_hole(path: &Path, apply: &mut Running, at_once: bool) {
    let blocks = || path.metadata().map_or(0, |m| m.blocks());
    let before = blocks();
    while blocks() >= before && apply.child().try_wait().is_ok_and(|ended| ended.is_none()) {
        if !at_once {
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

fn a_hundred_kills_are_recovered_from(file_system: &'static FileSystem) {
    let image = Image::of(file_system, 320 << 20);
    let mut random = Random::new(SEED);
    let (mut kills, mut round, mut seen) = (0, 0, BTreeMap::new());
    while kills < 100 {
        round += 1;
        let path = fresh(&image, round);
        loop {
            let mut apply = Running::start(&mut rewrite(&image, &path, ""));
            match kills % 2 {
                0 => wait(&image, &mut random),
                // One of four at once, the others without taking a processor from the rewrite.
                _ => wait_for_a_hole(&path, &mut apply, kills % 8 == 1),
            }
            apply.signal(Signal::KILL);
            let ended = apply.wait().status.code().is_some();
            recovered(&image, &format!("round {round}"), &mut seen);
            assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, round {round}");
            kills += u32::from(!ended);
            if ended || kills == 100 {
                break;
            }
        }
        assert!(!image.path().join(".fragmend-rewrite").exists());
    }
    println!("{}: {kills} kills, {round} files: {seen:?}", file_system.name);
    image.fsck();
    assert!(seen.contains_key("restored"), "no kill hit a hole: {seen:?}");
}

#[test]
fn loop_100_kills_on_ext4_are_recovered_from() {
    a_hundred_kills_are_recovered_from(&EXT4);
}

#[test]
fn loop_100_kills_on_xfs_are_recovered_from() {
    a_hundred_kills_are_recovered_from(&XFS);
}

fn power_cuts_are_recovered_from(file_system: &'static FileSystem) {
    let image = Image::of(file_system, 320 << 20);
    let mut random = Random::new(SEED ^ 1);
    let (mut seen, mut in_the_middle) = (BTreeMap::new(), 0);
    for cut in 0..25 {
        let path = fresh(&image, cut);
        let before = extents(&path);
        let apply = Running::start(&mut rewrite(&image, &path, ""));
        // Another program's fsync commits at any time, holes included.
        let other = File::create(image.path().join("other")).unwrap();
        let committed = std::thread::spawn(move || {
            while (&other).write_all(b"x").and_then(|()| other.sync_all()).is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        wait(&image, &mut random);
        cut_power(File::open(image.path()).unwrap()).unwrap();
        let _ = (apply.wait(), committed.join());
        image.remount();
        recovered(&image, &format!("cut {cut}"), &mut seen);
        image.fsck();
        assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, cut {cut}");
        let after = extents(&path);
        in_the_middle += u32::from(after < before && after > 10);
    }
    println!("{}: 25 cuts, {in_the_middle} half moved: {seen:?}", file_system.name);
    assert!(seen.len() > 1, "every cut found the same state: {seen:?}");
}

#[test]
fn loop_25_power_cuts_on_ext4_are_recovered_from() {
    power_cuts_are_recovered_from(&EXT4);
}

#[test]
fn loop_25_power_cuts_on_xfs_are_recovered_from() {
    power_cuts_are_recovered_from(&XFS);
}
