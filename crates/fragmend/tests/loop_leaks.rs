//! An `apply` that is killed leaves nothing behind: no donor, no inode, no name. With every engine,
//! after the file itself is deleted, that is compared with what the file system contained before.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use fragmend_testbed::random::Random;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{plan, rewrite, write_plan};

const KILLS: u32 = 50;
const SIZE: u64 = 4 << 20;
/// Bytes that trees may keep for later: far less than any donor has.
const SLACK: u64 = 256 << 10;

/// Random instants repeat with this seed; a failure names its round.
const SEED: u64 = 0x00F2_A640;

/// What a file system contains.
#[derive(Debug)]
struct Held {
    bytes: u64,
    /// 0 where inodes are not counted.
    inodes: u64,
    names: BTreeSet<PathBuf>,
}

fn names(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.append(&mut names(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

fn held(image: &Image) -> Held {
    image.sync();
    let stat = rustix::fs::statvfs(image.path()).unwrap();
    Held {
        bytes: (stat.f_blocks - stat.f_bfree) * stat.f_frsize,
        inodes: stat.f_files - stat.f_ffree,
        names: names(image.path()),
    }
}

/// A fragmented file in a directory of its own, and its plan.
fn fresh(image: &Image, plan_file: &Path) -> PathBuf {
    let dir = image.path().join("dir");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    image.sync();
    write_plan(&plan(&[&path], Policy::WholeFile), plan_file);
    path
}

/// Kills `apply` with these further arguments at random instants.
fn killed(file_system: &'static FileSystem, args: &[&str]) {
    let rewrites = !args.is_empty();
    let image = Image::of(file_system, 320 << 20);
    let plan_file = image.scratch().join("plan.json");
    let mut random = Random::new(SEED);
    // A complete run first, so that what is created only once exists.
    fresh(&image, &plan_file);
    let mut command = Command::new(rewrite::FRAGMEND);
    command.args(["apply", "--quiet", "--rate", "max"]).args(args).arg(&plan_file);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut usual = Duration::ZERO;
    command.arg("--json").stdout(Stdio::piped());
    let moved_by = if rewrites { &["rewrite"][..] } else { file_system.moved_by };
    for _ in 0..2 {
        let started = Instant::now();
        let told = Running::start(&mut command).wait().expect(&[0, 2]);
        let named = moved_by.iter().any(|by| told.contains(&format!("\"primitive\":\"{by}\"")));
        assert!(named || usual > Duration::ZERO, "moved by something else: {told}");
        usual = usual.max(started.elapsed());
    }
    fs::remove_dir_all(image.path().join("dir")).unwrap();
    let before = held(&image);

    let (mut kills, mut round) = (0, 0);
    let mut path = fresh(&image, &plan_file);
    while kills < KILLS {
        round += 1;
        let apply = Running::start(&mut command);
        std::thread::sleep(usual.mul_f64(random.below(1000) as f64 / 1000.0));
        apply.signal(Signal::KILL);
        let ended = apply.wait().status.code().is_some();
        kills += u32::from(!ended);
        if rewrites {
            let (told, code) = rewrite::recover(&[&image.path()]);
            assert_eq!(code, 0, "seed {SEED:#x}, round {round}: {told}");
        }
        assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, round {round}");
        let beside = names(path.parent().unwrap());
        assert_eq!(beside.len(), 2, "the file and its dummy: {beside:?}");
        if ended {
            path = fresh(&image, &plan_file);
        }
    }
    fs::remove_dir_all(image.path().join("dir")).unwrap();

    // Some file systems free what is unlinked later, in the background.
    let patience = Instant::now() + Duration::from_secs(30);
    let left = loop {
        let now = held(&image);
        let gone = now.bytes <= before.bytes + SLACK && now.inodes <= before.inodes;
        if gone && now.names == before.names || Instant::now() > patience {
            break now;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    println!("{} {args:?}: {kills} kills in {round} runs, {left:?}", file_system.name);
    assert_eq!(left.names, before.names);
    assert!(left.bytes <= before.bytes + SLACK, "{left:?}, before: {before:?}");
    assert!(left.inodes <= before.inodes, "{left:?}, before: {before:?}");
    image.fsck();
}

#[test]
fn loop_50_kills_leave_nothing_on_ext4() {
    killed(&EXT4, &[]);
}

#[test]
fn loop_50_kills_leave_nothing_on_xfs() {
    killed(&XFS, &[]);
    killed(&XFS_EXCHANGE, &[]);
    killed(&XFS_RMAP, &[]);
}

#[test]
fn loop_50_kills_leave_nothing_on_btrfs() {
    killed(&BTRFS, &[]);
}

#[test]
fn loop_50_kills_of_a_rewrite_leave_nothing() {
    for file_system in [&EXT4, &XFS] {
        killed(file_system, &["--engine", "rewrite"]);
    }
}
