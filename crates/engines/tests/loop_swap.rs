//! An XFS that can only swap whole files: a file is moved only if the plan has all of it, and if no
//! program has written to it since it was sampled.

mod support;

use fragmend_apply::{Options, Outcome, Receipt, Summary};
use fragmend_engines::engine::{Choice, volume_for};
use fragmend_layout::SkipReason;
use fragmend_plan::{Plan, Policy};
use fragmend_sys::mapping::Mapping;
use fragmend_sys::mounts;
use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{XFS_PLAIN, XFS_RMAP};
use fragmend_testbed::fragment::{interleave, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use rustix::fs::FallocateFlags;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::pace::relocate;
use support::{FORCED, SIZE, UNPACED, apply_on, apply_with, fragmented, holder, plan, reasons};

/// The least that `mkfs.xfs` accepts, and a little more.
const DISK: u64 = 320 << 20;

/// What is written meanwhile, and where.
const NEW: u64 = 0x6E65_7721;
const AT: u64 = 5000;

/// With `--force`, for the many fragments of [`fragmented`].
fn apply(plan: &Plan) -> (Summary, Vec<Receipt>) {
    apply_on(plan, &FORCED, &UNPACED)
}

fn stamps(path: &Path) -> [(i64, i64); 3] {
    let m = path.metadata().unwrap();
    [(m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())]
}

#[test]
fn loop_a_swap_leaves_no_trace_but_the_place() {
    let image = Image::of(&XFS_PLAIN, DISK);
    let file = fragmented(&image, "file");
    run("setfattr", ["-n", "user.note", "-v", "kept", file.to_str().unwrap()]);
    std::os::unix::fs::chown(&file, Some(1234), Some(4321)).unwrap();
    image.sync();
    let (before, owner) = (stamps(&file), file.metadata().unwrap().uid());
    let (summary, _) = apply(&plan(&[&file], Policy::WholeFile));
    assert_eq!((summary.ranges_moved, extents(&file)), (1, 1), "{summary:?}");
    for round in ["warm", "cold"] {
        assert_eq!(stamps(&file), before, "{round}");
        assert_eq!(file.metadata().unwrap().uid(), owner);
        let note = run("getfattr", ["--only-values", "-n", "user.note", file.to_str().unwrap()]);
        assert_eq!(note, "kept");
        image.fsck();
    }
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_less_than_the_whole_file_is_left_alone() {
    let image = Image::of(&XFS_PLAIN, DISK);
    let file = fragmented(&image, "file");
    let whole = plan(&[&file], Policy::WholeFile);
    let fragments = extents(&file);
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut changed = whole.clone();
        change(&mut changed);
        changed
    };
    let part = with(&|plan| plan.files[0].ranges[0].length = SIZE / 2);
    for dry_run in [false, true] {
        let (summary, receipts) =
            apply_on(&part, &FORCED, &Options { dry_run, ..Options::default() });
        assert_eq!(reasons(&summary, &file), [SkipReason::Unsupported], "{summary:?}");
        let said = receipts[0].detail.as_deref().unwrap();
        assert!(said.contains("--policy whole-file") && said.lines().count() == 1, "{said}");
        assert_eq!((summary.moved_bytes, extents(&file)), (0, fragments));
    }
    // A range that is in one extent belongs to the file, too.
    let tail = OpenOptions::new().write(true).open(&file).unwrap();
    tail.write_all_at(&[7; 256 << 10], SIZE + (64 << 10)).unwrap();
    tail.sync_all().unwrap();
    drop(tail);
    let (summary, receipts) = apply(&plan(&[&file], Policy::WholeFile));
    assert_eq!(reasons(&summary, &file), [SkipReason::Unsupported], "{summary:?}");
    let said = receipts[0].detail.as_deref().unwrap();
    assert!(said.contains("262144 bytes of this one"), "{said}");
    // The plan has all of it, in several ranges.
    let file = fragmented(&image, "other");
    let mut cut = plan(&[&file], Policy::WholeFile);
    let first = cut.files[0].ranges[0].clone();
    cut.files[0].ranges = (0..4)
        .map(|n| fragmend_plan::PlannedRange {
            offset: n * SIZE / 4,
            length: SIZE / 4,
            ..first.clone()
        })
        .collect();
    let (summary, receipts) = apply(&cut);
    assert_eq!((summary.ranges_moved, summary.moved_bytes, extents(&file)), (4, SIZE, 1));
    assert!(receipts.iter().all(|r| r.outcome == Outcome::Moved && r.extents_after == Some(1)));
    assert!(is_intact(&file, SIZE).unwrap());
    image.fsck();
}

/// Stages and copies a file, calls `meanwhile`, and has the file swapped.
fn swapped_after(image: &Image, name: &str, meanwhile: impl FnOnce(&Path)) -> Option<SkipReason> {
    let path = fragmented(image, name);
    let planned = plan(&[&path], Policy::WholeFile).files.remove(0);
    let mount = mounts::of_path(image.path()).unwrap();
    let volume = volume_for(&mount, &Choice::Native, true).unwrap();
    let mut file = volume.open(planned.file, &path).unwrap();
    let range = planned.ranges[0].range();
    let done = relocate(&mut *file, &[range], || meanwhile(&path)).unwrap().remove(0);
    assert_eq!(done.bytes > 0, done.skip.is_none());
    let moved = done.bytes == SIZE;
    drop(file);
    assert_eq!(extents(&path) == 1, moved, "{name}");
    done.skip.map(|skip| skip.reason)
}

#[test]
fn loop_whatever_is_written_meanwhile_stays() {
    let image = Image::of(&XFS_PLAIN, DISK);
    let write = |path: &Path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&NEW.to_ne_bytes(), AT).unwrap();
    };
    assert_eq!(swapped_after(&image, "untouched", |_| {}), None);
    assert_eq!(swapped_after(&image, "read", |path| drop(fs::read(path).unwrap())), None);
    let busy = Some(SkipReason::Busy);
    assert_eq!(swapped_after(&image, "written", write), busy);
    assert_eq!(
        swapped_after(&image, "written-and-stamped", |path| {
            let before = path.metadata().unwrap().modified().unwrap();
            write(path);
            File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
        }),
        busy
    );
    assert_eq!(
        swapped_after(&image, "cut", |path| {
            OpenOptions::new().write(true).open(path).unwrap().set_len(SIZE / 2).unwrap();
        }),
        busy
    );
    assert_eq!(
        swapped_after(&image, "mapped", |path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            Mapping::new(&file, SIZE as usize).unwrap().store(AT as usize, &[NEW]);
        }),
        busy
    );
    for round in ["warm", "cold"] {
        for name in ["written", "written-and-stamped", "mapped"] {
            let mut got = [0; 8];
            let file = File::open(image.path().join(name)).unwrap();
            file.read_exact_at(&mut got, AT).unwrap();
            assert_eq!(u64::from_ne_bytes(got), NEW, "{round} {name}");
        }
        assert_eq!(image.path().join("cut").metadata().unwrap().len(), SIZE / 2);
        assert!(is_intact(&image.path().join("untouched"), SIZE).unwrap());
        assert!(is_intact(&image.path().join("read"), SIZE).unwrap());
        image.fsck();
    }
}

