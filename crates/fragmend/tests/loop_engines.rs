//! The conformance suite: the same cases for every engine, one row each. A case makes real files
//! on a fresh file system, plans, applies, and holds the result against what was there before.

mod support;

use fragmend_apply::{Choice, Options, Rate, Receipt, Summary};
use fragmend_layout::{ExtentKind, SkipReason};
use fragmend_plan::{Plan, Policy};
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_PLAIN,
};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use support::{SIZE, apply_with, fragmented, plan, reasons, redirected};

/// One row per engine: the file systems' own, and rewriting on those that have what it takes.
static ENGINES: [(&FileSystem, Choice); 9] = [
    (&EXT4, Choice::Native),
    (&XFS, Choice::Native),
    (&XFS_EXCHANGE, Choice::Native),
    (&BTRFS, Choice::Native),
    (&BTRFS_ZSTD, Choice::Native),
    (&EXT4, Choice::Rewrite { journal: None }),
    (&XFS, Choice::Rewrite { journal: None }),
    (&XFS_PLAIN, Choice::Rewrite { journal: None }),
    (&BTRFS, Choice::Rewrite { journal: None }),
];

fn each(case: impl Fn(&Image, &Options)) {
    for (file_system, engine) in &ENGINES {
        println!("on {}, {engine:?}", file_system.name);
        case(&Image::of(file_system, 320 << 20), &options(engine));
    }
}

fn options(engine: &Choice) -> Options {
    Options { rate: Rate::Unlimited, engine: engine.clone(), ..Options::default() }
}

/// Applies to everything below the image and wants it all moved.
fn mend(image: &Image, options: &Options) -> (Summary, Vec<Receipt>) {
    let (summary, receipts) = apply_with(&plan(&[image.path()], Policy::WholeFile), options);
    assert_eq!(summary.skipped, [], "{summary:?}");
    assert!(summary.ranges_moved > 0, "{summary:?}");
    (summary, receipts)
}

/// What moving must not change about a file.
fn looks(path: &Path) -> impl PartialEq + std::fmt::Debug {
    let m = path.metadata().unwrap();
    (m.len(), m.mode(), m.nlink(), (m.uid(), m.gid()), (m.mtime(), m.mtime_nsec()))
}

#[test]
fn loop_pieces_become_one() {
    each(|image, options| {
        let file = fragmented(image, "file");
        let odd = image.path().join("odd-size");
        interleaved(&odd, 10_000, &[4096], true).unwrap();
        let block = image.path().join("block");
        interleaved(&block, 4096, &[4096], true).unwrap();
        image.sync();
        let before = [looks(&file), looks(&odd), looks(&block)];
        let (summary, receipts) = mend(image, options);
        assert_eq!(summary.ranges_moved, 2, "one block lies in one piece: {receipts:?}");
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
    });
}

#[test]
fn loop_a_part_moves_and_the_rest_stays() {
    each(|image, options| {
        let file = fragmented(image, "file");
        let lies = |from: u64, to: u64| -> Vec<(u64, u64)> {
            let layout = fragmend_scan::layout_of(File::open(&file).unwrap()).unwrap();
            let within = layout.within(fragmend_layout::ByteRange { start: from, end: to });
            within.map(|e| (e.logical, e.physical)).collect()
        };
        let (head, tail) = (lies(0, SIZE / 4), lies(SIZE / 2, SIZE));
        let mut made = plan(&[&file], Policy::WholeFile);
        let range = &mut made.files[0].ranges[0];
        (range.offset, range.length) = (SIZE / 4, SIZE / 4);
        let (summary, receipts) = apply_with(&made, options);
        assert_eq!((summary.ranges_moved, receipts[0].extents_after), (1, Some(1)), "{summary:?}");
        assert_eq!((lies(0, SIZE / 4), lies(SIZE / 2, SIZE)), (head, tail));
        image.fsck();
        assert!(is_intact(&file, SIZE).unwrap());
    });
}

#[test]
fn loop_holes_unwritten_space_and_the_end_stay() {
    each(|image, options| {
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
        let (summary, _) = mend(image, options);
        assert!(summary.ranges_moved >= 3, "{summary:?}");
        for _ in 0..2 {
            assert_eq!(fs::read(&sparse).unwrap(), bytes);
            assert_eq!(kinds(&sparse), map);
            assert_eq!(looks(&sparse), before);
            image.fsck();
        }
    });
}

