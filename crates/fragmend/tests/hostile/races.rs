//! Files that are renamed while a tree is walked: each is listed once, under one name.

use super::support::{apply, plan, write_plan};
use fragmend_layout::FileId;
use fragmend_plan::{PlanSource, Policy};
use fragmend_scan::{Source, WalkOptions, files, in_batches};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SIZE: u64 = 32 << 10;
/// Plans that are made while a program writes new files and renames them over the old one.
const PLANS: usize = 8;

/// The inode numbers that a scan returns if `change` is made between the walk and the scan of its files.
fn seen(dir: &Path, change: impl FnOnce()) -> Vec<u64> {
    let tree = files(&[dir.to_owned()], &WalkOptions::default(), &|_| {}).unwrap();
    change();
    let mut seen: Vec<u64> = Vec::new();
    in_batches(
        &tree,
        Source::Fiemap,
        |batch: &mut Vec<u64>, _, _, layout| batch.extend(layout.map(|l| l.file.inode)),
        |batch| {
            seen.extend(batch);
            Ok(())
        },
    )
    .unwrap();
    seen.sort_unstable();
    seen
}

fn strays_on(file_system: &'static FileSystem) {
    println!("on {}", file_system.name);
    let image = Image::of(file_system, 320 << 20);
    let at = |name: &str| image.path().join("dir").join(name);
    fs::create_dir(image.path().join("dir")).unwrap();
    let inode = |name: &str| at(name).metadata().unwrap().ino();
    fs::write(at("content"), "old").unwrap();
    fs::write(at("content.new"), "new").unwrap();
    let dir = image.path().join("dir");
    // The new one was listed under both names, one of which is gone.
    let new = inode("content.new");
    assert_eq!(seen(&dir, || fs::rename(at("content.new"), at("content")).unwrap()), [new]);
    // The new one was not listed at all.
    fs::write(image.path().join("newer"), "newer").unwrap();
    let newer = image.path().join("newer").metadata().unwrap().ino();
    assert_eq!(
        seen(&dir, || fs::rename(image.path().join("newer"), at("content")).unwrap()),
        [newer]
    );
    // Two files have exchanged their names.
    fs::write(at("other"), "other").unwrap();
    let mut both = [inode("content"), inode("other")];
    both.sort_unstable();
    let swap = rustix::fs::RenameFlags::EXCHANGE;
    let cwd = rustix::fs::CWD;
    let swapped = seen(&dir, || {
        rustix::fs::renameat_with(cwd, at("content"), cwd, at("other"), swap).unwrap();
    });
    assert_eq!(swapped, both);
}

#[test]
fn loop_a_name_that_changed_hands_lists_a_file_once() {
    [&EXT4, &XFS, &BTRFS].into_iter().for_each(strays_on);
}

fn plans_on(file_system: &'static FileSystem) {
    let image = Image::of(file_system, 320 << 20);
    let dir = image.path().join("content");
    fs::create_dir(&dir).unwrap();
    for i in 0..200 {
        fs::write(dir.join(format!("beside {i}")), "x").unwrap();
    }
    let stop = AtomicBool::new(false);
    let mut twice = 0;
    std::thread::scope(|s| {
        let renames = s.spawn(|| {
            let (new, dummy) = (dir.join("file.new"), dir.join("file.new.dummy"));
            let mut renames = 0;
            while !stop.load(Relaxed) {
                interleaved(&new, SIZE, &[4096], false).unwrap();
                fs::rename(&new, dir.join("file")).unwrap();
                let _ = fs::remove_file(&dummy);
                renames += 1;
            }
            renames
        });
        for i in 0..PLANS {
            let plan = plan(&[&dir], Policy::WholeFile);
            let ids: HashSet<FileId> = plan.files.iter().map(|f| f.file).collect();
            twice += plan.files.len() - ids.len();
            let kept: PathBuf = image.scratch().join("plan.json");
            write_plan(&plan, &kept);
            let read = fragmend_pipeline::plan_file::open(&kept).expect("a plan that can be read");
            assert_eq!(read.totals().listed_twice, 0);
            if i % 4 == 0 {
                let (summary, _) = apply(&read);
                println!("{} moved, left: {:?}", summary.ranges_moved, summary.skipped_by_reason);
            }
        }
        stop.store(true, Relaxed);
        println!(
            "{PLANS} plans on {} beside {} renames",
            file_system.name,
            renames.join().unwrap()
        );
    });
    assert_eq!(twice, 0, "listed twice on {}", file_system.name);
}

#[test]
fn loop_a_plan_beside_renames_over_files_can_be_carried_out() {
    [&EXT4, &XFS, &BTRFS].into_iter().for_each(plans_on);
}
