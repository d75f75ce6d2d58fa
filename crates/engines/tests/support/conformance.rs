//! The cases of what only mounted file systems have; `fragmend-conformance` has those of every volume.

use super::{
    SIZE, apply, apply_with, fragmented, left_alone, plan, plan_with, reasons, redirected,
};
use fragmend_apply::{Options, Rate};
use fragmend_layout::{ExtentKind, SkipReason};
use fragmend_plan::{Plan, Policy, Settings};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What moving must not change about a file.
pub fn looks(path: &Path) -> impl PartialEq + std::fmt::Debug {
    let m = path.metadata().unwrap();
    (m.len(), m.mode(), m.nlink(), (m.uid(), m.gid()), (m.mtime(), m.mtime_nsec()))
}

/// Which byte ranges contain data, and which are allocated and unwritten.
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

pub fn marked_files_are_left_alone(image: &Image) {
    let chattr = |flag: &str, path: &Path| {
        run("chattr", [flag.as_ref(), path.as_os_str()]);
    };
    let template = plan(&[&fragmented(image, "template")], Policy::WholeFile);
    for (flag, reason) in [("i", SkipReason::Immutable), ("a", SkipReason::AppendOnly)] {
        let path = fragmented(image, flag);
        let made = redirected(&template, &path);
        chattr(&format!("+{flag}"), &path);
        let (fragments, (summary, _)) = (extents(&path), apply(&made));
        chattr(&format!("-{flag}"), &path);
        assert_eq!(reasons(&summary, &path), [reason], "{summary:?}");
        assert_eq!((summary.moved_bytes, extents(&path)), (0, fragments));
    }
}

/// On file systems that can share extents.
pub fn what_is_shared_stays_shared(image: &Image) {
    let file = fragmented(image, "file");
    let clone = image.path().join("clone");
    let args = ["--reflink=always"].map(AsRef::as_ref);
    run("cp", args.into_iter().chain([file.as_os_str(), clone.as_os_str()]));
    image.sync();
    let free = || rustix::fs::statvfs(image.path()).unwrap().f_bfree;
    let (free_before, fragments) = (free(), extents(&file));
    assert_eq!(shared_bytes(&file), SIZE);
    let made: Plan = plan(&[image.path()], Policy::WholeFile);
    let (summary, _) = apply(&made);
    image.sync();
    assert_eq!(summary.moved_bytes, 0, "{summary:?}");
    assert_eq!((shared_bytes(&file), shared_bytes(&clone)), (SIZE, SIZE));
    assert_eq!((free(), extents(&file)), (free_before, fragments));
}

/// The same with `unshare`: the file moves, for as much space as was predicted.
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

    // Trees shrink and grow by some blocks; XFS frees the donor a moment later.
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
    assert!(extents(&clone) > 100, "the other is where it lay");
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap() && is_intact(&clone, SIZE).unwrap());
}

pub fn shared_bytes(path: &Path) -> u64 {
    let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
    layout.extents().iter().filter(|e| e.kind.is_shared()).map(|e| e.length).sum()
}

/// A planned file's path is not that of a regular file any more.
pub fn what_became_of_a_path_is_left_alone(image: &Image) {
    left_alone(image, "became-a-directory", SkipReason::IdentityChanged, |path| {
        // Created elsewhere first, so that it cannot get the file's inode number.
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
    image.fsck();
}
