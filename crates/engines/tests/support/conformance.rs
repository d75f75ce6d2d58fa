//! The conformance suite: the same cases for every engine. A case makes real files on a fresh file
//! system, plans, applies, and holds the result against what was there before.

use super::{
    SIZE, apply, apply_with, fragmented, left_alone, plan, plan_with, reasons, redirected,
};
use fragmend_apply::{Options, Rate, Receipt, Summary};
use fragmend_layout::{ByteRange, ExtentKind, SkipReason};
use fragmend_plan::{Plan, Policy, Settings};
use fragmend_testbed::fragment::{content, interleave, interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::{delete_for_good, extents};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Applies to everything below the image and wants it all moved.
fn mend(image: &Image) -> (Summary, Vec<Receipt>) {
    let (summary, receipts) = apply(&plan(&[image.path()], Policy::WholeFile));
    assert_eq!(summary.skipped, [], "{summary:?}");
    assert!(summary.ranges_moved > 0, "{summary:?}");
    (summary, receipts)
}

/// What moving must not change about a file.
pub fn looks(path: &Path) -> impl PartialEq + std::fmt::Debug {
    let m = path.metadata().unwrap();
    (m.len(), m.mode(), m.nlink(), (m.uid(), m.gid()), (m.mtime(), m.mtime_nsec()))
}

pub fn pieces_become_one(image: &Image) {
    let file = fragmented(image, "file");
    let odd = image.path().join("odd-size");
    interleaved(&odd, 10_000, &[4096], true).unwrap();
    let block = image.path().join("block");
    interleaved(&block, 4096, &[4096], true).unwrap();
    image.sync();
    let before = [looks(&file), looks(&odd), looks(&block)];
    let (_, mut receipts) = mend(image);
    receipts.retain(|r| r.path.to_path().is_some_and(|p| p == file || p == odd || p == block));
    assert_eq!(receipts.len(), 2, "one block lies in one piece: {receipts:?}");
    assert!(receipts.iter().all(|r| r.extents_after == Some(1)), "{receipts:?}");
    let sizes = [(&file, SIZE), (&odd, 10_000), (&block, 4096)];
    for round in ["warm", "cold"] {
        for (path, size) in sizes {
            assert!(is_intact(path, size).unwrap(), "{round} {path:?}");
            assert_eq!(extents(path), 1, "{round} {path:?}");
        }
        assert_eq!([looks(&file), looks(&odd), looks(&block)], before, "{round}");
        image.fsck();
    }
    // Again: there is nothing left to do.
    assert_eq!(plan(&[image.path()], Policy::WholeFile).files.len(), 0);
}

pub fn a_part_moves_and_the_rest_stays(image: &Image) {
    let file = fragmented(image, "file");
    let lies = |from: u64, to: u64| -> Vec<(u64, u64)> {
        let layout = fragmend_scan::layout_of(File::open(&file).unwrap()).unwrap();
        let within = layout.within(ByteRange { start: from, end: to });
        within.map(|e| (e.logical, e.physical)).collect()
    };
    let (head, tail) = (lies(0, SIZE / 4), lies(SIZE / 2, SIZE));
    let mut made = plan(&[&file], Policy::WholeFile);
    let range = &mut made.files[0].ranges[0];
    (range.offset, range.length) = (SIZE / 4, SIZE / 4);
    let (summary, receipts) = apply(&made);
    assert_eq!((summary.ranges_moved, receipts[0].extents_after), (1, Some(1)), "{summary:?}");
    assert_eq!((lies(0, SIZE / 4), lies(SIZE / 2, SIZE)), (head, tail));
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap());
}

pub fn holes_unwritten_space_and_the_end_stay(image: &Image) {
    let sparse = fragmented(image, "sparse");
    let punch = |offset: u64, length: u64, mode: &str| {
        let (offset, length) = (offset.to_string(), length.to_string());
        let args = [mode, "-o", &offset, "-l", &length].map(AsRef::as_ref);
        run("fallocate", args.into_iter().chain([sparse.as_os_str()]));
    };
    punch(128 << 10, 64 << 10, "-p"); // a hole
    punch(512 << 10, 64 << 10, "-z"); // unwritten space
    punch(SIZE, 256 << 10, "-n"); // preallocated behind the end
    image.sync();
    let (bytes, map) = (fs::read(&sparse).unwrap(), kinds(&sparse));
    let before = looks(&sparse);
    let (summary, _) = mend(image);
    assert!(summary.ranges_moved >= 3, "{summary:?}");
    for _ in 0..2 {
        assert_eq!(fs::read(&sparse).unwrap(), bytes);
        assert_eq!(kinds(&sparse), map);
        assert_eq!(looks(&sparse), before);
        image.fsck();
    }
}