/// Which byte ranges hold data, and which are allocated and unwritten.
fn kinds(path: &Path) -> Vec<(u64, u64, bool)> {
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

#[test]
fn loop_five_gibibytes_and_mostly_holes() {
    each(|image, options| {
        const FAR: u64 = 5 << 30;
        let file = fragmented(image, "file");
        let far = File::options().write(true).open(&file).unwrap();
        let other = File::create(image.path().join("between")).unwrap();
        for n in 0..64u64 {
            let mut piece = [0; 4096];
            fragmend_testbed::fragment::content(FAR + n * 4096, &mut piece);
            for (file, at) in [(&far, FAR + n * 4096), (&other, n * 4096)] {
                let how = rustix::fs::FallocateFlags::empty();
                rustix::fs::fallocate(file, how, at, 4096).unwrap();
            }
            far.write_all_at(&piece, FAR + n * 4096).unwrap();
        }
        far.sync_all().unwrap();
        drop((far, other));
        let before = extents(&file);
        assert!(before > 250, "{before}");
        let (_, receipts) = mend(image, options);
        assert!(receipts.iter().any(|r| r.offset >= FAR && r.extents_after == Some(1)));
        image.fsck();
        assert!(extents(&file) <= 2);
        let mut got = vec![0; 64 * 4096];
        let mut want = got.clone();
        File::open(&file).unwrap().read_exact_at(&mut got, FAR).unwrap();
        fragmend_testbed::fragment::content(FAR, &mut want);
        assert_eq!(got, want);
        assert_eq!(file.metadata().unwrap().len(), FAR + 64 * 4096);
    });
}

#[test]
fn loop_marked_files_are_left_alone() {
    each(|image, options| {
        let chattr = |flag: &str, path: &Path| {
            run("chattr", [flag.as_ref(), path.as_os_str()]);
        };
        let template = plan(&[&fragmented(image, "template")], Policy::WholeFile);
        for (flag, reason) in [("i", SkipReason::Immutable), ("a", SkipReason::AppendOnly)] {
            let path = fragmented(image, flag);
            let made = redirected(&template, &path);
            chattr(&format!("+{flag}"), &path);
            let (pieces, (summary, _)) = (extents(&path), apply_with(&made, options));
            chattr(&format!("-{flag}"), &path);
            assert_eq!(reasons(&summary, &path), [reason], "{summary:?}");
            assert_eq!((summary.moved_bytes, extents(&path)), (0, pieces));
        }
    });
}

#[test]
fn loop_what_is_shared_stays_shared() {
    for (file_system, engine) in
        ENGINES.iter().filter(|(fs, _)| !["ext4", "xfs-plain"].contains(&fs.name))
    {
        println!("on {}, {engine:?}", file_system.name);
        let (image, options) = (&Image::of(file_system, 320 << 20), &options(engine));
        let file = fragmented(image, "file");
        let clone = image.path().join("clone");
        let args = ["--reflink=always"].map(AsRef::as_ref);
        run("cp", args.into_iter().chain([file.as_os_str(), clone.as_os_str()]));
        image.sync();
        let shared = |path: &Path| -> u64 {
            let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
            let shared = layout.extents().iter().filter(|e| e.kind == ExtentKind::Shared);
            shared.map(|e| e.length).sum()
        };
        let free = || rustix::fs::statvfs(image.path()).unwrap().f_bfree;
        let (free_before, pieces) = (free(), extents(&file));
        assert_eq!(shared(&file), SIZE);
        let made: Plan = plan(&[image.path()], Policy::WholeFile);
        let (summary, _) = apply_with(&made, options);
        image.sync();
        assert_eq!(summary.moved_bytes, 0, "{summary:?}");
        assert_eq!((shared(&file), shared(&clone)), (SIZE, SIZE));
        // Metadata of the file system itself comes and goes.
        let slack = 64;
        assert!(free() + slack >= free_before, "{} of {free_before} blocks", free());
        assert_eq!(extents(&file), pieces);
    }
}
