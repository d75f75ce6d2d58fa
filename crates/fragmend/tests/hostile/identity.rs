//! Files are identified by their numbers, not by their names: of files that are renamed or replaced
//! after they were recorded, and of files whose name a trace does not have.

use super::support::apply;
use fragmend_layout::{FileId, SkipReason};
use fragmend_pipeline::{survey, unobserved};
use fragmend_plan::{Plan, Policy, Settings};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_trace::{Access, FileAccesses, Op};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SIZE: u64 = 32 << 10;
const FILES: usize = 30;
/// Of them, those in a directory below.
const BELOW: usize = 10;
const DELETED: usize = 3;

fn id(path: &Path) -> FileId {
    let meta = path.metadata().unwrap();
    let generation = fragmend_sys::inode::generation(fs::File::open(path).unwrap()).unwrap();
    FileId { device: meta.dev(), inode: meta.ino(), generation }
}

/// A trace of one read of all of each file, without paths.
fn pathless(files: &[FileId]) -> Vec<FileAccesses> {
    let access = Access {
        offset: 0,
        length: SIZE as u32,
        count: 1,
        thread: 1,
        op: Op::Read,
        direct: true,
        windowed: false,
    };
    let seen = |file: &FileId| FileAccesses { accesses: vec![access], ..FileAccesses::of(*file) };
    files.iter().map(seen).collect()
}

fn planned(trace: Vec<FileAccesses>, recorded: &[String], roots: &[PathBuf]) -> Plan {
    let survey = survey::traced(trace, recorded, roots, &unobserved).unwrap();
    let settings = Settings { policy: Policy::Fragpicker, ..Settings::default() };
    fragmend_plan::make(survey, &settings)
}

fn prepared(file_system: &'static FileSystem) -> (Image, Vec<PathBuf>, Vec<FileId>) {
    let image = Image::of(file_system, 320 << 20);
    fs::create_dir(image.path().join("below")).unwrap();
    let path = |i: usize| {
        if i < BELOW {
            image.path().join(format!("below/{i}"))
        } else {
            image.path().join(i.to_string())
        }
    };
    let paths: Vec<PathBuf> = (0..FILES).map(path).collect();
    paths.iter().for_each(|p| interleaved(p, SIZE, &[4096], true).unwrap());
    image.sync();
    let ids = paths.iter().map(|p| id(p)).collect();
    let gone = &paths[FILES - DELETED..];
    gone.iter().for_each(|p| fs::remove_file(p).unwrap());
    // So that the kernel has no name in memory.
    image.remount();
    (image, paths, ids)
}

fn without_paths_on(file_system: &'static FileSystem) {
    println!("on {}", file_system.name);
    let (image, paths, ids) = prepared(file_system);
    let there = FILES - DELETED;
    // Of a Btrfs that is mounted anew the number may be another one, if something else was mounted in between.
    let numbered = || -> Vec<FileId> {
        let device = image.path().metadata().unwrap().dev();
        ids.iter().map(|id| FileId { device, ..*id }).collect()
    };
    let named = |plan: &Plan, path: &Path| {
        plan.files.iter().any(|f| f.path.to_path().as_deref() == Some(path))
    };
    // A walk of the recorded paths finds their names.
    let recorded = [image.path().to_str().unwrap().to_owned()];
    let plan = planned(pathless(&numbered()), &recorded, &[]);
    assert_eq!(plan.files.len(), there, "{:?}", plan.left_alone);
    assert!(paths[..there].iter().all(|p| named(&plan, p)));
    assert_eq!(plan.left_alone.len(), DELETED);
    for left in &plan.left_alone {
        assert!(left.reason.starts_with("deleted since"), "{left:?}");
        assert_eq!(left.code, Some(SkipReason::Vanished), "{left:?}");
    }
    // So does a walk of the given paths, and the other files are listed with the reason.
    image.remount();
    let below = image.path().join("below");
    let plan = planned(pathless(&numbered()), &[], &[below]);
    assert_eq!(plan.files.len(), BELOW, "{:?}", plan.left_alone);
    assert_eq!(plan.left_alone.len(), FILES - BELOW);
    let elsewhere = plan.left_alone.iter().filter(|l| l.code == Some(SkipReason::Elsewhere));
    assert!(elsewhere.clone().all(|l| l.reason.contains("not to a place below")));
    assert_eq!(elsewhere.count(), there - BELOW);
    // Without any name they are planned and moved all the same.
    image.remount();
    let plan = planned(pathless(&numbered()), &[], &[]);
    assert_eq!(plan.files.len(), there, "{:?}", plan.left_alone);
    let (summary, _) = apply(&plan);
    assert_eq!(summary.ranges_moved, plan.summary.ranges, "{:?}", summary.skipped);
}

#[test]
fn loop_files_without_a_path_are_found_by_their_number() {
    [&EXT4, &XFS, &BTRFS].into_iter().for_each(without_paths_on);
}

/// Another file is at the path now, and the recorded file has another name.
#[test]
fn loop_what_was_renamed_is_planned_under_its_new_name() {
    let image = Image::ext4(64 << 20);
    let at = |name: &str| image.path().join(name);
    interleaved(&at("old"), SIZE, &[4096], false).unwrap();
    image.sync();
    let file = id(&at("old"));
    fs::rename(at("old"), at("new")).unwrap();
    interleaved(&at("old"), SIZE, &[4096], false).unwrap();
    let mut trace = pathless(&[file]);
    trace[0].path = Some(at("old"));
    let plan = planned(trace.clone(), &[], &[image.path().to_owned()]);
    assert_eq!(plan.files.len(), 1, "{:?}", plan.left_alone);
    assert_eq!((plan.files[0].file, plan.files[0].path.to_path()), (file, Some(at("new"))));
    fs::remove_file(at("new")).unwrap();
    let plan = planned(trace, &[], &[image.path().to_owned()]);
    assert_eq!(plan.left_alone.len(), 1);
    assert!(plan.left_alone[0].reason.contains("another file has its name"), "{plan:?}");
    assert_eq!(plan.left_alone[0].code, Some(SkipReason::IdentityChanged));
}