/// Which byte ranges hold data, and which are allocated and unwritten.
pub fn kinds(path: &Path) -> Vec<(u64, u64, bool)> {
    let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
    let mut out: Vec<(u64, u64, bool)> = Vec::new();
    for e in layout.extents() {
        let unwritten = e.kind == ExtentKind::Unwritten;
        match out.last_mut() {
            Some(last) if last.1 == e.logical && last.2 == unwritten => last.1 += e.length,
            _ => out.push((e.logical, e.logical + e.length, unwritten)),
        }
    }
    out
}

pub fn five_gibibytes_and_mostly_holes(image: &Image) {
    const FAR: u64 = 5 << 30;
    let file = fragmented(image, "file");
    let far = File::options().write(true).open(&file).unwrap();
    let other = File::create(image.path().join("between")).unwrap();
    interleave(&far, &other, FAR, 64 * 4096, &[4096]).unwrap();
    drop((far, other));
    let before = extents(&file);
    assert!(before > 250, "{before}");
    let (_, receipts) = mend(image);
    assert!(receipts.iter().any(|r| r.offset >= FAR && r.extents_after == Some(1)));
    image.fsck();
    assert!(extents(&file) <= 2);
    let mut got = vec![0; 64 * 4096];
    let mut want = got.clone();
    File::open(&file).unwrap().read_exact_at(&mut got, FAR).unwrap();
    content(FAR, &mut want);
    assert_eq!(got, want);
    assert_eq!(file.metadata().unwrap().len(), FAR + 64 * 4096);
}

pub fn marked_files_are_left_alone(image: &Image) {
    let chattr = |flag: &str, path: &Path| {
        run("chattr", [flag.as_ref(), path.as_os_str()]);
    };
    let template = plan(&[&fragmented(image, "template")], Policy::WholeFile);
    for (flag, reason) in [("i", SkipReason::Immutable), ("a", SkipReason::AppendOnly)] {
        let path = fragmented(image, flag);
        let made = redirected(&template, &path);
        chattr(&format!("+{flag}"), &path);
        let (pieces, (summary, _)) = (extents(&path), apply(&made));
        chattr(&format!("-{flag}"), &path);
        assert_eq!(reasons(&summary, &path), [reason], "{summary:?}");
        assert_eq!((summary.moved_bytes, extents(&path)), (0, pieces));
    }
}

/// Where extents can be shared.
pub fn what_is_shared_stays_shared(image: &Image) {
    let file = fragmented(image, "file");
    let clone = image.path().join("clone");
    let args = ["--reflink=always"].map(AsRef::as_ref);
    run("cp", args.into_iter().chain([file.as_os_str(), clone.as_os_str()]));
    image.sync();
    let free = || rustix::fs::statvfs(image.path()).unwrap().f_bfree;
    let (free_before, pieces) = (free(), extents(&file));
    assert_eq!(shared_bytes(&file), SIZE);
    let made: Plan = plan(&[image.path()], Policy::WholeFile);
    let (summary, _) = apply(&made);
    image.sync();
    assert_eq!(summary.moved_bytes, 0, "{summary:?}");
    assert_eq!((shared_bytes(&file), shared_bytes(&clone)), (SIZE, SIZE));
    assert_eq!((free(), extents(&file)), (free_before, pieces));
}

/// The same, and it is asked for: the file moves, for as much space as was said before.
pub fn what_is_shared_moves_where_that_is_asked_for(image: &Image) {
    let file = fragmented(image, "file");
    let clone = image.path().join("clone");
    let args = ["--reflink=always"].map(AsRef::as_ref);
    run("cp", args.into_iter().chain([file.as_os_str(), clone.as_os_str()]));
    image.sync();
    let used = || {
        let stat = rustix::fs::statvfs(image.path()).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    };
    let (before, looked) = (used(), looks(&file));
    assert_eq!(plan(&[&file], Policy::WholeFile).summary.left_shared_bytes, SIZE);
    let unshare = Settings { policy: Policy::WholeFile, unshare: true, ..Settings::default() };
    let made = plan_with(&[&file], &unshare);
    assert_eq!((made.summary.bytes_to_move, made.summary.space_cost_bytes), (SIZE, SIZE));

    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &file), [SkipReason::Shared], "the flag is apply's, too");
    let options = Options { unshare: true, rate: Rate::Unlimited, ..Options::default() };
    let (looked_at, _) = apply_with(&made, &Options { dry_run: true, ..options.clone() });
    assert_eq!((looked_at.space_cost_bytes, looked_at.moved_bytes), (SIZE, 0));
    let (summary, receipts) = apply_with(&made, &options);
    assert_eq!((summary.moved_bytes, summary.space_cost_bytes), (SIZE, SIZE), "{summary:?}");
    assert!(receipts.iter().all(|r| r.extents_after == Some(1)), "{receipts:?}");

    // Trees shrink and grow by some blocks; XFS takes the donor apart a moment later.
    let slack = 64 * 4096;
    let patience = Instant::now() + Duration::from_secs(10);
    while used() > before + SIZE + slack || shared_bytes(&clone) > 0 {
        assert!(Instant::now() < patience, "{before} bytes used, then {}", used());
        image.sync();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(used() + slack > before + SIZE, "{before} bytes used, then {}", used());
    assert_eq!((shared_bytes(&file), looks(&file)), (0, looked));
    assert_eq!(extents(&file), 1);
    assert!(extents(&clone) > 100, "the other lies where it lay");
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap() && is_intact(&clone, SIZE).unwrap());
}