/// Data that is added between the first check and the instant at which the times are sampled is in no range.
#[test]
fn loop_data_added_before_the_times_are_taken_stays() {
    let image = Image::of(&XFS_RMAP, DISK);
    for (name, at) in [("appended", SIZE), ("in-a-hole", SIZE / 2)] {
        let path = fragmented(&image, name);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, SIZE / 2, 4096).unwrap();
        drop(file);
        let planned = plan(&[&path], Policy::WholeFile).files.remove(0);
        let mount = mounts::of_path(image.path()).unwrap();
        let volume = volume_for(&mount, &Choice::Native, true).unwrap();
        let mut opened = volume.open(planned.file, &path).unwrap();
        let ranges: Vec<_> = planned.ranges.iter().map(|range| range.range()).collect();
        opened.need(&ranges).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0x41; 4096], at).unwrap();
        file.sync_all().unwrap();
        drop(file);
        match relocate(&mut *opened, &ranges, || {}) {
            Err(skip) => assert_eq!(skip.reason, SkipReason::Busy, "{skip:?}"),
            Ok(moved) => println!("{moved:?}"),
        }
        drop(opened);
        drop(volume);
        image.remount();
        let mut said = [0; 4096];
        File::open(&path).unwrap().read_exact_at(&mut said, at).unwrap();
        assert!(said == [0x41; 4096], "{name}: {:?}", &said[..8]);
    }
    image.fsck();
}

#[test]
fn loop_an_open_file_is_left_alone() {
    let image = Image::of(&XFS_PLAIN, DISK);
    let file = fragmented(&image, "file");
    let made = plan(&[&file], Policy::WholeFile);
    let scripts = [
        "f=open(sys.argv[1],'rb')",
        "f=open(sys.argv[1],'r+b')",
        "import mmap;f=open(sys.argv[1],'r+b');m=mmap.mmap(f.fileno(),0);f.close();m[0]",
    ];
    for script in scripts {
        let script = format!("import os,sys\n{script}\nos.write(1,b'r')\nsys.stdin.read()");
        let holds = holder(&file, &script);
        let (summary, _) = apply(&made);
        drop(holds);
        assert_eq!(reasons(&summary, &file), [SkipReason::Busy], "{script}: {summary:?}");
        assert_eq!(summary.moved_bytes, 0);
    }
    assert_eq!(apply(&made).0.ranges_moved, 1);
    assert!(is_intact(&file, SIZE).unwrap());
}