pub fn shared_bytes(path: &Path) -> u64 {
    let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
    layout.extents().iter().filter(|e| e.kind.is_shared()).map(|e| e.length).sum()
}

pub fn what_changed_since_the_plan_is_left_alone(image: &Image) {
    left_alone(image, "vanished", SkipReason::Vanished, delete_for_good);
    left_alone(image, "replaced", SkipReason::IdentityChanged, |path| {
        let other = path.with_extension("other");
        interleaved(&other, SIZE, &[4096], true).unwrap();
        fs::rename(&other, path).unwrap();
    });
    left_alone(image, "truncated", SkipReason::SizeChanged, |path| {
        OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
    });
    left_alone(image, "punched", SkipReason::LayoutChanged, |path| {
        let args = ["-p", "-o", "65536", "-l", "4096"].map(AsRef::as_ref);
        run("fallocate", args.into_iter().chain([path.as_os_str()]));
    });
    left_alone(image, "became-a-directory", SkipReason::IdentityChanged, |path| {
        // Made elsewhere first, so that it cannot get the file's inode number.
        let dir = path.with_extension("dir");
        fs::create_dir(&dir).unwrap();
        fs::remove_file(path).unwrap();
        fs::rename(&dir, path).unwrap();
    });
    left_alone(image, "became-a-symlink", SkipReason::IdentityChanged, |path| {
        let link = path.with_extension("link");
        std::os::unix::fs::symlink("vanished", &link).unwrap();
        fs::rename(&link, path).unwrap();
    });
    // Somebody else has mended it in the meantime.
    left_alone(image, "mended", SkipReason::AlreadyContiguous, |path| {
        let (summary, _) = apply(&plan(&[path], Policy::WholeFile));
        assert_eq!(summary.ranges_moved, 1, "{summary:?}");
        // XFS takes the donor apart a moment after it is closed.
        let patience = Instant::now() + Duration::from_secs(10);
        while shared_bytes(path) > 0 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    image.fsck();
}

/// Full to the last block: nothing is moved, whatever floor is asked for.
pub fn a_full_disk_is_left_alone(image: &Image) {
    const MANY: u64 = 8 << 20;
    let path = image.path().join("file");
    interleaved(&path, MANY, &[4096], true).unwrap();
    let made = plan(&[&path], Policy::WholeFile);
    let filler = File::create(image.path().join("filler")).unwrap();
    let mut at = 0;
    for piece in [16 << 20, 1 << 20, 64 << 10, 4096] {
        let how = rustix::fs::FallocateFlags::empty();
        while rustix::fs::fallocate(&filler, how, at, piece).is_ok() {
            at += piece;
        }
    }
    filler.sync_all().unwrap();
    let lies = extents(&path);
    let default = apply(&made).0;
    assert_eq!(reasons(&default, &path), [SkipReason::FreeSpaceFloor], "{default:?}");
    let rate = fragmend_apply::Rate::Unlimited;
    let no_floor = Options { free_floor_bytes: Some(0), rate, ..Options::default() };
    let (summary, _) = apply_with(&made, &no_floor);
    let [why] = reasons(&summary, &path)[..] else { panic!("{summary:?}") };
    let space = [SkipReason::FreeSpaceFloor, SkipReason::NoSpace];
    assert!(space.contains(&why), "{summary:?}");
    assert_eq!((summary.moved_bytes, extents(&path)), (0, lies));
    drop(filler);
    fs::remove_file(image.path().join("filler")).unwrap();
    image.fsck();
    assert!(is_intact(&path, MANY).unwrap());
    // Planned anew: another Btrfs may have the device number that this one had.
    let made = plan(&[&path], Policy::WholeFile);
    assert!(apply(&made).0.ranges_moved > 0, "there is space now");
}