/// They open the file, write, check what they wrote last time, and close it, while the file is swapped
/// repeatedly.
#[test]
fn loop_writers_that_come_and_go_lose_nothing() {
    const BLOCKS: u64 = 64;
    let image = Image::of(&XFS_PLAIN, DISK);
    let (mut moved, mut left) = (0, 0);
    for round in 0..20 {
        let name = format!("file-{round}");
        let path = fragmented(&image, &name);
        let made = plan(&[&path], Policy::WholeFile);
        let stop = AtomicBool::new(false);
        let written = std::thread::scope(|s| {
            let writer = s.spawn(|| {
                let mut written = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                    let n = written + 1;
                    let at = n % BLOCKS * (SIZE / BLOCKS);
                    if n > BLOCKS {
                        let mut word = [0; 8];
                        file.read_exact_at(&mut word, at).unwrap();
                        assert_eq!(u64::from_le_bytes(word), n - BLOCKS, "{name}");
                    }
                    file.write_all_at(&n.to_le_bytes(), at).unwrap();
                    written = n;
                    drop(file);
                    std::thread::sleep(Duration::from_millis(written * 37 % 61));
                }
                written
            });
            let (summary, _) = apply(&made);
            (moved, left) = (moved + summary.ranges_moved, left + summary.ranges_skipped);
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        image.remount();
        let file = File::open(&path).unwrap();
        for n in written.saturating_sub(BLOCKS) + 1..=written {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, n % BLOCKS * (SIZE / BLOCKS)).unwrap();
            assert_eq!(u64::from_le_bytes(word), n, "{name}");
        }
    }
    println!("{moved} files swapped between writes, {left} left alone");
    image.fsck();
}

/// Extended attributes leave less space for extents in an inode, and the kernel swaps only between
/// inodes whose extents fit into each other's.
#[test]
fn loop_attributes_are_not_in_the_way() {
    let image = Image::of(&XFS_PLAIN, DISK);
    for fragments in [3, 8, 15, 30] {
        let path = image.path().join(format!("file-{fragments}"));
        File::create(&path).unwrap();
        let value = "v".repeat(250);
        run("setfattr", ["-n", "user.long", "-v", &value, path.to_str().unwrap()]);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let dummy = File::create(path.with_extension("dummy")).unwrap();
        interleave(&file, &dummy, 0, fragments * 4096, &[4096]).unwrap();
        drop((file, dummy));
        let before = extents(&path);
        let (summary, _) = apply(&plan(&[&path], Policy::WholeFile));
        assert_eq!((summary.ranges_moved, extents(&path)), (1, 1), "{before}: {summary:?}");
        assert!(is_intact(&path, fragments * 4096).unwrap());
        assert_eq!(
            run("getfattr", ["--only-values", "-n", "user.long", path.to_str().unwrap()]),
            value
        );
    }
    image.fsck();
}

/// A power cut right after a swap, so that it has to be replayed: of extents that fit in the inode,
/// or of any where XFS has a reverse mapping. Other files are left alone.
#[test]
fn loop_a_swap_that_is_replayed_is_whole() {
    for (file_system, fragments, moves) in
        [(&XFS_PLAIN, 12, true), (&XFS_PLAIN, 13, false), (&XFS_RMAP, 256, true)]
    {
        let image = Image::of(file_system, DISK);
        let size = fragments * 4096;
        for round in 0..5 {
            let path = image.path().join(format!("file-{round}"));
            let (file, dummy) = (File::create(&path), File::create(path.with_extension("dummy")));
            interleave(&file.unwrap(), &dummy.unwrap(), 0, size, &[4096]).unwrap();
            image.sync();
            let before = extents(&path);
            let made = plan(&[&path], Policy::WholeFile);
            let (summary, receipts) = apply_with(&made, &UNPACED);
            if !moves {
                assert_eq!(before, fragments, "one more than surely fit in an inode");
                assert_eq!(reasons(&summary, &path), [SkipReason::Unsupported], "{summary:?}");
                let said = receipts[0].detail.as_deref().unwrap();
                assert!(said.contains("--force") && said.lines().count() == 1, "{said}");
                assert_eq!(extents(&path), before);
                break;
            }
            assert_eq!((summary.ranges_moved, extents(&path)), (1, 1), "{before}: {summary:?}");
            cut_power(File::open(image.path()).unwrap()).unwrap();
            image.remount();
            assert_eq!(extents(&path), 1, "{} round {round}", file_system.name);
            assert!(is_intact(&path, size).unwrap(), "{} round {round}", file_system.name);
        }
        image.fsck();
    }
}

/// Holes are checked only where pages are cached, so that their length does not matter.
#[test]
fn loop_a_cached_page_behind_eight_eib_of_nothing_is_found_at_once() {
    let image = Image::of(&XFS_RMAP, DISK);
    let path = fragmented(&image, "file");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(i64::MAX as u64 & !4095).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let made = plan(&[&path], Policy::WholeFile);
    let file = File::open(&path).unwrap();
    file.read_exact_at(&mut [0; 4096], (i64::MAX as u64 & !4095) - 4096).unwrap();
    drop(file);
    let (over, ended) = std::sync::mpsc::channel();
    // A check of the whole length would last for years.
    std::thread::spawn(move || over.send(apply(&made)).unwrap());
    let (summary, _) = ended.recv_timeout(Duration::from_secs(20)).expect("its end");
    assert_eq!((summary.ranges_moved, extents(&path)), (1, 1), "{summary:?}");
}
